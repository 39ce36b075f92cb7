"""Goal-conditioned action model of a co-player."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.networks.encoders import ILLEGAL, Features, legal_actions, scaled
from hopplus.networks.layers import Trunk, dense


class ActionModel(nn.Module):
    """Masked logits [..., goals, A] from a player's own features: one pass gives its policy under every goal.

    If `latent` > 0, masked logits [..., A] from features and a goal z [..., latent] instead.
    """

    num_actions: int
    goals: int = 1
    latent: int = 0
    hidden: tuple[int, ...] = (128, 128)

    @nn.compact
    def __call__(
        self, features: Features, goal: Float[Array, "... Z"] | None = None
    ) -> Float[Array, "... goals A"] | Float[Array, "... A"]:
        inputs, legal = scaled(features, self.num_actions), legal_actions(features, self.num_actions)
        if self.latent:
            assert goal is not None
            hidden = Trunk(self.hidden, name="trunk")(jnp.concatenate([inputs, goal], -1))
            return jnp.where(legal, dense(self.num_actions, 0.01, "policy")(hidden), ILLEGAL)
        hidden = Trunk(self.hidden, name="trunk")(inputs)
        logits = dense(self.goals * self.num_actions, 0.1, "policy")(hidden)
        logits = logits.reshape(*logits.shape[:-1], self.goals, self.num_actions)
        return jnp.where(legal[..., None, :], logits, ILLEGAL)

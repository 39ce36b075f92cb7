"""The network of a player that learns: one trunk over what it sees, a policy and a value on top."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.games import Observation
from hopplus.networks.encoding import ILLEGAL, Encoder, Features, encode, legal_actions, scaled
from hopplus.networks.layers import dense


class PolicyValue(nn.Module):
    """Masked logits [..., A] and value [...] from observations of one seat each, [...] being any batch axes.

    It has no idea which seat it sits in: observations are ego-first.
    """

    num_actions: int
    last_step: int
    """T of the game: time is seen as a share of it."""
    value_scale: float
    """What the value head's 1 stands for, so that its outputs are of the order of 1 in every game."""
    hidden: tuple[int, ...] = (64, 64)
    encoder: Encoder = "centred"

    def setup(self) -> None:
        self.layers = [dense(width, 2.0, f"hidden_{number}") for number, width in enumerate(self.hidden)]
        self.policy = dense(self.num_actions, 1e-4, "policy")
        self.value = dense(1, 1.0, "value")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self.from_features(self.encode(observation))

    def encode(self, observation: Observation) -> Features:
        """What the first layer takes."""
        return encode(observation, self.last_step, self.encoder)

    def from_features(self, features: Any) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value of what `encode` made."""
        return self._judge(features, scaled(features, self.num_actions))

    def _judge(
        self, features: Features, inputs: Float[Array, "... I"]
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        legal, hidden = legal_actions(features, self.num_actions), inputs
        for layer in self.layers:
            hidden = nn.relu(layer(hidden))
        return jnp.where(legal, self.policy(hidden), ILLEGAL), self.value(hidden)[..., 0] * self.value_scale


class SocialPolicyValue(PolicyValue):
    """The same, which also sees what its player makes of the others: `from_features` takes (features, social)."""

    social: int = 0
    """How many figures tell of the others."""

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Of somebody who knows nothing of the others."""
        features = self.encode(observation)
        return self.from_features((features, jnp.zeros((*features.shape[:-1], self.social))))

    def from_features(
        self, features: tuple[Features, Float[Array, "... S"]]
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        seen, social = features
        return self._judge(seen, jnp.concatenate([scaled(seen, self.num_actions), social], -1))

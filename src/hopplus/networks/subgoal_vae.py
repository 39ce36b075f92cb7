"""Latent subgoals: an encoded target state, inferred from a player's history."""

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.core.struct import struct
from hopplus.networks.encoders import Features, scaled
from hopplus.networks.layers import Trunk, dense
from hopplus.networks.opponent_model import ActionModel


@struct
class Gaussian:
    """A normal distribution with independent dimensions."""

    mean: Float[Array, "... Z"]
    log_variance: Float[Array, "... Z"]

    def sample(self, noise: Float[Array, "... Z"]) -> Float[Array, "... Z"]:
        """Reparameterised sample from standard normal noise."""
        return self.mean + jnp.exp(0.5 * self.log_variance) * noise


class GaussianSubgoals(nn.Module):
    """Subgoal model of a player.

    Its parts are a variational autoencoder of observations, an inference network from the history to a subgoal, a value
    by which future states are selected as subgoals, and a policy given a subgoal.
    """

    num_actions: int
    board: tuple[int, int, int]
    """Height, width and channels of the observed grid."""
    value_scale: float
    latent: int = 16
    hidden: tuple[int, ...] = (128, 128)
    memory: int = 64
    """Dimensions of the evidence accumulated over the history."""

    def setup(self) -> None:
        self.encoder, self.decoder = Trunk(self.hidden[:1]), Trunk(self.hidden[:1])
        self.encoded, self.decoded = dense(2 * self.latent, 0.1), dense(math.prod(self.board), 1.0)
        self.witness, self.evidence = Trunk(self.hidden[:1]), dense(self.memory, 0.1)
        self.detective, self.inferred = Trunk(self.hidden[:1]), dense(2 * self.latent, 0.1)
        self.judge, self.judged = Trunk(self.hidden[:1]), dense(1, 1.0)
        self.policy = ActionModel(self.num_actions, latent=self.latent, hidden=self.hidden)

    def encode(self, features: Features) -> Gaussian:
        """Latent of a state: [..., F] -> [..., Z]."""
        return _gaussian(self.encoded(self.encoder(scaled(features, self.num_actions))))

    def decode(self, goal: Float[Array, "... Z"]) -> Float[Array, "... H W C"]:
        """Board of the state that a subgoal encodes; entries from 0 to 1."""
        return nn.sigmoid(self.decoded(self.decoder(goal))).reshape(*goal.shape[:-1], *self.board)

    def action_evidence(self, features: Features, action: Int[Array, "..."]) -> Float[Array, "... M"]:
        """Evidence of one action about the subgoal; the evidence of a history is the sum."""
        one_hot = jnp.asarray(action[..., None] == jnp.arange(self.num_actions), jnp.float32)
        return self.evidence(self.witness(jnp.concatenate([scaled(features, self.num_actions), one_hot], -1)))

    def infer(self, features: Features, evidence: Float[Array, "... M"]) -> Gaussian:
        """Posterior over the subgoal from the current features and the summed evidence: [..., F] -> [..., Z]."""
        inputs = jnp.concatenate([scaled(features, self.num_actions), nn.tanh(evidence)], -1)
        return _gaussian(self.inferred(self.detective(inputs)))

    def value(self, features: Features) -> Float[Array, "..."]:
        """Expected return of a player in this state."""
        return self.judged(self.judge(scaled(features, self.num_actions)))[..., 0] * self.value_scale

    def act(self, features: Features, goal: Float[Array, "... Z"]) -> Float[Array, "... A"]:
        """Masked logits of the policy given a subgoal."""
        return self.policy(features, goal)

    def init_all(self, features: Features, action: Int[Array, "..."]) -> None:
        """Calls every part, so that `init` creates all parameters."""
        goal = self.encode(features).mean
        self.decode(goal)
        self.infer(features, self.action_evidence(features, action))
        self.value(features)
        self.act(features, goal)


def _gaussian(outputs: Float[Array, "... 2Z"]) -> Gaussian:
    mean, log_variance = jnp.split(outputs, 2, axis=-1)
    return Gaussian(mean, jnp.clip(log_variance, -10.0, 5.0))

"""Subgoals as points in a space: a state that the player is after, encoded, and inferred from what it has done."""

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.networks.action_model import ActionModel
from hopplus.networks.encoding import Features, scaled
from hopplus.networks.layers import Trunk, dense
from hopplus.struct import struct


@struct
class Gaussian:
    """A normal distribution with independent dimensions."""

    mean: Float[Array, "... Z"]
    log_variance: Float[Array, "... Z"]

    def at(self, noise: Float[Array, "... Z"]) -> Float[Array, "... Z"]:
        """The point that standard normal noise stands for."""
        return self.mean + jnp.exp(0.5 * self.log_variance) * noise


class GaussianSubgoals(nn.Module):
    """A variational autoencoder of what a player sees, an inference of its subgoal from its history, a value by which
    future states are chosen as subgoals, and its policy given a subgoal."""

    num_actions: int
    board: tuple[int, int, int]
    """Height, width and channels."""
    value_scale: float
    latent: int = 16
    hidden: tuple[int, ...] = (128, 128)
    memory: int = 64
    """Dimensions of the evidence that is gathered from the history."""

    def setup(self) -> None:
        self.encoder, self.decoder = Trunk(self.hidden[:1]), Trunk(self.hidden[:1])
        self.encoded, self.decoded = dense(2 * self.latent, 0.1), dense(math.prod(self.board), 1.0)
        self.witness, self.evidence = Trunk(self.hidden[:1]), dense(self.memory, 0.1)
        self.detective, self.inferred = Trunk(self.hidden[:1]), dense(2 * self.latent, 0.1)
        self.judge, self.judged = Trunk(self.hidden[:1]), dense(1, 1.0)
        self.policy = ActionModel(self.num_actions, latent=self.latent, hidden=self.hidden)

    def encode(self, features: Features) -> Gaussian:
        """Where a state lies among the subgoals: [..., F] -> [..., Z]."""
        return _gaussian(self.encoded(self.encoder(scaled(features, self.num_actions))))

    def decode(self, goal: Float[Array, "... Z"]) -> Float[Array, "... H W C"]:
        """The board of the state that a subgoal stands for, each entry from 0 to 1."""
        return nn.sigmoid(self.decoded(self.decoder(goal))).reshape(*goal.shape[:-1], *self.board)

    def testify(self, features: Features, action: Int[Array, "..."]) -> Float[Array, "... M"]:
        """What an action says of the subgoal; what several say is added up."""
        done = jnp.asarray(action[..., None] == jnp.arange(self.num_actions), jnp.float32)
        return self.evidence(self.witness(jnp.concatenate([scaled(features, self.num_actions), done], -1)))

    def infer(self, features: Features, evidence: Float[Array, "... M"]) -> Gaussian:
        """The subgoal from what is seen now and the evidence of all that was done before: [..., F] -> [..., Z]."""
        inputs = jnp.concatenate([scaled(features, self.num_actions), nn.tanh(evidence)], -1)
        return _gaussian(self.inferred(self.detective(inputs)))

    def value(self, features: Features) -> Float[Array, "..."]:
        """What a player in this state can expect to earn."""
        return self.judged(self.judge(scaled(features, self.num_actions)))[..., 0] * self.value_scale

    def act(self, features: Features, goal: Float[Array, "... Z"]) -> Float[Array, "... A"]:
        """Masked logits of the policy given a subgoal."""
        return self.policy(features, goal)

    def everything(self, features: Features, action: Int[Array, "..."]) -> None:
        """Touch every part, so that `init` makes all parameters."""
        goal = self.encode(features).mean
        self.decode(goal)
        self.infer(features, self.testify(features, action))
        self.value(features)
        self.act(features, goal)


def _gaussian(outputs: Float[Array, "... 2Z"]) -> Gaussian:
    mean, log_variance = jnp.split(outputs, 2, axis=-1)
    return Gaussian(mean, jnp.clip(log_variance, -10.0, 5.0))

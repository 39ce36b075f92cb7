"""Actor-critic networks: one trunk with a policy head and a value head."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.games import Observation
from hopplus.networks.encoders import ILLEGAL, Encoder, Features, encode, legal_actions, scaled
from hopplus.networks.layers import dense


class ActorCritic(nn.Module):
    """Masked logits [..., A] and value [...] from observations [...] of one seat each, with any batch axes.

    The network does not know its seat: observations are ego-first.
    """

    num_actions: int
    last_step: int
    """T of the game, by which time is normalised."""
    value_scale: float
    """Return that corresponds to a value-head output of 1, so that outputs are of order 1 in every game."""
    hidden: tuple[int, ...] = (64, 64)
    encoder: Encoder = "centred"

    def setup(self) -> None:
        self.layers = [dense(width, 2.0, f"hidden_{number}") for number, width in enumerate(self.hidden)]
        self.policy = dense(self.num_actions, 1e-4, "policy")
        self.value = dense(1, 1.0, "value")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self.from_features(self.encode(observation))

    def encode(self, observation: Observation) -> Features:
        """Features of an observation: the input of the first layer, before scaling."""
        return encode(observation, self.last_step, self.encoder)

    def from_features(self, features: Any) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value from the features returned by `encode`."""
        return self._heads(features, scaled(features, self.num_actions))

    def _heads(
        self, features: Features, inputs: Float[Array, "... I"]
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        legal, hidden = legal_actions(features, self.num_actions), inputs
        for layer in self.layers:
            hidden = nn.relu(layer(hidden))
        return jnp.where(legal, self.policy(hidden), ILLEGAL), self.value(hidden)[..., 0] * self.value_scale


class BeliefActorCritic(ActorCritic):
    """Actor-critic with additional inputs about the co-players: `from_features` takes (features, social)."""

    social: int = 0
    """Number of inputs about the co-players."""

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value with all inputs about the co-players set to 0."""
        features = self.encode(observation)
        return self.from_features((features, jnp.zeros((*features.shape[:-1], self.social))))

    def from_features(
        self, features: tuple[Features, Float[Array, "... S"]]
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        observed, social = features
        return self._heads(observed, jnp.concatenate([scaled(observed, self.num_actions), social], -1))

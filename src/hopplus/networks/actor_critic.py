"""Actor-critic networks: one trunk with a policy head and a value head."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.networks.encoders import ILLEGAL, Encoder, Features, encode, legal_actions, scaled
from hopplus.networks.layers import dense

FIRST_PLAN = 1.0
"""Logit of the first base plan, the neutral one, before training."""


@struct
class CentralizedFeatures:
    """Inputs of a network with a centralised critic, in training."""

    own: Any
    """Inputs of the network at deployment."""
    critic: Float[Array, "... C"]
    """Inputs of the value head alone."""


class ActorCritic(nn.Module):
    """Masked logits [..., A] and value [...] from observations [...] of one seat each, with any batch axes.

    The network does not know its seat: observations are ego-first. With a centralised critic (`critic_inputs` above 0),
    the value head is one hidden layer, as wide as the last one of the trunk, on the outputs of the trunk and the
    critic's inputs; without it, the value head is linear. The policy never depends on the critic's inputs.
    """

    num_actions: int
    last_step: int
    """T of the game, by which time is normalised."""
    value_scale: float
    """Return that corresponds to a value-head output of 1, so that outputs are of order 1 in every game."""
    hidden: tuple[int, ...] = (64, 64)
    encoder: Encoder = "centred"
    critic_inputs: int = 0
    """Number of inputs of the value head alone; they are 0 where they are not given."""

    def setup(self) -> None:
        self.layers = [dense(width, 2.0, f"hidden_{number}") for number, width in enumerate(self.hidden)]
        self.policy = dense(self.num_actions, 1e-4, "policy")
        self.value = dense(1, 1.0, "value")
        if self.critic_inputs:
            self.critic = dense(self.hidden[-1], 2.0, "critic")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self.from_features(self.encode(observation))

    def encode(self, observation: Observation) -> Features:
        """Features of an observation: the input of the first layer, before scaling."""
        return encode(observation, self.last_step, self.encoder)

    def from_features(
        self, features: Any, critic: Float[Array, "... C"] | None = None
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value from the features returned by `encode`, and the inputs of the critic alone."""
        return self._heads(features, scaled(features, self.num_actions), critic)

    def _heads(
        self, features: Features, inputs: Float[Array, "... I"], critic: Float[Array, "... C"] | None
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self._outputs(features, self._trunk(inputs), critic)

    def _trunk(self, hidden: Float[Array, "... I"]) -> Float[Array, "... H"]:
        for layer in self.layers:
            hidden = nn.relu(layer(hidden))
        return hidden

    def _outputs(
        self, features: Features, hidden: Float[Array, "... H"], critic: Float[Array, "... C"] | None
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        legal = legal_actions(features, self.num_actions)
        logits = jnp.where(legal, self.policy(hidden), ILLEGAL)
        if self.critic_inputs:
            critic = jnp.zeros((*hidden.shape[:-1], self.critic_inputs)) if critic is None else critic
            hidden = nn.relu(self.critic(jnp.concatenate([hidden, critic], -1)))
        return logits, self.value(hidden)[..., 0] * self.value_scale


class BeliefActorCritic(ActorCritic):
    """Actor-critic with inputs beside the observation: `from_features` takes (features, social).

    The plan head has one logit per base plan: the plan that a planner would follow.
    """

    social: int = 0
    """Number of inputs about the co-players and about the ego's own preference."""
    plans: int = 0
    """Number of base plans of the plan head; 0: there is no such head."""

    def setup(self) -> None:
        super().setup()
        if self.plans:
            self.plan = dense(self.plans, 1e-4, "plan")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value with all inputs beside the observation set to 0."""
        features = self.encode(observation)
        inputs = features, jnp.zeros((*features.shape[:-1], self.social))
        return self.with_plans(inputs)[:2] if self.plans else self.from_features(inputs)

    def from_features(
        self, features: tuple[Features, Float[Array, "... S"]], critic: Float[Array, "... C"] | None = None
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self._heads(features[0], self._inputs(features), critic)

    def with_plans(
        self, features: tuple[Features, Float[Array, "... S"]]
    ) -> tuple[Float[Array, "... A"], Float[Array, "..."], Float[Array, "... W"]]:
        """Masked logits, value, and logits of the base plans; before training, the first plan is the likeliest."""
        hidden = self._trunk(self._inputs(features))
        plan_logits = self.plan(hidden) + FIRST_PLAN * (jnp.arange(self.plans) == 0)
        return *self._outputs(features[0], hidden, None), plan_logits

    def _inputs(self, features: tuple[Features, Float[Array, "... S"]]) -> Float[Array, "... I"]:
        observed, social = features
        return jnp.concatenate([scaled(observed, self.num_actions), social], -1)

"""Player that acts by a policy network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Game, Observation
from hopplus.games.preferences import Preference, neutral, with_tremble
from hopplus.players.player import Info, Memory, Params, Player, as_action, own_mask
from hopplus.players.preferences import (
    init_preference,
    meet_preference,
    preference_features,
    with_regret_sampling,
)

ACTION, TREMBLE = range(2)
"""Purposes of an action's key, for a player that may tremble."""


@struct
class PolicyInfo:
    """Auxiliary outputs of a policy's decision."""

    log_probability: Float[Array, ""]
    """Log-probability of the intended action."""
    value: Float[Array, ""]
    """Predicted return, in the reward that the policy was trained on."""
    features: Any
    """Inputs of the first layer; None unless the player keeps features."""
    intended_action: Int[Array, ""] | None = None
    """Action before tremble; None if the player never trembles."""
    preference: Preference | None = None
    """The own preference; None unless the policy observes it and the player keeps features."""


@dataclass(frozen=True)
class PolicyPlayer(Player):
    """Samples from the policy of a network `(observation) -> (masked logits [A], value [])`, or acts greedily.

    With reward randomisation (`preference_game`), the policy also observes its own preference: a sampled one of a
    learner (`samples_preference`), which is then its memory, or the neutral one.
    """

    network: nn.Module
    source: str
    """Source of the params; players with different sources are never equal."""
    greedy: bool = False
    """Take the most likely action instead of sampling."""
    shares_params: bool = False
    keeps_features: bool = False
    """Return the inputs of the first layer as info, so that a learner need not compute them again."""
    name: str = "network"
    preference_game: Game[Any] | None = None
    """Game whose preferences the policy observes; None: the policy observes no preference."""
    samples_preference: bool = False
    """Sample a preference per trial, and tremble; otherwise the preference is neutral."""

    def bind(self, sources: Mapping[str, Params]) -> Params:
        params = sources[self.source]
        return with_regret_sampling(params, sources) if self.samples_preference else params

    def init(self, key: Key, params: Params) -> Memory:
        return init_preference(self._preference_game, key, params) if self.samples_preference else ()

    def meet(self, key: Key, memory: Memory) -> Memory:
        return meet_preference(self._preference_game, key, memory) if self.samples_preference else memory

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        features = self.inputs(params, memory, observation)
        logits, value = evaluate_features(self.network, params, features)
        preference = self.preference(memory)
        action, intended = self.choose(key, logits, preference, observation)
        return action, memory, self.info(logits, value, features, action, intended, preference)

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        """Returns the predicted return, in the reward that the policy was trained on."""
        return evaluate_features(self.network, params, self.inputs(params, memory, observation))[1]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits, _ = evaluate_features(self.network, params, self.inputs(params, memory, observation))
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    # -- parts, for learners and subclasses

    def inputs(self, params: Params, memory: Memory, observation: Observation) -> Any:
        """Returns the inputs of the network, as `info` keeps them."""
        features, preference = encode(self.network, observation), self.preference(memory)
        return features if preference is None else (features, preference_features(preference))

    def centralized_value(self, params: Params, inputs: Any, critic: Float[Array, " C"]) -> Float[Array, ""]:
        """Returns the value of a centralised critic, from the network's inputs and those of the critic alone."""
        return evaluate_features(self.network, params, inputs, critic)[1]

    def preference(self, memory: Memory) -> Preference | None:
        """Returns the own preference; None if the policy observes no preference."""
        if self.preference_game is None:
            return None
        return self.sampled_preference(memory) if self.samples_preference else neutral(self.preference_game)

    def sampled_preference(self, memory: Memory) -> Preference:
        """Returns the preference in the memory of a learner."""
        return memory.preference

    def choose(
        self, key: Key, logits: Float[Array, " A"], preference: Preference | None, observation: Observation
    ) -> tuple[Int[Array, ""], Int[Array, ""] | None]:
        """Samples an action; returns the executed action and the intended one, None if the player never trembles."""
        action_key = jax.random.fold_in(key, ACTION) if self.samples_preference else key
        action = as_action(jnp.argmax(logits) if self.greedy else jax.random.categorical(fast(action_key), logits))
        if not self.samples_preference or preference is None:
            return action, None
        tremble_key = fast(jax.random.fold_in(key, TREMBLE))
        return with_tremble(tremble_key, preference, action, own_mask(observation)), action

    def info(
        self,
        logits: Float[Array, " A"],
        value: Float[Array, ""],
        inputs: Any,
        action: Int[Array, ""],
        intended: Int[Array, ""] | None,
        preference: Preference | None,
    ) -> PolicyInfo:
        """Returns the auxiliary outputs of a decision."""
        chosen = action if intended is None else intended
        kept = (inputs, preference) if self.keeps_features else (None, None)
        return PolicyInfo(jax.nn.log_softmax(logits)[chosen], value, kept[0], intended, kept[1])

    @property
    def _preference_game(self) -> Game[Any]:
        assert self.preference_game is not None
        return self.preference_game


def encode(network: nn.Module, observation: Observation) -> Any:
    """Encodes observations as inputs of the network's first layer."""
    return network.apply({}, observation, method="encode")


def evaluate_features(network: nn.Module, params: Params, features: Any, *critic: Array) -> Any:
    """Applies the network to inputs from `encode`, and to those of a centralised critic; returns logits and values."""
    return network.apply({"params": params}, features, *critic, method="from_features")

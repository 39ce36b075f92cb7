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
from hopplus.games import Observation
from hopplus.players.player import Info, Memory, Params, Player, as_action


@struct
class PolicyInfo:
    """Auxiliary outputs of a policy's decision."""

    log_probability: Float[Array, ""]
    """Log-probability of the action."""
    value: Float[Array, ""]
    """Predicted return, in the game's reward."""
    features: Any
    """Inputs of the first layer; None unless the player keeps features."""


@dataclass(frozen=True)
class PolicyPlayer(Player):
    """Samples from the policy of a network `(observation) -> (masked logits [A], value [])`, or acts greedily."""

    network: nn.Module
    source: str
    """Source of the params; players with different sources are never equal."""
    greedy: bool = False
    """Take the most likely action instead of sampling."""
    shares_params: bool = False
    keeps_features: bool = False
    """Return the inputs of the first layer as info, so that a learner need not compute them again."""
    name: str = "network"

    def bind(self, sources: Mapping[str, Params]) -> Params:
        return sources[self.source]

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        features = encode(self.network, observation)
        logits, value = evaluate_features(self.network, params, features)
        action = jnp.argmax(logits) if self.greedy else jax.random.categorical(fast(key), logits)
        info = PolicyInfo(jax.nn.log_softmax(logits)[action], value, features if self.keeps_features else None)
        return as_action(action), memory, info

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        """Returns the predicted return, in the game's reward."""
        return evaluate(self.network, params, observation)[1]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits, _ = evaluate(self.network, params, observation)
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)


def evaluate(network: nn.Module, params: Params, observation: Observation) -> Any:
    """Applies the network to observations with any batch axes; returns masked logits and values."""
    return network.apply({"params": params}, observation)


def encode(network: nn.Module, observation: Observation) -> Any:
    """Encodes observations as inputs of the network's first layer."""
    return network.apply({}, observation, method="encode")


def evaluate_features(network: nn.Module, params: Params, features: Any) -> Any:
    """Applies the network to inputs from `encode`; returns masked logits and values."""
    return network.apply({"params": params}, features, method="from_features")

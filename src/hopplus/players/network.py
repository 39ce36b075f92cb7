"""A player whose choices a network makes."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.games import Observation
from hopplus.keys import Key, fast
from hopplus.players.player import Info, Memory, Params, Player, as_action
from hopplus.struct import struct


@struct
class Choice:
    """What a network said when it acted."""

    log_probability: Float[Array, ""]
    value: Float[Array, ""]
    """What it expected then, in the game's reward."""
    features: Any
    """What its first layer took; () where nobody will learn from it."""


@dataclass(frozen=True)
class NetworkPlayer(Player):
    """Draws from the policy of a network `(observation) -> (masked logits [A], value [])`, or takes the best."""

    network: nn.Module
    source: str
    """Where its parameters come from: players of different sources are never taken for each other."""
    greedy: bool = False
    shares_params: bool = False
    keeps_features: bool = False
    """Whether it says what its first layer took, for a learner who would make it again."""
    name: str = "network"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        features = encode(self.network, observation)
        logits, value = evaluate_features(self.network, params, features)
        action = jnp.argmax(logits) if self.greedy else jax.random.categorical(fast(key), logits)
        return (
            as_action(action),
            memory,
            Choice(jax.nn.log_softmax(logits)[action], value, features if self.keeps_features else ()),
        )

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        """What it expects, in the game's reward."""
        return evaluate(self.network, params, observation)[1]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits, _ = evaluate(self.network, params, observation)
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)


def evaluate(network: nn.Module, params: Params, observation: Observation) -> Any:
    """What the network says of observations with any batch axes: masked logits and values."""
    return network.apply({"params": params}, observation)


def encode(network: nn.Module, observation: Observation) -> Any:
    """What the network's first layer takes of observations."""
    return network.apply({}, observation, method="encode")


def evaluate_features(network: nn.Module, params: Params, features: Any) -> Any:
    """What the network says of what `encode` made."""
    return network.apply({"params": params}, features, method="from_features")

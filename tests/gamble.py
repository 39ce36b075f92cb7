"""The gamble game: a sure payment against a gamble that is worth less."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Observation
from planners import KnownOpponents
from toy_games import ToyGame


@struct
class GambleState:
    """State of the gamble game."""

    done: Bool[Array, ""]
    own_coin: Bool[Array, ""]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Gamble(ToyGame[GambleState]):
    """Two players; only the first step pays. SURE pays 0.7. GAMBLE pays 1 or 0, decided by the co-player's action or by
    the game's own coin. `own_coin` is part of the state and observed, so that both variants are one program."""

    name: str = "test-gamble"
    action_names: ClassVar[tuple[str, ...]] = ("GAMBLE", "SURE")
    last_step: ClassVar[int] = 6  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 1.0, "player": 1.0}

    def draw(self, key: Key) -> tuple[GambleState, Bool[Array, ""]]:
        return gamble(own_coin=False), jnp.bool_(True)

    def transition(self, key: Key, state: GambleState, actions: Int[Array, " n"]) -> Any:
        heads = jnp.where(state.own_coin, jax.random.bernoulli(key, 0.5), actions[1] == 1)
        # Only the first step pays; later gambles have no effect.
        first = state.time == 0
        sure = actions[0] == 1
        paid = jnp.where(first, jnp.where(sure, 0.7, jnp.where(heads, 1.0, 0.0)), 0.0)
        reward = jnp.stack([paid, 0.0])[:, None]
        after = GambleState(jnp.bool_(True) & first, state.own_coin, state.time + 1, actions)
        return after, reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1)

    def observe(self, state: GambleState) -> Observation:
        return self.observed(state, jnp.broadcast_to(state.own_coin, (2, 2)).astype(jnp.int8))

    def restore(self, observation: Observation) -> GambleState:
        own_coin = observation.view[0] > 0
        return GambleState(observation.time > 0, own_coin, observation.time, observation.last_actions)

    def permute(self, state: GambleState, order: Any) -> GambleState:
        return state


def gamble(own_coin: bool) -> GambleState:
    """Returns the initial state of the gamble game."""
    return GambleState(jnp.bool_(False), jnp.bool_(own_coin), jnp.int32(0), jnp.zeros(2, jnp.int32))


@dataclass(frozen=True)
class Coin(KnownOpponents):
    """Opponent model of a co-player that tosses a coin."""

    def policies(self, params: Any, features: Any, particles: Any = None) -> Float[Array, "1 1 2"]:
        return jnp.full((1, 1, 2), 0.5)


GAMBLE = Gamble()

"""Cast whose players' seats are part of the memory, so that re-seating needs no new compilation."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Int

from hopplus.core.keys import Key
from hopplus.games import Observation
from hopplus.players.cast import Cast, observation_of
from hopplus.players.player import Info, Memory, Params

Memories = tuple[Int[Array, " n"], tuple[Memory, ...]]
"""The seat of each player, and the players' memories by group."""


@dataclass(frozen=True)
class ReseatableCast(Cast):
    """A cast in the order of players, not of seats. Each player's seat is stored in the memories and does not change.

    `init` assigns seats in order; the caller may write other seats into the memories before play. Info is by player.
    """

    def init(self, keys: Key, common: Key, params: tuple[Params, ...]) -> Memories:
        return jnp.arange(len(self.players)), super().init(keys, common, params)

    def begin(self, memories: Memories) -> Memories:
        return memories[0], super().begin(memories[1])

    def act(
        self, keys: Key, params: tuple[Params, ...], memories: Memories, observation: Observation
    ) -> tuple[Int[Array, " n"], Memories, tuple[Info, ...]]:
        seats, by_group = memories
        actions, by_group, info = super().act(keys, params, by_group, observation_of(observation, seats))
        return jnp.zeros_like(actions).at[seats].set(actions), (seats, by_group), info

    def watch(self, params: tuple[Params, ...], memories: Memories, observation: Observation) -> Memories:
        return memories[0], super().watch(params, memories[1], observation_of(observation, memories[0]))

    def end(self, memories: Memories) -> Memories:
        return memories[0], super().end(memories[1])

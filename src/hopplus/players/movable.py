"""A cast whose players sit elsewhere at every table, without being another program for it."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Int

from hopplus.games import Observation
from hopplus.keys import Key
from hopplus.players.cast import Cast, observation_of
from hopplus.players.player import Info, Memory, Params

Memories = tuple[Int[Array, " n"], tuple[Memory, ...]]
"""The seat of each player, and what they remember by group."""


@dataclass(frozen=True)
class Movable(Cast):
    """A cast in the order of its players, not of seats: where each of them sits is in the memories, and stays there.

    `init` seats them in order; whoever starts the play may write other seats into its memories. Info is by player.
    """

    def init(self, keys: Key, common: Key, params: tuple[Params, ...]) -> Memories:
        return jnp.arange(len(self.players)), super().init(keys, common, params)

    def begin(self, memories: Memories) -> Memories:
        return memories[0], super().begin(memories[1])

    def act(
        self, keys: Key, params: tuple[Params, ...], memories: Memories, observation: Observation
    ) -> tuple[Int[Array, " n"], Memories, tuple[Info, ...]]:
        seats, remembered = memories
        actions, remembered, info = super().act(keys, params, remembered, observation_of(observation, seats))
        return jnp.zeros_like(actions).at[seats].set(actions), (seats, remembered), info

    def watch(self, params: tuple[Params, ...], memories: Memories, observation: Observation) -> Memories:
        return memories[0], super().watch(params, memories[1], observation_of(observation, memories[0]))

    def end(self, memories: Memories) -> Memories:
        return memories[0], super().end(memories[1])

"""Episodes as arrays: what was played, by time, environment and seat, with the mask that a consumer has to face."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Game, Observation
from hopplus.players.player import Info
from hopplus.struct import struct


@struct
class Episode:
    """Play of E environments over T steps; rows [t, e, i] are what player i saw, did and got in step t.

    `alive` tells which rows are real: the player had not left and the game was not over when the step began. Nothing
    may be learnt or counted from other rows; their actions are the idle one and their rewards 0.
    """

    state: Any
    """The game's states [T, E, ...] before each step. A state and what is seen of it determine each other, so that
    observations are not stored but made where they are needed: `observations`."""
    actions: Int[Array, "T E n"]
    """What was executed: an illegal choice is stored as the idle action that it counted as."""
    alive: Bool[Array, "T E n"]
    reward: Float[Array, "T E n"]
    left: Bool[Array, "T E n"]
    """Who has left after the step."""
    over: Bool[Array, "T E"]
    """Whether the game is over after the step."""
    took: Int[Array, "T E n"]
    """What was taken in the step: an index into `Game.taken_names`, 0 for nothing."""
    cell: Int[Array, "T E n"]
    """Where it was taken, -1 for nowhere."""
    total_reward: Float[Array, "T E n"]
    """What the player has got in this episode up to and with this step: its return where `over`."""
    total_steps: Int[Array, "T E n"]
    """How many steps the player has been in this episode, this one included: its length where `over`."""
    info: tuple[Info, ...]
    """What the players said about their choices, by group of the cast: [T, E, seats of the group, ...]."""
    last_state: Any
    """The states [E, ...] that the last step led to, before any reset."""

    @property
    def returns(self) -> Float[Array, "E n"]:
        """The players' returns, of environments that played one whole episode (`play_episodes`)."""
        return self.total_reward[-1]

    @property
    def lengths(self) -> Int[Array, "E n"]:
        """How many steps each player was in the game, of environments that played one whole episode."""
        return self.total_steps[-1]


def observations(game: Game[Any], episode: Episode) -> Observation:
    """What all seats saw before each step: fields [T, E, n, ...]."""
    return jax.vmap(jax.vmap(game.observe))(episode.state)


@dataclass(frozen=True)
class Event:
    """Something taken: who took what, when, where, with whom, and what each got."""

    environment: int
    time: int
    """The step in which it was taken, from 1."""
    what: str
    cell: int
    players: tuple[int, ...]
    rewards: tuple[float, ...]


def events(game: Game[Any], episode: Episode) -> Iterator[Event]:
    """All that was taken, in order of time, then environment, then cell."""
    took, cell, reward = np.asarray(episode.took), np.asarray(episode.cell), np.asarray(episode.reward)
    clock = np.asarray(episode.total_steps).max(-1)
    for time, environment in np.argwhere((took > 0).any(-1)):
        row = (time, environment)
        for place in np.unique(cell[row][took[row] > 0]):
            players = np.flatnonzero((cell[row] == place) & (took[row] > 0))
            yield Event(
                environment=int(environment),
                time=int(clock[row]),
                what=game.taken_names[int(took[row][players[0]])],
                cell=int(place),
                players=tuple(players.tolist()),
                rewards=tuple(reward[row][players].tolist()),
            )

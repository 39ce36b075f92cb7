"""Trajectories: recorded play as arrays by time, environment and seat, with the mask of valid rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct
from hopplus.games import Game, Observation
from hopplus.players.player import Info


@struct
class Trajectory:
    """Play of E environments over T steps; row [t, e, i] is step t of player i in environment e.

    `alive` is the mask of valid rows: the player had not left and the game was not over when the step began. Other rows
    must not be learnt from or counted; their actions are idle and their rewards 0.
    """

    state: Any
    """States of the game [T, E, ...] before each step. A state and its observations determine each other, so
    observations are not stored but computed where they are needed: `observations`."""
    actions: Int[Array, "T E n"]
    """Executed actions; an illegal choice is stored as the idle action that replaced it."""
    alive: Bool[Array, "T E n"]
    reward: Float[Array, "T E n"]
    components: Float[Array, "T E n C"]
    """The reward by component (`Game.component_names`)."""
    left: Bool[Array, "T E n"]
    """The player has left by the end of the step."""
    over: Bool[Array, "T E"]
    """The game is over after the step."""
    took: Int[Array, "T E n"]
    """Item taken in the step: an index into `Game.taken_names`, 0 for nothing."""
    cell: Int[Array, "T E n"]
    """Cell of the item taken, -1 for none."""
    total_reward: Float[Array, "T E n"]
    """Cumulative reward in this episode, including this step: the return where `over`."""
    total_steps: Int[Array, "T E n"]
    """Steps of the player in this episode, including this step: its length where `over`."""
    info: tuple[Info, ...]
    """Auxiliary outputs of the players' decisions, by group of the cast: [T, E, seats of the group, ...]."""
    last_state: Any
    """States [E, ...] after the last step, before any reset."""
    is_late: Bool[Array, "T E"] | None = None
    """The episode began late (`hopplus.rollouts.late_starts`), so that its returns do not count; None without late
    starts."""

    @property
    def counts(self) -> Bool[Array, "T E"]:
        """Steps of episodes whose returns count: all without late starts."""
        return jnp.ones_like(self.over) if self.is_late is None else ~self.is_late

    @property
    def returns(self) -> Float[Array, "E n"]:
        """Returns of the players, if each environment played one whole episode (`play_episodes`)."""
        return self.total_reward[-1]

    @property
    def lengths(self) -> Int[Array, "E n"]:
        """Steps of each player in the game, if each environment played one whole episode."""
        return self.total_steps[-1]


def observations(game: Game[Any], trajectory: Trajectory) -> Observation:
    """Returns the observations of all seats before each step: fields [T, E, n, ...]."""
    return jax.vmap(jax.vmap(game.observe))(trajectory.state)


@dataclass(frozen=True)
class Event:
    """An item taken by one or several players in one step."""

    environment: int
    time: int
    """Step in which it was taken, from 1."""
    what: str
    """Name of the item."""
    cell: int
    players: tuple[int, ...]
    rewards: tuple[float, ...]
    """Reward of each of these players."""


def events(game: Game[Any], trajectory: Trajectory) -> Iterator[Event]:
    """Yields every item taken, in order of time, then environment, then cell."""
    took, cell, reward = np.asarray(trajectory.took), np.asarray(trajectory.cell), np.asarray(trajectory.reward)
    clock = np.asarray(trajectory.total_steps).max(-1)
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

"""Training rows of world models: windows of consecutive steps, and steps as observed from one seat."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.grid import GridGame, GridState
from hopplus.rollouts.population import Recorded


@struct
class Windows:
    """Windows of `steps` consecutive steps, with the states before and after each."""

    state: GridState
    """[..., steps + 1, ...]"""
    actions: Int[Array, "... steps n"]
    alive: Bool[Array, "... steps n"]
    reward: Float[Array, "... steps n"]
    left: Bool[Array, "... steps n"]
    over: Bool[Array, "... steps"]
    played: Bool[Array, "... steps"]
    """Mask of the steps that took place: those up to the end of the episode."""


@struct
class ObservedStep:
    """A step as observed from one seat, or several along a first axis: every player axis is ego-first."""

    before: Observation
    after: Observation
    actions: Int[Array, " n"]
    alive: Bool[Array, " n"]
    reward: Float[Array, " n"]
    left: Bool[Array, " n"]
    over: Bool[Array, ""]
    played: Bool[Array, ""]


def windows(recorded: Recorded, steps: int, apart: int = 1) -> Windows:
    """Returns windows [S, ...] of recorded episodes, in order of time and then episode.

    Args:
        recorded: Recorded episodes.
        steps: Length of a window.
        apart: Distance between the first steps of windows. Every episode has a window at its first step; the others
            are at different times in different episodes.
    """
    trajectory, played = recorded.trajectory, recorded.played
    time, environment = np.indices(played.shape)
    is_start = (time == 0) | ((time + environment) % apart == 0)
    time, environment = np.nonzero(played & is_start)
    after = time[:, None] + np.arange(steps + 1)
    last, environment = len(played) - 1, environment[:, None]
    state = jax.tree.map(
        lambda rows, end: np.concatenate([rows, end[None]])[np.minimum(after, last + 1), environment],
        trajectory.state,
        trajectory.last_state,
    )
    index = (np.minimum(after[:, :-1], last), environment)
    fields: dict[str, Any] = {
        name: np.asarray(getattr(trajectory, name))[index] for name in ("actions", "alive", "reward", "left", "over")
    }
    fields["played"] = played[index] & (after[:, :-1] <= last)
    return Windows(state=state, **fields)


def observed_from(game: GridGame, window: Windows, seat: Int[Array, ""]) -> ObservedStep:
    """Returns the steps [steps, ...] of one window as observed from a seat."""
    observation = jax.tree.map(lambda values: values[:, seat], jax.vmap(game.observe)(window.state))
    by_player = (window.actions, window.alive, window.reward, window.left)
    return ObservedStep(
        jax.tree.map(lambda leaf: leaf[:-1], observation),
        jax.tree.map(lambda leaf: leaf[1:], observation),
        *(jnp.roll(rows, -seat, axis=-1) for rows in by_player),
        over=jnp.asarray(window.over),
        played=jnp.asarray(window.played),
    )


def observed_at_random(key: Key, game: GridGame, rows: Windows) -> ObservedStep:
    """Returns the steps [B, steps, ...] of windows [B, ...], each observed from a random seat."""
    seats = jax.random.randint(key, rows.over.shape[:1], 0, game.players)
    return jax.vmap(partial(observed_from, game))(rows, seats)


def same_board(first: Observation, second: Observation) -> Bool[Array, ""]:
    """Returns whether two observations agree in the grid, the time and the deadline."""
    return (first.board == second.board).all() & (first.time == second.time) & (first.deadline == second.deadline)

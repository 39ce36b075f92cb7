"""Late starts: episodes of a training that begin at a random time on a fresh board.

A policy that is rarely in the game near the deadline hardly learns the values there. A share of the episodes therefore
begins at t0 ~ U{0, ..., T-1}. They are no episodes of the game: returns are logged without them, and players do not
remember them in later episodes of a trial.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.struct import struct, where_first
from hopplus.games import Game
from hopplus.players.player import Memory

IS_LATE, START_TIME = range(2)
"""Purposes of the key of a start."""


@struct
class LateStarts:
    """Late starts of E environments between two steps."""

    is_late: Bool[Array, " E"]
    """Whether the current episode began late."""
    memories: tuple[Memory, ...]
    """Memories before the current episode, by group of the cast; they replace those after a late one."""


def check_clock(game: Game[Any]) -> None:
    """Raises InputError if the state of a game has no field `time`, so that an episode cannot begin late."""
    if not hasattr(jax.eval_shape(game.init, jax.random.key(0)), "time"):
        raise InputError(f"late_start_share needs a game whose state has a field 'time', and {game.name} has none")


def draw_starts(keys: Key, game: Game[Any], share: float) -> tuple[Bool[Array, " E"], Int[Array, " E"]]:
    """Samples whether the next episode of each environment begins late, and when if it does, from keys [E]."""

    def draw(key: Key) -> tuple[Array, Array]:
        is_late = jax.random.bernoulli(jax.random.fold_in(key, IS_LATE), share)
        return is_late, jax.random.randint(jax.random.fold_in(key, START_TIME), (), 0, game.last_step)

    return jax.vmap(draw)(keys)


def begin_late(states: Any, begins_late: Bool[Array, " E"], times: Int[Array, " E"]) -> Any:
    """Returns initial states [E, ...], with another time where an episode begins late."""
    return replace(states, time=jnp.where(begins_late, times, states.time).astype(states.time.dtype))


def forget_late(
    late: LateStarts, ended: Bool[Array, " E"], memories: tuple[Memory, ...]
) -> tuple[Bool[Array, " E"], tuple[Memory, ...]]:
    """Restores the memories where a late episode has ended.

    Returns:
        The environments in which an episode of a trial has ended: the ended ones without the late ones; and the
        memories of all.
    """
    return ended & ~late.is_late, where_first(ended & late.is_late, late.memories, memories)

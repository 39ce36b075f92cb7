"""What models of a player learn from: its life, the steps in which it was in the game, as it saw them itself.

Lives are of very different lengths, so that they are grouped by length: little of a group's arrays is empty.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from hopplus.errors import InputError
from hopplus.games import Game, GridGame, Observation
from hopplus.keys import Key
from hopplus.networks.encoding import encode, laid_anew
from hopplus.play.dataset import Recorded
from hopplus.struct import struct

SHORTEST = 4
"""The length of the shortest group."""
TIMES = 3
"""How much longer each group is than the one before: few groups compile fast, and two thirds of their rows are real."""
CHUNK = 8192
"""Rows that are encoded at once."""
FEW = 8
"""A group of fewer lives than this joins the next."""


@struct
class Lives:
    """Lives [N] of up to L steps; rows that are not `alive` are empty and count for nothing."""

    features: UInt8[Array, "N L F"]
    """What the player saw, in its own frame: `networks.encoding`."""
    board: UInt8[Array, "N L H W C"]
    """The board as it saw it; without rows where nobody asked for it."""
    action: Int[Array, "N L"]
    alive: Bool[Array, "N L"]
    value: Float[Array, "N L"]
    """What it earned from this step on."""
    goal: Int[Array, "N L"]
    """What it took next, as `prey_goals` counts."""
    available: Bool[Array, "N L G"]
    """Which of these goals were there."""
    episode: Int[Array, " N"]
    seat: Int[Array, " N"]
    kind: Int[Array, " N"]


def lives_of(
    game: Game[Any], recorded: Recorded, boards: bool = False, prey: bool = False, grouped: bool = True
) -> tuple[Lives, ...]:
    """All lives of recorded episodes, by group of length or all in one; boards and prey only where they are used."""
    episode = recorded.episode
    alive = np.moveaxis(np.asarray(episode.alive), 0, -1)  # [E, n, T]
    environment, seat, time = np.nonzero(alive)
    lengths = alive.sum(-1)
    if not lengths.size or (alive != (np.arange(alive.shape[-1]) < lengths[..., None])).any():
        raise InputError("a life must be without gaps: a player who has left does not come back")
    states = jax.tree.map(lambda leaf: leaf[time, environment], episode.state)
    features, board = _seen(game, states, seat, boards)
    goal, available = prey_goals(game, recorded) if prey else (np.zeros_like(episode.actions), None)
    at = (time, environment, seat)
    rows = {
        "features": features,
        "board": board,
        "action": np.asarray(episode.actions)[at].astype(np.int32),
        "value": _to_come(np.asarray(episode.reward))[at],
        "goal": goal[at].astype(np.int32),
        "available": np.ones((len(time), 0), bool) if available is None else available[time, environment],
    }
    first = np.concatenate([[0], np.cumsum(lengths.reshape(-1))[:-1]]).reshape(lengths.shape)
    groups = []
    longest = alive.shape[-1]
    for length, chosen in _groups(lengths, longest) if grouped else [(longest, lengths > 0)]:
        who = np.argwhere(chosen)
        steps = np.arange(length)
        there = steps < lengths[chosen][:, None]
        index = first[chosen][:, None] + np.where(there, steps, 0)
        labels = {"episode": who[:, 0], "seat": who[:, 1], "kind": recorded.kinds[chosen]}
        spread = {name: values[index] for name, values in rows.items()}
        groups.append(Lives(**spread, alive=there, **{name: value.astype(np.int32) for name, value in labels.items()}))
    return tuple(groups)


def laid_anew_at_random(key: Key, lives: Lives, game: Game[Any]) -> Lives:
    """Every life on a board turned or mirrored at random; the rules are the same there, and so is the behaviour of
    whoever has no sense of direction. Lives [N] or [N, n]."""
    if not isinstance(game, GridGame):
        return lives
    which = jax.random.randint(key, lives.seat.shape, 0, len(game.symmetries))
    actions = np.stack([symmetry.actions(game.num_actions) for symmetry in game.symmetries])
    features = np.stack([laid_anew(symmetry, game) for symmetry in game.symmetries])
    cells = np.arange(game.num_cells).reshape(game.height, game.width)
    places = np.stack([symmetry.board(cells).reshape(-1) for symmetry in game.symmetries])
    board = lives.board
    if board.size:
        flat = board.reshape(*board.shape[:-3], game.num_cells, -1)
        board = jnp.take_along_axis(flat, jnp.asarray(places)[which][..., None, :, None], -2).reshape(board.shape)
    return replace(
        lives,
        features=jnp.take_along_axis(lives.features, jnp.asarray(features)[which][..., None, :], -1),
        action=jnp.take_along_axis(jnp.asarray(actions)[which], lives.action, -1),
        board=board,
    )


def number_of_rows(lives: tuple[Lives, ...]) -> int:
    """How many steps all lives have together."""
    return int(sum(np.asarray(group.alive).sum() for group in lives))


def _groups(lengths: Int[np.ndarray, "E n"], longest: int) -> list[tuple[int, Bool[np.ndarray, "E n"]]]:
    """Lengths, and which lives belong to each; a group of few joins the next, the last one of few the one before."""
    groups, least, waiting = [], 0, 1
    while least < longest:
        most = min(max(SHORTEST, TIMES * least), longest)
        chosen = (lengths >= waiting) & (lengths <= most)
        if chosen.sum() >= FEW:
            groups.append((most, chosen))
            waiting = most + 1
        least = most
    rest = lengths >= waiting
    if rest.any():
        before = groups.pop()[1] if groups else np.zeros_like(rest)
        groups.append((longest, rest | before))
    return groups


def _seen(
    game: Game[Any], states: Any, seat: Int[np.ndarray, " R"], boards: bool
) -> tuple[UInt8[np.ndarray, "R F"], UInt8[np.ndarray, "R H W C"]]:
    rows, features, found = len(seat), [], []
    for start in range(0, rows, CHUNK):
        index = np.minimum(np.arange(start, start + CHUNK), rows - 1)  # one compiled program, whatever the remainder
        part = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        encoded, board = _encoded(part, jnp.asarray(seat[index]), game, boards)
        features.append(np.asarray(encoded)[: rows - start])
        found.append(np.asarray(board)[: rows - start])
    return np.concatenate(features), np.concatenate(found)


@partial(jax.jit, static_argnames=("game", "boards"))
def _encoded(states: Any, seats: Int[Array, " R"], game: Game[Any], boards: bool) -> tuple[Array, Array]:
    def one(state: Any, seat: Array) -> Observation:
        return jax.tree.map(lambda values: values[seat], game.observe(state))

    seen = jax.vmap(one)(states, seats)
    board = seen.grid.astype(jnp.uint8)
    return encode(seen, game.last_step), board if boards else board[:, :0, :0]


def _to_come(reward: Float[np.ndarray, "T E n"]) -> Float[np.ndarray, "T E n"]:
    return np.cumsum(reward[::-1], 0)[::-1].astype(np.float32)


# ------------------------------------------------------------------------------------------------------------- prey


def prey_names(game: Game[Any]) -> tuple[str, ...]:
    """The goals of a player that is after something: `nothing`, then the kinds of things that can be taken; where there
    is one kind only (the snowdrift game), each cell on which it can lie. InputError where the game has nothing to take.
    """
    if not isinstance(game, GridGame) or len(game.taken_names) < 2:
        raise InputError(f"{game.name} has nothing to take, so that there are no goals of the kind 'prey'")
    if len(game.taken_names) > 2:
        return game.taken_names
    return ("nothing", *(f"{game.taken_names[1]} at {divmod(cell, game.width)}" for cell in range(game.num_cells)))


def prey_goals(game: Game[Any], recorded: Recorded) -> tuple[Int[np.ndarray, "T E n"], Bool[np.ndarray, "T E G"]]:
    """In hindsight, what each player took next at each step, as an index into `prey_names` (0 for nothing any more),
    and which goals were there."""
    goals, by_kind = len(prey_names(game)), len(game.taken_names) > 2
    took, cell = np.asarray(recorded.episode.took), np.asarray(recorded.episode.cell)
    taken = np.where(took > 0, took if by_kind else cell + 1, 0)
    following, latest = np.zeros_like(taken), np.zeros_like(taken[0])
    for time in reversed(range(len(taken))):
        latest = np.where(taken[time] > 0, taken[time], latest)
        following[time] = latest
    things = _things(recorded.episode.state, game)
    there = np.asarray(things).any(-1) if by_kind else np.asarray(things)[..., 0, :]
    available = np.concatenate([np.ones((*there.shape[:-1], 1), bool), there], -1)
    assert available.shape[-1] == goals
    return following, available


@partial(jax.jit, static_argnames=("game",))
def _things(states: Any, game: GridGame) -> Bool[Array, "T E kinds cells"]:
    """Where things of each kind lie."""

    def one(state: Any) -> Array:
        grid = game.observe(state).grid[0]
        return jnp.moveaxis(grid[..., game.players + 1 :], -1, 0).reshape(-1, game.num_cells) > 0

    return jax.vmap(jax.vmap(one))(states)

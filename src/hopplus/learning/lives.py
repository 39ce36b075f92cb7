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
from hopplus.games import Game, GridGame, Observation, one_seat
from hopplus.keys import Key
from hopplus.networks.encoding import encode, laid_anew
from hopplus.planning.goals import prey_is_a_kind, prey_names, prey_there
from hopplus.play import Episode
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
    starts: Bool[Array, "N L"]
    """Where, after the first, another life begins in the same row of steps; nowhere in recorded episodes."""
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
        labels = {name: value.astype(np.int32) for name, value in labels.items()}
        groups.append(Lives(**spread, alive=there, starts=np.zeros_like(there), **labels))
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


def prey_goals(game: Game[Any], recorded: Recorded) -> tuple[Int[np.ndarray, "T E n"], Bool[np.ndarray, "T E G"]]:
    """In hindsight, what each player took next at each step, as an index into `prey_names` (0 for nothing any more),
    and which goals were there."""
    by_kind, goals = prey_is_a_kind(game), len(prey_names(game))
    took, cell = np.asarray(recorded.episode.took), np.asarray(recorded.episode.cell)
    following = following_goal(np.where(took > 0, took if by_kind else cell + 1, 0))
    available = np.asarray(_available(recorded.episode.state, game))
    assert available.shape[-1] == goals
    return following, available


def following_goal(taken: Int[np.ndarray, "T E n"]) -> Int[np.ndarray, "T E n"]:
    """At each step what is taken then or next, 0 for nothing any more."""
    following, latest = np.zeros_like(taken), np.zeros_like(taken[0])
    for time in reversed(range(len(taken))):
        latest = np.where(taken[time] > 0, taken[time], latest)
        following[time] = latest
    return following


@partial(jax.jit, static_argnames=("game",))
def _available(states: Any, game: Game[Any]) -> Bool[Array, "T E K"]:
    """Which prey can be a goal."""
    return jax.vmap(jax.vmap(lambda state: prey_there(game, one_seat(game.observe(state), 0))))(states)


# ---------------------------------------------------------------------------------------------------- lives in play


def lives_in_play(game: Game[Any], episode: Episode, boards: bool = False, prey: bool = False) -> Lives:
    """The lives of a rollout [T, E], just played: [E n, T], several in a row of steps; compiled with the play itself.

    Lives that a rollout cuts are parts of lives. Where prey or boards are asked for, which need to know how a life
    ended, the steps of those that have not ended yet are left out.
    """
    steps, environments, players = episode.actions.shape
    seen = jax.vmap(jax.vmap(game.observe))(episode.state)
    features = encode(seen, game.last_step)
    board = seen.grid.astype(jnp.uint8) if boards else jnp.zeros((steps, environments, players, 0, 0, 0), jnp.uint8)
    over = episode.over[..., None]
    kind = episode.took if not prey or prey_is_a_kind(game) else episode.cell + 1
    taken = jnp.where(episode.took > 0, kind, 0)

    def back(carry: tuple[Array, Array, Array], row: tuple[Array, ...]) -> tuple[Any, Any]:
        goal, value, known = carry
        taken, reward, over, left = row
        goal = jnp.where(taken > 0, taken, jnp.where(over, 0, goal))
        value, known = reward + jnp.where(over, 0.0, value), known | over | left
        return (goal, value, known), (goal, value, known)

    shape = (environments, players)
    nothing = (jnp.zeros(shape, taken.dtype), jnp.zeros(shape), jnp.zeros(shape, bool))
    rows = (taken, episode.reward, jnp.broadcast_to(over, taken.shape), episode.left)
    _, (goal, value, known) = jax.lax.scan(back, nothing, rows, reverse=True)
    there = jax.vmap(jax.vmap(lambda one: prey_there(game, one_seat(one, 0))))(seen) if prey else None
    available = jnp.ones((*taken.shape, 0), bool) if there is None else jnp.repeat(there[:, :, None], players, 2)
    starts = jnp.concatenate([jnp.zeros_like(over[:1]), over[:-1]])

    def by_life(values: Array) -> Array:
        return jnp.moveaxis(values, 0, 2).reshape(environments * players, steps, *values.shape[3:])

    numbers = jnp.arange(environments * players)
    return Lives(
        features=by_life(features),
        board=by_life(board),
        action=by_life(episode.actions),
        alive=by_life(episode.alive & known if prey or boards else episode.alive),
        starts=by_life(jnp.broadcast_to(starts, taken.shape)),
        value=by_life(value),
        goal=by_life(goal),
        available=by_life(available),
        episode=numbers // players,
        seat=numbers % players,
        kind=jnp.zeros_like(numbers),
    )

"""What networks take of an observation: bytes, in the frame of the one who sees it."""

import math
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, UInt8

from hopplus.games import GridGame, Observation, Symmetry
from hopplus.settings import Encoder

ENCODERS: tuple[str, ...] = get_args(Encoder)
ILLEGAL = -1e9
"""The logit of an action that is not legal: its probability is exactly 0, and 0 times its logarithm is 0."""
CLOCK = 255
"""Time, and the time left, are bytes: this is the whole of T."""

Features = UInt8[Array, "... F"]
"""What is seen as bytes: the board, where everybody stands, if it is full what everybody did last (n A) and which
co-players are there (n-1), the clock (2), what the ego may do (A)."""


def encode(observation: Observation, last_step: int, encoder: Encoder = "centred") -> Features:
    """Observations of one seat each, [...] being any batch axes, as features. It depends on no parameter: whoever
    learns from a row often encodes it once."""
    board, players = observation.grid, observation.legal.shape[-2]
    batch = board.shape[:-3]
    left = observation.deadline - observation.time
    clock = jnp.stack([observation.time, left], -1) * CLOCK // last_step
    parts = [clock.clip(0, CLOCK), observation.legal[..., 0, :]]
    if encoder == "full":
        done = jax.nn.one_hot(observation.last_actions, observation.legal.shape[-1], dtype=jnp.uint8)
        can_do_something = observation.legal[..., 1:, :].sum(-1) > 1
        parts = [done.reshape(*batch, -1), can_do_something, *parts]
    if encoder != "dense":
        parts = [board[..., :players].any(axis).reshape(*batch, -1) for axis in (-2, -3)] + parts
        board = centred(board, players)
    return jnp.concatenate([part.astype(jnp.uint8) for part in (board.reshape(*batch, -1), *parts)], axis=-1)


def scaled(features: Features, num_actions: int) -> Float[Array, "... F"]:
    """Features as numbers of the order of 1."""
    scale = np.ones(features.shape[-1], np.float32)
    scale[-num_actions - 2 : -num_actions] = 1 / CLOCK
    return features.astype(jnp.float32) * scale


def legal_actions(features: Features, num_actions: int) -> Bool[Array, "... A"]:
    """What the ego may do."""
    return features[..., -num_actions:] > 0


def centred(grid: Int8[Array, "... H W C"], players: int) -> Int8[Array, "... 2H-1 2W-1 C-n+1"]:
    """The board as seen from the ego's cell, which is in the middle; what lies outside the board is all 0.

    The first `players` channels, of which the ego's is the first, become one: how many co-players stand on each cell.
    (Who stands where the network is told by rows and columns, which is a tenth of the features.) Where the ego has
    left, the board is seen from its first cell.
    """
    *batch, height, width, channels = grid.shape
    co_players = grid[..., 1:players].sum(-1, keepdims=True, dtype=grid.dtype)
    merged = jnp.concatenate([co_players, grid[..., players:]], axis=-1)

    def one(ego: Array, board: Array) -> Array:
        cell = jnp.argmax(ego.reshape(-1))
        padded = jnp.pad(board, ((height - 1, height - 1), (width - 1, width - 1), (0, 0)))
        start = (cell // width, cell % width, 0)
        return jax.lax.dynamic_slice(padded, start, (2 * height - 1, 2 * width - 1, board.shape[-1]))

    flat = (-1, height, width)
    seen = jax.vmap(one)(grid[..., 0].reshape(flat), merged.reshape(*flat, channels - players + 1))
    return seen.reshape(*batch, 2 * height - 1, 2 * width - 1, channels - players + 1)


def laid_anew(symmetry: Symmetry, game: GridGame) -> Int[np.ndarray, " F"]:
    """Where each centred feature of a board that was laid anew was before: features[..., laid_anew(...)]."""
    channels = len(game.channel_names) - game.players + 1
    view = (2 * game.height - 1, 2 * game.width - 1, channels)
    shapes = (view, (game.height, game.players), (game.width, game.players), (2,), (game.num_actions,))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    board, rows, columns, clock, legal = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
    if symmetry.transposed:
        rows, columns = columns, rows
    rows = rows[::-1] if symmetry.flipped_rows else rows
    columns = columns[::-1] if symmetry.flipped_columns else columns
    legal = legal[np.argsort(symmetry.actions(game.num_actions))]
    return np.concatenate([part.reshape(-1) for part in (symmetry.board(board), rows, columns, clock, legal)])

"""Encodings of observations as byte features, in the observer's frame."""

import math
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, UInt8

from hopplus.configs import Encoder
from hopplus.games import GridGame, GridObservation, Observation, Symmetry

ENCODERS: tuple[str, ...] = get_args(Encoder)
ILLEGAL = -1e9
"""Logit of an illegal action: its probability is exactly 0, and so is probability times log-probability."""
CLOCK = 255
"""Byte value that stands for T in the encoded time and time left."""

Features = UInt8[Array, "... F"]
"""Encoded observation. In order: the observation's view, rows and columns of the players (on a board, not for "dense"),
last actions (n A) and presence of co-players (n-1) (only for "full"), time and time left (2), the ego's legal actions
(A). On a board, the view is centred on the ego except for "dense"."""


def encode(observation: Observation, last_step: int, encoder: Encoder = "centred") -> Features:
    """Encodes observations [...] of one seat each as features [..., F], with any batch axes.

    The encoding has no parameters, so a transition that is used several times is encoded once.
    """
    view, batch = observation.view, observation.time.shape
    left = observation.deadline - observation.time
    clock = jnp.stack([observation.time, left], -1) * CLOCK // last_step
    parts = [clock.clip(0, CLOCK), observation.legal[..., 0, :]]
    if encoder == "full":
        last_actions = jax.nn.one_hot(observation.last_actions, observation.legal.shape[-1], dtype=jnp.uint8)
        is_present = observation.legal[..., 1:, :].sum(-1) > 1
        parts = [last_actions.reshape(*batch, -1), is_present, *parts]
    if isinstance(observation, GridObservation) and encoder != "dense":
        board, players = observation.grid, observation.legal.shape[-2]
        parts = [board[..., :players].any(axis).reshape(*batch, -1) for axis in (-2, -3)] + parts
        view = centred(board, players).reshape(*batch, -1)
    return jnp.concatenate([part.astype(jnp.uint8) for part in (view, *parts)], axis=-1)


def scaled(features: Features, num_actions: int) -> Float[Array, "... F"]:
    """Converts features to floats of order 1."""
    scale = np.ones(features.shape[-1], np.float32)
    scale[-num_actions - 2 : -num_actions] = 1 / CLOCK
    return features.astype(jnp.float32) * scale


def legal_actions(features: Features, num_actions: int) -> Bool[Array, "... A"]:
    """The ego's action mask."""
    return features[..., -num_actions:] > 0


def centred(grid: Int8[Array, "... H W C"], players: int) -> Int8[Array, "... 2H-1 2W-1 C-n+1"]:
    """Shifts the board so that the ego's cell is in the centre; cells outside the board are 0.

    The first `players` channels, the ego's first, are merged into one: the number of co-players on each cell. (The
    network receives the players' positions as rows and columns, which takes a tenth of the features.) If the ego has
    left, the board is centred on its first cell.
    """
    *batch, height, width, channels = grid.shape
    co_players = grid[..., 1:players].sum(-1, keepdims=True, dtype=grid.dtype)
    merged = jnp.concatenate([co_players, grid[..., players:]], axis=-1)

    def centre(ego: Array, board: Array) -> Array:
        cell = jnp.argmax(ego.reshape(-1))
        padded = jnp.pad(board, ((height - 1, height - 1), (width - 1, width - 1), (0, 0)))
        start = (cell // width, cell % width, 0)
        return jax.lax.dynamic_slice(padded, start, (2 * height - 1, 2 * width - 1, board.shape[-1]))

    flat = (-1, height, width)
    views = jax.vmap(centre)(grid[..., 0].reshape(flat), merged.reshape(*flat, channels - players + 1))
    return views.reshape(*batch, 2 * height - 1, 2 * width - 1, channels - players + 1)


def apply_symmetry(symmetry: Symmetry, game: GridGame) -> Int[np.ndarray, " F"]:
    """Indices into the last axis of centred features that apply a board symmetry."""
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

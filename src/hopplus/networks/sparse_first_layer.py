"""Sparse evaluation of a network's first layer on boards.

The features of a board are mostly 0, so their product with the first layer's weights is a sum of few rows of these.
Tree search evaluates so many boards that it gathers these rows instead of multiplying. The result differs from the
dense product by rounding only, which a test verifies.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.core.bits import unpack
from hopplus.core.struct import struct
from hopplus.games import Game, GridGame, GridObservation, Observation, ego_first
from hopplus.networks.encoders import Features

FIRST_LAYER = "hidden_0"
"""Name of the first layer in every network."""


@struct
class SparseBoard:
    """Compact board as observed by one player."""

    cells: Int[Array, " n"]
    """Cells of the players, ego-first; -1 for players who have left."""
    codes: Int[Array, " cells"]
    """Content of each cell: bit k stands for channel n + k of the observed grid."""


@struct
class SparseInputs:
    """Network inputs with the board in compact form."""

    features: Features
    """Features without the board."""
    board: SparseBoard


def sparse_board(game: Game[Any], state: Any) -> SparseBoard | None:
    """Compact boards [n, ...] of all seats; None for a game that is not a grid game."""
    if not isinstance(game, GridGame):
        return None
    contents = unpack(jnp.concatenate([state.blocks[None], state.items]), game.num_cells).astype(jnp.int32)
    codes = (contents << jnp.arange(len(contents))[:, None]).sum(0)
    return SparseBoard(ego_first(state.cells), jnp.broadcast_to(codes, (game.players, game.num_cells)))


def without_board(observation: Observation) -> Observation:
    """Replaces the board, if there is one, by one empty cell; the features after those of the board are unchanged."""
    if not isinstance(observation, GridObservation):
        return observation
    *batch, _, _, channels = observation.grid.shape
    return replace(observation, grid=jnp.zeros((*batch, 1, 1, channels), observation.grid.dtype))


def sparse_inputs(game: Game[Any], board: SparseBoard | None) -> AbstractContextManager[None]:
    """Context in which networks encode observations without the board, and first layers add the board sparsely.

    Without a board, or for a game that is not a grid game, it has no effect.

    Args:
        game: The game.
        board: Compact board of the observer.
    """
    if board is None or not isinstance(game, GridGame):
        return nullcontext()

    def intercept(call: Callable[..., Any], inputs: tuple[Any, ...], settings: dict[str, Any], context: Any) -> Any:
        module, method = context.module, context.method_name
        if method == "encode" and getattr(module, "encoder", "dense") != "dense":
            return call(without_board(*inputs))
        if module.name == FIRST_LAYER and method == "__call__":
            weights, (features,) = module.variables["params"], inputs
            if features.shape[-1] < len(weights["kernel"]):
                return _first_layer(game, weights, features, board)
        return call(*inputs, **settings)

    return nn.intercept_methods(intercept)


def _first_layer(
    game: GridGame, weights: dict[str, Array], features: Float[Array, "... f"], board: SparseBoard
) -> Float[Array, "... H"]:
    """Outputs of a first layer for features without a board, plus a compact board."""
    kernel, bias = weights["kernel"], weights["bias"]
    ends = _feature_ends(game)
    rest = len(kernel) - ends[-1]
    view, rows, columns = jnp.split(kernel[:-rest], ends[:-1])
    outputs = _contents(game, view, board) + _players(game, view, rows, columns, board)
    return outputs + features[..., -rest:] @ kernel[-rest:] + bias


def _feature_ends(game: GridGame) -> Int[np.ndarray, " 3"]:
    """Ends of the features of the view, the rows and the columns, in the order of `encode`."""
    channels = len(game.channel_names) - game.players + 1
    view = (2 * game.height - 1) * (2 * game.width - 1) * channels
    return np.cumsum([view, game.height * game.players, game.width * game.players])


def _corner(game: GridGame, board: SparseBoard) -> Int[Array, ""]:
    """Index of the board's first cell in the ego's centred view, row-major."""
    row, column = _row_and_column(game, board.cells[0])
    return (game.height - 1 - row) * (2 * game.width - 1) + game.width - 1 - column


def _row_and_column(game: GridGame, cell: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Row and column of a cell; for a player who has left, those of the first cell, as in `centred`."""
    cell, width = jnp.maximum(cell, 0), jnp.asarray(game.width, cell.dtype)
    return jax.lax.div(cell, width), jax.lax.rem(cell, width)


def _contents(game: GridGame, view: Float[Array, "F H"], board: SparseBoard) -> Float[Array, " H"]:
    """Contribution of blocks and items: per cell, the weights for its position in the view and its code."""
    kinds = len(game.channel_names) - game.players
    codes = (np.arange(1 << kinds)[:, None] >> np.arange(kinds)) & 1
    weights = view.reshape(-1, 1 + kinds, view.shape[-1])[:, 1:]
    code_weights = jnp.einsum("ck,vkh->vch", codes.astype(np.float32), weights).reshape(-1, view.shape[-1])
    corner, cell_codes = _corner(game, board), board.codes.reshape(game.height, game.width)

    def add_row(row: Array, total: Array) -> Array:
        for column in range(game.width):
            position = corner + row * (2 * game.width - 1) + column
            total += _row_of(code_weights, position * len(codes) + cell_codes[row, column])
        return total

    return jax.lax.fori_loop(0, game.height, add_row, jnp.zeros(view.shape[-1], view.dtype))


def _players(
    game: GridGame, view: Float[Array, "F H"], rows: Array, columns: Array, board: SparseBoard
) -> Float[Array, " H"]:
    """Contribution of the players: their rows and columns and, for co-players, their positions in the view."""
    n, corner = game.players, _corner(game, board)
    channels = len(game.channel_names) - n + 1
    total = jnp.zeros(view.shape[-1], view.dtype)
    for player in range(n):
        row, column = _row_and_column(game, board.cells[player])
        contribution = _row_of(rows, row * n + player) + _row_of(columns, column * n + player)
        if player:
            contribution += _row_of(view, (corner + row * (2 * game.width - 1) + column) * channels)
        total += jnp.where(board.cells[player] >= 0, contribution, 0.0)
    return total


def _row_of(table: Float[Array, "N H"], index: Int[Array, ""]) -> Float[Array, " H"]:
    return table.at[index].get(mode="promise_in_bounds")

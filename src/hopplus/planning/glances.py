"""What a network's first layer makes of a board, looked up rather than multiplied.

A board is mostly empty, and so are the features of it: their product with the weights of a first layer is a sum of few
rows of these. A search sees so many boards that it looks these rows up; the result differs from that of the features
by rounding only (a test holds that).
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

from hopplus.bits import unpack
from hopplus.games import Game, GridGame, Observation, ego_first
from hopplus.networks.encoding import Features
from hopplus.struct import struct

FIRST_LAYER = "hidden_0"
"""What it is called in every network."""


@struct
class Glance:
    """What somebody sees at a glance: where everybody stands, and what lies where."""

    cells: Int[Array, " n"]
    """Of the players, ego-first; -1 for those who have left."""
    codes: Int[Array, " cells"]
    """What lies on each cell: bit k stands for channel n + k of the observed grid."""


@struct
class Glanced:
    """What somebody sees, the board at a glance only."""

    features: Features
    """Without the board."""
    glance: Glance


def glances(game: Game[Any], state: Any) -> Glance | None:
    """What all seats see: [n, ...]; None where there is no board."""
    if not isinstance(game, GridGame):
        return None
    lying = unpack(jnp.concatenate([state.blocks[None], state.items]), game.num_cells).astype(jnp.int32)
    codes = (lying << jnp.arange(len(lying))[:, None]).sum(0)
    return Glance(ego_first(state.cells), jnp.broadcast_to(codes, (game.players, game.num_cells)))


def without_board(observation: Observation) -> Observation:
    """The observation with a board of one empty cell: its features are short, and end as those of the whole do."""
    *batch, _, _, channels = observation.grid.shape
    return replace(observation, grid=jnp.zeros((*batch, 1, 1, channels), observation.grid.dtype))


def looking(game: Game[Any], glance: Glance | None) -> AbstractContextManager[None]:
    """While it holds, networks encode observations without their board, and first layers that are given such features
    look up what the board brings. With no glance, or where there are no boards, everything is as usual."""
    if glance is None or not isinstance(game, GridGame):
        return nullcontext()

    def instead(call: Callable[..., Any], inputs: tuple[Any, ...], settings: dict[str, Any], context: Any) -> Any:
        module, method = context.module, context.method_name
        if method == "encode" and getattr(module, "encoder", "dense") != "dense":
            return call(without_board(*inputs))
        if module.name == FIRST_LAYER and method == "__call__":
            weights, (features,) = module.variables["params"], inputs
            if features.shape[-1] < len(weights["kernel"]):
                return _first_layer(game, weights, features, glance)
        return call(*inputs, **settings)

    return nn.intercept_methods(instead)


def _first_layer(
    game: GridGame, weights: dict[str, Array], features: Float[Array, "... f"], glance: Glance
) -> Float[Array, "... H"]:
    """What a first layer says of features without a board, and a glance at it."""
    kernel, bias = weights["kernel"], weights["bias"]
    places = _places(game)
    rest = len(kernel) - places[-1]
    view, rows, columns = jnp.split(kernel[:-rest], places[:-1])
    board = _things(game, view, glance) + _players(game, view, rows, columns, glance)
    return board + features[..., -rest:] @ kernel[-rest:] + bias


def _places(game: GridGame) -> Int[np.ndarray, " 3"]:
    """Where the features of the view, the rows and the columns end, as `encode` lays them out."""
    channels = len(game.channel_names) - game.players + 1
    view = (2 * game.height - 1) * (2 * game.width - 1) * channels
    return np.cumsum([view, game.height * game.players, game.width * game.players])


def _corner(game: GridGame, glance: Glance) -> Int[Array, ""]:
    """Where the board's first cell is in the view of the ego, row by row."""
    row, column = _row_and_column(game, glance.cells[0])
    return (game.height - 1 - row) * (2 * game.width - 1) + game.width - 1 - column


def _row_and_column(game: GridGame, cell: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Of a cell; of the first for a player who has left, as `centred` has it."""
    cell, width = jnp.maximum(cell, 0), jnp.asarray(game.width, cell.dtype)
    return jax.lax.div(cell, width), jax.lax.rem(cell, width)


def _things(game: GridGame, view: Float[Array, "F H"], glance: Glance) -> Float[Array, " H"]:
    """What lies on the board: for each cell, what its place in the view and its code stand for."""
    kinds = len(game.channel_names) - game.players
    codes = (np.arange(1 << kinds)[:, None] >> np.arange(kinds)) & 1
    weights = view.reshape(-1, 1 + kinds, view.shape[-1])[:, 1:]
    meanings = jnp.einsum("ck,vkh->vch", codes.astype(np.float32), weights).reshape(-1, view.shape[-1])
    corner, lying = _corner(game, glance), glance.codes.reshape(game.height, game.width)

    def with_row(row: Array, total: Array) -> Array:
        for column in range(game.width):
            place = corner + row * (2 * game.width - 1) + column
            total += _row_of(meanings, place * len(codes) + lying[row, column])
        return total

    return jax.lax.fori_loop(0, game.height, with_row, jnp.zeros(view.shape[-1], view.dtype))


def _players(
    game: GridGame, view: Float[Array, "F H"], rows: Array, columns: Array, glance: Glance
) -> Float[Array, " H"]:
    """Where everybody stands: its row and column and, but for the ego, its place in the view."""
    n, corner = game.players, _corner(game, glance)
    channels = len(game.channel_names) - n + 1
    total = jnp.zeros(view.shape[-1], view.dtype)
    for player in range(n):
        row, column = _row_and_column(game, glance.cells[player])
        brought = _row_of(rows, row * n + player) + _row_of(columns, column * n + player)
        if player:
            brought += _row_of(view, (corner + row * (2 * game.width - 1) + column) * channels)
        total += jnp.where(glance.cells[player] >= 0, brought, 0.0)
    return total


def _row_of(table: Float[Array, "N H"], index: Int[Array, ""]) -> Float[Array, " H"]:
    return table.at[index].get(mode="promise_in_bounds")

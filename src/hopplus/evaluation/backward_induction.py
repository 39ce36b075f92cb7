"""Parts that the exact best responses of grid games without blocks have in common.

A layout holds the cells of the items, kind by kind. A subset of the items that are left is a number whose bits follow
the order of the layout. Value arrays are [subsets, places of co-players ..., cell of the ego].
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.bits import pack
from hopplus.games import GridGame
from hopplus.games.board import MOVES, STAY
from hopplus.games.grid import GridState
from hopplus.players import Player

TRIED = 256
"""Random positions in which the action probabilities of a co-player are checked."""
CO_PLAYER = 1
"""Seat in which a co-player's action probabilities are evaluated; they are the same in all seats."""


def is_left(subsets: Int[Array, "..."], items: int) -> Bool[Array, "... items"]:
    """Returns whether each item is left."""
    return (subsets[..., None] >> jnp.arange(items)) & 1 > 0


def state_at(layout: Int[Array, " items"], game: GridGame, subset: Array, places: Int[Array, " n"]) -> GridState:
    """Returns the first state with the items of a subset and the players in given cells (-1: has left)."""
    there = (layout[:, None] == jnp.arange(game.num_cells)) & is_left(subset, len(layout))[:, None]
    boards = jnp.stack([board.any(0) for board in jnp.split(there, np.cumsum(game.item_counts)[:-1])])
    return GridState(
        cells=places.astype(jnp.int32),
        blocks=jnp.zeros(game.words, jnp.uint32),
        items=pack(boards),
        time=jnp.int32(0),
        deadline=jnp.int32(game.last_step),
        last_actions=jnp.full(game.players, STAY, jnp.int32),
    )


def action_probabilities(game: GridGame, player: Player, state: GridState) -> Float[Array, " A"]:
    """Returns the action probabilities of a co-player without memory."""
    observation = jax.tree.map(lambda values: values[CO_PLAYER], game.observe(state))
    params = player.default_params()
    return player.probabilities(params, player.begin(player.init(jax.random.key(0), params)), observation)


def cells_after_moves(game: GridGame, cell: Int[Array, ""]) -> Int[Array, " moves"]:
    """Returns the cell after each move and STAY; any cell for an illegal move, whose probability is 0."""
    return game.walk(jnp.full(len(MOVES) + 1, cell), jnp.arange(len(MOVES) + 1)).clip(0, game.num_cells - 1)


def mean_over_outcomes(
    values: Float[Array, "S *X E"], probabilities: Sequence[Float[Array, "S P X"]]
) -> Float[Array, "S *P E"]:
    """Returns the mean over the outcomes of all co-players, by their places."""
    subsets = probabilities[0].shape[0] if probabilities else len(values)
    mean = jnp.broadcast_to(values, (subsets, *values.shape[1:]))
    for axis, outcomes in enumerate(probabilities, start=1):  # in place: moving an axis would cost more than the sums
        flat = mean.reshape(len(mean), -1, mean.shape[axis], math.prod(mean.shape[axis + 1 :]))
        mean = jnp.einsum("saxb,spx->sapb", flat, outcomes).reshape(*mean.shape[:axis], -1, *mean.shape[axis + 1 :])
    return mean


def best_nearby(values: Float[Array, "... E"], game: GridGame) -> Float[Array, "... E"]:
    """Returns the highest value of the cells within one step, including the ego's own."""
    board = values.reshape(-1, game.height, game.width)
    beside = jnp.pad(board, ((0, 0), (1, 1), (1, 1)), constant_values=-jnp.inf)
    best = board
    for row, column in ((0, 1), (2, 1), (1, 0), (1, 2)):
        best = jnp.maximum(best, beside[:, row : row + game.height, column : column + game.width])
    return best.reshape(values.shape)

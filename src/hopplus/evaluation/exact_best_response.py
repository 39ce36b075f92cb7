"""Exact value of a best response on small boards, by dynamic programming over the positions of all players.

The policies of co-players may depend on their cell, the items left and company at a stag, as those of all scripts do;
other co-players are rejected. A step is resolved player by player: the ego's move, then the outcome of each co-player,
averaged along its own axis. The cost therefore does not grow with the number of joint actions.
"""

import itertools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.core.errors import InputError
from hopplus.evaluation import exact_snowdrift, exact_stag_hunt
from hopplus.games import Game, GridGame, Snowdrift, StagHunt
from hopplus.players import Player

LARGEST = 6_000_000
"""Largest number of positions that is computed."""
TOLERANCE = 1e-5
"""Largest error of a co-player's assumed action probabilities."""


def _solver(game: Game[Any]) -> ModuleType:
    """Returns the module for a game: `check_rules`, `positions`, `solve` and `largest_error`."""
    if isinstance(game, StagHunt):
        return exact_stag_hunt
    if isinstance(game, Snowdrift):
        return exact_snowdrift
    raise InputError(f"best responses are exact only in the stag hunt and the snowdrift game, not in {game.name}")


def check_exact(game: Game[Any]) -> GridGame:
    """Returns the game if its best responses can be computed exactly, else raises InputError."""
    solver = _solver(game)
    assert isinstance(game, GridGame)
    solver.check_rules(game)
    if (positions := solver.positions(game)) > LARGEST:
        raise InputError(f"{game.name} has {positions:,} positions per layout of its items, more than {LARGEST:,}")
    return game


def all_layouts(game: GridGame) -> Int[np.ndarray, "N items"]:
    """Returns the cells of the items, kind by kind, of all layouts; they are equally likely."""
    layouts: list[tuple[int, ...]] = [()]
    for count in game.item_counts:
        layouts = [
            (*layout, *cells)
            for layout in layouts
            for cells in itertools.combinations(sorted(set(range(game.num_cells)).difference(layout)), count)
        ]
    return np.array(layouts)


def best_response(
    game: GridGame, co_players: tuple[Player, ...], layouts: Int[np.ndarray, "N items"]
) -> Float[np.ndarray, "N E *cells"]:
    """Returns the value of the best response by layout, the ego's first cell and the co-players' first cells."""
    solver = _solver(game)
    for layout in layouts[:: max(1, len(layouts) // 4)]:
        _check_co_players(game, co_players, jnp.asarray(layout))
    return np.stack([np.asarray(solver.solve(jnp.asarray(layout), game, co_players)) for layout in layouts])


def _check_co_players(game: GridGame, co_players: tuple[Player, ...], layout: Int[Array, " items"]) -> None:
    """Raises InputError if a co-player has memory, or other probabilities in some random position than assumed."""
    solver = _solver(game)
    for number, player in enumerate(dict.fromkeys(co_players)):
        memory = jax.tree.leaves(jax.eval_shape(player.init, jax.random.key(0), player.default_params()))
        if memory or float(solver.largest_error(layout, jax.random.key(number), game, player)) > TOLERANCE:
            raise InputError(
                f"{player.name!r} depends on more than its cell, the items left and its company: its best response has"
                " no exact value"
            )

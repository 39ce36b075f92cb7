"""States of grid games from hand-written layouts, with checks."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from hopplus.core.bits import pack
from hopplus.core.errors import InputError
from hopplus.games.board import STAY, Cell
from hopplus.games.grid import GridGame, GridState


def state_from_layout(
    game: GridGame,
    players: Sequence[Cell | None],
    items: Mapping[str, Sequence[Cell]],
    blocks: Sequence[Cell],
    time: int,
    deadline: int | None,
    last_actions: Sequence[int] | None,
) -> GridState:
    """Builds a state from cells given as (row, column); raises InputError if the game cannot be in it.

    Args:
        game: The game.
        players: Cell of each player; None for a player who has left.
        items: Cells of the items, by a name in `game.item_names`.
        blocks: Cells under blocks.
        time: Steps played.
        deadline: The step at which the game ends at the latest; None means `game.T`.
        last_actions: Last action of each player; None means STAY for all.
    """
    _check_counts(game, players, items)
    if not 0 <= time <= game.T:
        raise InputError(f"the time of a layout must be from 0 to {game.T}, not {time}")
    latest = game.T if deadline is None else deadline
    if not 0 <= latest <= game.T:
        raise InputError(f"the deadline of a layout must be from 0 to {game.T}, not {latest}")
    last = [STAY] * game.players if last_actions is None else list(last_actions)
    if len(last) != game.players or not all(action in range(game.num_actions) for action in last):
        raise InputError(f"last_actions must be {game.players} actions from 0 to {game.num_actions - 1}, not {last}")

    occupied = _occupied_cells(game, {"block": blocks, **items})
    standing = [-1 if cell is None else _index(game, cell, "player") for cell in players]
    for index in standing:
        if occupied.get(index) == "block":
            raise InputError(f"the layout has a player on the block at {divmod(index, game.width)}")
    names = ("block", *game.item_names)
    planes = np.array([[occupied.get(cell) == name for cell in range(game.num_cells)] for name in names])
    boards = jnp.asarray(pack(planes))
    return GridState(
        cells=jnp.array(standing, jnp.int32),
        blocks=boards[0],
        items=boards[1:],
        time=jnp.int32(time),
        deadline=jnp.int32(latest),
        last_actions=jnp.array(last, jnp.int32),
    )


def _check_counts(game: GridGame, players: Sequence[Cell | None], items: Mapping[str, Sequence[Cell]]) -> None:
    if len(players) != game.players:
        raise InputError(f"{game.name} has {game.players} players, and the layout places {len(players)}")
    most = dict(zip(game.item_names, game.item_counts, strict=True))
    for name, cells in items.items():
        if len(cells) > most[name]:
            raise InputError(f"{game.name} has at most {most[name]} of {name}, and the layout places {len(cells)}")


def _occupied_cells(game: GridGame, contents: Mapping[str, Sequence[Cell]]) -> dict[int, str]:
    """Content of each occupied cell: "block", or the name of an item."""
    occupied: dict[int, str] = {}
    for name, cells in contents.items():
        for cell in cells:
            index = _index(game, cell, name)
            if index in occupied:
                raise InputError(f"the layout has a {occupied[index]} and a {name} on cell {tuple(cell)}")
            occupied[index] = name
    return occupied


def _index(game: GridGame, cell: Cell, name: str) -> int:
    row, column = cell
    if not (0 <= row < game.height and 0 <= column < game.width):
        raise InputError(f"the layout's {name} at {tuple(cell)} is off the {game.height}x{game.width} board")
    return row * game.width + column

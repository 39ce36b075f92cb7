"""Random block maps of a board: placements of block pieces, and connectivity of the free cells.

Boards are bit sets of cells (`hopplus.core.bits`): cell row * width + column.
"""

import functools
import random
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32

from hopplus.core.bits import pack, words_for
from hopplus.games.board import Cell

MAP_ATTEMPTS = 2000
"""Block maps that are sampled to check a setting; it is refused if all of them are rejected."""


class Placements(NamedTuple):
    """All placements of a block piece.

    Kind, orientation and missing cells are drawn together as one of 32 choices (4 kinds x 8, each variant of a kind
    equally often). The positions of a choice are consecutive rows of `boards`.
    """

    boards: UInt32[np.ndarray, "positions words"]
    rims: UInt32[np.ndarray, "positions words"]
    """Cells of each piece and their eight neighbours."""
    start: Int[np.ndarray, " 32"]
    """First position of each choice."""
    number: Int[np.ndarray, " 32"]
    """Positions of each choice; 0 if it fits nowhere."""


def _piece_kinds() -> list[list[tuple[set[Cell], str]]]:
    """Per kind of piece, the cells of its variants, and the border along which a variant may not lie."""

    def straight(length: int) -> list[tuple[set[Cell], str]]:
        return [({(0, i) for i in range(length)}, "rows"), ({(i, 0) for i in range(length)}, "columns")]

    square = {(row, column) for row in range(2) for column in range(2)}
    corner = [(square - {missing}, "") for missing in sorted(square)]
    flat_box = {(row, column) for row in range(2) for column in range(3)}
    pairs = [{(row, first), (row, first + 1)} for row in range(2) for first in range(2)]
    flat = [flat_box - pair for pair in pairs]
    upright = [{(column, row) for row, column in shape} for shape in flat]
    return [straight(3), corner, straight(4), [(shape, "") for shape in flat + upright]]


@functools.cache
def placements(height: int, width: int) -> Placements:
    """Placements of block pieces on a board."""
    boards, rims, start, number = [], [], [], []
    for variants in _piece_kinds():
        ranges: list[tuple[int, int]] = []
        for shape, border in variants:
            rows = height - max(row for row, _ in shape)
            columns = width - max(column for _, column in shape)
            first_row, end_row = (1, min(rows, height - 1)) if border == "rows" else (0, rows)
            first_column, end_column = (1, min(columns, width - 1)) if border == "columns" else (0, columns)
            begin = len(boards)
            for top in range(first_row, end_row):
                for left in range(first_column, end_column):
                    piece, rim = np.zeros((2, height + 2, width + 2), bool)
                    for row, column in shape:
                        piece[top + row + 1, left + column + 1] = True
                        rim[top + row : top + row + 3, left + column : left + column + 3] = True
                    boards.append(pack(piece[1:-1, 1:-1].reshape(-1)))
                    rims.append(pack(rim[1:-1, 1:-1].reshape(-1)))
            ranges.append((begin, len(boards) - begin))
        for choice in range(8):
            begin, positions = ranges[choice % len(ranges)]
            start.append(begin)
            number.append(positions)
    shape = (-1, words_for(height * width))
    boards, rims = np.array(boards, np.uint32).reshape(shape), np.array(rims, np.uint32).reshape(shape)
    return Placements(boards, rims, np.array(start, np.int32), np.array(number, np.int32))


def enclosed_clusters(
    touching: Bool[Array, "k k"], at_border: Bool[Array, " k"], placed: Bool[Array, " k"]
) -> Int[Array, ""]:
    """Counts clusters of touching pieces (also at corners) that do not reach the border: holes in the free cells."""
    pieces = placed.shape[0]
    linked = touching | (jnp.eye(pieces, dtype=bool) & placed[:, None])
    for _ in range(max(1, (pieces - 1).bit_length())):
        linked = (linked[:, :, None] & linked[None]).any(1)
    first_of_cluster = placed & ~jnp.tril(linked, k=-1).any(-1)
    reaches_border = (linked & at_border).any(-1)
    return (first_of_cluster & ~reaches_border).sum()


@functools.cache
def some_map_fits(height: int, width: int, blocks: int, items: int) -> bool:
    """True if one of MAP_ATTEMPTS block maps from a fixed seed has connected free cells with room for `items` items."""
    table, generator = placements(height, width), random.Random(0)
    masks = [sum(int(word) << (32 * index) for index, word in enumerate(board)) for board in table.boards]
    full = (1 << (height * width)) - 1
    not_first_column = sum(1 << cell for cell in range(height * width) if cell % width)
    not_last_column = not_first_column >> 1
    for _ in range(MAP_ATTEMPTS):
        occupied = 0
        for _ in range(blocks):
            choice = generator.randrange(32)
            if table.number[choice]:
                piece = masks[table.start[choice] + generator.randrange(table.number[choice])]
                occupied |= 0 if piece & occupied else piece
        free = full & ~occupied
        reached, grown = 0, free & -free
        while grown != reached:
            reached = grown
            sideways = (reached << 1 & not_first_column) | (reached >> 1 & not_last_column)
            grown = (reached | sideways | reached << width | reached >> width) & free
        if reached == free and free.bit_count() >= max(items, 1):
            return True
    return False

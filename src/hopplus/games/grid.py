"""Boards, block maps and what all grid games share: players who walk, things on cells, and what they see.

A set of cells is a bitboard (`hopplus.bits`): cell row * width + column is a bit of a uint32[words]. All rules are then
a few bit operations, whatever stands on the board.
"""

import functools
import itertools
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from hopplus.bits import count, pack, ranked, shift, single, union, unpack, words_for
from hopplus.errors import InputError
from hopplus.games.game import Game, Observation, ego_first
from hopplus.keys import Key, below
from hopplus.struct import struct

UP, DOWN, LEFT, RIGHT, STAY = range(5)
MOVES = (UP, DOWN, LEFT, RIGHT)
LARGEST_SIDE = 19
MOST_PLAYERS = 8
UNROLL = 8
"""Loops over things on the board are written out in groups of this many."""
MAP_ATTEMPTS = 2000
"""A setting of which this many drawn block maps are all rejected is refused when the game is made."""

Cell = tuple[int, int]


def distinct_ranks(words: UInt32[Array, " k"], total: Int[Array, ""] | int) -> Int[Array, " k"]:
    """A uniformly drawn set of k different integers in [0, total), by Floyd's method, from k uniform words."""
    size = words.shape[0]

    def add(chosen: Array, draw: tuple[Array, Array]) -> tuple[Array, None]:
        word, k = draw
        last = total - size + k
        rank = below(word, last + 1)
        rank = jnp.where((chosen == rank).any(), last, rank)
        return jnp.where(jnp.arange(size) == k, rank, chosen), None

    nothing = jnp.full(size, -1, jnp.int32)
    return jax.lax.scan(add, nothing, (words, jnp.arange(size)), unroll=UNROLL)[0]


# --------------------------------------------------------------------------------------------------- block maps


class Placements(NamedTuple):
    """All ways to lay a block piece: what kind, orientation and missing cells are drawn together as one of 32 choices
    (4 kinds x 8, each variant of a kind equally often), and each choice has its fitting positions in a row."""

    boards: UInt32[np.ndarray, "positions words"]
    rims: UInt32[np.ndarray, "positions words"]
    """Each piece and the eight neighbours of its cells."""
    start: Int[np.ndarray, " 32"]
    number: Int[np.ndarray, " 32"]


def _piece_kinds() -> list[list[tuple[set[Cell], str]]]:
    """By kind, the shapes of its variants as cells, and the border that each may not lie along."""

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
    """The table of block pieces on a board; a variant that fits nowhere has a count of 0."""
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
                    padded, rim = np.zeros((2, height + 2, width + 2), bool)
                    for row, column in shape:
                        padded[top + row + 1, left + column + 1] = True
                        rim[top + row : top + row + 3, left + column : left + column + 3] = True
                    boards.append(pack(padded[1:-1, 1:-1].reshape(-1)))
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
    touching: Bool[Array, "k k"], at_border: Bool[Array, " k"], laid: Bool[Array, " k"]
) -> Int[Array, ""]:
    """How many clusters of touching pieces (also at corners) do not reach the border: the holes in what is free."""
    pieces = laid.shape[0]
    linked = touching | (jnp.eye(pieces, dtype=bool) & laid[:, None])
    for _ in range(max(1, (pieces - 1).bit_length())):
        linked = (linked[:, :, None] & linked[None]).any(1)
    first_of_cluster = laid & ~jnp.tril(linked, k=-1).any(-1)
    reaches_border = (linked & at_border).any(-1)
    return (first_of_cluster & ~reaches_border).sum()


@functools.cache
def some_map_fits(height: int, width: int, blocks: int, items: int) -> bool:
    """Whether one of MAP_ATTEMPTS block maps, drawn from a fixed seed, is connected and holds so many things."""
    table, generator = placements(height, width), random.Random(0)
    masks = [sum(int(word) << (32 * index) for index, word in enumerate(board)) for board in table.boards]
    full = (1 << (height * width)) - 1
    not_first_column = sum(1 << cell for cell in range(height * width) if cell % width)
    not_last_column = not_first_column >> 1
    for _ in range(MAP_ATTEMPTS):
        taken = 0
        for _ in range(blocks):
            choice = generator.randrange(32)
            if table.number[choice]:
                piece = masks[table.start[choice] + generator.randrange(table.number[choice])]
                taken |= 0 if piece & taken else piece
        free = full & ~taken
        reached, grown = 0, free & -free
        while grown != reached:
            reached = grown
            sideways = (reached << 1 & not_first_column) | (reached >> 1 & not_last_column)
            grown = (reached | sideways | reached << width | reached >> width) & free
        if reached == free and free.bit_count() >= max(items, 1):
            return True
    return False


# ------------------------------------------------------------------------------------------------------ the game


@struct
class GridState:
    """Everything about one environment. Nothing in it is hidden from the players: see `GridGame.restore`."""

    cells: Int[Array, " n"]
    """Where each player stands; -1 once it has left."""
    blocks: UInt32[Array, " words"]
    items: UInt32[Array, "kinds words"]
    """The living prey or drifts, a board a kind."""
    time: Int[Array, ""]
    deadline: Int[Array, ""]
    last_actions: Int[Array, " n"]


class Symmetry(NamedTuple):
    """A way to lay a board anew: mirrored along its diagonal, then upside down, then left to right."""

    transposed: bool
    flipped_rows: bool
    flipped_columns: bool

    def board(self, values: np.ndarray) -> np.ndarray:
        """Values [H, W, ...] of a board's cells, laid anew."""
        values = values.swapaxes(0, 1) if self.transposed else values
        values = values[::-1] if self.flipped_rows else values
        return values[:, ::-1] if self.flipped_columns else values

    def actions(self, num_actions: int) -> Int[np.ndarray, " A"]:
        """What each action is called on the new board: moves turn with it."""
        renamed = np.arange(num_actions)
        if self.transposed:
            renamed[[UP, DOWN, LEFT, RIGHT]] = LEFT, RIGHT, UP, DOWN
        swapped = np.arange(num_actions)
        if self.flipped_rows:
            swapped[[UP, DOWN]] = DOWN, UP
        if self.flipped_columns:
            swapped[[LEFT, RIGHT]] = RIGHT, LEFT
        return swapped[renamed]


@dataclass(frozen=True)
class GridGame(Game[GridState]):
    """Players who walk over a board on which things of some kinds lie; action 5 + k works on things of kind k."""

    name: str = "grid"
    height: int = 4
    """Rows."""
    width: int = 4
    """Columns."""
    players: int = 4
    """Number of players, 2 to 8."""
    blocks: int = 0
    """Number of block pieces (of 3 or 4 cells) that are tried at a reset."""
    T: int = 35
    """The last step."""

    idle_action: ClassVar[int] = STAY
    item_names: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for side in ("height", "width"):
            self._require_whole(side, 2, LARGEST_SIDE)
        self._require_whole("players", 2, MOST_PLAYERS)
        self._require_whole("blocks", 0)
        self._require_whole("T", 1)
        items = sum(self.item_counts)
        board = f"{self.height}x{self.width}"
        if items > self.num_cells:
            raise InputError(f"{items} things do not fit on the {self.num_cells} cells of a {board} board")
        if self.blocks and not some_map_fits(self.height, self.width, self.blocks, items):
            raise InputError(
                f"{self.blocks} block pieces do not fit on a {board} board: none of {MAP_ATTEMPTS} drawn maps"
                f" left connected free cells with room for {items} things"
            )

    def _require_whole(self, field: str, least: int, most: int | None = None) -> None:
        value = getattr(self, field)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            limits = f"at least {least}" if most is None else f"from {least} to {most}"
            raise InputError(f"{field} must be a whole number {limits}, not {value!r}")

    def _require_amount(self, field: str) -> None:
        value = getattr(self, field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InputError(f"{field} must be a finite number of at least 0, not {value!r}")

    @property
    @abstractmethod
    def item_counts(self) -> tuple[int, ...]:
        """How many things of each kind lie on a fresh board."""

    @property
    def num_players(self) -> int:
        return self.players

    @property
    def last_step(self) -> int:
        return self.T

    @property
    def num_cells(self) -> int:
        return self.height * self.width

    @property
    def words(self) -> int:
        return words_for(self.num_cells)

    @property
    def channel_names(self) -> tuple[str, ...]:
        ego_first_players = ("self", *(f"co-player {j}" for j in range(1, self.players)))
        return (*ego_first_players, "block", *self.item_names)

    @property
    def taken_names(self) -> tuple[str, ...]:
        return ("nothing", *self.item_names)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The ways to lay the board anew under which the rules are the same, the board as it is first."""
        turned = (False, True) if self.height == self.width else (False,)
        return tuple(Symmetry(*choice) for choice in itertools.product(turned, (False, True), (False, True)))

    @functools.cached_property
    def _everywhere(self) -> UInt32[np.ndarray, " words"]:
        return pack(np.ones(self.num_cells, bool))

    @functools.cached_property
    def _off_first_column(self) -> UInt32[np.ndarray, " words"]:
        return pack(np.arange(self.num_cells) % self.width != 0)

    @functools.cached_property
    def _off_last_column(self) -> UInt32[np.ndarray, " words"]:
        return pack(np.arange(self.num_cells) % self.width != self.width - 1)

    @functools.cached_property
    def _border(self) -> UInt32[np.ndarray, " words"]:
        rows, columns = np.divmod(np.arange(self.num_cells), self.width)
        return pack((rows % (self.height - 1) == 0) | (columns % (self.width - 1) == 0))

    # -- reset

    def draw(self, key: Key) -> tuple[GridState, Bool[Array, ""]]:
        """Blocks, then players, then things, kind by kind among the cells still without one."""
        counts = self.item_counts
        draws = jax.random.bits(key, (2 * self.blocks + self.players + sum(counts),))
        block_draws, player_draws, item_draws = jnp.split(draws, [2 * self.blocks, 2 * self.blocks + self.players])
        if self.blocks:
            blocks, connected = self._draw_blocks(block_draws.reshape(2, self.blocks))
        else:
            blocks, connected = jnp.zeros(self.words, jnp.uint32), jnp.bool_(True)
        free = self.free(blocks)
        room = count(free)
        cells = self._cells_of_ranks(free, below(player_draws, room))
        boards, left = [], free
        for kind, draws_of_kind in enumerate(jnp.split(item_draws, np.cumsum(counts)[:-1])):
            ranks = distinct_ranks(draws_of_kind, room - sum(counts[:kind]))
            boards.append(union(single(ranked(left, ranks, self.num_cells), self.words)))
            left = left & ~boards[-1]
        state = GridState(
            cells=cells,
            blocks=blocks,
            items=jnp.stack(boards),
            time=jnp.int32(0),
            deadline=jnp.int32(self.T),
            last_actions=jnp.full(self.players, STAY, jnp.int32),
        )
        return state, connected & (room >= max(1, sum(counts)))

    def _draw_blocks(self, draws: UInt32[Array, "2 pieces"]) -> tuple[UInt32[Array, " words"], Bool[Array, ""]]:
        """The cells under blocks, and whether the others are connected."""
        table = placements(self.height, self.width)
        choice = below(draws[0], len(table.number))
        number = jnp.asarray(table.number)[choice]
        position = jnp.asarray(table.start)[choice] + below(draws[1], number)

        def lay(taken: Array, piece: tuple[Array, Array]) -> tuple[Array, Array]:
            board, fits = piece
            laid = fits & ~(board & taken).any()
            return taken | jnp.where(laid, board, jnp.uint32(0)), laid

        boards = jnp.asarray(table.boards)[position]
        blocks, laid = jax.lax.scan(lay, jnp.zeros(self.words, jnp.uint32), (boards, number > 0), unroll=UNROLL)
        boards = jnp.where(laid[:, None], boards, jnp.uint32(0))
        touching = (boards[:, None] & jnp.asarray(table.rims)[position]).any(-1) & laid
        at_border = (boards & self._border).any(-1)
        return blocks, self._euler_number(self.free(blocks)) + enclosed_clusters(touching, at_border, laid) == 1

    def _euler_number(self, free: UInt32[Array, " words"]) -> Int[Array, ""]:
        """Connected regions of the cells less the holes in them: cells - adjacent pairs + squares of four."""
        below_too, right_too = (shift(free, -self.width) & free), (shift(free, -1) & free & self._off_last_column)
        squares = below_too & shift(below_too, -1) & self._off_last_column
        return count(free) - count(below_too) - count(right_too) + count(squares)

    def _cells_of_ranks(self, free: UInt32[Array, " words"], ranks: Int[Array, " k"]) -> Int[Array, " k"]:
        return ranked(free, ranks, self.num_cells) if self.blocks else ranks

    # -- walking

    def free(self, blocks: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
        """The cells without a block."""
        return jnp.asarray(self._everywhere) & ~blocks

    def open_moves(self, free: UInt32[Array, " words"]) -> UInt32[Array, "4 words"]:
        """By move, the cells from which it leads to one of the given cells."""
        return jnp.stack(
            [
                shift(free, self.width),
                shift(free, -self.width),
                shift(free, 1) & self._off_first_column,
                shift(free, -1) & self._off_last_column,
            ]
        )

    def spread(self, board: UInt32[Array, " words"], free: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
        """The board's cells and the free cells one step from them."""
        return board | (union(self.open_moves(board)) & free)

    def walk(self, cells: Int[Array, " n"], actions: Int[Array, " n"]) -> Int[Array, " n"]:
        """Where legal actions lead."""
        rows = (actions == DOWN).astype(jnp.int32) - (actions == UP)
        columns = (actions == RIGHT).astype(jnp.int32) - (actions == LEFT)
        return cells + rows * self.width + columns

    def company(self, state: GridState, actions: Int[Array, " n"]) -> Bool[Array, "n n"]:
        """[i, j]: players i and j work on the same thing in this step (true on the diagonal of those who work)."""
        same_place = state.cells[:, None] == state.cells
        return same_place & (actions[:, None] == actions) & (actions > STAY)[:, None]

    # -- what is seen

    def left(self, state: GridState) -> Bool[Array, " n"]:
        return state.cells < 0

    def legal(self, state: GridState) -> Bool[Array, "n A"]:
        """Moves onto free cells, STAY, and the actions for the things that lie where the player stands."""
        boards = [self.open_moves(self.free(state.blocks)), jnp.asarray(self._everywhere)[None], state.items]
        here = single(state.cells, self.words)
        possible = (here[:, None] & jnp.concatenate(boards)).any(-1)
        return possible | (jnp.arange(self.num_actions) == STAY)

    def observe(self, state: GridState) -> Observation:
        n, channels = self.players, self.players + 1 + len(self.item_names)
        byte = jnp.uint8 if channels <= 8 else jnp.uint32
        barrier = jax.lax.optimization_barrier  # keeps the codes from being computed anew for every channel

        standing = state.cells[:, None] == jnp.arange(self.num_cells)
        things = unpack(jnp.concatenate([state.blocks[None], state.items]), self.num_cells)
        standing, things = _bits(standing, byte), _bits(things, byte, first=n)
        seat = jnp.arange(n, dtype=byte)[:, None]
        ego_standing = ((standing >> seat) | (standing << (n - seat))) & byte((1 << n) - 1)
        grid = _spread_bits(barrier(ego_standing | things), channels).astype(jnp.int8)

        masks, last_actions = barrier((_bits(self.legal(state).T, byte), state.last_actions))
        return Observation(
            grid=grid.reshape(n, self.height, self.width, channels),
            time=jnp.broadcast_to(state.time, n),
            deadline=jnp.broadcast_to(state.deadline, n),
            legal=_spread_bits(ego_first(masks), self.num_actions).astype(bool),
            last_actions=ego_first(last_actions),
        )

    def restore(self, observation: Observation) -> GridState:
        planes = jnp.moveaxis(observation.grid, -1, 0).reshape(-1, self.num_cells) > 0
        standing, things = planes[: self.players], pack(planes[self.players :])
        return GridState(
            cells=jnp.where(standing.any(-1), jnp.argmax(standing, axis=-1), -1).astype(jnp.int32),
            blocks=things[0],
            items=things[1:],
            time=jnp.asarray(observation.time, jnp.int32),
            deadline=jnp.asarray(observation.deadline, jnp.int32),
            last_actions=jnp.asarray(observation.last_actions, jnp.int32),
        )

    def permute(self, state: GridState, order: Sequence[int] | Int[Array, " n"]) -> GridState:
        seats = jnp.asarray(order)
        return GridState(
            cells=state.cells[seats],
            blocks=state.blocks,
            items=state.items,
            time=state.time,
            deadline=state.deadline,
            last_actions=state.last_actions[seats],
        )

    # -- states by hand

    def _layout(
        self,
        players: Sequence[Cell | None],
        items: Mapping[str, Sequence[Cell]],
        blocks: Sequence[Cell],
        time: int,
        deadline: int | None,
        last_actions: Sequence[int] | None,
    ) -> GridState:
        if len(players) != self.players:
            raise InputError(f"{self.name} has {self.players} players, and the layout places {len(players)}")
        most = dict(zip(self.item_names, self.item_counts, strict=True))
        for kind, cells in items.items():
            if len(cells) > most[kind]:
                raise InputError(f"{self.name} has at most {most[kind]} of {kind}, and the layout places {len(cells)}")
        if not 0 <= time <= self.T:
            raise InputError(f"the time of a layout must be from 0 to {self.T}, not {time}")
        latest = self.T if deadline is None else deadline
        if not 0 <= latest <= self.T:
            raise InputError(f"the deadline of a layout must be from 0 to {self.T}, not {latest}")
        last = [STAY] * self.players if last_actions is None else list(last_actions)
        if len(last) != self.players or not all(action in range(self.num_actions) for action in last):
            raise InputError(
                f"last_actions must be {self.players} actions from 0 to {self.num_actions - 1}, not {last}"
            )

        taken: dict[int, str] = {}
        for kind, cells in {"block": blocks, **items}.items():
            for cell in cells:
                index = self._index(cell, kind)
                if index in taken:
                    raise InputError(f"the layout has a {taken[index]} and a {kind} on cell {tuple(cell)}")
                taken[index] = kind
        standing = [-1 if cell is None else self._index(cell, "player") for cell in players]
        for index in standing:
            if taken.get(index) == "block":
                raise InputError(f"the layout has a player on the block at {divmod(index, self.width)}")
        kinds = ("block", *self.item_names)
        planes = np.array([[taken.get(cell) == kind for cell in range(self.num_cells)] for kind in kinds])
        boards = jnp.asarray(pack(planes))
        return GridState(
            cells=jnp.array(standing, jnp.int32),
            blocks=boards[0],
            items=boards[1:],
            time=jnp.int32(time),
            deadline=jnp.int32(latest),
            last_actions=jnp.array(last, jnp.int32),
        )

    def _index(self, cell: Cell, kind: str) -> int:
        row, column = cell
        if not (0 <= row < self.height and 0 <= column < self.width):
            raise InputError(f"the layout's {kind} at {tuple(cell)} is off the {self.height}x{self.width} board")
        return row * self.width + column


def _bits(planes: Bool[Array, "k cells"], dtype: Any, first: int = 0) -> Array:
    """Planes k as the bits first, first + 1, ... of one number a cell."""
    places = jnp.arange(first, first + planes.shape[0], dtype=dtype)[:, None]
    return (planes.astype(dtype) << places).sum(0, dtype=dtype)


def _spread_bits(codes: Array, count: int) -> Array:
    """The lowest `count` bits of each number, along a new last axis."""
    return (codes[..., None] >> jnp.arange(count, dtype=codes.dtype)) & codes.dtype.type(1)


def shares(
    company: Bool[Array, "n n"], value: Float[Array, " n"] | float, strengths: Sequence[int] | None = None
) -> Float[Array, " n"]:
    """What each gets of the value of a catch that it shares with its company, in proportion to strength (equally where
    those sum to 0). Sums are of whole numbers, so that the order of the seats cannot change a bit of the result."""
    number = jnp.maximum(company.sum(-1), 1).astype(jnp.float32)
    if strengths is None or len(set(strengths)) == 1:
        return value / number
    weights = jnp.asarray(strengths, jnp.float32)
    total = (company * jnp.asarray(strengths, jnp.int32)).sum(-1)
    return jnp.where(total > 0, value * weights / jnp.maximum(total, 1).astype(jnp.float32), value / number)

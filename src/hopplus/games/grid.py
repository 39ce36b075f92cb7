"""Base class of grid games: players who move over a board with blocks and items, and their observations.

A set of cells is a bitboard (`hopplus.core.bits`): cell row * width + column is a bit of a uint32[words]. All rules are
then a few bit operations, whatever the number of items on the board.
"""

import functools
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from hopplus.core.bits import count, pack, ranked, shift, single, union, unpack, words_for
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, below
from hopplus.core.struct import struct
from hopplus.games.block_maps import MAP_ATTEMPTS, enclosed_clusters, placements, some_map_fits
from hopplus.games.board import DOWN, LEFT, RIGHT, STAY, UP
from hopplus.games.game import Game, GridObservation, Observation, ego_first
from hopplus.games.symmetry import Symmetry

LARGEST_SIDE = 19
MOST_PLAYERS = 8
UNROLL = 8
"""Unroll factor of scans over pieces and items."""


def distinct_ranks(words: UInt32[Array, " k"], total: Int[Array, ""] | int) -> Int[Array, " k"]:
    """Samples k distinct integers in [0, total) uniformly, by Floyd's method, from k uniform words."""
    size = words.shape[0]

    def add(chosen: Array, draw: tuple[Array, Array]) -> tuple[Array, None]:
        word, k = draw
        last = total - size + k
        rank = below(word, last + 1)
        rank = jnp.where((chosen == rank).any(), last, rank)
        return jnp.where(jnp.arange(size) == k, rank, chosen), None

    nothing = jnp.full(size, -1, jnp.int32)
    return jax.lax.scan(add, nothing, (words, jnp.arange(size)), unroll=UNROLL)[0]


@struct
class GridState:
    """State of one environment. It is fully observed by every player: see `GridGame.restore`."""

    cells: Int[Array, " n"]
    """Cell of each player; -1 once it has left."""
    blocks: UInt32[Array, " words"]
    """Cells under blocks."""
    items: UInt32[Array, "kinds words"]
    """Cells of the remaining prey or drifts, one bitboard per kind."""
    time: Int[Array, ""]
    deadline: Int[Array, ""]
    """The step at which the game ends at the latest."""
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class GridGame(Game[GridState]):
    """Players who move over a board with items of several kinds; action 5 + k takes an item of kind k."""

    name: str = "grid"
    height: int = 4
    """Rows."""
    width: int = 4
    """Columns."""
    players: int = 4
    """Number of players, 2 to 8."""
    blocks: int = 0
    """Number of block pieces (of 3 or 4 cells) tried at a reset; a piece that overlaps another is left out."""
    T: int = 35
    """Maximum number of steps of an episode."""

    idle_action: ClassVar[int] = STAY
    item_names: ClassVar[tuple[str, ...]] = ()
    """Kinds of items."""

    def __post_init__(self) -> None:
        for side in ("height", "width"):
            self._require_integer(side, 2, LARGEST_SIDE)
        self._require_integer("players", 2, MOST_PLAYERS)
        self._require_integer("blocks", 0)
        self._require_integer("T", 1)
        items = sum(self.item_counts)
        board = f"{self.height}x{self.width}"
        if items > self.num_cells:
            raise InputError(f"{items} items do not fit on the {self.num_cells} cells of a {board} board")
        if self.blocks and not some_map_fits(self.height, self.width, self.blocks, items):
            raise InputError(
                f"{self.blocks} block pieces do not fit on a {board} board: none of {MAP_ATTEMPTS} sampled maps"
                f" left connected free cells with room for {items} items"
            )

    def _require_integer(self, field: str, least: int, most: int | None = None) -> None:
        value = getattr(self, field)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or value < least or (most is not None and value > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise InputError(f"{field} must be a whole number {limits}, not {value!r}")

    def _require_amount(self, field: str) -> None:
        value = getattr(self, field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InputError(f"{field} must be a finite number of at least 0, not {value!r}")

    @property
    @abstractmethod
    def item_counts(self) -> tuple[int, ...]:
        """Number of items of each kind in an initial state."""

    @property
    def num_players(self) -> int:
        return self.players

    @property
    def last_step(self) -> int:
        return self.T

    @property
    def num_cells(self) -> int:
        """Number of cells of the board."""
        return self.height * self.width

    @property
    def words(self) -> int:
        """Number of 32-bit words of a bitboard."""
        return words_for(self.num_cells)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels of the observed grid; the players come first, ego-first."""
        ego_first_players = ("self", *(f"co-player {j}" for j in range(1, self.players)))
        return (*ego_first_players, "block", *self.item_names)

    @property
    def taken_names(self) -> tuple[str, ...]:
        return ("nothing", *self.item_names)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Symmetries of the board under which the rules are invariant; the identity is first."""
        transpositions = (False, True) if self.height == self.width else (False,)
        return tuple(Symmetry(*choice) for choice in itertools.product(transpositions, (False, True), (False, True)))

    @functools.cached_property
    def _all_cells(self) -> UInt32[np.ndarray, " words"]:
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
        """Samples blocks, then players, then items: kind by kind, on cells without another item."""
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
        boards, vacant = [], free
        for kind, draws_of_kind in enumerate(jnp.split(item_draws, np.cumsum(counts)[:-1])):
            ranks = distinct_ranks(draws_of_kind, room - sum(counts[:kind]))
            boards.append(union(single(ranked(vacant, ranks, self.num_cells), self.words)))
            vacant = vacant & ~boards[-1]
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
        """Returns the cells under blocks, and whether the free cells are connected."""
        table = placements(self.height, self.width)
        choice = below(draws[0], len(table.number))
        number = jnp.asarray(table.number)[choice]
        position = jnp.asarray(table.start)[choice] + below(draws[1], number)

        def place(occupied: Array, piece: tuple[Array, Array]) -> tuple[Array, Array]:
            board, fits = piece
            placed = fits & ~(board & occupied).any()
            return occupied | jnp.where(placed, board, jnp.uint32(0)), placed

        boards = jnp.asarray(table.boards)[position]
        blocks, placed = jax.lax.scan(place, jnp.zeros(self.words, jnp.uint32), (boards, number > 0), unroll=UNROLL)
        boards = jnp.where(placed[:, None], boards, jnp.uint32(0))
        touching = (boards[:, None] & jnp.asarray(table.rims)[position]).any(-1) & placed
        at_border = (boards & self._border).any(-1)
        return blocks, self._euler_number(self.free(blocks)) + enclosed_clusters(touching, at_border, placed) == 1

    def _euler_number(self, free: UInt32[Array, " words"]) -> Int[Array, ""]:
        """Number of connected regions minus number of holes: cells - adjacent pairs + squares of four."""
        below_too, right_too = (shift(free, -self.width) & free), (shift(free, -1) & free & self._off_last_column)
        squares = below_too & shift(below_too, -1) & self._off_last_column
        return count(free) - count(below_too) - count(right_too) + count(squares)

    def _cells_of_ranks(self, free: UInt32[Array, " words"], ranks: Int[Array, " k"]) -> Int[Array, " k"]:
        return ranked(free, ranks, self.num_cells) if self.blocks else ranks

    # -- moves

    def free(self, blocks: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
        """Cells without a block."""
        return jnp.asarray(self._all_cells) & ~blocks

    def open_moves(self, free: UInt32[Array, " words"]) -> UInt32[Array, "4 words"]:
        """Per move, the cells from which it leads to one of the given cells."""
        return jnp.stack(
            [
                shift(free, self.width),
                shift(free, -self.width),
                shift(free, 1) & self._off_first_column,
                shift(free, -1) & self._off_last_column,
            ]
        )

    def spread(self, board: UInt32[Array, " words"], free: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
        """Given cells and the free cells one step away from them."""
        return board | (union(self.open_moves(board)) & free)

    def walk(self, cells: Int[Array, " n"], actions: Int[Array, " n"]) -> Int[Array, " n"]:
        """Cells of the players after legal actions."""
        rows = (actions == DOWN).astype(jnp.int32) - (actions == UP)
        columns = (actions == RIGHT).astype(jnp.int32) - (actions == LEFT)
        return cells + rows * self.width + columns

    def company(self, state: GridState, actions: Int[Array, " n"]) -> Bool[Array, "n n"]:
        """Entry [i, j] is true if players i and j take the same item in this step (for i = j: if i takes one)."""
        same_cell = state.cells[:, None] == state.cells
        return same_cell & (actions[:, None] == actions) & (actions > STAY)[:, None]

    # -- observations

    def left(self, state: GridState) -> Bool[Array, " n"]:
        return state.cells < 0

    def legal(self, state: GridState) -> Bool[Array, "n A"]:
        """Moves onto free cells, STAY, and the actions for the items on the player's cell."""
        boards = [self.open_moves(self.free(state.blocks)), jnp.asarray(self._all_cells)[None], state.items]
        here = single(state.cells, self.words)
        possible = (here[:, None] & jnp.concatenate(boards)).any(-1)
        return possible | (jnp.arange(self.num_actions) == STAY)

    def observe(self, state: GridState) -> GridObservation:
        n, channels = self.players, self.players + 1 + len(self.item_names)
        byte = jnp.uint8 if channels <= 8 else jnp.uint32
        barrier = jax.lax.optimization_barrier  # keeps the codes from being recomputed for every channel

        standing = state.cells[:, None] == jnp.arange(self.num_cells)
        contents = unpack(jnp.concatenate([state.blocks[None], state.items]), self.num_cells)
        standing, contents = _bits(standing, byte), _bits(contents, byte, first=n)
        seat = jnp.arange(n, dtype=byte)[:, None]
        ego_standing = ((standing >> seat) | (standing << (n - seat))) & byte((1 << n) - 1)
        grid = _spread_bits(barrier(ego_standing | contents), channels).astype(jnp.int8)

        masks, last_actions = barrier((_bits(self.legal(state).T, byte), state.last_actions))
        return GridObservation(
            grid=grid.reshape(n, self.height, self.width, channels),
            time=jnp.broadcast_to(state.time, n),
            deadline=jnp.broadcast_to(state.deadline, n),
            legal=_spread_bits(ego_first(masks), self.num_actions).astype(bool),
            last_actions=ego_first(last_actions),
        )

    def restore(self, observation: Observation) -> GridState:
        assert isinstance(observation, GridObservation)
        planes = jnp.moveaxis(observation.grid, -1, 0).reshape(-1, self.num_cells) > 0
        standing, contents = planes[: self.players], pack(planes[self.players :])
        return GridState(
            cells=jnp.where(standing.any(-1), jnp.argmax(standing, axis=-1), -1).astype(jnp.int32),
            blocks=contents[0],
            items=contents[1:],
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


def _bits(planes: Bool[Array, "k cells"], dtype: Any, first: int = 0) -> Array:
    """Packs k planes into bits first, first + 1, ... of one number per cell."""
    places = jnp.arange(first, first + planes.shape[0], dtype=dtype)[:, None]
    return (planes.astype(dtype) << places).sum(0, dtype=dtype)


def _spread_bits(codes: Array, count: int) -> Array:
    """Unpacks the lowest `count` bits of each number along a new last axis."""
    return (codes[..., None] >> jnp.arange(count, dtype=codes.dtype)) & codes.dtype.type(1)


def shares(
    company: Bool[Array, "n n"], value: Float[Array, " n"] | float, strengths: Sequence[int] | None = None
) -> Float[Array, " n"]:
    """Splits the value of a joint catch.

    Sums are over integers, so that the order of the seats cannot change a bit of the result.

    Args:
        company: Entry [i, j] is true if i and j take the same item, as returned by `GridGame.company`.
        value: Value of the item that each player takes.
        strengths: Weights by seat; equal shares if None, or if the weights of a party sum to 0.

    Returns:
        Share of each player.
    """
    number = jnp.maximum(company.sum(-1), 1).astype(jnp.float32)
    if strengths is None or len(set(strengths)) == 1:
        return value / number
    weights = jnp.asarray(strengths, jnp.float32)
    total = (company * jnp.asarray(strengths, jnp.int32)).sum(-1)
    return jnp.where(total > 0, value * weights / jnp.maximum(total, 1).astype(jnp.float32), value / number)

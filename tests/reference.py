"""Reference implementation of both games in plain Python, one environment at a time, from the specification alone.

It shares no code with `hopplus.games`, and is slow and literal on purpose. The fast games must agree with it on every
transition (`test_reference.py`) and in the distribution of their initial states (`test_initial_states.py`).

Rules in addition to the specification: an illegal or invalid action has the effect of STAY; a step after the end
changes nothing and has rewards of 0; a prosocial seat that left before the step has a reward of 0.
"""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

Cell = tuple[int, int]
"""(row, column)."""
Mask = list[bool]
"""Legal actions of one player."""

UP, DOWN, LEFT, RIGHT, STAY = range(5)
STAG, HARE = 5, 6
REMOVE = 5
DIRECTIONS: dict[int, Cell] = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
DYNAMIC_END_STEPS = 5


class State(NamedTuple):
    """State of one environment."""

    blocks: frozenset[Cell]
    players: tuple[Cell | None, ...]
    """Cell of each seat; None once it has left."""
    items: tuple[frozenset[Cell], ...]
    """Cells of the remaining items, by kind: stags and hares, or drifts."""
    time: int
    last_actions: tuple[int, ...]
    first_hunt_time: int | None = None


class Outcome(NamedTuple):
    """Result of a step, by seat."""

    reward: tuple[float, ...]
    left: tuple[bool, ...]
    over: bool
    took: tuple[int, ...]
    """1 + the kind of the item taken in this step, 0 for nothing."""
    cell: tuple[int, ...]
    """Cell of that item (row * width + column), -1 for none."""


class Observation(NamedTuple):
    """Observations of all seats in states [S], ego-first."""

    grid: np.ndarray
    """[S, n, H, W, C]: players, blocks, items by kind."""
    time: np.ndarray
    """[S, n]."""
    deadline: np.ndarray
    """[S, n]: the step at which the game ends at the latest."""
    legal: np.ndarray
    """[S, n, n, A]."""
    last_actions: np.ndarray
    """[S, n, n]."""


# ---------------------------------------------------------------------------------------------------- block maps


def straight_placements(height: int, width: int, length: int) -> list[list[frozenset[Cell]]]:
    """A straight piece, horizontal and vertical; never in the first or last line that it is parallel to."""
    horizontal = [
        frozenset((row, left + i) for i in range(length))
        for row in range(1, height - 1)
        for left in range(width - length + 1)
    ]
    vertical = [
        frozenset((top + i, column) for i in range(length))
        for column in range(1, width - 1)
        for top in range(height - length + 1)
    ]
    return [horizontal, vertical]


def box_placements(
    height: int, width: int, box_height: int, box_width: int, missing: Sequence[Sequence[Cell]]
) -> list[list[frozenset[Cell]]]:
    """For each choice of missing cells, the box without these cells at every position where it fits."""
    corners = [(top, left) for top in range(height - box_height + 1) for left in range(width - box_width + 1)]
    variants = []
    for removed in missing:
        shape = [
            (row, column) for row in range(box_height) for column in range(box_width) if (row, column) not in removed
        ]
        variants.append([frozenset((top + row, left + column) for row, column in shape) for top, left in corners])
    return variants


@functools.cache
def piece_placements(height: int, width: int) -> list[list[list[frozenset[Cell]]]]:
    """All placements on the board, by kind of piece and by variant (orientation and missing cells)."""
    square_corners = [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]]
    horizontal_ends = [[(0, 0), (0, 1)], [(0, 1), (0, 2)], [(1, 0), (1, 1)], [(1, 1), (1, 2)]]
    vertical_ends = [[(0, 0), (1, 0)], [(1, 0), (2, 0)], [(0, 1), (1, 1)], [(1, 1), (2, 1)]]
    return [
        straight_placements(height, width, 3),
        box_placements(height, width, 2, 2, square_corners),
        straight_placements(height, width, 4),
        box_placements(height, width, 2, 3, horizontal_ends) + box_placements(height, width, 3, 2, vertical_ends),
    ]


def connected(cells: set[Cell]) -> bool:
    """True if the cells are one 4-connected region, or if there are none."""
    if not cells:
        return True
    unseen = set(cells)
    frontier = [unseen.pop()]
    while frontier:
        row, column = frontier.pop()
        for neighbour in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if neighbour in unseen:
                unseen.remove(neighbour)
                frontier.append(neighbour)
    return not unseen


# ------------------------------------------------------------------------------------------------------ base class


@dataclass(frozen=True)
class Reference:
    """Players who move over a board with blocks; action 5 + k takes an item of kind k."""

    height: int
    width: int
    players: int
    blocks: int
    T: int

    actions: ClassVar[int]

    @property
    def item_counts(self) -> tuple[int, ...]:
        """Number of items of each kind in an initial state."""
        raise NotImplementedError

    def deadline(self, state: State) -> int:
        """The step at which the game ends at the latest."""
        raise NotImplementedError

    def over(self, state: State) -> bool:
        """True if the game has ended."""
        raise NotImplementedError

    def take_mask(self, state: State, cell: Cell) -> Mask:
        """Legality of the actions from 5 on, for a player in that cell."""
        raise NotImplementedError

    def advance(self, state: State, executed: list[int]) -> tuple[State, list[float], list[int]]:
        """Next state, rewards and items taken, for legal actions in a game that is not over."""
        raise NotImplementedError

    # -- reset

    def draw_layout(self, rng: random.Random) -> State:
        """Samples an initial state: blocks, then players, then items."""
        blocks = self.draw_blocks(rng)
        free = sorted(self.all_cells() - blocks)
        players = tuple(rng.choice(free) for _ in range(self.players))
        cells = rng.sample(free, sum(self.item_counts))
        items = []
        for count in self.item_counts:
            items.append(frozenset(cells[:count]))
            cells = cells[count:]
        return State(blocks, players, tuple(items), time=0, last_actions=(STAY,) * self.players)

    def draw_blocks(self, rng: random.Random) -> frozenset[Cell]:
        """Samples maps until the free cells are connected and have room for all items."""
        placements = piece_placements(self.height, self.width)
        board = self.all_cells()
        while True:
            blocks: set[Cell] = set()
            for _ in range(self.blocks):
                positions = rng.choice(rng.choice(placements))
                piece = rng.choice(positions) if positions else frozenset()
                if not piece & blocks:
                    blocks |= piece
            if self.acceptable(board - blocks):
                return frozenset(blocks)

    def acceptable(self, free: set[Cell]) -> bool:
        """True if the free cells are connected and have room for all items."""
        return len(free) >= max(1, sum(self.item_counts)) and connected(free)

    def all_cells(self) -> set[Cell]:
        """All cells of the board."""
        return {(row, column) for row in range(self.height) for column in range(self.width)}

    # -- actions

    def legal(self, state: State) -> list[Mask]:
        """Action masks by seat."""
        return [self.player_mask(state, cell) for cell in state.players]

    def player_mask(self, state: State, cell: Cell | None) -> Mask:
        """Action mask of a player in that cell."""
        if cell is None:
            return [action == STAY for action in range(self.actions)]
        row, column = cell
        blocks = state.blocks
        return [
            row > 0 and (row - 1, column) not in blocks,
            row < self.height - 1 and (row + 1, column) not in blocks,
            column > 0 and (row, column - 1) not in blocks,
            column < self.width - 1 and (row, column + 1) not in blocks,
            True,
            *self.take_mask(state, cell),
        ]

    def step(self, state: State, actions: Sequence[int], legal: Sequence[Mask] | None = None) -> tuple[State, Outcome]:
        """Plays one step of all players; `legal` are the action masks of the state, if already computed."""
        if self.over(state):
            nothing = (0,) * self.players
            return state, self._outcome(state, state, nothing, nothing)
        legal = self.legal(state) if legal is None else legal
        executed = [
            action if 0 <= action < self.actions and legal[seat][action] else STAY
            for seat, action in enumerate(actions)
        ]
        after, reward, took = self.advance(state, executed)
        return after, self._outcome(state, after, reward, took)

    def _outcome(self, before: State, after: State, reward: Sequence[float], took: Sequence[int]) -> Outcome:
        cells = [
            cell[0] * self.width + cell[1] if kind and cell else -1
            for cell, kind in zip(before.players, took, strict=True)
        ]
        left = tuple(cell is None for cell in after.players)
        return Outcome(tuple(reward), left, self.over(after), tuple(took), tuple(cells))

    @staticmethod
    def walk(players: Sequence[Cell | None], executed: Sequence[int]) -> list[Cell | None]:
        """Cells of the players after the moves."""
        after = list(players)
        for seat, action in enumerate(executed):
            cell = players[seat]
            if action in DIRECTIONS and cell is not None:
                down, right = DIRECTIONS[action]
                after[seat] = (cell[0] + down, cell[1] + right)
        return after

    @staticmethod
    def parties(players: Sequence[Cell | None], executed: Sequence[int], action: int) -> dict[Cell, list[int]]:
        """Seats that execute the action, by cell."""
        parties: dict[Cell, list[int]] = {}
        if action in executed:
            for seat, cell in enumerate(players):
                if executed[seat] == action and cell is not None:
                    parties.setdefault(cell, []).append(seat)
        return parties

    # -- observations

    def observe(self, states: Sequence[State], masks: Sequence[Sequence[Mask]] | None = None) -> Observation:
        """Observations of all seats in each state; `masks` are the action masks, if already computed."""
        n = self.players
        shape = (len(states), self.height, self.width, n + 1 + len(self.item_counts))
        board = np.zeros(shape, np.int8)
        board.reshape(-1)[self._entries(states)] = 1
        order = (np.arange(n)[:, None] + np.arange(n)) % n
        legal = np.array([self.legal(state) for state in states] if masks is None else masks)
        last_actions = np.array([state.last_actions for state in states])
        times = np.array([state.time for state in states])
        deadlines = np.array([self.deadline(state) for state in states])
        grid = np.empty((len(states), n, *shape[1:]), np.int8)
        for seat in range(n):
            grid[:, seat, :, :, : n - seat] = board[..., seat:n]
            grid[:, seat, :, :, n - seat : n] = board[..., :seat]
            grid[:, seat, :, :, n:] = board[..., n:]
        return Observation(
            grid=grid,
            time=np.repeat(times[:, None], n, axis=1),
            deadline=np.repeat(deadlines[:, None], n, axis=1),
            legal=legal[:, order],
            last_actions=last_actions[:, order],
        )

    def _entries(self, states: Sequence[State]) -> list[int]:
        """Indices of the nonzero entries of the flat [S, H, W, C], players in the order of the seats."""
        n, width, channels = self.players, self.width, self.players + 1 + len(self.item_counts)
        entries = []
        for index, state in enumerate(states):
            first = index * self.height * width * channels
            for seat, cell in enumerate(state.players):
                if cell is not None:
                    entries.append(first + (cell[0] * width + cell[1]) * channels + seat)
            for kind, cells in enumerate((state.blocks, *state.items)):
                channel = first + n + kind
                entries.extend([channel + (row * width + column) * channels for row, column in cells])
        return entries

    def parse(self, grid: np.ndarray) -> State:
        """Initial state from the grid [H, W, C] that seat 0 observes before the first step."""
        channels: list[list[Cell]] = [[] for _ in range(grid.shape[-1])]
        for row, column, channel in np.argwhere(grid).tolist():
            channels[channel].append((row, column))
        n = self.players
        if any(len(cells) != 1 for cells in channels[:n]):
            raise ValueError("every player must be in exactly one cell of an initial state")
        return State(
            blocks=frozenset(channels[n]),
            players=tuple(cells[0] for cells in channels[:n]),
            items=tuple(frozenset(cells) for cells in channels[n + 1 :]),
            time=0,
            last_actions=(STAY,) * n,
        )


# --------------------------------------------------------------------------------------------- Markov Stag Hunt


@dataclass(frozen=True)
class StagHunt(Reference):
    """Markov Stag Hunt. Items: stags (kind 0), hares (kind 1)."""

    stags: int
    hares: int
    stag_reward: float = 10.0
    hare_reward: float = 1.0
    stag_needs_company: bool = True
    dynamic_end: bool = False
    prosocial: tuple[int, ...] = ()
    strengths: tuple[int, ...] | None = None

    actions: ClassVar[int] = 7

    @property
    def item_counts(self) -> tuple[int, ...]:
        return (self.stags, self.hares)

    def deadline(self, state: State) -> int:
        if self.dynamic_end and state.first_hunt_time is not None:
            return min(self.T, state.first_hunt_time + DYNAMIC_END_STEPS)
        return self.T

    def over(self, state: State) -> bool:
        return state.time >= self.deadline(state) or all(cell is None for cell in state.players)

    def take_mask(self, state: State, cell: Cell) -> Mask:
        stags, hares = state.items
        may_hunt_stag = cell in stags and (not self.stag_needs_company or state.players.count(cell) >= 2)
        return [may_hunt_stag, cell in hares]

    def advance(self, state: State, executed: list[int]) -> tuple[State, list[float], list[int]]:
        time = state.time + 1
        players = self.walk(state.players, executed)
        earned, took = [0.0] * self.players, [0] * self.players
        caught: list[set[Cell]] = [set(), set()]
        for kind, action, least, worth in ((1, HARE, 1, self.hare_reward), (0, STAG, 2, self.stag_reward)):
            for cell, party in self.parties(state.players, executed, action).items():
                if len(party) >= least:
                    caught[kind].add(cell)
                    for seat, share in zip(party, self.shares(party, worth), strict=True):
                        earned[seat] = share
                        took[seat] = 1 + kind
                        players[seat] = None
        first_hunt_time = state.first_hunt_time
        if first_hunt_time is None and any(took):
            first_hunt_time = time
        after = State(
            blocks=state.blocks,
            players=tuple(players),
            items=(state.items[0] - caught[0], state.items[1] - caught[1]),
            time=time,
            last_actions=tuple(
                last if cell is None else action
                for cell, last, action in zip(state.players, state.last_actions, executed, strict=True)
            ),
            first_hunt_time=first_hunt_time,
        )
        return after, self.rewards(state, earned), took

    def shares(self, party: Sequence[int], worth: float) -> list[float]:
        """Share of each member of the party in a prey's reward."""
        weights = [1 if self.strengths is None else self.strengths[seat] for seat in party]
        if sum(weights) == 0:
            weights = [1] * len(party)
        return [float(np.float32(worth) * np.float32(weight) / np.float32(sum(weights))) for weight in weights]

    def rewards(self, before: State, earned: list[float]) -> list[float]:
        """Replaces the earnings of prosocial seats that have not left by the mean."""
        mean = sum(earned) / self.players
        return [
            mean if seat in self.prosocial and before.players[seat] is not None else amount
            for seat, amount in enumerate(earned)
        ]


# --------------------------------------------------------------------------------------- Markov Snowdrift Game


@dataclass(frozen=True)
class Snowdrift(Reference):
    """Markov Snowdrift Game. Items: drifts (kind 0)."""

    players: int = 4
    blocks: int = 0
    T: int = 15
    drifts: int = 6
    benefit: float = 6.0
    cost: float = 4.0

    actions: ClassVar[int] = 6

    @property
    def item_counts(self) -> tuple[int, ...]:
        return (self.drifts,)

    def deadline(self, state: State) -> int:
        return self.T

    def over(self, state: State) -> bool:
        return state.time >= self.T or not state.items[0]

    def take_mask(self, state: State, cell: Cell) -> Mask:
        return [cell in state.items[0]]

    def advance(self, state: State, executed: list[int]) -> tuple[State, list[float], list[int]]:
        parties = self.parties(state.players, executed, REMOVE)
        gain = np.float32(self.benefit) * np.float32(len(parties))
        reward, took = [float(gain)] * self.players, [0] * self.players
        for party in parties.values():
            for seat in party:
                reward[seat] = float(gain - np.float32(self.cost) / np.float32(len(party)))
                took[seat] = 1
        after = State(
            blocks=state.blocks,
            players=tuple(self.walk(state.players, executed)),
            items=(state.items[0] - parties.keys(),),
            time=state.time + 1,
            last_actions=tuple(executed),
        )
        return after, reward, took


SETTINGS: dict[str, Reference] = {
    "msh-4x4-4h1s": StagHunt(height=4, width=4, players=4, stags=1, hares=4, blocks=0, T=35),
    "msh-4x4-2h1s": StagHunt(height=4, width=4, players=2, stags=1, hares=2, blocks=0, T=35),
    "msh-6x6-4h1s": StagHunt(height=6, width=6, players=4, stags=1, hares=4, blocks=4, T=35),
    "msh-8x8-4h1s": StagHunt(height=8, width=8, players=4, stags=1, hares=4, blocks=5, T=35),
    "msh-8x8-4h2s": StagHunt(height=8, width=8, players=4, stags=2, hares=4, blocks=5, T=35),
    "msg-4x4": Snowdrift(height=4, width=4, T=15),
    "msg-6x6": Snowdrift(height=6, width=6, T=25),
    "msg-8x8": Snowdrift(height=8, width=8, T=50),
}
"""Settings of the specification."""


def make(name: str, **options: Any) -> Reference:
    """Returns the setting of that name with some options changed."""
    return replace(SETTINGS[name], **options)

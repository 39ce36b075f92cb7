"""Both games a second time: plain Python, one environment at a time, written from the specification alone.

It shares nothing with `hopplus.games`. It is slow and literal on purpose; the fast games must agree with it on every
transition (`test_reference.py`) and in the distribution of their first states (`test_maps.py`).

Rules of the project beside the specification: an action that is illegal or no action at all counts as STAY; a step
after the end changes nothing and pays nothing; a prosocial seat that has left before the step receives nothing.
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
"""Of one player, by action."""

UP, DOWN, LEFT, RIGHT, STAY = range(5)
STAG, HARE = 5, 6
REMOVE = 5
DIRECTIONS: dict[int, Cell] = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
DYNAMIC_END_STEPS = 5


class State(NamedTuple):
    """Everything about one environment."""

    blocks: frozenset[Cell]
    players: tuple[Cell | None, ...]
    """By seat; None once it has left."""
    things: tuple[frozenset[Cell], ...]
    """What is still there, by kind: stags and hares, or drifts."""
    time: int
    last_actions: tuple[int, ...]
    first_hunt_time: int | None = None


class Outcome(NamedTuple):
    """What a step brought, by seat."""

    reward: tuple[float, ...]
    left: tuple[bool, ...]
    over: bool
    took: tuple[int, ...]
    """1 + the kind of thing taken in this step, 0 for nothing."""
    cell: tuple[int, ...]
    """Where it was taken (row * width + column), -1 for nowhere."""


class Observation(NamedTuple):
    """What all seats see in some states [S], ego-first."""

    grid: np.ndarray
    """[S, n, H, W, C]: players, blocks, things by kind."""
    time: np.ndarray
    """[S, n]."""
    deadline: np.ndarray
    """[S, n]: the step at which the game will be over at the latest."""
    legal: np.ndarray
    """[S, n, n, A]."""
    last_actions: np.ndarray
    """[S, n, n]."""


# ---------------------------------------------------------------------------------------------------- block maps


def straight_placements(height: int, width: int, length: int) -> list[list[frozenset[Cell]]]:
    """A straight piece lying and standing; never in the first or last line that it is parallel to."""
    lying = [
        frozenset((row, left + i) for i in range(length))
        for row in range(1, height - 1)
        for left in range(width - length + 1)
    ]
    standing = [
        frozenset((top + i, column) for i in range(length))
        for column in range(1, width - 1)
        for top in range(height - length + 1)
    ]
    return [lying, standing]


def box_placements(
    height: int, width: int, box_height: int, box_width: int, missing: Sequence[Sequence[Cell]]
) -> list[list[frozenset[Cell]]]:
    """For each choice of missing cells, the box less these cells at every place where the box fits."""
    corners = [(top, left) for top in range(height - box_height + 1) for left in range(width - box_width + 1)]
    variants = []
    for gone in missing:
        shape = [(row, column) for row in range(box_height) for column in range(box_width) if (row, column) not in gone]
        variants.append([frozenset((top + row, left + column) for row, column in shape) for top, left in corners])
    return variants


@functools.cache
def piece_placements(height: int, width: int) -> list[list[list[frozenset[Cell]]]]:
    """By kind of piece, by variant of that kind (orientation and missing cells), all placements on the board."""
    square_corners = [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]]
    lying_ends = [[(0, 0), (0, 1)], [(0, 1), (0, 2)], [(1, 0), (1, 1)], [(1, 1), (1, 2)]]
    standing_ends = [[(0, 0), (1, 0)], [(1, 0), (2, 0)], [(0, 1), (1, 1)], [(1, 1), (2, 1)]]
    return [
        straight_placements(height, width, 3),
        box_placements(height, width, 2, 2, square_corners),
        straight_placements(height, width, 4),
        box_placements(height, width, 2, 3, lying_ends) + box_placements(height, width, 3, 2, standing_ends),
    ]


def connected(cells: set[Cell]) -> bool:
    """Whether the cells are one region of cells with common sides; so is no cell at all."""
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


# ------------------------------------------------------------------------------------------------ common to both


@dataclass(frozen=True)
class Reference:
    """Players who walk over a board with blocks; action 5 + k works on things of kind k."""

    height: int
    width: int
    players: int
    blocks: int
    T: int

    actions: ClassVar[int]

    @property
    def thing_counts(self) -> tuple[int, ...]:
        """How many things of each kind there are at first."""
        raise NotImplementedError

    def deadline(self, state: State) -> int:
        """The step at which the game will be over at the latest."""
        raise NotImplementedError

    def over(self, state: State) -> bool:
        raise NotImplementedError

    def work_mask(self, state: State, cell: Cell) -> Mask:
        """Whether a player there may use each of the actions from 5 on."""
        raise NotImplementedError

    def advance(self, state: State, executed: list[int]) -> tuple[State, list[float], list[int]]:
        """The next state, rewards and what was taken, for legal actions in a game that is not over."""
        raise NotImplementedError

    # -- reset

    def draw_layout(self, rng: random.Random) -> State:
        """A first state: blocks, then players, then things."""
        blocks = self.draw_blocks(rng)
        free = sorted(self.all_cells() - blocks)
        players = tuple(rng.choice(free) for _ in range(self.players))
        cells = rng.sample(free, sum(self.thing_counts))
        things = []
        for count in self.thing_counts:
            things.append(frozenset(cells[:count]))
            cells = cells[count:]
        return State(blocks, players, tuple(things), time=0, last_actions=(STAY,) * self.players)

    def draw_blocks(self, rng: random.Random) -> frozenset[Cell]:
        """Draw whole maps until the free cells are connected and hold everything."""
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
        """Whether these free cells can be played on."""
        return len(free) >= max(1, sum(self.thing_counts)) and connected(free)

    def all_cells(self) -> set[Cell]:
        return {(row, column) for row in range(self.height) for column in range(self.width)}

    # -- actions

    def legal(self, state: State) -> list[Mask]:
        """By seat, what it may do."""
        return [self.player_mask(state, cell) for cell in state.players]

    def player_mask(self, state: State, cell: Cell | None) -> Mask:
        """What a player in that cell may do."""
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
            *self.work_mask(state, cell),
        ]

    def step(self, state: State, actions: Sequence[int], legal: Sequence[Mask] | None = None) -> tuple[State, Outcome]:
        """One step of all players at once; `legal` spares working out the masks of the state if they are at hand."""
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
        """Where everybody stands after the moves."""
        after = list(players)
        for seat, action in enumerate(executed):
            cell = players[seat]
            if action in DIRECTIONS and cell is not None:
                down, right = DIRECTIONS[action]
                after[seat] = (cell[0] + down, cell[1] + right)
        return after

    @staticmethod
    def parties(players: Sequence[Cell | None], executed: Sequence[int], action: int) -> dict[Cell, list[int]]:
        """The seats that execute the action, by the cell in which they do it."""
        found: dict[Cell, list[int]] = {}
        if action in executed:
            for seat, cell in enumerate(players):
                if executed[seat] == action and cell is not None:
                    found.setdefault(cell, []).append(seat)
        return found

    # -- what is seen

    def observe(self, states: Sequence[State], masks: Sequence[Sequence[Mask]] | None = None) -> Observation:
        """What all seats see in each of the states; `masks` are theirs if they are at hand."""
        n = self.players
        shape = (len(states), self.height, self.width, n + 1 + len(self.thing_counts))
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
        """Wherever something is, as an index into the flat [S, H, W, C], players in the order of the seats."""
        n, width, channels = self.players, self.width, self.players + 1 + len(self.thing_counts)
        entries = []
        for index, state in enumerate(states):
            first = index * self.height * width * channels
            for seat, cell in enumerate(state.players):
                if cell is not None:
                    entries.append(first + (cell[0] * width + cell[1]) * channels + seat)
            for kind, cells in enumerate((state.blocks, *state.things)):
                place = first + n + kind
                entries.extend([place + (row * width + column) * channels for row, column in cells])
        return entries

    def parse(self, grid: np.ndarray) -> State:
        """The first state behind the grid [H, W, C] that seat 0 sees before the first step."""
        channels: list[list[Cell]] = [[] for _ in range(grid.shape[-1])]
        for row, column, channel in np.argwhere(grid).tolist():
            channels[channel].append((row, column))
        n = self.players
        if any(len(cells) != 1 for cells in channels[:n]):
            raise ValueError("every player stands in exactly one cell at first")
        return State(
            blocks=frozenset(channels[n]),
            players=tuple(cells[0] for cells in channels[:n]),
            things=tuple(frozenset(cells) for cells in channels[n + 1 :]),
            time=0,
            last_actions=(STAY,) * n,
        )


# --------------------------------------------------------------------------------------------- Markov Stag Hunt


@dataclass(frozen=True)
class StagHunt(Reference):
    """Things: stags (kind 0), hares (kind 1)."""

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
    def thing_counts(self) -> tuple[int, ...]:
        return (self.stags, self.hares)

    def deadline(self, state: State) -> int:
        if self.dynamic_end and state.first_hunt_time is not None:
            return min(self.T, state.first_hunt_time + DYNAMIC_END_STEPS)
        return self.T

    def over(self, state: State) -> bool:
        return state.time >= self.deadline(state) or all(cell is None for cell in state.players)

    def work_mask(self, state: State, cell: Cell) -> Mask:
        stags, hares = state.things
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
            things=(state.things[0] - caught[0], state.things[1] - caught[1]),
            time=time,
            last_actions=tuple(
                last if cell is None else action
                for cell, last, action in zip(state.players, state.last_actions, executed, strict=True)
            ),
            first_hunt_time=first_hunt_time,
        )
        return after, self.paid(state, earned), took

    def shares(self, party: Sequence[int], worth: float) -> list[float]:
        """What each of the party gets of a prey's worth."""
        weights = [1 if self.strengths is None else self.strengths[seat] for seat in party]
        if sum(weights) == 0:
            weights = [1] * len(party)
        return [float(np.float32(worth) * np.float32(weight) / np.float32(sum(weights))) for weight in weights]

    def paid(self, before: State, earned: list[float]) -> list[float]:
        """The rewards once prosocial seats, as long as they are in the game, receive the mean instead of their own."""
        mean = sum(earned) / self.players
        return [
            mean if seat in self.prosocial and before.players[seat] is not None else own
            for seat, own in enumerate(earned)
        ]


# --------------------------------------------------------------------------------------- Markov Snowdrift Game


@dataclass(frozen=True)
class Snowdrift(Reference):
    """Things: drifts (kind 0)."""

    players: int = 4
    blocks: int = 0
    T: int = 15
    drifts: int = 6
    benefit: float = 6.0
    cost: float = 4.0

    actions: ClassVar[int] = 6

    @property
    def thing_counts(self) -> tuple[int, ...]:
        return (self.drifts,)

    def deadline(self, state: State) -> int:
        return self.T

    def over(self, state: State) -> bool:
        return state.time >= self.T or not state.things[0]

    def work_mask(self, state: State, cell: Cell) -> Mask:
        return [cell in state.things[0]]

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
            things=(state.things[0] - parties.keys(),),
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
"""The tables of the specification."""


def make(name: str, **options: Any) -> Reference:
    """The setting of that name with some options changed."""
    return replace(SETTINGS[name], **options)

"""World models: from what one seat sees and what everybody does to what it will see next, and what everybody earns.

Both kinds take ONE ego-first observation and the players' actions in the same order; batches are made with `jax.vmap`.
What the `Game` interface fixes for every game is not learnt but kept: time goes up by one, an action that is not legal
counts as the idle one, the idle action stays legal, and whoever has left stays away, may only idle and earns nothing.
"""

from typing import Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import zeros
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.games.grid import DOWN, LEFT, RIGHT, STAY, UP, GridGame
from hopplus.networks.encoding import ILLEGAL
from hopplus.networks.layers import Trunk, dense
from hopplus.struct import struct

Kind = Literal["dense", "structured"]
KINDS: tuple[str, ...] = get_args(Kind)
LEAVES = STAY + 1
WAYS = LEAVES + 1
"""What can become of a player, numbered as the actions are: a step UP, DOWN, LEFT or RIGHT, no step, or it leaves."""
MOST_REWARDS = 64
MOST_DELAYS = 8
"""How many different rewards, and times left after a change of the deadline, a structured model can tell apart."""
NO_DELAY = -1.0
GONE = -1
NOWHERE = -2
"""The cell of one who is not on the board, and where a step that cannot be leads."""
SHARED = 16
"""How many figures sum up what everybody does."""
CLOCK_LEVELS = 8
"""Up to how many steps before the deadline the structured model counts them."""


@struct
class Predicted:
    """What a world model expects of one step, players ego-first."""

    observation: Observation
    """What the seat will see, in whole numbers: it can be fed back for the step after."""
    values: Float[Array, "H W C"]
    """The same grid before rounding: the dense model's outputs, the structured model's probabilities."""
    reward: Float[Array, " n"]
    left: Bool[Array, " n"]
    """Who has left by then."""
    over: Bool[Array, ""]


@struct
class Logits:
    """What a structured model says of one step, each part given the true outcome of the parts before it."""

    goes: Float[Array, "H W K"]
    """Of each thing on the board, that it goes; meaningless where there is none."""
    ways: Float[Array, "n 6"]
    """What becomes of each player; a step off the board or onto a block is ruled out."""
    rewards: Float[Array, "n R"]
    """By place in the vocabulary of rewards."""
    deadline: Float[Array, " D"]
    """0: unchanged; otherwise so many steps are left as place - 1 of the vocabulary of delays says."""
    legal: Float[Array, "n A"]
    over: Float[Array, ""]


@struct
class Outputs:
    """What a dense model says of one step."""

    grid: Float[Array, "H W C"]
    rewards: Float[Array, " n"]
    left: Float[Array, " n"]
    deadline: Float[Array, ""]
    """By how much it changes, as a share of T."""
    legal: Float[Array, "n A"]
    over: Float[Array, ""]


@struct
class Board:
    """What a structured model works on: where everybody and everything is."""

    cells: Int[Array, " n"]
    """row * width + column; 0 for those who have left."""
    here: Bool[Array, " n"]
    """Who has not left."""
    obstacles: Bool[Array, "H W"]
    items: Bool[Array, "H W K"]


def board_of(observation: Observation) -> Board:
    """The board that is seen; a player on several cells (which only a dense model makes up) is on the first."""
    players = observation.legal.shape[-2]
    grid = observation.grid > 0
    standing = jnp.moveaxis(grid[..., :players], -1, 0).reshape(players, -1)
    return Board(jnp.argmax(standing, -1), standing.any(-1), grid[..., players], grid[..., players + 1 :])


def executed(observation: Observation, actions: Int[Array, " n"], idle_action: int) -> Int[Array, " n"]:
    """The actions with the idle one where they are not legal."""
    chosen = observation.legal & (actions[:, None] == jnp.arange(observation.legal.shape[-1]))
    return jnp.where(chosen.any(-1), actions, idle_action)


def at_least(counts: Int[Array, "..."], levels: int) -> Float[Array, "... levels"]:
    """Counts as truth values: at least 1, at least 2, ... What holds from two on is then learnt for all numbers."""
    return (counts[..., None] > jnp.arange(levels)).astype(jnp.float32)


def make_network(kind: Kind, game: GridGame, hidden: tuple[int, ...]) -> "Structured | Dense":
    """The network of a kind for a game."""
    make = Structured if kind == "structured" else Dense
    return make(game.players, game.num_actions, len(game.item_names), game.idle_action, game.last_step, hidden)


class Part(nn.Module):
    """One part of a structured model: hidden layers, and what they are given seen directly beside them.

    Without that, inputs at which all hidden units are silent could not be told apart, and a rare event among them
    would never be learnt.
    """

    hidden: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "... F"]) -> Float[Array, "... outputs"]:
        return dense(self.outputs, 0.1)(jnp.concatenate([inputs, Trunk(self.hidden)(inputs)], -1))


class Structured(nn.Module):
    """Things go or stay, then each player takes a step, stays or leaves, then what follows from that.

    No player can jump, double or appear, nothing lying on the board can move or appear, and blocks never change: there
    is no class for it. Players share one network and are told apart only by where they stand and what they do.
    """

    players: int
    num_actions: int
    kinds: int
    """Of things that lie on the board."""
    idle_action: int
    last_step: int
    hidden: tuple[int, ...]

    def setup(self) -> None:
        self.items = Part(self.hidden, self.kinds)
        self.ways = Part(self.hidden, WAYS)
        self.paid = Part(self.hidden, MOST_REWARDS)
        self.deadline = Part(self.hidden, 1 + MOST_DELAYS)
        self.legal = Part(self.hidden, self.num_actions)
        self.over = Part(self.hidden, 1)
        self.everybody = Trunk((SHARED,))
        self.rewards = self.param("rewards", zeros, (MOST_REWARDS,))
        self.delays = self.param("delays", zeros, (MOST_DELAYS,))

    def __call__(self, before: Observation, actions: Int[Array, " n"], after: Observation) -> Logits:
        """What it says of a step whose outcome is known."""
        board, next_board = board_of(before), board_of(after)
        doing = executed(before, actions, self.idle_action)
        gone = board.items & ~next_board.items
        ways, rewards, deadline = self._players(board, doing, gone, before.deadline - before.time - 1)
        legal, over = self._view(next_board, after.deadline - after.time)
        return Logits(self._items(board, doing), ways, rewards, deadline, legal, over)

    def predict(self, before: Observation, actions: Int[Array, " n"]) -> Predicted:
        """The most likely outcome, part by part."""
        board, doing = board_of(before), executed(before, actions, self.idle_action)
        goes = self._items(board, doing)
        gone = board.items & (goes > 0)
        time = before.time + 1
        ways, rewards, deadline = self._players(board, doing, gone, before.deadline - time)
        way = jnp.argmax(ways, -1)
        here = board.here & (way != LEAVES)
        cells = jnp.take_along_axis(self.destinations(board), way[:, None], -1)[:, 0]
        next_board = Board(jnp.where(here, cells, 0), here, board.obstacles, board.items & ~gone)
        delay = jnp.concatenate([jnp.full(1, NO_DELAY), jax.lax.stop_gradient(self.delays)])[jnp.argmax(deadline)]
        # A deadline is the latest end: it can come nearer, and never moves away.
        nearer = jnp.minimum(before.deadline, time + delay.astype(time.dtype))
        next_deadline = jnp.where(delay == NO_DELAY, before.deadline, nearer)
        legal, over = self._view(next_board, next_deadline - time)
        return Predicted(
            observation=Observation(
                grid=self._grid(next_board).astype(before.grid.dtype),
                time=time,
                deadline=next_deadline,
                legal=legal > 0,
                last_actions=jnp.where(board.here, doing, before.last_actions),
            ),
            values=self._probabilities(board, goes, ways),
            reward=jnp.where(board.here, jax.lax.stop_gradient(self.rewards)[jnp.argmax(rewards, -1)], 0.0),
            left=~here,
            over=over > 0,
        )

    # -- the parts, each from what is near

    def _items(self, board: Board, doing: Int[Array, " n"]) -> Float[Array, "H W K"]:
        """That things go, from what lies on their cell and how many there do what.

        It is computed where players stand, and once for each kind with nobody there.
        """
        height, width, kinds = board.items.shape
        lying = board.items.reshape(-1, kinds)[board.cells]
        number = self._numbers_by_action(board, doing) + jax.nn.one_hot(doing, self.num_actions, dtype=jnp.int32)
        crowd = at_least(number, self.players).reshape(self.players, -1)
        visited = jnp.concatenate([lying.astype(jnp.float32), crowd], -1)
        alone = jnp.concatenate([jnp.eye(kinds), jnp.zeros((kinds, crowd.shape[-1]))], -1)
        logits = self.items(jnp.concatenate([visited, alone]))
        untouched = jnp.diagonal(logits[self.players :])
        standing = self._standing(board)
        # All who stand on one cell say the same of it.
        visitors = jnp.maximum(standing.sum(0), 1)[:, None]
        visited_logits = jnp.einsum("nc,nk->ck", standing.astype(jnp.float32), logits[: self.players]) / visitors
        logits = jnp.where(standing.any(0)[:, None], visited_logits, untouched)
        return logits.reshape(height, width, kinds)

    def _players(
        self, board: Board, doing: Int[Array, " n"], gone: Bool[Array, "H W K"], time_left: Int[Array, ""]
    ) -> tuple[Float[Array, "n 6"], Float[Array, "n R"], Float[Array, " D"]]:
        """What becomes of the players, their rewards and the deadline, given which things go."""
        company = at_least(self._numbers_by_action(board, doing), self.players - 1).reshape(self.players, -1)
        lying, gone_here = (things.reshape(-1, self.kinds)[board.cells] for things in (board.items, gone))
        doings = jax.nn.one_hot(doing, self.num_actions)
        # Rewards are rare and what lies around has no part in them: seeing it would only blur them.
        near = jnp.concatenate([doings, lying, gone_here, company], -1)
        around = jnp.concatenate([near, self._patches(board)], -1)
        ways = jnp.where(self._possible(board), self.ways(around), ILLEGAL)
        together = jnp.where(board.here[:, None], self.everybody(near), 0.0).sum(0)
        all_gone = at_least(gone.sum((0, 1)), self.players).reshape(-1)
        shared = jnp.concatenate([together, all_gone])
        of_each = jnp.concatenate([near, jnp.broadcast_to(shared, (self.players, shared.size))], -1)
        clock = jnp.concatenate([at_least(time_left, CLOCK_LEVELS), at_least((~board.here).sum(), self.players)])
        deadline = self.deadline(jnp.concatenate([shared, clock]))
        known = jnp.concatenate([jnp.ones(1, bool), jax.lax.stop_gradient(self.delays) != NO_DELAY])
        return ways, self.paid(of_each), jnp.where(known, deadline, ILLEGAL)

    def _view(self, board: Board, time_left: Int[Array, ""]) -> tuple[Float[Array, "n A"], Float[Array, ""]]:
        """What everybody may do on a board, and whether the game is over there."""
        together = self._same_cell(board).sum(-1)
        near = jnp.concatenate([self._patches(board), at_least(together, self.players - 1)], -1)
        legal = jnp.where(board.here[:, None], self.legal(near), ILLEGAL)
        legal = jnp.where(jnp.arange(self.num_actions) == self.idle_action, -ILLEGAL, legal)
        counts = [at_least(board.here.sum(), self.players), at_least(time_left, CLOCK_LEVELS)]
        counts.append(at_least(board.items.sum((0, 1)), self.players).reshape(-1))
        return legal, self.over(jnp.concatenate(counts))[0]

    # -- boards

    def _standing(self, board: Board) -> Bool[Array, "n cells"]:
        return (board.cells[:, None] == jnp.arange(board.obstacles.size)) & board.here[:, None]

    def _same_cell(self, board: Board) -> Bool[Array, "n n"]:
        """[i, j]: j, another than i, stands where i stands."""
        same = (board.cells[:, None] == board.cells) & board.here[:, None] & board.here
        return same & ~np.eye(self.players, dtype=bool)

    def _numbers_by_action(self, board: Board, doing: Int[Array, " n"]) -> Int[Array, "n A"]:
        """How many others on the same cell do what."""
        return self._same_cell(board).astype(jnp.int32) @ jax.nn.one_hot(doing, self.num_actions, dtype=jnp.int32)

    def _patches(self, board: Board) -> Float[Array, "n F"]:
        """The nine cells around each player: obstacles (the board's edge is one), and what lies there."""
        width = board.obstacles.shape[1]
        walls = jnp.pad(board.obstacles, 1, constant_values=True)[..., None]
        planes = jnp.concatenate([walls, jnp.pad(board.items, ((1, 1), (1, 1), (0, 0)))], -1)
        rows, columns = np.divmod(np.arange(9), 3)
        corner = board.cells // width * (width + 2) + board.cells % width
        around = corner[:, None] + rows * (width + 2) + columns
        return planes.reshape(-1, 1 + self.kinds)[around].astype(jnp.float32).reshape(self.players, -1)

    def _possible(self, board: Board) -> Bool[Array, "n 6"]:
        """What can become of each player: no step onto an obstacle; staying and leaving always can be."""
        walls = self._patches(board).reshape(self.players, 9, 1 + self.kinds)[..., 0] > 0
        beside = {UP: 1, DOWN: 7, LEFT: 3, RIGHT: 5}
        steps = [~walls[:, beside[way]] for way in sorted(beside)]
        return jnp.stack([*steps, *[jnp.ones(self.players, bool)] * (WAYS - len(steps))], -1)

    def destinations(self, board: Board) -> Int[Array, "n 6"]:
        """Where each way leads: GONE for whoever leaves; NOWHERE by a way that cannot be."""
        steps = {UP: -board.obstacles.shape[1], DOWN: board.obstacles.shape[1], LEFT: -1, RIGHT: 1, STAY: 0}
        to = board.cells[:, None] + np.array([steps[way] for way in sorted(steps)])
        to = jnp.concatenate([to, jnp.full((self.players, 1), GONE)], -1)
        return jnp.where(self._possible(board), to, NOWHERE)

    def _grid(self, board: Board) -> Bool[Array, "H W C"]:
        standing = self._standing(board).T.reshape(*board.obstacles.shape, -1)
        return jnp.concatenate([standing, board.obstacles[..., None], board.items], -1)

    def _probabilities(
        self, board: Board, goes: Float[Array, "H W K"], ways: Float[Array, "n 6"]
    ) -> Float[Array, "H W C"]:
        """How likely everybody and everything is to be on each cell next."""
        share = jnp.where(board.here[:, None], jax.nn.softmax(ways), 0.0)
        there = self.destinations(board)[..., None] == jnp.arange(board.obstacles.size)
        standing = jnp.einsum("nw,nwc->cn", share, there.astype(jnp.float32)).reshape(*board.obstacles.shape, -1)
        items = jnp.where(board.items, jax.nn.sigmoid(-goes), 0.0)
        return jnp.concatenate([standing, board.obstacles[..., None].astype(jnp.float32), items], -1)


class Dense(nn.Module):
    """The notes' world model: a value for every cell and channel of the next grid from the flattened present one.

    Nothing keeps it from making up boards that cannot be; it is the baseline.
    """

    players: int
    num_actions: int
    kinds: int
    idle_action: int
    last_step: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, before: Observation, actions: Int[Array, " n"]) -> Outputs:
        """What it says of a step."""
        doing = jax.nn.one_hot(executed(before, actions, self.idle_action), self.num_actions)
        clock = jnp.stack([before.time, before.deadline - before.time]) / self.last_step
        hidden = Trunk(self.hidden)(jnp.concatenate([before.grid.ravel().astype(jnp.float32), doing.ravel(), clock]))
        return Outputs(
            grid=dense(before.grid.size, 0.1)(hidden).reshape(before.grid.shape),
            rewards=dense(self.players, 0.1)(hidden),
            left=dense(self.players, 0.1)(hidden),
            deadline=dense(1, 0.1)(hidden)[0],
            legal=dense(self.players * self.num_actions, 0.1)(hidden).reshape(self.players, -1),
            over=dense(1, 0.1)(hidden)[0],
        )

    def predict(self, before: Observation, actions: Int[Array, " n"]) -> Predicted:
        """What it says, rounded: a cell is taken from a half on."""
        said = self(before, actions)
        here = board_of(before).here
        shown = jnp.concatenate([here, jnp.ones(1 + self.kinds, bool)])
        values = jnp.where(shown, said.grid, 0.0)
        legal = (said.legal > 0) & here[:, None]
        change = jnp.round(said.deadline * self.last_step).astype(before.deadline.dtype)
        return Predicted(
            observation=Observation(
                grid=(values > 0.5).astype(before.grid.dtype),
                time=before.time + 1,
                deadline=before.deadline + change,
                legal=legal | (jnp.arange(self.num_actions) == self.idle_action),
                last_actions=jnp.where(here, executed(before, actions, self.idle_action), before.last_actions),
            ),
            values=values,
            reward=jnp.where(here, said.rewards, 0.0),
            left=(said.left > 0) | ~here,
            over=said.over > 0,
        )

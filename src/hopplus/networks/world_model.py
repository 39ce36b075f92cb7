"""World models: the next observation and all rewards from one seat's observation and the joint action.

Both kinds take ONE ego-first observation and the players' actions in the same order; use `jax.vmap` for batches. The
rules that the `Game` interface fixes for every game are built in, not learnt: time increases by one, an illegal action
is replaced by the idle action, the idle action is always legal, and a player who has left does not return, may only
idle and has rewards of 0.
"""

from typing import Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import zeros
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct
from hopplus.games import GridObservation, Observation
from hopplus.games.board import DOWN, LEFT, RIGHT, STAY, UP
from hopplus.games.grid import GridGame
from hopplus.networks.encoders import ILLEGAL
from hopplus.networks.layers import Trunk, dense

Kind = Literal["dense", "structured"]
KINDS: tuple[str, ...] = get_args(Kind)
LEAVES = STAY + 1
WAYS = LEAVES + 1
"""Number of outcomes of a player, indexed like the actions: a step UP, DOWN, LEFT or RIGHT, STAY, or it leaves."""
MOST_REWARDS = 64
MOST_DELAYS = 8
"""Sizes of a structured model's vocabularies: rewards, and steps left after a change of the deadline."""
NO_DELAY = -1.0
"""Unused entry of the vocabulary of delays; as a prediction, an unchanged deadline."""
GONE = -1
NOWHERE = -2
"""Cell of a player who has left, and destination of an impossible step."""
SHARED = 16
"""Width of the summary of all players' actions."""
CLOCK_LEVELS = 8
"""Largest number of remaining steps that the structured model distinguishes."""


@struct
class Predicted:
    """Prediction of one step, players ego-first."""

    observation: Observation
    """Next observation, rounded to integers: it can be fed back for the following step."""
    values: Float[Array, "H W C"]
    """Next grid before rounding: the dense model's outputs, or the structured model's probabilities."""
    reward: Float[Array, " n"]
    left: Bool[Array, " n"]
    """Players who have left after the step."""
    over: Bool[Array, ""]


@struct
class Logits:
    """Logits of a structured model for one step, each part given the true outcome of the earlier parts."""

    goes: Float[Array, "H W K"]
    """Removal of the item on each cell; meaningless for cells without an item."""
    ways: Float[Array, "n 6"]
    """Outcome of each player; a step off the board or onto a block is masked."""
    rewards: Float[Array, "n R"]
    """Reward of each player, by index into the vocabulary of rewards."""
    deadline: Float[Array, " D"]
    """Class 0: unchanged; class k: the remaining steps are entry k - 1 of the vocabulary of delays."""
    legal: Float[Array, "n A"]
    over: Float[Array, ""]


@struct
class Outputs:
    """Outputs of a dense model for one step."""

    grid: Float[Array, "H W C"]
    rewards: Float[Array, " n"]
    left: Float[Array, " n"]
    deadline: Float[Array, ""]
    """Change of the deadline, as a share of T."""
    legal: Float[Array, "n A"]
    over: Float[Array, ""]


@struct
class Board:
    """Board as used by a structured model."""

    cells: Int[Array, " n"]
    """row * width + column; 0 for players who have left."""
    here: Bool[Array, " n"]
    """Players who have not left."""
    obstacles: Bool[Array, "H W"]
    """Blocks."""
    items: Bool[Array, "H W K"]


def board_of(observation: Observation) -> Board:
    """Board of an observation; a player on several cells (which only a dense model predicts) is on the first."""
    players = observation.legal.shape[-2]
    grid = observation.board > 0
    standing = jnp.moveaxis(grid[..., :players], -1, 0).reshape(players, -1)
    return Board(jnp.argmax(standing, -1), standing.any(-1), grid[..., players], grid[..., players + 1 :])


def executed(observation: Observation, actions: Int[Array, " n"], idle_action: int) -> Int[Array, " n"]:
    """Replaces illegal actions by the idle action."""
    chosen = observation.legal & (actions[:, None] == jnp.arange(observation.legal.shape[-1]))
    return jnp.where(chosen.any(-1), actions, idle_action)


def at_least(counts: Int[Array, "..."], levels: int) -> Float[Array, "... levels"]:
    """Thermometer encoding of counts: at least 1, at least 2, ... A rule for two or more then generalises."""
    return (counts[..., None] > jnp.arange(levels)).astype(jnp.float32)


def make_network(kind: Kind, game: GridGame, hidden: tuple[int, ...]) -> "Structured | Dense":
    """Network of a kind for a game."""
    make = Structured if kind == "structured" else Dense
    return make(game.players, game.num_actions, len(game.item_names), game.idle_action, game.last_step, hidden)


class WorldModelHead(nn.Module):
    """Part of a structured model: an output layer on the inputs and on hidden layers over them.

    Without the direct connection, inputs for which all hidden units are 0 could not be distinguished, and a rare event
    among them would never be learnt.
    """

    hidden: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "... F"]) -> Float[Array, "... outputs"]:
        return dense(self.outputs, 0.1)(jnp.concatenate([inputs, Trunk(self.hidden)(inputs)], -1))


class Structured(nn.Module):
    """Structured world model. Predicts removed items, then each player's step, stay or exit, then the consequences.

    Impossible transitions have no class: players cannot jump, duplicate or appear, items cannot move or appear, and
    blocks never change. Players share one network and differ only by their cells and actions.
    """

    players: int
    num_actions: int
    kinds: int
    """Kinds of items."""
    idle_action: int
    last_step: int
    hidden: tuple[int, ...]

    def setup(self) -> None:
        self.items = WorldModelHead(self.hidden, self.kinds)
        self.ways = WorldModelHead(self.hidden, WAYS)
        self.paid = WorldModelHead(self.hidden, MOST_REWARDS)
        self.deadline = WorldModelHead(self.hidden, 1 + MOST_DELAYS)
        self.legal = WorldModelHead(self.hidden, self.num_actions)
        self.over = WorldModelHead(self.hidden, 1)
        self.everybody = Trunk((SHARED,))
        self.rewards = self.param("rewards", zeros, (MOST_REWARDS,))
        self.delays = self.param("delays", zeros, (MOST_DELAYS,))

    def __call__(self, before: Observation, actions: Int[Array, " n"], after: Observation) -> Logits:
        """Logits of a step whose outcome is known."""
        board, next_board = board_of(before), board_of(after)
        executed_actions = executed(before, actions, self.idle_action)
        gone = board.items & ~next_board.items
        ways, rewards, deadline = self._players(board, executed_actions, gone, before.deadline - before.time - 1)
        legal, over = self._view(next_board, after.deadline - after.time)
        return Logits(self._items(board, executed_actions), ways, rewards, deadline, legal, over)

    def predict(self, before: Observation, actions: Int[Array, " n"]) -> Predicted:
        """Most likely outcome, part by part."""
        board, executed_actions = board_of(before), executed(before, actions, self.idle_action)
        goes = self._items(board, executed_actions)
        gone = board.items & (goes > 0)
        time = before.time + 1
        ways, rewards, deadline = self._players(board, executed_actions, gone, before.deadline - time)
        way = jnp.argmax(ways, -1)
        here = board.here & (way != LEAVES)
        cells = jnp.take_along_axis(self.destinations(board), way[:, None], -1)[:, 0]
        next_board = Board(jnp.where(here, cells, 0), here, board.obstacles, board.items & ~gone)
        delay = jnp.concatenate([jnp.full(1, NO_DELAY), jax.lax.stop_gradient(self.delays)])[jnp.argmax(deadline)]
        # A deadline is the latest end: it can only become earlier.
        earlier = jnp.minimum(before.deadline, time + delay.astype(time.dtype))
        next_deadline = jnp.where(delay == NO_DELAY, before.deadline, earlier)
        legal, over = self._view(next_board, next_deadline - time)
        return Predicted(
            observation=GridObservation(
                grid=self._grid(next_board).astype(before.board.dtype),
                time=time,
                deadline=next_deadline,
                legal=legal > 0,
                last_actions=jnp.where(board.here, executed_actions, before.last_actions),
            ),
            values=self._probabilities(board, goes, ways),
            reward=jnp.where(board.here, jax.lax.stop_gradient(self.rewards)[jnp.argmax(rewards, -1)], 0.0),
            left=~here,
            over=over > 0,
        )

    # -- the parts, each from local inputs

    def _items(self, board: Board, executed_actions: Int[Array, " n"]) -> Float[Array, "H W K"]:
        """Logits that items are removed, from the items on their cell and the number of players there per action.

        They are computed for the players' cells, and once per kind for cells without players.
        """
        height, width, kinds = board.items.shape
        items_here = board.items.reshape(-1, kinds)[board.cells]
        number = self._numbers_by_action(board, executed_actions) + jax.nn.one_hot(
            executed_actions, self.num_actions, dtype=jnp.int32
        )
        counts = at_least(number, self.players).reshape(self.players, -1)
        visited = jnp.concatenate([items_here.astype(jnp.float32), counts], -1)
        unvisited = jnp.concatenate([jnp.eye(kinds), jnp.zeros((kinds, counts.shape[-1]))], -1)
        logits = self.items(jnp.concatenate([visited, unvisited]))
        unvisited_logits = jnp.diagonal(logits[self.players :])
        standing = self._standing(board)
        # All players on one cell have the same logits for it.
        visitors = jnp.maximum(standing.sum(0), 1)[:, None]
        visited_logits = jnp.einsum("nc,nk->ck", standing.astype(jnp.float32), logits[: self.players]) / visitors
        logits = jnp.where(standing.any(0)[:, None], visited_logits, unvisited_logits)
        return logits.reshape(height, width, kinds)

    def _players(
        self, board: Board, executed_actions: Int[Array, " n"], gone: Bool[Array, "H W K"], time_left: Int[Array, ""]
    ) -> tuple[Float[Array, "n 6"], Float[Array, "n R"], Float[Array, " D"]]:
        """Logits of the players' outcomes, their rewards and the deadline, given the removed items."""
        company = at_least(self._numbers_by_action(board, executed_actions), self.players - 1).reshape(self.players, -1)
        items_here, gone_here = (items.reshape(-1, self.kinds)[board.cells] for items in (board.items, gone))
        one_hot_actions = jax.nn.one_hot(executed_actions, self.num_actions)
        # Rewards are rare and do not depend on neighbouring cells, which would only be a distraction as inputs.
        near = jnp.concatenate([one_hot_actions, items_here, gone_here, company], -1)
        around = jnp.concatenate([near, self._patches(board)], -1)
        ways = jnp.where(self._possible(board), self.ways(around), ILLEGAL)
        summary = jnp.where(board.here[:, None], self.everybody(near), 0.0).sum(0)
        all_gone = at_least(gone.sum((0, 1)), self.players).reshape(-1)
        shared = jnp.concatenate([summary, all_gone])
        reward_inputs = jnp.concatenate([near, jnp.broadcast_to(shared, (self.players, shared.size))], -1)
        clock = jnp.concatenate([at_least(time_left, CLOCK_LEVELS), at_least((~board.here).sum(), self.players)])
        deadline = self.deadline(jnp.concatenate([shared, clock]))
        known = jnp.concatenate([jnp.ones(1, bool), jax.lax.stop_gradient(self.delays) != NO_DELAY])
        return ways, self.paid(reward_inputs), jnp.where(known, deadline, ILLEGAL)

    def _view(self, board: Board, time_left: Int[Array, ""]) -> tuple[Float[Array, "n A"], Float[Array, ""]]:
        """Logits of the action masks and of the end of the game."""
        co_located = self._same_cell(board).sum(-1)
        near = jnp.concatenate([self._patches(board), at_least(co_located, self.players - 1)], -1)
        legal = jnp.where(board.here[:, None], self.legal(near), ILLEGAL)
        legal = jnp.where(jnp.arange(self.num_actions) == self.idle_action, -ILLEGAL, legal)
        counts = [at_least(board.here.sum(), self.players), at_least(time_left, CLOCK_LEVELS)]
        counts.append(at_least(board.items.sum((0, 1)), self.players).reshape(-1))
        return legal, self.over(jnp.concatenate(counts))[0]

    # -- boards

    def _standing(self, board: Board) -> Bool[Array, "n cells"]:
        return (board.cells[:, None] == jnp.arange(board.obstacles.size)) & board.here[:, None]

    def _same_cell(self, board: Board) -> Bool[Array, "n n"]:
        """Entry [i, j] is true if i and j are different players on the same cell."""
        same = (board.cells[:, None] == board.cells) & board.here[:, None] & board.here
        return same & ~np.eye(self.players, dtype=bool)

    def _numbers_by_action(self, board: Board, executed_actions: Int[Array, " n"]) -> Int[Array, "n A"]:
        """Number of co-players on the same cell, by action."""
        return self._same_cell(board).astype(jnp.int32) @ jax.nn.one_hot(
            executed_actions, self.num_actions, dtype=jnp.int32
        )

    def _patches(self, board: Board) -> Float[Array, "n F"]:
        """The 3x3 cells around each player: obstacles (including cells off the board) and items."""
        width = board.obstacles.shape[1]
        walls = jnp.pad(board.obstacles, 1, constant_values=True)[..., None]
        planes = jnp.concatenate([walls, jnp.pad(board.items, ((1, 1), (1, 1), (0, 0)))], -1)
        rows, columns = np.divmod(np.arange(9), 3)
        corner = board.cells // width * (width + 2) + board.cells % width
        around = corner[:, None] + rows * (width + 2) + columns
        return planes.reshape(-1, 1 + self.kinds)[around].astype(jnp.float32).reshape(self.players, -1)

    def _possible(self, board: Board) -> Bool[Array, "n 6"]:
        """Possible outcomes of each player: no step onto an obstacle; staying and leaving are always possible."""
        walls = self._patches(board).reshape(self.players, 9, 1 + self.kinds)[..., 0] > 0
        neighbours = {UP: 1, DOWN: 7, LEFT: 3, RIGHT: 5}
        steps = [~walls[:, neighbours[way]] for way in sorted(neighbours)]
        return jnp.stack([*steps, *[jnp.ones(self.players, bool)] * (WAYS - len(steps))], -1)

    def destinations(self, board: Board) -> Int[Array, "n 6"]:
        """Cell of each player after each outcome; GONE if it leaves, NOWHERE if the outcome is impossible."""
        steps = {UP: -board.obstacles.shape[1], DOWN: board.obstacles.shape[1], LEFT: -1, RIGHT: 1, STAY: 0}
        cells = board.cells[:, None] + np.array([steps[way] for way in sorted(steps)])
        cells = jnp.concatenate([cells, jnp.full((self.players, 1), GONE)], -1)
        return jnp.where(self._possible(board), cells, NOWHERE)

    def _grid(self, board: Board) -> Bool[Array, "H W C"]:
        standing = self._standing(board).T.reshape(*board.obstacles.shape, -1)
        return jnp.concatenate([standing, board.obstacles[..., None], board.items], -1)

    def _probabilities(
        self, board: Board, goes: Float[Array, "H W K"], ways: Float[Array, "n 6"]
    ) -> Float[Array, "H W C"]:
        """Probabilities of players, blocks and items on each cell after the step."""
        probabilities = jnp.where(board.here[:, None], jax.nn.softmax(ways), 0.0)
        arrives = self.destinations(board)[..., None] == jnp.arange(board.obstacles.size)
        standing = jnp.einsum("nw,nwc->cn", probabilities, arrives.astype(jnp.float32)).reshape(
            *board.obstacles.shape, -1
        )
        items = jnp.where(board.items, jax.nn.sigmoid(-goes), 0.0)
        return jnp.concatenate([standing, board.obstacles[..., None].astype(jnp.float32), items], -1)


class Dense(nn.Module):
    """Dense world model, the baseline: a value for every cell and channel of the next grid from the flattened grid.

    It can predict impossible boards.
    """

    players: int
    num_actions: int
    kinds: int
    """Kinds of items."""
    idle_action: int
    last_step: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, before: Observation, actions: Int[Array, " n"]) -> Outputs:
        """Outputs for one step."""
        one_hot_actions = jax.nn.one_hot(executed(before, actions, self.idle_action), self.num_actions)
        clock = jnp.stack([before.time, before.deadline - before.time]) / self.last_step
        hidden = Trunk(self.hidden)(
            jnp.concatenate([before.board.ravel().astype(jnp.float32), one_hot_actions.ravel(), clock])
        )
        return Outputs(
            grid=dense(before.board.size, 0.1)(hidden).reshape(before.board.shape),
            rewards=dense(self.players, 0.1)(hidden),
            left=dense(self.players, 0.1)(hidden),
            deadline=dense(1, 0.1)(hidden)[0],
            legal=dense(self.players * self.num_actions, 0.1)(hidden).reshape(self.players, -1),
            over=dense(1, 0.1)(hidden)[0],
        )

    def predict(self, before: Observation, actions: Int[Array, " n"]) -> Predicted:
        """Rounded prediction: an entry of the grid is 1 above a half."""
        outputs = self(before, actions)
        here = board_of(before).here
        shown = jnp.concatenate([here, jnp.ones(1 + self.kinds, bool)])
        values = jnp.where(shown, outputs.grid, 0.0)
        legal = (outputs.legal > 0) & here[:, None]
        change = jnp.round(outputs.deadline * self.last_step).astype(before.deadline.dtype)
        return Predicted(
            observation=GridObservation(
                grid=(values > 0.5).astype(before.board.dtype),
                time=before.time + 1,
                deadline=before.deadline + change,
                legal=legal | (jnp.arange(self.num_actions) == self.idle_action),
                last_actions=jnp.where(here, executed(before, actions, self.idle_action), before.last_actions),
            ),
            values=values,
            reward=jnp.where(here, outputs.rewards, 0.0),
            left=(outputs.left > 0) | ~here,
            over=outputs.over > 0,
        )

"""Learning and judging a world model: what it says of steps that took place, one and several ahead.

A model is rolled out by feeding its own rounded prediction back with the actions that were really taken. Losses count
only steps that took place, and nothing of a player who has left. Figures are never weighted, whatever the loss was.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.games.grid import GridGame, GridState
from hopplus.keys import Key
from hopplus.learning.moa import Terms
from hopplus.networks.world_model import (
    GONE,
    MOST_DELAYS,
    MOST_REWARDS,
    NO_DELAY,
    Dense,
    Logits,
    Outputs,
    Predicted,
    Structured,
    board_of,
)
from hopplus.planning.simulator import foresee
from hopplus.play.dataset import Recorded
from hopplus.players import Params
from hopplus.struct import struct

Network = Structured | Dense
IMPOSSIBLE = (
    "player_jumps",
    "player_doubles",
    "player_appears",
    "player_vanishes",
    "thing_moves",
    "thing_appears",
    "block_changes",
    "reward_without_a_catch",
)
"""What cannot happen, whatever is done: a player more than one cell from where it was (or on a block), on two cells,
back after it left, off the board without having left; a thing on a cell where it was not, another of its kind having
gone meanwhile or not; other blocks; a reward although nothing on the board was taken."""
NOTICEABLE = 0.1
"""A predicted reward nearer to 0 than this counts as none."""
LEAST_ERROR = 1e-12
ROWS_AT_ONCE = 2048


@struct
class Windows:
    """Stretches of play from every step that took place, by seat: `steps` steps each, and the states around them."""

    state: GridState
    """[..., steps + 1, ...]"""
    actions: Int[Array, "... steps n"]
    alive: Bool[Array, "... steps n"]
    reward: Float[Array, "... steps n"]
    left: Bool[Array, "... steps n"]
    over: Bool[Array, "... steps"]
    played: Bool[Array, "... steps"]
    """Which steps took place: those up to the end of the episode."""


@struct
class Seen:
    """A step as one seat sees it (or several, along a first axis): every player axis is ego-first."""

    before: Observation
    after: Observation
    actions: Int[Array, " n"]
    alive: Bool[Array, " n"]
    reward: Float[Array, " n"]
    left: Bool[Array, " n"]
    over: Bool[Array, ""]
    played: Bool[Array, ""]


def windows(recorded: Recorded, steps: int, apart: int = 1) -> Windows:
    """Windows [S, ...] that begin at each step that took place, in order of time and then episode.

    If they are to begin so many steps apart, then at other times in other episodes, and always at the first step.
    """
    episode, played = recorded.episode, recorded.played
    time, environment = np.indices(played.shape)
    begins = (time == 0) | ((time + environment) % apart == 0)
    time, environment = np.nonzero(played & begins)
    after = time[:, None] + np.arange(steps + 1)
    last, environment = len(played) - 1, environment[:, None]
    state = jax.tree.map(
        lambda rows, end: np.concatenate([rows, end[None]])[np.minimum(after, last + 1), environment],
        episode.state,
        episode.last_state,
    )
    at = (np.minimum(after[:, :-1], last), environment)
    fields: dict[str, Any] = {
        name: np.asarray(getattr(episode, name))[at] for name in ("actions", "alive", "reward", "left", "over")
    }
    fields["played"] = played[at] & (after[:, :-1] <= last)
    return Windows(state=state, **fields)


def seen_from(game: GridGame, window: Windows, seat: Int[Array, ""]) -> Seen:
    """One window's steps [steps, ...] as a seat sees them."""
    observation = jax.tree.map(lambda values: values[:, seat], jax.vmap(game.observe)(window.state))
    by_player = (window.actions, window.alive, window.reward, window.left)
    return Seen(
        jax.tree.map(lambda leaf: leaf[:-1], observation),
        jax.tree.map(lambda leaf: leaf[1:], observation),
        *(jnp.roll(rows, -seat, axis=-1) for rows in by_player),
        over=jnp.asarray(window.over),
        played=jnp.asarray(window.played),
    )


def seen_at_random(key: Key, game: GridGame, rows: Windows) -> Seen:
    """The steps [B, steps, ...] of windows [B, ...], each window from a seat drawn for it."""
    seats = jax.random.randint(key, rows.over.shape[:1], 0, game.players)
    return jax.vmap(partial(seen_from, game))(rows, seats)


# ------------------------------------------------------------------------------------------------------------ predict


def roll_out(network: Network, params: Params, first: Observation, actions: Int[Array, "steps n"]) -> Predicted:
    """What will come [steps, ...] of one observation and several steps' actions, each on the prediction before it."""

    def step(observation: Observation, actions: Array) -> tuple[Observation, Predicted]:
        predicted = foresee(network, params, observation, actions)
        return predicted.observation, predicted

    return jax.lax.scan(step, first, actions)[1]


def same_board(one: Observation, other: Observation) -> Bool[Array, ""]:
    """Whether everybody and everything is in the same place, and the clock too."""
    return (one.grid == other.grid).all() & (one.time == other.time) & (one.deadline == other.deadline)


# ------------------------------------------------------------------------------------------------------- vocabularies


def different_rewards(rows: Windows) -> np.ndarray:
    """All rewards that were paid."""
    return np.unique(np.asarray(rows.reward))


def different_delays(rows: Windows) -> np.ndarray:
    """How many steps were left after each change of the deadline."""
    delays = np.asarray(_delays(rows))
    return np.unique(delays[delays != NO_DELAY])


@jax.jit
def _delays(rows: Windows) -> Float[Array, "S steps"]:
    time, deadline = jnp.asarray(rows.state.time), jnp.asarray(rows.state.deadline)
    changed = jnp.asarray(rows.played) & (deadline[:, 1:] != deadline[:, :-1])
    return jnp.where(changed, (deadline - time)[:, 1:], NO_DELAY).astype(jnp.float32)


def first_params(key: Key, network: Network, game: GridGame, rows: Windows) -> Params:
    """Fresh parameters; a structured model's vocabularies are what occurs in the rows, and never change."""
    some = seen_from(game, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), rows), jnp.int32(0))
    some = jax.tree.map(lambda leaf: leaf[0], some)
    if isinstance(network, Dense):
        return network.init(key, some.before, some.actions)
    fresh = network.init(key, some.before, some.actions, some.after)["params"]
    rewards = jnp.unique(jnp.asarray(rows.reward), size=MOST_REWARDS)
    delays = jnp.unique(_delays(rows), size=MOST_DELAYS, fill_value=NO_DELAY)
    return {"params": {**fresh, "rewards": rewards.astype(jnp.float32), "delays": delays}}


def params_before_play(key: Key, network: Network, game: GridGame) -> Params:
    """Fresh parameters of a model that will learn from play: its vocabularies are still to be filled."""
    state = jax.eval_shape(game.init, key)
    nothing = jax.tree.map(lambda leaf: jnp.zeros((1, 2, *leaf.shape), leaf.dtype), state)
    by_player = (1, 1, game.players)
    rows = Windows(
        state=nothing,
        actions=jnp.zeros(by_player, jnp.int32),
        alive=jnp.zeros(by_player, bool),
        reward=jnp.zeros(by_player),
        left=jnp.zeros(by_player, bool),
        over=jnp.zeros((1, 1), bool),
        played=jnp.zeros((1, 1), bool),
    )
    return first_params(key, network, game, rows)


def with_vocabulary(params: Params, rows: Windows) -> Params:
    """Params of a structured model with the rewards and delays that are new in rows [S, ...], each at a place of its
    own: those that it knew keep theirs."""
    if "rewards" not in params["params"]:
        return params
    rewards = _with_words(params["params"]["rewards"], jnp.unique(rows.reward, size=MOST_REWARDS))
    delays = _with_words(params["params"]["delays"], jnp.unique(_delays(rows), size=MOST_DELAYS, fill_value=NO_DELAY))
    return {"params": {**params["params"], "rewards": rewards, "delays": delays}}


def _with_words(vocabulary: Float[Array, " V"], found: Float[Array, " W"]) -> Float[Array, " V"]:
    """A vocabulary, whose free places repeat its first word, with words that are new to it."""

    def add(vocabulary: Array, word: Array) -> tuple[Array, None]:
        free = 1 + (vocabulary[1:] != vocabulary[0]).sum()
        known = (jnp.abs(vocabulary - word) < 1e-6).any()
        return vocabulary.at[jnp.where(known, vocabulary.shape[0], free)].set(word, mode="drop"), None

    return jax.lax.scan(add, vocabulary, found.astype(vocabulary.dtype))[0]


# ------------------------------------------------------------------------------------------------------------- losses


def mean_loss(
    network: Network, params: Params, rows: Seen, weights: Float[Array, " C"]
) -> tuple[Float[Array, ""], Terms]:
    """The loss of windows' steps [B, steps, ...], rolled out, per step that counts; and its terms, unweighted.

    It is minus the log-likelihood of the whole outcome of a step (for the dense model: as if its errors were normal),
    with each player and each kind of thing weighted by its channel.
    """
    losses = jax.vmap(partial(_window_loss, network, params, weights))(rows)
    (total, count), terms = jax.tree.map(lambda leaf: leaf.sum(), losses)
    return total / jnp.maximum(count, 1), terms


def _window_loss(
    network: Network, params: Params, weights: Float[Array, " C"], steps: Seen
) -> tuple[tuple[Array, Array], Terms]:
    """By step, a window's loss and whether it counts, and the terms with their counts: all 0 where it does not."""
    first, held = jax.tree.map(lambda leaf: leaf[0], steps.before), jax.lax.stop_gradient(params)

    def roll(rolled: Observation, actions: Array) -> tuple[Observation, Observation]:
        following = foresee(network, held, rolled, actions).observation
        return following, following

    _, following = jax.lax.scan(roll, first, steps.actions[:-1])
    rolled = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first, following)
    return jax.vmap(partial(_step_loss, network, params, weights))(rolled, steps)


def _step_loss(
    network: Network, params: Params, weights: Float[Array, " C"], rolled: Observation, step: Seen
) -> tuple[tuple[Array, Array], Terms]:
    """One step's loss where the roll-out has come to `rolled`."""
    on_board = same_board(rolled, step.before)
    if isinstance(network, Structured):
        logits: Logits = network.apply(params, rolled, step.actions, step.after)  # pyright: ignore[reportAssignmentType]
        vocabularies = params["params"]["rewards"], params["params"]["delays"]
        loss, terms = structured_loss(network, logits, vocabularies, step, weights)
        # From a board that is not the true one the true outcome would be a lesson in wrong rules.
        counts = step.played & on_board
    else:
        outputs: Outputs = network.apply(params, rolled, step.actions)  # pyright: ignore[reportAssignmentType]
        loss, terms = dense_loss(network, outputs, step, weights)
        counts = step.played
    kept = {name: (jnp.where(counts, value, 0.0), size * counts) for name, (value, size) in terms.items()}
    kept["on_true_board"] = (step.played & on_board).astype(jnp.float32), step.played.astype(jnp.int32)
    return (jnp.where(counts, loss, 0.0), counts.astype(jnp.int32)), kept


def structured_loss(
    network: Structured,
    logits: Logits,
    vocabularies: tuple[Float[Array, " R"], Float[Array, " D"]],
    step: Seen,
    weights: Float[Array, " C"],
) -> tuple[Float[Array, ""], Terms]:
    """Minus the log-likelihood of one step's outcome, and its terms."""
    board, next_board, alive = board_of(step.before), board_of(step.after), step.alive
    rewards, delays = vocabularies
    to = jnp.where(next_board.here, next_board.cells, GONE)
    way = jnp.argmax(network.destinations(board) == to[:, None], -1)
    place = jnp.argmin(jnp.abs(rewards - step.reward[:, None]), -1)
    known = delays != NO_DELAY
    apart = jnp.where(known, jnp.abs(delays - (step.after.deadline - step.after.time)), jnp.inf)
    changed = (step.after.deadline != step.before.deadline) & known.any()

    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    binary = optax.sigmoid_binary_cross_entropy
    ways = jnp.where(alive, cross_entropy(logits.ways, way), 0.0)
    goes = jnp.where(board.items, binary(logits.goes, ~next_board.items), 0.0).sum((0, 1))
    others = {
        "reward_loss": (jnp.where(alive, cross_entropy(logits.rewards, place), 0.0).sum(), alive.sum()),
        "deadline_loss": (cross_entropy(logits.deadline, jnp.where(changed, 1 + jnp.argmin(apart), 0)), jnp.int32(1)),
        "legal_loss": (jnp.where(alive[:, None], binary(logits.legal, step.after.legal), 0.0).sum(), alive.sum()),
        "over_loss": (binary(logits.over, step.over), jnp.int32(1)),
    }
    players = len(alive)
    total = (weights[:players] * ways).sum() + (weights[players + 1 :] * goes).sum()
    terms = {"player_loss": (ways.sum(), alive.sum()), "thing_loss": (goes.sum(), board.items.sum()), **others}
    return total + sum(value for value, _ in others.values()), terms


def dense_loss(
    network: Dense, outputs: Outputs, step: Seen, weights: Float[Array, " C"]
) -> tuple[Float[Array, ""], Terms]:
    """Squared errors of the grid and the rewards and cross-entropies of the rest, of one step, and their terms."""
    alive, (height, width, channels) = step.alive, step.after.grid.shape
    shown = jnp.concatenate([alive, jnp.ones(channels - len(alive), bool)])
    grid = jnp.where(shown, jnp.square(outputs.grid - step.after.grid).sum((0, 1)), 0.0)
    change = (step.after.deadline - step.before.deadline) / network.last_step
    binary = optax.sigmoid_binary_cross_entropy
    others = {
        "reward_loss": (jnp.where(alive, jnp.square(outputs.rewards - step.reward), 0.0).sum(), alive.sum()),
        "deadline_loss": (jnp.square(outputs.deadline - change), jnp.int32(1)),
        "left_loss": (jnp.where(alive, binary(outputs.left, step.left), 0.0).sum(), alive.sum()),
        "legal_loss": (jnp.where(alive[:, None], binary(outputs.legal, step.after.legal), 0.0).sum(), alive.sum()),
        "over_loss": (binary(outputs.over, step.over), jnp.int32(1)),
    }
    total = (weights * grid).sum() + sum(value for value, _ in others.values())
    return total, {"grid_loss": (grid.sum(), shown.sum() * height * width), **others}


# ------------------------------------------------------------------------------------------------------------ figures


@struct
class Tally:
    """Sums over predictions of the same number of steps ahead; figures are made of them."""

    count: Int[Array, ""]
    """Predictions."""
    squared_error: Float[Array, " C"]
    """Of the values before rounding: the mean over cells, by channel."""
    reward_error: Float[Array, ""]
    """Squared, over players still in the game."""
    rewards: Int[Array, ""]
    """Players still in the game."""
    right: dict[str, Int[Array, ""]]
    """How many are exactly right, as a whole (`state`) and by part."""
    impossible: Int[Array, ""]
    """How many transitions, from the prediction before (or the true first board), do something that cannot happen."""
    impossible_by_kind: dict[str, Int[Array, ""]]


def tally_step(before: Observation, predicted: Predicted, step: Seen) -> Tally:
    """One prediction compared with what came; `before` is what it was made from."""
    shown, true = predicted.observation, step.after
    right = {
        "board": same_board(shown, true),
        "legal": (shown.legal == true.legal).all(),
        "last_actions": (shown.last_actions == true.last_actions).all(),
        "left": (predicted.left == step.left).all(),
        "over": predicted.over == step.over,
    }
    whole, wrong = jnp.stack(list(right.values())).all(), impossible(before, predicted)
    tally = Tally(
        count=jnp.int32(1),
        squared_error=jnp.square(predicted.values - true.grid).mean((0, 1)),
        reward_error=jnp.where(step.alive, jnp.square(predicted.reward - step.reward), 0.0).sum(),
        rewards=step.alive.sum(dtype=jnp.int32),
        right={name: value.astype(jnp.int32) for name, value in {"state": whole, **right}.items()},
        impossible=jnp.stack(list(wrong.values())).any().astype(jnp.int32),
        impossible_by_kind={name: value.astype(jnp.int32) for name, value in wrong.items()},
    )
    return jax.tree.map(lambda leaf: jnp.where(step.played, leaf, jnp.zeros_like(leaf)), tally)


def impossible(before: Observation, predicted: Predicted) -> dict[str, Bool[Array, ""]]:
    """Which of IMPOSSIBLE a predicted transition does."""
    grid, after = before.grid > 0, predicted.observation.grid > 0
    players = before.legal.shape[-2]
    stood, stands = grid[..., :players], after[..., :players]
    was_here, number = stood.any((0, 1)), stands.sum((0, 1))
    near = jnp.pad(stood, ((1, 1), (1, 1), (0, 0)))
    near = stood | near[:-2, 1:-1] | near[2:, 1:-1] | near[1:-1, :-2] | near[1:-1, 2:]
    jumps = (stands & (~near | grid[..., players, None])).any((0, 1)) & was_here
    things, left_over = grid[..., players + 1 :], after[..., players + 1 :]
    new, gone = (left_over & ~things).any((0, 1)), (things & ~left_over).any((0, 1))
    rewarded = (jnp.abs(predicted.reward) > NOTICEABLE).any()
    found = (
        jumps.any(),
        (number > 1).any(),
        ((number > 0) & ~was_here).any(),
        (was_here & (number == 0) & ~predicted.left).any(),
        (new & gone).any(),
        (new & ~gone).any(),
        (grid[..., players] != after[..., players]).any(),
        rewarded & ~gone.any(),
    )
    return dict(zip(IMPOSSIBLE, found, strict=True))


def tally_window(network: Network, params: Params, steps: Seen) -> Tally:
    """A window's steps, rolled out and compared, by steps ahead: [steps, ...]; 0 where they did not take place."""

    def step(rolled: Observation, step: Seen) -> tuple[Observation, Tally]:
        predicted = foresee(network, params, rolled, step.actions)
        return predicted.observation, tally_step(rolled, predicted, step)

    return jax.lax.scan(step, jax.tree.map(lambda leaf: leaf[0], steps.before), steps)[1]


@partial(jax.jit, static_argnames=("network", "game"))
def tally_windows(network: Network, params: Params, game: GridGame, rows: Windows) -> Tally:
    """The tallies [steps, ...] of windows [S, ...], seen from all seats in turn."""
    size = len(rows.over)
    seats = jnp.arange(size) % game.players
    blocks = -(-size // ROWS_AT_ONCE)

    def in_blocks(leaf: Any) -> Array:
        # What fills up the last block has `played` false, and counts nothing.
        filled = jnp.pad(jnp.asarray(leaf), [(0, blocks * ROWS_AT_ONCE - size), *[(0, 0)] * (leaf.ndim - 1)])
        return filled.reshape(blocks, ROWS_AT_ONCE, *leaf.shape[1:])

    def one(window: Windows, seat: Array) -> Tally:
        return tally_window(network, params, seen_from(game, window, seat))

    def block(parts: tuple[Windows, Array]) -> Tally:
        return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(one)(*parts))

    return jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(block, jax.tree.map(in_blocks, (rows, seats))))


def figures(tally: Tally, ahead: int, channels: tuple[str, ...]) -> dict[str, Any]:
    """What a tally [steps, ...] says of predictions so many steps ahead; nothing of it is weighted.

    Impossible transitions are counted by the step in which they are predicted.
    """
    at = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[ahead - 1], tally)
    count = max(float(at.count), 1.0)
    by_channel = at.squared_error / count
    error = float(by_channel.mean())
    return {
        "predictions": int(at.count),
        "observation_mse": error,
        "psnr": psnr(error),
        "reward_mse": float(at.reward_error / max(float(at.rewards), 1.0)),
        "exact": float(at.right["state"] / count),
        **{f"exact_{name}": float(right / count) for name, right in at.right.items() if name != "state"},
        "impossible": int(at.impossible),
        "impossible_by_kind": {name: int(number) for name, number in at.impossible_by_kind.items()},
        "channel_mse": dict(zip(channels, by_channel.tolist(), strict=True)),
    }


def psnr(mean_squared_error: float) -> float:
    """The peak signal-to-noise ratio of a binary grid in decibels; at most that of LEAST_ERROR, which is 120."""
    return float(-10 * np.log10(max(mean_squared_error, LEAST_ERROR)))

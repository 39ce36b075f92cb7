"""Initial parameters, vocabularies and losses of world models.

A model is rolled out by feeding back its own rounded prediction with the recorded actions. Losses count only steps that
took place, and nothing of players who have left.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from hopplus.core.keys import Key
from hopplus.games import Observation
from hopplus.games.grid import GridGame
from hopplus.models.base import Terms
from hopplus.models.world.rows import ObservedStep, Windows, observed_from, same_board
from hopplus.networks.world_model import (
    GONE,
    MOST_DELAYS,
    MOST_REWARDS,
    NO_DELAY,
    Dense,
    Logits,
    Outputs,
    Structured,
    board_of,
)
from hopplus.planning.simulator import predict
from hopplus.players import Params

Network = Structured | Dense


# ------------------------------------------------------------------------------------------------------- vocabularies


def different_rewards(rows: Windows) -> np.ndarray:
    """Returns the distinct rewards."""
    return np.unique(np.asarray(rows.reward))


def different_delays(rows: Windows) -> np.ndarray:
    """Returns the distinct numbers of remaining steps after a change of the deadline."""
    delays = np.asarray(_delays(rows))
    return np.unique(delays[delays != NO_DELAY])


@jax.jit
def _delays(rows: Windows) -> Float[Array, "S steps"]:
    time, deadline = jnp.asarray(rows.state.time), jnp.asarray(rows.state.deadline)
    changed = jnp.asarray(rows.played) & (deadline[:, 1:] != deadline[:, :-1])
    return jnp.where(changed, (deadline - time)[:, 1:], NO_DELAY).astype(jnp.float32)


def init_params(key: Key, network: Network, game: GridGame, rows: Windows) -> Params:
    """Returns initial parameters. A structured model's vocabularies are those of the rows, and are not trained."""
    steps = observed_from(game, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), rows), jnp.int32(0))
    example = jax.tree.map(lambda leaf: leaf[0], steps)
    if isinstance(network, Dense):
        return network.init(key, example.before, example.actions)
    fresh = network.init(key, example.before, example.actions, example.after)["params"]
    rewards = jnp.unique(jnp.asarray(rows.reward), size=MOST_REWARDS)
    delays = jnp.unique(_delays(rows), size=MOST_DELAYS, fill_value=NO_DELAY)
    return {"params": {**fresh, "rewards": rewards.astype(jnp.float32), "delays": delays}}


def init_params_online(key: Key, network: Network, game: GridGame) -> Params:
    """Returns initial parameters of a model trained online, with empty vocabularies."""
    state = jax.eval_shape(game.init, key)
    empty = jax.tree.map(lambda leaf: jnp.zeros((1, 2, *leaf.shape), leaf.dtype), state)
    by_player = (1, 1, game.players)
    rows = Windows(
        state=empty,
        actions=jnp.zeros(by_player, jnp.int32),
        alive=jnp.zeros(by_player, bool),
        reward=jnp.zeros(by_player),
        left=jnp.zeros(by_player, bool),
        over=jnp.zeros((1, 1), bool),
        played=jnp.zeros((1, 1), bool),
    )
    return init_params(key, network, game, rows)


def extend_vocabulary(params: Params, rows: Windows) -> Params:
    """Adds new rewards and delays of rows [S, ...] to the vocabularies of a structured model.

    Known entries keep their places. Parameters of other models are returned unchanged.
    """
    if "rewards" not in params["params"]:
        return params
    rewards = _extend(params["params"]["rewards"], jnp.unique(rows.reward, size=MOST_REWARDS))
    delays = _extend(params["params"]["delays"], jnp.unique(_delays(rows), size=MOST_DELAYS, fill_value=NO_DELAY))
    return {"params": {**params["params"], "rewards": rewards, "delays": delays}}


def _extend(vocabulary: Float[Array, " V"], entries: Float[Array, " W"]) -> Float[Array, " V"]:
    """A vocabulary with new entries added; its free places repeat its first entry."""

    def add(vocabulary: Array, entry: Array) -> tuple[Array, None]:
        free = 1 + (vocabulary[1:] != vocabulary[0]).sum()
        known = (jnp.abs(vocabulary - entry) < 1e-6).any()
        return vocabulary.at[jnp.where(known, vocabulary.shape[0], free)].set(entry, mode="drop"), None

    return jax.lax.scan(add, vocabulary, entries.astype(vocabulary.dtype))[0]


# ------------------------------------------------------------------------------------------------------------- losses


def mean_loss(
    network: Network, params: Params, rows: ObservedStep, weights: Float[Array, " C"]
) -> tuple[Float[Array, ""], Terms]:
    """Returns the mean loss of rolled-out windows per step that counts, and its unweighted terms.

    The loss is the negative log-likelihood of the whole outcome of a step (for the dense model: with normal errors).

    Args:
        rows: Steps of windows [B, steps, ...].
        weights: Weight of each channel of the grid, and so of each player and each sort of item.
    """
    losses = jax.vmap(partial(_window_loss, network, params, weights))(rows)
    (total, count), terms = jax.tree.map(lambda leaf: leaf.sum(), losses)
    return total / jnp.maximum(count, 1), terms


def _window_loss(
    network: Network, params: Params, weights: Float[Array, " C"], steps: ObservedStep
) -> tuple[tuple[Array, Array], Terms]:
    """Losses, counts and terms of a window's steps; all are 0 for steps that do not count."""
    first, fixed = jax.tree.map(lambda leaf: leaf[0], steps.before), jax.lax.stop_gradient(params)

    def roll(rolled: Observation, actions: Array) -> tuple[Observation, Observation]:
        following = predict(network, fixed, rolled, actions).observation
        return following, following

    _, following = jax.lax.scan(roll, first, steps.actions[:-1])
    rolled = jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), first, following)
    return jax.vmap(partial(_step_loss, network, params, weights))(rolled, steps)


def _step_loss(
    network: Network, params: Params, weights: Float[Array, " C"], rolled: Observation, step: ObservedStep
) -> tuple[tuple[Array, Array], Terms]:
    """Loss of one step from `rolled`, the prediction of the step before."""
    on_board = same_board(rolled, step.before)
    if isinstance(network, Structured):
        logits: Logits = network.apply(params, rolled, step.actions, step.after)  # pyright: ignore[reportAssignmentType]
        vocabularies = params["params"]["rewards"], params["params"]["delays"]
        loss, terms = structured_loss(network, logits, vocabularies, step, weights)
        # From a board other than the true one, the true outcome would teach wrong rules.
        counts = step.played & on_board
    else:
        outputs: Outputs = network.apply(params, rolled, step.actions)  # pyright: ignore[reportAssignmentType]
        loss, terms = dense_loss(network, outputs, step, weights)
        counts = step.played
    masked = {name: (jnp.where(counts, value, 0.0), size * counts) for name, (value, size) in terms.items()}
    masked["on_true_board"] = (step.played & on_board).astype(jnp.float32), step.played.astype(jnp.int32)
    return (jnp.where(counts, loss, 0.0), counts.astype(jnp.int32)), masked


def structured_loss(
    network: Structured,
    logits: Logits,
    vocabularies: tuple[Float[Array, " R"], Float[Array, " D"]],
    step: ObservedStep,
    weights: Float[Array, " C"],
) -> tuple[Float[Array, ""], Terms]:
    """Returns the negative log-likelihood of one step's outcome, and its terms.

    Args:
        vocabularies: Rewards and delays.
        weights: Weight of each channel of the grid.
    """
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
    other_terms = {
        "reward_loss": (jnp.where(alive, cross_entropy(logits.rewards, place), 0.0).sum(), alive.sum()),
        "deadline_loss": (cross_entropy(logits.deadline, jnp.where(changed, 1 + jnp.argmin(apart), 0)), jnp.int32(1)),
        "legal_loss": (jnp.where(alive[:, None], binary(logits.legal, step.after.legal), 0.0).sum(), alive.sum()),
        "over_loss": (binary(logits.over, step.over), jnp.int32(1)),
    }
    players = len(alive)
    total = (weights[:players] * ways).sum() + (weights[players + 1 :] * goes).sum()
    terms = {"player_loss": (ways.sum(), alive.sum()), "thing_loss": (goes.sum(), board.items.sum()), **other_terms}
    return total + sum(value for value, _ in other_terms.values()), terms


def dense_loss(
    network: Dense, outputs: Outputs, step: ObservedStep, weights: Float[Array, " C"]
) -> tuple[Float[Array, ""], Terms]:
    """Returns the loss of one step and its terms: squared errors (grid, rewards, deadline) and cross-entropies."""
    alive, (height, width, channels) = step.alive, step.after.board.shape
    shown = jnp.concatenate([alive, jnp.ones(channels - len(alive), bool)])
    grid = jnp.where(shown, jnp.square(outputs.grid - step.after.board).sum((0, 1)), 0.0)
    change = (step.after.deadline - step.before.deadline) / network.last_step
    binary = optax.sigmoid_binary_cross_entropy
    other_terms = {
        "reward_loss": (jnp.where(alive, jnp.square(outputs.rewards - step.reward), 0.0).sum(), alive.sum()),
        "deadline_loss": (jnp.square(outputs.deadline - change), jnp.int32(1)),
        "left_loss": (jnp.where(alive, binary(outputs.left, step.left), 0.0).sum(), alive.sum()),
        "legal_loss": (jnp.where(alive[:, None], binary(outputs.legal, step.after.legal), 0.0).sum(), alive.sum()),
        "over_loss": (binary(outputs.over, step.over), jnp.int32(1)),
    }
    total = (weights * grid).sum() + sum(value for value, _ in other_terms.values())
    return total, {"grid_loss": (grid.sum(), shown.sum() * height * width), **other_terms}

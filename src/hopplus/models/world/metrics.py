"""Metrics of world models: errors, exact predictions and impossible transitions, one and several steps ahead.

Metrics are never weighted, whatever the weights of the loss.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.grid import GridGame
from hopplus.models.world.loss import Network
from hopplus.models.world.rows import ObservedStep, Windows, observed_from, same_board
from hopplus.networks.world_model import Predicted
from hopplus.planning.simulator import predict
from hopplus.players import Params

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
"""Transitions that violate the rules for any actions: a player more than one cell from its previous cell (or on a
block), on two cells, back after leaving, off the board without having left; an item on a new cell, while another of its
sort has disappeared or not; changed blocks; a reward although no item was taken."""
NOTICEABLE = 0.1
"""Predicted rewards of smaller magnitude count as 0."""
LEAST_ERROR = 1e-12
ROWS_AT_ONCE = 2048


@struct
class Tally:
    """Sums over predictions of the same number of steps ahead, from which metrics are computed."""

    count: Int[Array, ""]
    """Number of predictions."""
    squared_error: Float[Array, " C"]
    """Squared error of the values before rounding: mean over cells, by channel."""
    reward_error: Float[Array, ""]
    """Squared error of rewards, over players still in the game."""
    rewards: Int[Array, ""]
    """Number of rewards: players still in the game."""
    right: dict[str, Int[Array, ""]]
    """Number of exactly right predictions, as a whole (`state`) and by part."""
    impossible: Int[Array, ""]
    """Number of impossible transitions from the previous prediction (at first: from the true board)."""
    impossible_by_kind: dict[str, Int[Array, ""]]
    """By entry of IMPOSSIBLE."""


def tally_step(before: Observation, predicted: Predicted, step: ObservedStep) -> Tally:
    """Compares one prediction from `before` with the recorded step."""
    observation, true = predicted.observation, step.after
    right = {
        "board": same_board(observation, true),
        "legal": (observation.legal == true.legal).all(),
        "last_actions": (observation.last_actions == true.last_actions).all(),
        "left": (predicted.left == step.left).all(),
        "over": predicted.over == step.over,
    }
    whole, wrong = jnp.stack(list(right.values())).all(), impossible(before, predicted)
    tally = Tally(
        count=jnp.int32(1),
        squared_error=jnp.square(predicted.values - true.board).mean((0, 1)),
        reward_error=jnp.where(step.alive, jnp.square(predicted.reward - step.reward), 0.0).sum(),
        rewards=step.alive.sum(dtype=jnp.int32),
        right={name: value.astype(jnp.int32) for name, value in {"state": whole, **right}.items()},
        impossible=jnp.stack(list(wrong.values())).any().astype(jnp.int32),
        impossible_by_kind={name: value.astype(jnp.int32) for name, value in wrong.items()},
    )
    return jax.tree.map(lambda leaf: jnp.where(step.played, leaf, jnp.zeros_like(leaf)), tally)


def impossible(before: Observation, predicted: Predicted) -> dict[str, Bool[Array, ""]]:
    """Returns which entries of IMPOSSIBLE apply to a predicted transition."""
    grid, after = before.board > 0, predicted.observation.board > 0
    players = before.legal.shape[-2]
    stood, stands = grid[..., :players], after[..., :players]
    was_here, number = stood.any((0, 1)), stands.sum((0, 1))
    near = jnp.pad(stood, ((1, 1), (1, 1), (0, 0)))
    near = stood | near[:-2, 1:-1] | near[2:, 1:-1] | near[1:-1, :-2] | near[1:-1, 2:]
    jumps = (stands & (~near | grid[..., players, None])).any((0, 1)) & was_here
    items, items_after = grid[..., players + 1 :], after[..., players + 1 :]
    new, gone = (items_after & ~items).any((0, 1)), (items & ~items_after).any((0, 1))
    rewarded = (jnp.abs(predicted.reward) > NOTICEABLE).any()
    violations = (
        jumps.any(),
        (number > 1).any(),
        ((number > 0) & ~was_here).any(),
        (was_here & (number == 0) & ~predicted.left).any(),
        (new & gone).any(),
        (new & ~gone).any(),
        (grid[..., players] != after[..., players]).any(),
        rewarded & ~gone.any(),
    )
    return dict(zip(IMPOSSIBLE, violations, strict=True))


def tally_window(network: Network, params: Params, steps: ObservedStep) -> Tally:
    """Returns tallies of a rolled-out window by steps ahead: [steps, ...]; 0 for steps that did not take place."""

    def step(rolled: Observation, step: ObservedStep) -> tuple[Observation, Tally]:
        predicted = predict(network, params, rolled, step.actions)
        return predicted.observation, tally_step(rolled, predicted, step)

    return jax.lax.scan(step, jax.tree.map(lambda leaf: leaf[0], steps.before), steps)[1]


@partial(jax.jit, static_argnames=("network", "game"))
def tally_windows(network: Network, params: Params, game: GridGame, rows: Windows) -> Tally:
    """Returns tallies [steps, ...] of windows [S, ...], observed from all seats in turn."""
    size = len(rows.over)
    seats = jnp.arange(size) % game.players
    blocks = -(-size // ROWS_AT_ONCE)

    def in_blocks(leaf: Any) -> Array:
        # The padding of the last block has `played` false and does not count.
        padded = jnp.pad(jnp.asarray(leaf), [(0, blocks * ROWS_AT_ONCE - size), *[(0, 0)] * (leaf.ndim - 1)])
        return padded.reshape(blocks, ROWS_AT_ONCE, *leaf.shape[1:])

    def tally_from(window: Windows, seat: Array) -> Tally:
        return tally_window(network, params, observed_from(game, window, seat))

    def block(parts: tuple[Windows, Array]) -> Tally:
        return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(tally_from)(*parts))

    return jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(block, jax.tree.map(in_blocks, (rows, seats))))


def figures(tally: Tally, ahead: int, channels: tuple[str, ...]) -> dict[str, Any]:
    """Returns unweighted metrics of predictions `ahead` steps ahead, from a tally [steps, ...].

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
    """Returns the peak signal-to-noise ratio of a binary grid in decibels; at most 120, that of LEAST_ERROR."""
    return float(-10 * np.log10(max(mean_squared_error, LEAST_ERROR)))

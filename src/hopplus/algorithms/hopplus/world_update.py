"""Online training of the world model on the transitions just played."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics
from hopplus.configs import HopPlusConfig
from hopplus.core.keys import Key
from hopplus.games import Game, GridGame
from hopplus.models import online
from hopplus.models.world.loss import extend_vocabulary, init_params_online, mean_loss
from hopplus.models.world.metrics import tally_windows
from hopplus.models.world.model import WorldModel
from hopplus.models.world.rows import Windows, observed_at_random
from hopplus.networks.train_state import TrainState
from hopplus.players import Params
from hopplus.rollouts import RolloutState, Trajectory, step_keys

BATCHES = 4
"""Optimizer steps of the world model per iteration."""


def init_world_model(key: Key, phase: CurriculumPhase) -> Params:
    """Parameters of one set."""
    game = _grid(phase.game)
    return init_params_online(key, WorldModel().network(game), game)


def update_world_model(
    key: Key,
    config: HopPlusConfig,
    phase: CurriculumPhase,
    train_state: TrainState,
    rollout_state: RolloutState,
    trajectory: Trajectory,
    progress: Array,
) -> tuple[TrainState, Metrics]:
    """One pass over a sample of the transitions, and how well the model predicted them before.

    Args:
        rollout_state: State before the rollout.
    """
    game, model = _grid(phase.game), WorldModel()
    network = model.network(game)
    windows = transition_windows(game, rollout_state, trajectory)
    rows = (config.imagination.world_model_rows,)
    chosen = jax.random.randint(jax.random.fold_in(key, 0), rows, 0, windows.over.shape[0])
    sample = jax.tree.map(lambda leaf: leaf[chosen], windows)
    first_set = jax.tree.map(lambda leaf: leaf[0], train_state.params)
    tally = jax.tree.map(lambda leaf: leaf[0], tally_windows(network, first_set, game, sample))
    params = jax.vmap(lambda params: extend_vocabulary(params, windows))(train_state.params)
    weights = jnp.ones(len(game.channel_names))

    def objective(params: Params, key: Key, rows: Any) -> Any:
        return mean_loss(network, params, observed_at_random(key, game, rows), weights)

    sets = jax.tree.leaves(params)[0].shape[0]
    updated, _ = online.fit(
        jax.random.fold_in(key, 1),
        objective,
        TrainState(params, train_state.opt_state),
        sample,
        BATCHES,
        ppo_update.anneal(config, model.learning_rate, progress),
        lambda batch, _: batch,
        jnp.zeros(sets),
    )
    by_seat = jnp.ones(game.num_players)
    return updated, {
        "world_exact": Mean(tally.right["state"] * by_seat, tally.count * by_seat),
        "world_reward_error": Mean(tally.reward_error * by_seat, tally.rewards * by_seat),
    }


def transition_windows(game: Game[Any], rollout_state: RolloutState, trajectory: Trajectory) -> Windows:
    """All transitions with the states around them [T E, 1, ...].

    The state after a step, before any reset, is recomputed by the same step with the same key.
    """
    steps = trajectory.over.shape[0]

    def next_state(number: Array, states: Any, actions: Array) -> Any:
        return jax.vmap(game.step)(step_keys(game, rollout_state, number), states, actions)[0]

    after = jax.vmap(next_state)(jnp.arange(steps), trajectory.state, trajectory.actions)

    def flat(values: Array) -> Array:
        return values.reshape(-1, 1, *values.shape[2:])

    both = jax.tree.map(lambda first, second: jnp.concatenate([flat(first), flat(second)], 1), trajectory.state, after)
    fields = {name: flat(getattr(trajectory, name)) for name in ("actions", "alive", "reward", "left", "over")}
    return Windows(state=both, **fields, played=flat(trajectory.alive.any(-1)))


def _grid(game: Game[Any]) -> GridGame:
    """The game as `HopPlus.check` has established it."""
    assert isinstance(game, GridGame)
    return game

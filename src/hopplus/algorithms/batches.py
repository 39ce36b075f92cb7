"""From a trajectory to the batch of an update: transitions of the learning seats, and metrics of the update."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics, State
from hopplus.algorithms.gae import gae
from hopplus.algorithms.reward_randomization import co_player_preferences
from hopplus.configs import PPOConfig
from hopplus.games import Observation
from hopplus.networks.actor_critic import CentralizedFeatures
from hopplus.players import Params, PolicyPlayer
from hopplus.players.cast import observation_of
from hopplus.rollouts import RolloutState, Trajectory


def last_values(
    player: PolicyPlayer,
    params: Params,
    phase: CurriculumPhase,
    rollout_state: RolloutState | None,
    trajectory: Trajectory,
    critic: Float[Array, "E L C"] | None = None,
) -> Float[Array, "E L"]:
    """Values of the learning seats in the states where the rollout was cut, with the learners' memories there.

    Args:
        params: Parameter sets [P, ...].
        rollout_state: State after the rollout; None where whole episodes were played.
        critic: Inputs of a centralised critic; None without one.
    """
    seats, shared = np.array(phase.seats.learners), phase.seats.shared
    by_seat = params_by_seat(params, shared)
    memories = () if rollout_state is None else phase.seats.learner_memories(rollout_state.memories)

    def value_of(params: Params, memory: Any, observation: Observation, critic: Array | None) -> Array:
        if critic is None:
            return player.value(params, memory, observation)
        return player.centralized_value(params, player.inputs(params, memory, observation), critic)

    value = jax.vmap(value_of, (None if shared else 0, 0, 0, 0))

    def in_environment(last_state: Any, memory: Any, critic: Array | None) -> Array:
        return value(by_seat, memory, observation_of(phase.game.observe(last_state), seats), critic)

    return jax.vmap(in_environment)(trajectory.last_state, memories, critic)


def params_by_seat(params: Params, shared: bool) -> Params:
    """Parameter sets [P, ...] as the one set of all learning seats, or as one per seat [L, ...]."""
    return jax.tree.map(lambda leaf: leaf[0], params) if shared else params


def learner_infos(
    config: PPOConfig, player: PolicyPlayer, params: Params, phase: CurriculumPhase, trajectory: Trajectory
) -> tuple[Any, Bool[Array, "T E L"]]:
    """Infos of the learners [T, E, L], and where they acted.

    With a centralised critic, values and features are those of the critic, which observes the co-players' preferences:
    the players did not know them when they acted.
    """
    info, acted = phase.seats.infos(trajectory)
    if not config.centralized_critic:
        return info, acted
    critic, shared = co_player_preferences(phase, trajectory), phase.seats.shared
    by_seat = jax.vmap(player.centralized_value, (None if shared else 0, 0, 0))
    over_rows = jax.vmap(jax.vmap(by_seat, (None, 0, 0)), (None, 0, 0))
    value = over_rows(params_by_seat(params, shared), info.features, critic)
    return dataclasses.replace(info, value=value, features=CentralizedFeatures(info.features, critic)), acted


def cut_critic_inputs(infos: Any) -> Float[Array, "E L C"] | None:
    """Inputs of a centralised critic at the cut of a rollout, by `learner_infos`; None without one.

    A trial in progress has the preferences of the last step.
    """
    return infos.features.critic[-1] if isinstance(infos.features, CentralizedFeatures) else None


def make_transitions(
    config: PPOConfig,
    state: State,
    phase: CurriculumPhase,
    trajectory: Trajectory,
    infos: tuple[Any, Bool[Array, "T E L"]],
    reward: Float[Array, "T E n"],
    last_value: Float[Array, "E L"],
) -> ppo_update.Transitions:
    """Transitions [T, E, L] of the learning seats, with advantages from the values at collection time.

    The action is the intended one: an executed tremble is not the policy's.
    """
    seats = np.array(phase.seats.learners)
    info, acted = infos
    ended = (trajectory.left | trajectory.over[..., None])[..., seats]
    alive = trajectory.alive[..., seats]
    advantage, target = gae(reward[..., seats], info.value, last_value, ended, alive, config.gamma, config.gae_lambda)
    return ppo_update.Transitions(
        features=info.features,
        seat=jnp.broadcast_to(seats, alive.shape),
        action=trajectory.actions[..., seats] if info.intended_action is None else info.intended_action,
        log_probability=info.log_probability,
        value=info.value,
        advantage=advantage,
        target=target,
        is_valid=alive & acted,
        collected_at=jnp.full(alive.shape, state.iteration),
    )


def merge_time(values: Array) -> Array:
    """Values [T, E, ...] as [T E, ...]."""
    return values.reshape(-1, *values.shape[2:])


def update_metrics(
    config: PPOConfig,
    num_seats: int,
    iteration: Array,
    batch: ppo_update.Transitions,
    sums: ppo_update.Metrics,
    names: tuple[str, ...],
) -> Metrics:
    """Metrics of an update by seat, from its sums [P, n] over transitions and the batch [P, M]."""
    count = sums["rows"].sum(0)
    metrics = {name: Mean(sums[name].sum(0), count) for name in names}
    for loss, targets in (("plan_loss", "plan_targets"), ("plan_head_loss", "plan_head_targets")):
        if targets in sums:
            metrics[loss] = Mean(sums[loss].sum(0), sums[targets].sum(0))
    has_rows = (count > 0).astype(jnp.float32)
    metrics["explained_variance"] = Mean(ppo_update.explained_variance(batch, num_seats) * has_rows, has_rows)
    age = ppo_update.mean_by_seat((iteration - batch.collected_at).astype(jnp.float32), batch, num_seats)
    metrics["staleness"] = Mean(age * has_rows, has_rows)
    metrics["trained_on"] = Mean(sums["rows"] / config.update_epochs, jnp.ones_like(sums["rows"]))
    return metrics

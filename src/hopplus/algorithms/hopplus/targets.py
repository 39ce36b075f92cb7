"""Training targets beyond the rollout: planned policies and imagined transitions."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase
from hopplus.algorithms.expert_iteration import NO_PLAN, PlannedTransitions
from hopplus.algorithms.gae import gae
from hopplus.algorithms.hopplus.acting import distilled_plans, make_belief_tracker, make_network
from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.configs import HopPlusConfig
from hopplus.core.keys import Key
from hopplus.core.sharding import replicate, shard
from hopplus.games import Observation
from hopplus.games.preferences import stack_preferences
from hopplus.planning.catalog import PlanningMethod
from hopplus.planning.imagination import ImaginedRollout, imagine
from hopplus.planning.simulation import BeliefSimulator
from hopplus.players import Params
from hopplus.players.cast import observation_of
from hopplus.players.planner import features_of, with_preference
from hopplus.rollouts import Trajectory


def planned_transitions(
    config: HopPlusConfig, phase: CurriculumPhase, transitions: ppo_update.Transitions, trajectory: Trajectory
) -> PlannedTransitions:
    """Transitions [T, E, L], in expert iteration with the planned policies that acted."""
    decision = phase.seats.infos(trajectory)[0]
    shape, searched = transitions.is_valid.shape, config.planning.learn == "expert"
    no_plan = jnp.zeros((*shape, phase.game.num_actions))
    return PlannedTransitions(
        **vars(transitions),
        policy_acted=jnp.full(shape, not searched),
        trains_value=jnp.ones(shape, bool),
        has_plan_target=jnp.full(shape, searched),
        plan_policy=decision.plan.policy if searched else no_plan,
        base_plan=jnp.full(shape, NO_PLAN),
    )


def add_plan_targets(
    key: Key,
    config: HopPlusConfig,
    phase: CurriculumPhase,
    method: PlanningMethod,
    params: Params,
    transitions: PlannedTransitions,
    trajectory: Trajectory,
) -> tuple[PlannedTransitions, PlannedTransitions]:
    """Plans at some valid transitions of neutral learners.

    Returns:
        The transitions [T, E, L], some with a base plan as target of the plan head; and transitions [B] whose target is
        the planned policy, under the preference of the base plan that is followed. Those of belief rollouts are valid
        only where the challenger replaced the reference and differs from it in this step.
    """
    # Planned transitions are copies of some of them: gathered from all devices once, for these and for the update.
    transitions = replicate(transitions)
    shape, game = transitions.is_valid.shape, phase.final_game
    own = phase.seats.infos(trajectory)[0].co_player_beliefs.preference
    eligible = (transitions.is_valid & replicate(own.is_neutral)).reshape(-1)
    order = ppo_update.shuffle_valid_first(jax.random.fold_in(key, 0), eligible[None])
    chosen = shard(order[0, : config.planning.planned_states], 0)
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, 1), number))(chosen)
    point_params, beliefs, observation = decision_points(config, phase, params, trajectory, chosen, shape)
    plans = jax.vmap(method.plan)(keys, point_params, beliefs, observation)
    is_target, base_plan = eligible[chosen], jnp.full(len(eligible), NO_PLAN)
    collected = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[3:])[chosen], transitions)
    features = collected.features
    if (choice := plans.choice) is not None:
        # The reference of a learner is a base plan. A delayed plan that has not switched yet may not differ from it.
        differs = (choice.challenger[:, 0] != choice.reference[:, 0]) | (choice.base_plan != choice.reference[:, 1])
        is_target &= choice.replaced & differs
        if followed := distilled_plans(config, game):
            preference = jax.tree.map(lambda leaf: leaf[choice.base_plan], stack_preferences(followed))
            features = jax.vmap(partial(with_preference, make_belief_tracker(config, game)))(features, preference)
            base_plan = jnp.where(eligible, base_plan.at[chosen].set(choice.base_plan), NO_PLAN)
    planned = dataclasses.replace(
        collected,
        features=features,
        is_valid=is_target,
        policy_acted=jnp.zeros_like(is_target),
        trains_value=jnp.zeros_like(is_target),
        has_plan_target=is_target,
        plan_policy=plans.policy,
        base_plan=jnp.full(is_target.shape, NO_PLAN),
    )
    return dataclasses.replace(transitions, base_plan=base_plan.reshape(shape)), planned


def append_planned(
    config: HopPlusConfig, phase: CurriculumPhase, batch: PlannedTransitions, planned: PlannedTransitions
) -> PlannedTransitions:
    """A batch [P, M] with planned transitions [B] appended; each parameter set learns from those of its own seats."""
    sets = jnp.asarray(phase.seats.learners)[:, None] if config.parameters != "shared" else planned.seat[None]
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sets), *leaf.shape)), planned)
    repeated = dataclasses.replace(repeated, is_valid=repeated.is_valid & (planned.seat == sets))
    return jax.tree.map(lambda real, other: jnp.concatenate([real, other], 1), batch, repeated)


def decision_points(
    config: HopPlusConfig,
    phase: CurriculumPhase,
    params: Params,
    trajectory: Trajectory,
    chosen: Int[Array, " B"],
    shape: tuple[int, ...],
) -> tuple[Params, CoPlayerBeliefs, Observation]:
    """Parameters, beliefs and observations [B] of the learners at flat indices into [T, E, L]."""
    decision, _ = phase.seats.infos(trajectory)
    time, environment, learner = jnp.unravel_index(chosen, shape)
    beliefs = jax.tree.map(lambda leaf: leaf[time, environment, learner], decision.co_player_beliefs)
    states = jax.tree.map(lambda leaf: leaf[time, environment], trajectory.state)
    seats = jnp.asarray(phase.seats.learners)[learner]
    observation = jax.vmap(lambda state, seat: observation_of(phase.game.observe(state), seat))(states, seats)
    index = jnp.zeros_like(learner) if config.parameters == "shared" else learner
    return jax.tree.map(lambda leaf: leaf[index], params), beliefs, observation


def add_imagined(
    key: Key,
    config: HopPlusConfig,
    phase: CurriculumPhase,
    simulation: BeliefSimulator,
    params: Params,
    batch: PlannedTransitions,
    trajectory: Trajectory,
    iteration: Array,
) -> PlannedTransitions:
    """A batch [P, M] with imagined transitions appended, so that the real ones are `real_ratio` of all."""
    sets, shared = batch.is_valid.shape[0], config.parameters == "shared"
    steps = config.imagination.imagined_steps
    number = round(batch.is_valid.shape[1] * (1 / config.imagination.real_ratio - 1) / steps)
    learners = np.array(phase.seats.learners)
    shape = (*trajectory.over.shape, len(learners))
    valid = trajectory.alive[..., learners] & phase.seats.infos(trajectory)[1]

    def for_set(index: Array) -> PlannedTransitions:
        own = valid if shared else valid & (np.arange(len(learners)) == index)
        order = ppo_update.shuffle_valid_first(jax.random.fold_in(key, 0), own.reshape(1, -1))[0]
        chosen = shard(order[jnp.arange(number) % jnp.maximum(own.sum(), 1)], 0)
        keys = jax.vmap(lambda place: jax.random.fold_in(jax.random.fold_in(key, 1), place))(jnp.arange(number))
        points = decision_points(config, phase, params, trajectory, chosen, shape)
        roll = jax.vmap(lambda key, params, beliefs, seen: imagine(simulation, key, params, beliefs, seen, steps))
        seats = jnp.asarray(learners)[jnp.unravel_index(chosen, shape)[2]]
        return imagined_transitions(config, phase, roll(keys, *points), seats, iteration)

    imagined = jax.vmap(for_set)(jnp.arange(sets))
    return jax.tree.map(lambda real, other: jnp.concatenate([real, other], 1), batch, imagined)


def imagined_transitions(
    config: HopPlusConfig, phase: CurriculumPhase, imagined: ImaginedRollout, seats: Int[Array, " B"], iteration: Array
) -> PlannedTransitions:
    """Transitions [B H] of imagined rollouts [B, H]."""
    game = phase.final_game
    network, tracker = make_network(config, game), make_belief_tracker(config, game)

    def by_time(values: Array) -> Array:
        return values.T[..., None]

    advantage, target = gae(
        by_time(imagined.reward),
        by_time(imagined.value),
        imagined.last_value[:, None],
        by_time(imagined.ended),
        by_time(imagined.alive),
        config.gamma,
        config.gae_lambda,
    )
    features = jax.vmap(jax.vmap(partial(features_of, network, tracker)))(imagined.observation, imagined.beliefs)
    alive = imagined.alive
    transitions = PlannedTransitions(
        features=features,
        seat=jnp.broadcast_to(seats[:, None], alive.shape),
        action=imagined.action,
        log_probability=imagined.log_probability,
        value=imagined.value,
        advantage=advantage[..., 0].T,
        target=target[..., 0].T,
        is_valid=alive,
        collected_at=jnp.full(alive.shape, iteration),
        policy_acted=jnp.ones(alive.shape, bool),
        trains_value=jnp.full(alive.shape, config.imagination.imagined_values),
        has_plan_target=jnp.zeros(alive.shape, bool),
        plan_policy=jnp.zeros((*alive.shape, game.num_actions)),
        base_plan=jnp.full(alive.shape, NO_PLAN),
    )
    return jax.tree.map(lambda values: values.reshape(-1, *values.shape[2:]), transitions)

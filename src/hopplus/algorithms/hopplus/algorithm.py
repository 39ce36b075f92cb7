"""HOP+: beliefs about learnt goals, a policy and value that observe them, planning, and learning from all of it."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from hopplus.algorithms import expert_iteration, ppo_update, regret, reward_randomization
from hopplus.algorithms.base import NO_PARAMS, Algorithm, CurriculumPhase, Metrics, State
from hopplus.algorithms.batches import (
    cut_critic_inputs,
    last_values,
    learner_infos,
    make_transitions,
    merge_time,
    update_metrics,
)
from hopplus.algorithms.expert_iteration import PlannedTransitions
from hopplus.algorithms.hopplus import acting
from hopplus.algorithms.hopplus.metrics import belief_metrics
from hopplus.algorithms.hopplus.opponent_update import (
    flatten_moa,
    init_moa,
    learners_preferences,
    unflatten_moa,
    update_moa,
)
from hopplus.algorithms.hopplus.targets import add_imagined, add_plan_targets, append_planned, planned_transitions
from hopplus.algorithms.hopplus.world_update import init_world_model, update_world_model
from hopplus.algorithms.parameters import broadcast_params, init_policy, set_keys, value_scale
from hopplus.algorithms.ppo import (
    POLICY,
    PPO,
    ROLLOUT,
    check_late_starts,
    fine_tuning_settings,
    network_inputs,
    update_key,
)
from hopplus.algorithms.regret import RegretTable
from hopplus.algorithms.seats import OPTIMIST
from hopplus.beliefs.goal_space import labelled_goals
from hopplus.configs import HopPlusConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.settings import replace_settings
from hopplus.core.struct import struct
from hopplus.games import Game
from hopplus.games.preferences import base_plans
from hopplus.models import online
from hopplus.models.agent_trajectories import AgentTrajectories, from_rollout
from hopplus.models.world.model import WorldModel
from hopplus.networks import BeliefActorCritic
from hopplus.networks.train_state import TrainState
from hopplus.planning import catalog
from hopplus.planning.catalog import PlanningMethod
from hopplus.players import Params, PolicyPlayer
from hopplus.players.planner import Planner, evaluate_with_plans
from hopplus.players.policy import evaluate_features
from hopplus.rollouts import RolloutState, Trajectory, init_rollout, rollout

MOA, WORLD, PLAN_TARGETS, IMAGINATION = range(10, 14)
"""Purposes of a seed's key, beside those of PPO."""


@struct
class HopPlusState:
    """Training state of one seed."""

    key: Key
    iteration: Int[Array, ""]
    steps: Int[Array, ""]
    train_state: TrainState
    """Policy and value."""
    moa: TrainState
    """Opponent model in training."""
    acting_moa: Params
    """Copy of the opponent model that players act and plan with, refreshed every few iterations."""
    world: TrainState | None
    """World model; None with the game's rules or without a simulator."""
    rollout_state: RolloutState | None
    regret: RegretTable | None = None
    """Returns by composition and own preference; None without regret sampling."""


@dataclass(frozen=True)
class HopPlus(HopPlusConfig, Algorithm):
    """HOP+: learnt goals, a model of other agents, beliefs, planning and PPO."""

    name: ClassVar[str] = "hopplus"
    traced: ClassVar[tuple[str, ...]] = (*PPO.traced, "moa_learning_rate", "plan_coef")

    @property
    def has_memory(self) -> bool:
        return self.beliefs.inter and acting.has_hypotheses(self)

    def first_planned_step(self, steps: int, iterations_per_call: int) -> int | None:
        if self.planning.learn != "both":
            return None
        per_call = iterations_per_call * self.num_envs * self.num_steps
        last_call = (math.ceil(steps / per_call) - 1) * per_call
        return min(steps - round(self.planning.planned_share * steps), last_call)

    @property
    def default_partner(self) -> str | None:
        is_labelled = labelled_goals(self.beliefs.goals) is not None
        return OPTIMIST if is_labelled and self.planning.learn != "expert" else None

    def for_learners(self, number: int) -> Self:
        if number > 1 or not acting.has_preference_models(self):
            return self
        return replace_settings(self, {"preference_models": False})

    def network(self, game: Game[Any]) -> BeliefActorCritic:
        return acting.make_network(self, game)

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> Planner:
        return Planner(
            self.network(game),
            source,
            greedy,
            shares,
            learns,
            self.name,
            belief_tracker=acting.make_belief_tracker(self, game),
            simulator=acting.make_simulator(self, game),
            planning=acting.planner_choice(self, game, learns),
            plans=() if learns else acting.distilled_plans(self, game),
            samples_preference=learns and self.randomize_rewards and self.has_trials,
        )

    def evaluated_player(self, game: Game[Any], source: str) -> PolicyPlayer:
        """The policy alone, which the training improves; with its planner only if it acts with it in training."""
        player = super().evaluated_player(game, source)
        return player if self.planning.learn == "expert" else dataclasses.replace(player, planning=None)  # pyright: ignore[reportCallIssue]

    def planning_method(self, game: Game[Any]) -> PlanningMethod:
        """Planning method of the training, with the beliefs, policy and value of the player."""
        return self.player(game, "", learns=True).planning_method(acting.planner_of_training(self, game))

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        game = games[-1]
        if self.buffer_episodes:
            raise InputError(f"{self.name} is trained on fresh rollouts: buffer_episodes must be 0")
        if (goals := labelled_goals(self.beliefs.goals)) is not None:
            goals.names(game)
        acting.make_moa(self).check_network(game)
        if game.reseat([*range(1, game.num_players), 0]) != game:
            raise InputError(f"{self.name} plans from its own seat, and the seats of {game.name} are not alike")
        if self.num_envs % self.opponent_model.moa_batches:
            raise InputError(
                f"moa_batches must divide num_envs ({self.num_envs}), not {self.opponent_model.moa_batches}"
            )
        if self.imagination.world == "learned":
            WorldModel().check(game)
        catalog.check(self.planning.planner)
        base_plans(game, self.planning.plans)
        plans = self.planning.planner != catalog.OFF or self.planning.learn != "ppo"
        if self.imagination.world == "none" and (plans or self.imagination.real_ratio < 1):
            raise InputError("world none: planning and imagination need the rules or a learned world model")
        reward_randomization.check(self)
        check_late_starts(self, games)
        simulates = self.imagination.real_ratio < 1 or self.planning.learn != "ppo"
        if self.centralized_critic and simulates:
            raise InputError("centralized_critic needs real_ratio 1 and learn ppo: a simulator knows no preferences")
        if self.randomize_rewards and self.imagination.world == "learned" and simulates:
            raise InputError(
                "randomize_rewards needs world rules for imagination and planned targets: a learned world model"
                " predicts no components of the reward"
            )

    def for_fine_tuning(self, game: Game[Any]) -> Self:
        return replace_settings(self, {**fine_tuning_settings(self, game), "moa_batches": 1})

    def init(
        self,
        key: Key,
        phase: CurriculumPhase,
        frozen: Mapping[str, Params],
        init_params: Mapping[str, Params] = NO_PARAMS,
    ) -> State:
        key = fast(key)
        moa = self._init_module(key, MOA, phase, partial(init_moa, config=self, phase=phase), init_params.get("moa"))
        world = None
        if self.imagination.world == "learned":
            init_world = partial(init_world_model, phase=phase)
            given = init_params.get("world-model")
            world = online.init_train_state(self._init_module(key, WORLD, phase, init_world, given))
        keys = set_keys(jax.random.fold_in(key, POLICY), phase, self.shares_params)
        policy = init_policy(keys, self.network(phase.final_game), phase, self, init_params.get("policy"))
        train_moa = online.init_train_state(flatten_moa(self, moa))
        table = regret.init_table(self, phase)
        state = HopPlusState(key, jnp.int32(0), jnp.int32(0), policy, train_moa, moa, world, None, table)
        params = phase.seats.params(self.params(state), frozen, regret=regret.sampling(self, phase, table))
        rollout_key = jax.random.fold_in(key, ROLLOUT)
        late = self.late_start_share > 0
        rollout_state = init_rollout(rollout_key, phase.game, phase.seats.cast, self.num_envs, params, late)
        return dataclasses.replace(state, rollout_state=rollout_state)

    def _init_module(
        self, key: Key, purpose: int, phase: CurriculumPhase, init: Callable[[Key], Params], given: Params | None
    ) -> Params:
        """Parameter sets [P, ...] of a module, fresh or given."""
        keys = set_keys(jax.random.fold_in(key, purpose), phase, self.shares_params)
        fresh = jax.vmap(init)(keys)
        return fresh if given is None else broadcast_params(given, fresh)

    def train_step(
        self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> tuple[State, Trajectory, Metrics]:
        rollout_state, trajectory = self.collect(state, phase, frozen)
        transitions = self.transitions(state, phase, rollout_state, trajectory)
        returns = transitions.target
        agents = self.agent_trajectories(phase, trajectory)
        moa = self.update_moa(state, phase, trajectory, agents)
        world, world_metrics = self.update_world_model(state, phase, trajectory)
        batch = self.batch(state, phase, transitions, trajectory)
        train_state, sums = self.update_policy(state, phase, batch)
        table, regret_metrics = regret.update(state.regret, phase, trajectory)
        names, players = expert_iteration.METRIC_NAMES, phase.game.num_players
        metrics = {
            **update_metrics(self, players, state.iteration, batch, sums, names),
            **belief_metrics(self, phase, trajectory, agents, returns),
            **(reward_randomization.own_return(phase, trajectory) if self.randomize_rewards else {}),
            **regret_metrics,
            **world_metrics,
        }
        is_due = (state.iteration + 1) % self.opponent_model.moa_refresh == 0
        fresh = unflatten_moa(self, moa.params, phase)
        acting_moa = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), fresh, state.acting_moa)
        steps = state.steps + trajectory.alive.any(-1).sum()
        iteration = state.iteration + 1
        state = HopPlusState(state.key, iteration, steps, train_state, moa, acting_moa, world, rollout_state, table)
        return state, trajectory, metrics

    # -- parts of a training step

    def collect(
        self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> tuple[RolloutState, Trajectory]:
        """Plays the steps of one iteration."""
        by_regret = regret.sampling(self, phase, state.regret)
        params = phase.seats.params(self.params(state), frozen, phase.partner_share_at(state.steps), by_regret)
        game, cast, trial_end = phase.game, phase.seats.cast, self.trial_end_probability
        return rollout(state.rollout_state, game, cast, self.num_steps, params, trial_end, self.late_start_share)

    def transitions(
        self, state: State, phase: CurriculumPhase, rollout_state: RolloutState, trajectory: Trajectory
    ) -> PlannedTransitions:
        """Transitions [T, E, L] of the learning seats, on the preferred reward."""
        player, params = self.player(phase.final_game, "", learns=True), self.params(state)
        infos = learner_infos(self, player, params, phase, trajectory)
        critic = cut_critic_inputs(infos[0])
        last_value = last_values(player, params, phase, rollout_state, trajectory, critic)
        weighted = self.randomize_rewards
        reward = reward_randomization.preferred_reward(phase, trajectory) if weighted else trajectory.reward
        transitions = make_transitions(self, state, phase, trajectory, infos, reward, last_value)
        return planned_transitions(self, phase, transitions, trajectory)

    def agent_trajectories(self, phase: CurriculumPhase, trajectory: Trajectory) -> AgentTrajectories:
        """Trajectories of all agents, as the opponent model learns from them."""
        goals = self.beliefs.goals
        preference = learners_preferences(phase, trajectory) if acting.has_preference_models(self) else None
        return from_rollout(phase.game, trajectory, goals == "gaussian", labelled_goals(goals), preference)

    def update_moa(
        self, state: State, phase: CurriculumPhase, trajectory: Trajectory, agents: AgentTrajectories
    ) -> TrainState:
        """Opponent model after an iteration."""
        key = jax.random.fold_in(jax.random.fold_in(state.key, MOA), state.iteration)
        return update_moa(key, self, phase, state.moa, trajectory, agents, phase.progress(state.steps))

    def update_world_model(
        self, state: State, phase: CurriculumPhase, trajectory: Trajectory
    ) -> tuple[TrainState | None, Metrics]:
        """World model after an iteration, and its metrics."""
        if self.imagination.world != "learned":
            return None, {}
        key = jax.random.fold_in(jax.random.fold_in(state.key, WORLD), state.iteration)
        progress = phase.progress(state.steps)
        return update_world_model(key, self, phase, state.world, state.rollout_state, trajectory, progress)

    def batch(
        self, state: State, phase: CurriculumPhase, transitions: PlannedTransitions, trajectory: Trajectory
    ) -> PlannedTransitions:
        """Batch [P, M] of the policy update: real transitions, with planned targets, and imagined ones."""
        params, planned = self.params(state), None
        if phase.has_plan_targets:
            key = jax.random.fold_in(jax.random.fold_in(state.key, PLAN_TARGETS), state.iteration)
            method = self.planning_method(phase.final_game)
            transitions, planned = add_plan_targets(key, self, phase, method, params, transitions, trajectory)
        batch: Any = ppo_update.group_by_params(jax.tree.map(merge_time, transitions), self.shares_params)
        if self.imagination.real_ratio < 1:
            key = jax.random.fold_in(jax.random.fold_in(state.key, IMAGINATION), state.iteration)
            simulation = self.player(phase.final_game, "", learns=True).simulation
            batch = add_imagined(key, self, phase, simulation, params, batch, trajectory, state.iteration)
        return batch if planned is None else append_planned(self, phase, batch, planned)

    def update_policy(
        self, state: State, phase: CurriculumPhase, batch: PlannedTransitions
    ) -> tuple[TrainState, ppo_update.Metrics]:
        """Policy and value after an update from a batch [P, M]."""
        network = self.network(phase.final_game)
        evaluate = evaluate_with_plans if phase.has_plan_targets and network.plans else evaluate_features
        return ppo_update.update(
            update_key(state),
            lambda params, features: evaluate(network, params, *network_inputs(features)),
            state.train_state,
            batch,
            self,
            value_scale(phase.final_game),
            phase.progress(state.steps),
            phase.game.num_players,
            partial(expert_iteration.loss, plan_coef=self.planning.plan_coef),
            expert_iteration.METRIC_NAMES,
        )

    def timed_parts(
        self, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> dict[str, Callable[[State, Mapping[str, Any]], Any]]:
        def transitions(state: State, results: Mapping[str, Any]) -> PlannedTransitions:
            return self.transitions(state, phase, *results["play"])

        def update_moa(state: State, results: Mapping[str, Any]) -> TrainState:
            trajectory = results["play"][1]
            return self.update_moa(state, phase, trajectory, self.agent_trajectories(phase, trajectory))

        def batch(state: State, results: Mapping[str, Any]) -> PlannedTransitions:
            return self.batch(state, phase, transitions(state, results), results["play"][1])

        parts: dict[str, Callable[[State, Mapping[str, Any]], Any]] = {
            "play": lambda state, results: self.collect(state, phase, frozen),
            "moa_and_goals": update_moa,
            "batch": batch,
            "policy": lambda state, results: self.update_policy(state, phase, results["batch"]),
        }
        if self.imagination.world == "learned":
            parts["world_model"] = lambda state, results: self.update_world_model(state, phase, results["play"][1])
        return parts

    def modules(self, params: Params) -> dict[str, Params]:
        named = {"policy": params["policy"], "moa": params["moa"]}
        return {**named, "world-model": params["world"]} if "world" in params else named

    def params(self, state: State) -> Params:
        if isinstance(state, Mapping):
            params = {"policy": state["train_state"]["params"], "moa": state["acting_moa"]}
            return {**params, "world": state["world"]["params"]} if self.imagination.world == "learned" else params
        params = {"policy": state.train_state.params, "moa": state.acting_moa}
        return {**params, "world": state.world.params} if self.imagination.world == "learned" else params

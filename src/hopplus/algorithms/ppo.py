"""PPO, in self-play or beside any co-players, from rollouts or from a buffer of episodes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.algorithms import ppo_update, regret, reward_randomization
from hopplus.algorithms.base import NO_PARAMS, Algorithm, CurriculumPhase, Metrics, State
from hopplus.algorithms.batches import (
    cut_critic_inputs,
    last_values,
    learner_infos,
    make_transitions,
    merge_time,
    update_metrics,
)
from hopplus.algorithms.parameters import init_policy, set_keys, value_scale
from hopplus.algorithms.regret import RegretTable
from hopplus.configs import PPOConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.settings import replace_settings
from hopplus.core.struct import struct
from hopplus.games import Game
from hopplus.networks import ActorCritic, BeliefActorCritic
from hopplus.networks.actor_critic import CentralizedFeatures
from hopplus.networks.train_state import TrainState
from hopplus.players import Params, PolicyPlayer
from hopplus.players.policy import evaluate_features
from hopplus.players.preferences import preference_width
from hopplus.rollouts import RolloutState, Trajectory, init_rollout, play_episodes, rollout
from hopplus.rollouts.late_starts import check_clock

POLICY, ROLLOUT, UPDATE, EPISODES = range(4)
"""Purposes of a seed's key."""


@struct
class PPOState:
    """Training state of one seed."""

    key: Key
    iteration: Int[Array, ""]
    steps: Int[Array, ""]
    train_state: TrainState
    rollout_state: RolloutState | None
    """Environments between rollouts; None where whole episodes are played."""
    buffer: ppo_update.Transitions | None
    """Transitions [T, B, L] of the last B episodes; None without a buffer."""
    regret: RegretTable | None = None
    """Returns by composition and own preference; None without regret sampling."""


@dataclass(frozen=True)
class PPO(PPOConfig, Algorithm):
    """Proximal policy optimisation. Baselines override the methods from `reward` on."""

    name: ClassVar[str] = "ppo"
    traced: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "anneal_lr",
        "gamma",
        "gae_lambda",
        "clip_coef",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
    )
    metric_names: ClassVar[tuple[str, ...]] = ppo_update.METRIC_NAMES
    """Per-transition metrics of an update."""

    def network(self, game: Game[Any]) -> nn.Module:
        size = (game.num_actions, game.last_step, value_scale(game), self.hidden, self.encoder)
        if not self.randomize_rewards:
            return ActorCritic(*size)
        return BeliefActorCritic(*size, reward_randomization.critic_width(self, game), social=preference_width(game))

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> PolicyPlayer:
        return PolicyPlayer(
            self.network(game), source, greedy, shares, learns, self.name, **self.preference_settings(game, learns)
        )

    def preference_settings(self, game: Game[Any], learns: bool) -> dict[str, Any]:
        """Settings of a player about its preference."""
        return {
            "preference_game": game if self.randomize_rewards else None,
            "samples_preference": learns and self.randomize_rewards and self.has_trials,
        }

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        reward_randomization.check(self)
        check_late_starts(self, games)
        if self.trial_episodes and self.buffer_episodes:
            raise InputError("trial_episodes must be 0 with a buffer of episodes")
        if self.buffer_episodes and len({game.last_step for game in games}) > 1:
            raise InputError("a buffer needs episodes of one T: the curriculum must not change T")
        if self.buffer_episodes % self.num_envs:
            raise InputError(
                f"buffer_episodes must be a multiple of num_envs ({self.num_envs}), not {self.buffer_episodes}"
            )

    def for_fine_tuning(self, game: Game[Any]) -> Self:
        return replace_settings(self, fine_tuning_settings(self, game))

    def init(
        self,
        key: Key,
        phase: CurriculumPhase,
        frozen: Mapping[str, Params],
        init_params: Mapping[str, Params] = NO_PARAMS,
    ) -> State:
        key = fast(key)
        keys = set_keys(jax.random.fold_in(key, POLICY), phase, self.shares_params)
        train_state = init_policy(keys, self.network(phase.final_game), phase, self, init_params.get("policy"))
        table = regret.init_table(self, phase)
        state = PPOState(key, jnp.int32(0), jnp.int32(0), train_state, None, None, table)
        if self.buffer_episodes:
            _, transitions, _ = jax.eval_shape(partial(self.collect, phase=phase, frozen=frozen), state)
            shape = (phase.game.last_step, self.buffer_episodes)
            empty = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape[2:]), leaf.dtype), transitions)
            return dataclasses.replace(state, buffer=empty)
        params = phase.seats.params(train_state.params, frozen, regret=regret.sampling(self, phase, table))
        rollout_key = jax.random.fold_in(key, ROLLOUT)
        late = self.late_start_share > 0
        rollout_state = init_rollout(rollout_key, phase.game, phase.seats.cast, self.num_envs, params, late)
        return dataclasses.replace(state, rollout_state=rollout_state)

    def train_step(
        self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> tuple[State, Trajectory, Metrics]:
        rollout_state, transitions, trajectory = self.collect(state, phase, frozen)
        buffer = None
        if self.buffer_episodes:
            place = (state.iteration * self.num_envs) % self.buffer_episodes
            insert = partial(jax.lax.dynamic_update_slice_in_dim, start_index=place, axis=1)
            transitions = buffer = jax.tree.map(insert, state.buffer, transitions)
        batch, train_state, sums = self.update(state, phase, transitions)
        metrics = self.update_metrics(phase, state, batch, sums)
        if self.randomize_rewards:
            metrics |= reward_randomization.own_return(phase, trajectory)
        table, regret_metrics = regret.update(state.regret, phase, trajectory)
        steps = state.steps + trajectory.alive.any(-1).sum()
        state = PPOState(state.key, state.iteration + 1, steps, train_state, rollout_state, buffer, table)
        return state, trajectory, metrics | regret_metrics

    def collect(
        self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> tuple[RolloutState | None, ppo_update.Transitions, Trajectory]:
        """Plays the steps or episodes of one iteration; returns their transitions [T, E, L] too."""
        by_regret = regret.sampling(self, phase, state.regret)
        params = phase.seats.params(state.train_state.params, frozen, phase.partner_share_at(state.steps), by_regret)
        game, cast = phase.game, phase.seats.cast
        rollout_state = None
        if self.buffer_episodes:
            key = jax.random.fold_in(jax.random.fold_in(state.key, EPISODES), state.iteration)
            _, trajectory = play_episodes(key, game, cast, self.num_envs, params)
        else:
            rollout_state, trajectory = rollout(
                state.rollout_state,
                game,
                cast,
                self.num_steps,
                params,
                self.trial_end_probability,
                self.late_start_share,
            )
        return rollout_state, self.transitions(state, phase, rollout_state, trajectory), trajectory

    def transitions(
        self, state: State, phase: CurriculumPhase, rollout_state: RolloutState | None, trajectory: Trajectory
    ) -> ppo_update.Transitions:
        """Transitions [T, E, L] of the learning seats, on the transformed reward."""
        player, params = self.player(phase.final_game, "", learns=True), self.params(state)
        infos = learner_infos(self, player, params, phase, trajectory)
        critic = cut_critic_inputs(infos[0])
        last_value = last_values(player, params, phase, rollout_state, trajectory, critic)
        reward = self.reward(phase, trajectory, last_value)
        return make_transitions(self, state, phase, trajectory, infos, reward, last_value)

    def update(
        self, state: State, phase: CurriculumPhase, transitions: ppo_update.Transitions
    ) -> tuple[ppo_update.Transitions, TrainState, ppo_update.Metrics]:
        """One update from transitions [T, E, L]: the batch [P, M], the train state after it, and sums of metrics."""
        batch = ppo_update.group_by_params(self.to_minibatches(transitions), self.shares_params)
        train_state, sums = ppo_update.update(
            update_key(state),
            partial(self.apply_network, self.network(phase.final_game)),
            state.train_state,
            batch,
            self,
            value_scale(phase.final_game),
            phase.progress(state.steps),
            phase.game.num_players,
            self.loss(),
            self.metric_names,
        )
        return batch, train_state, sums

    def params(self, state: Any) -> Params:
        return state["train_state"]["params"] if isinstance(state, Mapping) else state.train_state.params

    # -- overridden by baselines

    def reward(
        self, phase: CurriculumPhase, trajectory: Trajectory, last_value: Float[Array, "E L"]
    ) -> Float[Array, "T E n"]:
        """Reward transform before PPO: the reward that the learners are trained on."""
        return reward_randomization.preferred_reward(phase, trajectory) if self.randomize_rewards else trajectory.reward

    def loss(self) -> Any:
        """Loss of an update: see `ppo_update.loss`."""
        return ppo_update.loss

    def to_minibatches(self, transitions: ppo_update.Transitions) -> ppo_update.Transitions:
        """Transitions [T, E, L] in the order from which minibatches are drawn: [N, L, ...]."""
        return jax.tree.map(merge_time, transitions)

    def apply_network(self, network: nn.Module, params: Params, features: Any) -> Any:
        """Network outputs for the features of a minibatch."""
        return evaluate_features(network, params, *network_inputs(features))

    def update_metrics(
        self, phase: CurriculumPhase, state: State, batch: ppo_update.Transitions, sums: ppo_update.Metrics
    ) -> Metrics:
        """Metrics of an update by seat."""
        names = ppo_update.METRIC_NAMES
        return update_metrics(self, phase.game.num_players, state.iteration, batch, sums, names)


def check_late_starts(config: PPOConfig, games: Sequence[Game[Any]]) -> None:
    """Raises InputError if episodes cannot begin late in the games of the phases."""
    if not config.late_start_share:
        return
    if config.buffer_episodes:
        raise InputError("late_start_share must be 0 with a buffer of episodes")
    for game in games:
        check_clock(game)


def network_inputs(features: Any) -> tuple[Any, ...]:
    """Inputs of a network: the features and, with a centralised critic, those of the critic alone."""
    return (features.own, features.critic) if isinstance(features, CentralizedFeatures) else (features,)


def fine_tuning_settings(config: PPOConfig, game: Game[Any]) -> dict[str, Any]:
    """Settings for one environment: an update per episode, with the last step size and entropy of the training."""
    last = float(ppo_update.anneal(config, 1.0, jnp.float32(1)))
    return {
        "num_envs": 1,
        "num_steps": game.last_step,
        "minibatch_size": game.last_step * game.num_players,
        "buffer_episodes": 0,
        "trial_episodes": 0,
        "late_start_share": 0.0,
        "regret_share": 0.0,
        "learning_rate": last * config.learning_rate,
        "ent_coef": last * config.ent_coef,
        "anneal_lr": False,
    }


def update_key(state: State) -> Key:
    """Key of the policy update of an iteration."""
    return jax.random.fold_in(jax.random.fold_in(state.key, UPDATE), state.iteration)

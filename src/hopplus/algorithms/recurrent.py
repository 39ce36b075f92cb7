"""PPO with a recurrent state that lasts over the episodes of a trial (RL^2)."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase, State
from hopplus.algorithms.parameters import value_scale
from hopplus.algorithms.ppo import PPO, network_inputs
from hopplus.algorithms.reward_randomization import critic_width
from hopplus.configs import RecurrentConfig
from hopplus.core.errors import InputError
from hopplus.games import Game
from hopplus.networks.actor_critic import CentralizedFeatures
from hopplus.networks.recurrent import RecurrentActorCritic
from hopplus.players import Params
from hopplus.players.preferences import preference_width
from hopplus.players.recurrent import RecurrentPlayer
from hopplus.rollouts import RolloutState, Trajectory


@dataclass(frozen=True)
class RecurrentPPO(RecurrentConfig, PPO):
    """PPO with a recurrent network."""

    name: ClassVar[str] = "recurrent"

    @property
    def has_memory(self) -> bool:
        return not self.reset_memory

    def network(self, game: Game[Any]) -> nn.Module:
        return RecurrentActorCritic(
            game.num_actions, game.last_step, value_scale(game), self.hidden, self.encoder, **self.input_widths(game)
        )

    def input_widths(self, game: Game[Any]) -> dict[str, Any]:
        """Numbers of the network's inputs beside the observation."""
        return {
            "critic_inputs": critic_width(self, game),
            "social": self.memory_size,
            "preference_inputs": preference_width(game) if self.randomize_rewards else 0,
        }

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> RecurrentPlayer:
        return RecurrentPlayer(
            self.network(game),
            source,
            greedy,
            shares,
            learns,
            self.name,
            **self.preference_settings(game, learns),
            forgets=self.reset_memory,
        )

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if self.buffer_episodes:
            raise InputError(f"{self.name} is trained on sequences of fresh rollouts: buffer_episodes must be 0")

    def transitions(
        self, state: State, phase: CurriculumPhase, rollout_state: RolloutState | None, trajectory: Trajectory
    ) -> ppo_update.Transitions:
        transitions = super().transitions(state, phase, rollout_state, trajectory)
        if trajectory.is_late is None:
            return transitions
        ends_late = trajectory.over & trajectory.is_late
        is_restored = jnp.concatenate([jnp.zeros_like(ends_late[:1]), ends_late[:-1]])[..., None]
        history, *critic = network_inputs(transitions.features)
        history = dataclasses.replace(history, is_restored=jnp.broadcast_to(is_restored, transitions.action.shape))
        return dataclasses.replace(transitions, features=CentralizedFeatures(history, *critic) if critic else history)

    def to_minibatches(self, transitions: ppo_update.Transitions) -> ppo_update.Transitions:
        """Sequences [E, L, T], each with the recurrent state before its first step."""
        sequences = jax.tree.map(lambda field: jnp.moveaxis(field, 0, 2), transitions)
        history, *critic = network_inputs(sequences.features)
        if history.is_restored is not None:
            return sequences
        initial = dataclasses.replace(history, hidden=history.hidden[:, :, 0])
        return dataclasses.replace(sequences, features=CentralizedFeatures(initial, *critic) if critic else initial)

    def apply_network(self, network: nn.Module, params: Params, features: Any) -> Any:
        return network.apply({"params": params}, *network_inputs(features), method="from_history")

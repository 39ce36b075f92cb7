"""PPO with a recurrent state that lasts over the episodes of a trial (RL^2)."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from hopplus.algorithms import ppo_update
from hopplus.algorithms.parameters import value_scale
from hopplus.algorithms.ppo import PPO
from hopplus.configs import RecurrentConfig
from hopplus.core.errors import InputError
from hopplus.games import Game
from hopplus.networks.recurrent import History, RecurrentActorCritic
from hopplus.players import Params
from hopplus.players.recurrent import RecurrentPlayer


@dataclass(frozen=True)
class RecurrentPPO(RecurrentConfig, PPO):
    """PPO with a recurrent network."""

    name: ClassVar[str] = "recurrent"

    @property
    def has_memory(self) -> bool:
        return not self.reset_memory

    def network(self, game: Game[Any]) -> nn.Module:
        return RecurrentActorCritic(
            game.num_actions, game.last_step, value_scale(game), self.hidden, self.encoder, social=self.memory_size
        )

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> RecurrentPlayer:
        return RecurrentPlayer(self.network(game), source, greedy, shares, learns, self.name, self.reset_memory)

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if self.buffer_episodes:
            raise InputError(f"{self.name} is trained on sequences of fresh rollouts: buffer_episodes must be 0")

    def to_minibatches(self, transitions: ppo_update.Transitions) -> ppo_update.Transitions:
        """Sequences [E, L, T], each with the recurrent state before its first step."""
        sequences = jax.tree.map(lambda field: jnp.moveaxis(field, 0, 2), transitions)
        history: History = sequences.features
        initial = dataclasses.replace(history, hidden=history.hidden[:, :, 0])
        return dataclasses.replace(sequences, features=initial)

    def apply_network(self, network: nn.Module, params: Params, features: History) -> Any:
        return network.apply({"params": params}, features, method="from_history")

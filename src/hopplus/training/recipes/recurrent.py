"""PPO with a memory that lives over the episodes of an acquaintance: the simple strong answer to adaptation."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.learning import ppo
from hopplus.networks.recurrent import History, RecurrentPolicyValue
from hopplus.players import Params
from hopplus.players.recurrent import RecurrentPlayer
from hopplus.settings import RecurrentOptions
from hopplus.training.recipes.ppo import PPO, value_scale


@dataclass(frozen=True)
class RecurrentPPO(RecurrentOptions, PPO):
    """PPO with a recurrent memory of all that was seen."""

    name: ClassVar[str] = "recurrent"

    @property
    def remembers(self) -> bool:
        return not self.forgets

    def network(self, game: Game[Any]) -> nn.Module:
        return RecurrentPolicyValue(
            game.num_actions, game.last_step, value_scale(game), self.hidden, self.encoder, social=self.memory
        )

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> RecurrentPlayer:
        return RecurrentPlayer(self.network(game), source, greedy, shares, learns, self.name, self.forgets)

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if self.buffer_episodes:
            raise InputError(f"{self.name} remembers what it has just played: buffer_episodes must be 0")
        if self.memory < 1:
            raise InputError(f"memory must be at least 1, not {self.memory}")

    def dealt(self, rows: ppo.Rows) -> ppo.Rows:
        """Lines of steps [E, L, T], each with what was remembered before it."""
        turned = jax.tree.map(lambda field: jnp.moveaxis(field, 0, 2), rows)
        history: History = turned.features
        first = dataclasses.replace(history, hidden=history.hidden[:, :, 0])
        return dataclasses.replace(turned, features=first)

    def said_again(self, network: nn.Module, params: Params, features: History) -> Any:
        return network.apply({"params": params}, features, method="from_history")

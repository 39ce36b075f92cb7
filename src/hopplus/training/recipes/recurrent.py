"""PPO with a memory that lives over the episodes of an acquaintance: the simple strong answer to adaptation."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.learning import ppo
from hopplus.networks.recurrent import History, RecurrentPolicyValue
from hopplus.players import Params
from hopplus.players.recurrent import RecurrentPlayer
from hopplus.training.recipe import Stage, State
from hopplus.training.recipes.ppo import PPO, value_scale


@dataclass(frozen=True)
class RecurrentPPO(PPO):
    """PPO with a recurrent memory of all that was seen."""

    memory: int = 64
    """Figures that it remembers."""
    acquaintance: int = 10
    """For how many episodes a table of players stays together, on average; 0: always."""
    forgets: bool = False
    """Remember nothing of the episodes before."""

    name: ClassVar[str] = "recurrent"

    @property
    def stays_together(self) -> bool:
        return self.acquaintance > 0

    @property
    def chance_of_parting(self) -> float:
        return 1.0 / self.acquaintance if self.acquaintance else 0.0

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
        if self.memory < 1 or self.acquaintance < 0:
            raise InputError(
                f"memory must be at least 1 and acquaintance at least 0, not {self.memory} and {self.acquaintance}"
            )

    def at_one_table(self, game: Game[Any]) -> "RecurrentPPO":
        return dataclasses.replace(super().at_one_table(game), acquaintance=0)

    def update(self, state: State, stage: Stage, rows: ppo.Rows) -> tuple[ppo.Rows, ppo.Learner, ppo.Metrics]:
        """One update from rows [T, E, L], dealt as lines of T steps."""
        batch = ppo.arrange(lines(rows), self.shares_params)
        learner, said = ppo.update(
            self.update_key(state),
            partial(_said_again, self.network(stage.final_game)),
            state.learner,
            batch,
            self,
            value_scale(stage.final_game),
            stage.progress(state.steps),
            stage.game.num_players,
            self.loss(),
            self.told,
        )
        return batch, learner, said

    told: ClassVar[tuple[str, ...]] = ppo.MEASURED
    """What an update tells of its rows."""

    def loss(self) -> Any:
        """What an update makes small."""
        return ppo.loss


def lines(rows: ppo.Rows) -> ppo.Rows:
    """Rows [T, E, L] as lines of steps [E, L, T], each with what was remembered before it."""
    turned = jax.tree.map(lambda field: jnp.moveaxis(field, 0, 2), rows)
    history: History = turned.features
    first = dataclasses.replace(history, hidden=history.hidden[:, :, 0])
    return dataclasses.replace(turned, features=first)


def _said_again(network: nn.Module, params: Params, history: History) -> Any:
    """What a network says of lines of steps."""
    found: tuple[Array, ...] = network.apply({"params": params}, history, method="from_history")  # pyright: ignore
    return found

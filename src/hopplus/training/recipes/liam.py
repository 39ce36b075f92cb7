"""LIAM: the own history is encoded such that the co-players' observations and actions can be told from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.learning import liam, ppo
from hopplus.networks.recurrent import Liam as LiamNetwork
from hopplus.play import Episode, Table
from hopplus.play.episode import observations
from hopplus.settings import LiamOptions
from hopplus.training.recipe import Mean, Metrics, Stage, State
from hopplus.training.recipes.ppo import value_scale
from hopplus.training.recipes.recurrent import RecurrentPPO


@dataclass(frozen=True)
class Liam(LiamOptions, RecurrentPPO):
    """PPO on a memory that learns to tell what the co-players see and do."""

    name: ClassVar[str] = "liam"
    traced: ClassVar[tuple[str, ...]] = (*RecurrentPPO.traced, "reconstruction_weight")
    told: ClassVar[tuple[str, ...]] = liam.TOLD

    def network(self, game: Game[Any]) -> nn.Module:
        seen: Observation = jax.eval_shape(lambda key: game.observe(game.init(key)), jax.random.key(0))
        return LiamNetwork(
            game.num_actions,
            game.last_step,
            value_scale(game),
            self.hidden,
            self.encoder,
            social=self.memory,
            co_players=game.num_players - 1,
            cells=int(np.prod(seen.grid.shape[1:])),
        )

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if not self.reconstruction_weight > 0:
            raise InputError(f"reconstruction_weight must be more than 0, not {self.reconstruction_weight}")

    def rows(self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode) -> liam.RowsWithOthers:
        rows = super().rows(state, stage, table, episode)
        players, learners = stage.game.num_players, np.array(stage.seats.learners)
        others = (learners[:, None] + np.arange(1, players)) % players
        seen = observations(stage.game, episode)
        board = seen.grid.reshape(*seen.grid.shape[:3], -1)[:, :, others].astype(jnp.uint8)
        return liam.RowsWithOthers(
            **vars(rows),
            others_board=board,
            others_action=episode.actions[..., others],
            others_legal=seen.legal[:, :, :, 0][:, :, others],
            others_alive=episode.alive[..., others],
        )

    def loss(self) -> Any:
        return partial(liam.loss, weight=self.reconstruction_weight)

    def _learning_metrics(
        self, stage: Stage, state: State, batch: ppo.Rows, said: ppo.Metrics, told: tuple[str, ...] = ppo.MEASURED
    ) -> Metrics:
        there = said["others_there"].sum(0)
        more: Mapping[str, Mean] = {name: Mean(said[name].sum(0), there) for name in ("others_seen", "others_foreseen")}
        return {**super()._learning_metrics(stage, state, batch, said, told), **more}

"""Prosocial PPO: what the others earn counts as one's own reward."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.learning import ppo
from hopplus.play import Episode, Table
from hopplus.settings import ProsocialOptions
from hopplus.training.recipe import Stage, State
from hopplus.training.recipes.ppo import PPO


@dataclass(frozen=True)
class Prosocial(ProsocialOptions, PPO):
    """PPO for which others' rewards count."""

    name: ClassVar[str] = "prosocial"
    traced: ClassVar[tuple[str, ...]] = (*PPO.traced, "concern")

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if not 0 <= self.concern <= 1:
            raise InputError(f"concern must be from 0 to 1, not {self.concern}")

    def rows(self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode) -> ppo.Rows:
        last_value = self.last_values(state, stage, table, episode)
        still = (episode.alive[-1] & ~episode.left[-1])[:, np.array(stage.seats.learners)]
        to_come = expected_mean_reward(last_value, still, stage.game.num_players, self.concern)
        reward = shared_rewards(episode, self.concern, self.discount, to_come)
        return super().rows(state, stage, table, dataclasses.replace(episode, reward=reward))


def expected_mean_reward(value: Float[Array, "E L"], still: Array, players: int, concern: float) -> Float[Array, " E"]:
    """The table's mean reward to come, by what those learners expect who are still there: their own rewards to a part
    of 1 - concern, and to a part of concern the mean of all. 0 where none of them is there."""
    there = still.sum(1)
    whole = jnp.where(still, value, 0.0).sum(1)
    return jnp.where(there > 0, whole / ((1 - concern) * players + concern * jnp.maximum(there, 1)), 0.0)


def shared_rewards(
    episode: Episode, concern: float, discount: float, to_come: Float[Array, " E"]
) -> Float[Array, "T E n"]:
    """Rewards of which a share is the table's mean. What the others earn after somebody has left comes to it,
    discounted, in the step in which it left; where play is cut before the episode's end, the rest of it is the mean
    reward `to_come`."""
    own, mean = episode.reward, episode.reward.mean(-1, keepdims=True)
    mixed = (1 - concern) * own + concern * mean

    def back(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        mixed, alive, left, over = row
        later = jnp.where(over[:, None], 0.0, later)
        reward = mixed + jnp.where(left, discount * later, 0.0)
        return jnp.where(alive, 0.0, mixed) + discount * jnp.where(alive, 0.0, later), jnp.where(alive, reward, 0.0)

    edge = jnp.broadcast_to(concern * to_come[:, None], own.shape[1:])
    _, reward = jax.lax.scan(back, edge, (mixed, episode.alive, episode.left, episode.over), reverse=True)
    return reward

"""Prosocial PPO: what the others earn counts as one's own reward."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.learning import ppo
from hopplus.play import Episode, Table
from hopplus.training.recipe import Stage, State
from hopplus.training.recipes.ppo import PPO


@dataclass(frozen=True)
class Prosocial(PPO):
    """PPO for which others' rewards count."""

    concern: float = 1.0
    """From 0, the own reward alone, to 1, the mean reward of all at the table."""

    name: ClassVar[str] = "prosocial"

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if not 0 <= self.concern <= 1:
            raise InputError(f"concern must be from 0 to 1, not {self.concern}")

    def rows(self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode) -> ppo.Rows:
        reward, known = shared_rewards(episode, self.concern, self.discount)
        rows = super().rows(state, stage, table, dataclasses.replace(episode, reward=reward))
        return dataclasses.replace(rows, learns=rows.learns & known[..., np.array(stage.seats.learners)])


def shared_rewards(
    episode: Episode, concern: float, discount: float
) -> tuple[Float[Array, "T E n"], Bool[Array, "T E n"]]:
    """Rewards of which a share is the table's mean; what the others earn after somebody has left comes to it,
    discounted, in the step in which it left. And which rows are known to have it all: a rollout may end before."""
    own, mean = episode.reward, episode.reward.mean(-1, keepdims=True)
    mixed = (1 - concern) * own + concern * mean

    def back(carry: tuple[Array, Array, Array], row: tuple[Array, ...]) -> tuple[Any, Any]:
        later, complete, gone_at_edge = carry
        mixed, alive, left, over = row
        over = over[:, None]
        later, complete = jnp.where(over, 0.0, later), complete | over
        leaves = alive & left & ~over
        reward = jnp.where(alive, mixed + jnp.where(leaves, discount * later, 0.0), 0.0)
        missing = jnp.where(over, False, gone_at_edge) | (leaves & ~complete)
        later = jnp.where(alive, 0.0, mixed + discount * later)
        return (later, complete, missing), (reward, ~missing)

    shape = own.shape[1:]
    start = (jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(shape, bool))
    rows = (mixed, episode.alive, episode.left, episode.over)
    _, (reward, known) = jax.lax.scan(back, start, rows, reverse=True)
    return reward, known

"""Prosocial PPO: the reward is a mixture of the own reward and the mean reward of all players."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hopplus.algorithms.base import CurriculumPhase
from hopplus.algorithms.ppo import PPO
from hopplus.configs import ProsocialConfig
from hopplus.core.errors import InputError
from hopplus.games import Game
from hopplus.rollouts import Trajectory


@dataclass(frozen=True)
class Prosocial(ProsocialConfig, PPO):
    """PPO on shared rewards."""

    name: ClassVar[str] = "prosocial"
    traced: ClassVar[tuple[str, ...]] = (*PPO.traced, "prosociality")

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        if self.randomize_rewards:
            raise InputError(f"{self.name} is trained on the mean reward of all players: randomize_rewards must be off")

    def reward(
        self, phase: CurriculumPhase, trajectory: Trajectory, last_value: Float[Array, "E L"]
    ) -> Float[Array, "T E n"]:
        in_game = (trajectory.alive[-1] & ~trajectory.left[-1])[:, np.array(phase.seats.learners)]
        future = expected_mean_reward(last_value, in_game, phase.game.num_players, self.prosociality)
        return shared_rewards(trajectory, self.prosociality, self.gamma, future)


def expected_mean_reward(
    value: Float[Array, "E L"], in_game: Bool[Array, "E L"], players: int, prosociality: float
) -> Float[Array, " E"]:
    """Expected mean reward of all players after the rollout, by the values of the learners still in the game.

    A value is 1 - prosociality of the own reward plus prosociality of the mean. 0 where no learner is in the game.
    """
    number = in_game.sum(1)
    total = jnp.where(in_game, value, 0.0).sum(1)
    weight = (1 - prosociality) * players + prosociality * jnp.maximum(number, 1)
    return jnp.where(number > 0, total / weight, 0.0)


def shared_rewards(
    trajectory: Trajectory, prosociality: float, gamma: float, future: Float[Array, " E"]
) -> Float[Array, "T E n"]:
    """Rewards mixed with the mean reward of all players.

    Rewards of the others after a player has left are discounted into the step in which it left. Where the rollout is
    cut before the end of the episode, `future` is the mean reward still to come.
    """
    own, mean = trajectory.reward, trajectory.reward.mean(-1, keepdims=True)
    mixed = (1 - prosociality) * own + prosociality * mean

    def back(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        mixed, alive, left, over = row
        later = jnp.where(over[:, None], 0.0, later)
        reward = mixed + jnp.where(left, gamma * later, 0.0)
        return jnp.where(alive, 0.0, mixed) + gamma * jnp.where(alive, 0.0, later), jnp.where(alive, reward, 0.0)

    edge = jnp.broadcast_to(prosociality * future[:, None], own.shape[1:])
    rows = (mixed, trajectory.alive, trajectory.left, trajectory.over)
    _, reward = jax.lax.scan(back, edge, rows, reverse=True)
    return reward

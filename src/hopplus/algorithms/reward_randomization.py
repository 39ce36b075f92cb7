"""Reward randomisation, for every algorithm: preferred rewards, the centralised critic's inputs, and a metric.

A learner's player returns its preference and its intended action as info (`PolicyInfo`, `Decision`).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics
from hopplus.configs import PPOConfig
from hopplus.core.errors import InputError
from hopplus.games import Game, preferences
from hopplus.games.preferences import Preference, neutral
from hopplus.players.preferences import preference_features, preference_width
from hopplus.rollouts import Trajectory


def check(config: PPOConfig) -> None:
    """Raises InputError for settings of reward randomisation that do not fit each other."""
    if config.randomize_rewards and not config.has_trials:
        raise InputError("randomize_rewards needs trials: trial_episodes must be more than 0")
    if config.centralized_critic and not config.randomize_rewards:
        raise InputError("centralized_critic needs randomize_rewards: it observes the co-players' preferences")
    if config.regret_share and not config.randomize_rewards:
        raise InputError("regret_share needs randomize_rewards: regret is a way to draw its preferences")


def critic_width(config: PPOConfig, game: Game[Any]) -> int:
    """Number of inputs of the critic alone."""
    return (game.num_players - 1) * preference_width(game) if config.centralized_critic else 0


def learner_preferences(phase: CurriculumPhase, trajectory: Trajectory) -> Preference:
    """Preferences of the learners at each of their seats: fields [T, E, L, ...]."""
    return phase.seats.infos(trajectory)[0].preference


def preferred_reward(phase: CurriculumPhase, trajectory: Trajectory) -> Float[Array, "T E n"]:
    """Reward transform of reward randomisation: the learners' rewards by their preferences."""
    seats = np.array(phase.seats.learners)
    reward = preferences.preferred_reward(
        learner_preferences(phase, trajectory), trajectory.components[:, :, seats], trajectory.alive[..., seats]
    )
    return trajectory.reward.at[..., seats].set(reward)


def co_player_preferences(phase: CurriculumPhase, trajectory: Trajectory) -> Float[Array, "T E L C"]:
    """Inputs of the critic alone: the co-players' preferences, ego-first, less the neutral one.

    They are 0 for co-players that have no preference: fixed players, and the member of a pool in a learner's place.
    """
    game, learners = phase.game, np.array(phase.seats.learners)
    info, acted = phase.seats.infos(trajectory)
    features = preference_features(info.preference) - preference_features(neutral(game))
    by_seat = jnp.zeros((*trajectory.over.shape, game.num_players, features.shape[-1]))
    by_seat = by_seat.at[:, :, learners].set(jnp.where(acted[..., None], features, 0.0))
    co_players = (learners[:, None] + np.arange(1, game.num_players)) % game.num_players
    return by_seat[:, :, co_players].reshape(*trajectory.over.shape, len(learners), -1)


def own_return(phase: CurriculumPhase, trajectory: Trajectory) -> Metrics:
    """Returns, in the game's own reward, of learners with the neutral preference, by seat."""
    learners = np.array(phase.seats.learners)
    info, acted = phase.seats.infos(trajectory)
    ended = trajectory.over & trajectory.alive.any(-1) & trajectory.counts
    counts = ended[..., None] & acted & info.preference.is_neutral
    total = jnp.where(counts, trajectory.total_reward[..., learners], 0).sum((0, 1))
    by_seat = (
        jnp.zeros((2, phase.game.num_players))
        .at[:, learners]
        .set(jnp.stack([total, counts.sum((0, 1)).astype(jnp.float32)]))
    )
    return {"own_return": Mean(*by_seat)}

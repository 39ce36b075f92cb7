"""Regret sampling of reward randomisation: preferences of co-players beside which the neutral policy does badly.

A composition is the most frequent preference among the co-players of a learner. Running means of the return in the
game's own reward, by composition and own preference, show where learners with another preference do better than neutral
ones: the difference is the regret. In a share of the trials (`regret_share`), preferences are drawn in proportion to
the regret of their composition, so that the neutral policy trains more beside them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics
from hopplus.configs import PPOConfig
from hopplus.core.struct import struct
from hopplus.games.preferences import RegretSampling, preference_set
from hopplus.rollouts import Trajectory

DISCOUNT = 0.95
"""Factor per iteration on the episodes before it, because policies change. It is the same for all preferences, so that
means of the same policies are compared."""
MIN_COUNT = 30
"""Discounted number of episodes from which a mean is used."""


@struct
class RegretTable:
    """Discounted sums of the learners' returns, in the game's own reward, and numbers of their episodes.

    By composition [K] (a preference with its tremble) and own preference [W] (without tremble).
    """

    total: Float[Array, "K W"]
    count: Float[Array, "K W"]


def init_table(config: PPOConfig, phase: CurriculumPhase) -> RegretTable | None:
    """Returns an empty table; None without regret sampling."""
    if not config.regret_share:
        return None
    shape = len(preference_set(phase.final_game).names), len(phase.final_game.preferences)
    return RegretTable(jnp.zeros(shape), jnp.zeros(shape))


def update(
    table: RegretTable | None, phase: CurriculumPhase, trajectory: Trajectory
) -> tuple[RegretTable | None, Metrics]:
    """Returns the table after the episodes that ended in an iteration, and the mean regret over known compositions.

    Episodes that began late do not count, nor those in which the preferences of the co-players have no single most
    frequent one. Co-players without a preference are left out: fixed players, and members of a pool in a learner's
    place.
    """
    if table is None:
        return None, {}
    learners = np.array(phase.seats.learners)
    info, acted = phase.seats.infos(trajectory)
    own = preference_set(phase.final_game).index_of(info.preference)
    composition, has_mode = compositions(own, acted, table.total.shape[0])
    ended = trajectory.over & trajectory.alive.any(-1) & trajectory.counts
    table = add_returns(
        table, composition, own, trajectory.total_reward[..., learners], ended[..., None] & acted & has_mode
    )
    is_known, by_composition = known(table)[:, 0], regrets(table)
    by_seat = jnp.zeros((2, phase.game.num_players)).at[:, learners]
    mean = Mean(*by_seat.set(jnp.stack([by_composition.sum(), is_known.sum().astype(jnp.float32)])[:, None]))
    return table, {"regret": mean}


def compositions(
    preference: Int[Array, "*rows L"], acted: Bool[Array, "*rows L"], number: int
) -> tuple[Int[Array, "*rows L"], Bool[Array, "*rows L"]]:
    """Returns the most frequent preference among each learner's co-players, and whether there is a single one.

    Args:
        preference: Index of each learner's preference.
        acted: Whether the learner acted in its seat; others do not count.
        number: Number of preferences.
    """
    by_seat = jax.nn.one_hot(preference, number) * acted[..., None]
    frequency = by_seat.sum(-2, keepdims=True) - by_seat
    most = frequency.max(-1, keepdims=True)
    return frequency.argmax(-1), ((frequency == most).sum(-1) == 1) & (most[..., 0] > 0)


def add_returns(
    table: RegretTable,
    composition: Int[Array, "*rows"],
    own: Int[Array, "*rows"],
    returns: Float[Array, "*rows"],
    counts: Bool[Array, "*rows"],
) -> RegretTable:
    """Returns the discounted table with the returns of one iteration; own preferences with a tremble do not count."""
    size, num_own = table.total.shape
    rows = jax.nn.one_hot(composition, size)[..., None] * jax.nn.one_hot(own, num_own)[..., None, :]
    rows = jnp.where(counts[..., None, None], rows, 0.0).reshape(-1, size, num_own)
    total = (rows * returns.reshape(-1, 1, 1)).sum(0)
    return RegretTable(DISCOUNT * table.total + total, DISCOUNT * table.count + rows.sum(0))


def known(table: RegretTable) -> Bool[Array, "K W"]:
    """Returns which means have enough episodes."""
    return table.count >= MIN_COUNT


def regrets(table: RegretTable) -> Float[Array, " K"]:
    """Returns the regret by composition: the highest mean return of an own preference, less that of the neutral one.

    It is 0 where the neutral preference has too few episodes; other preferences with too few are left out.
    """
    is_known, mean = known(table), table.total / jnp.maximum(table.count, 1.0)
    best = jnp.where(is_known, mean, -jnp.inf).max(-1)
    return jnp.where(is_known[:, 0], best - mean[:, 0], 0.0)


def sampling(config: PPOConfig, phase: CurriculumPhase, table: RegretTable | None) -> RegretSampling | None:
    """Returns the shares of the preferences in trials by regret; None without regret sampling.

    The neutral preference keeps its expected share; the rest is proportional to the regrets. All shares are the
    expected ones while there is no regret.
    """
    if table is None:
        return None
    expected, regret = jnp.asarray(preference_set(phase.final_game).shares, jnp.float32), regrets(table)
    rest = (1 - expected[0]) * regret / jnp.where(regret.sum() > 0, regret.sum(), 1.0)
    shares = jnp.where(regret.sum() > 0, rest.at[0].add(expected[0]), expected)
    return RegretSampling(jnp.float32(config.regret_share), shares)

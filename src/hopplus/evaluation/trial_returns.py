"""Returns and belief accuracy of trials, by episode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct
from hopplus.evaluation.protocol import Protocol


@struct
class TrialTrajectory:
    """Steps [T] of trials [E]."""

    over: Bool[Array, "T E"]
    total_reward: Float[Array, "T E n"]
    """Reward by seat since the start of the episode."""
    took: Int[Array, "T E n"]
    alive: Bool[Array, "T E n"]
    goals: Any
    """Beliefs of the focal players about goals [T, E, focal, n ego-first, kinds]; None without beliefs."""


@dataclass(frozen=True, eq=False)
class TrialReturns:
    """Results of trials [E] by episode [K]; nan where a trial has fewer episodes."""

    returns: Float[np.ndarray, "E K"]
    """Mean over the focal players of a trial."""
    ended_at: Float[np.ndarray, "E K"]
    """Steps since the start of the trial."""
    goal_hits: Float[np.ndarray, "E K"]
    """Share of steps in which the likeliest goal of a co-player is the one that it takes in the end."""
    goal_belief: Float[np.ndarray, "E K"]
    """Mean probability of that goal."""


def summarize(played: TrialTrajectory, seats: Sequence[int], protocol: Protocol) -> TrialReturns:
    """Splits trajectories into episodes.

    Args:
        played: Trajectories of the trials.
        seats: Seats of the focal players.
        protocol: Length of a trial; later steps are ignored.
    """
    played = jax.tree.map(lambda leaf: leaf[: protocol.steps] if protocol.steps else leaf, played)
    over, trials = np.asarray(played.over), played.over.shape[1]
    most = int(over.sum(0).max()) if protocol.episodes is None else protocol.episodes
    number = np.cumsum(over, 0) - over  # episode of the trial to which a step belongs
    step, trial = np.nonzero(over & (number < most))
    returns, ended_at = np.full((2, trials, most), np.nan)
    focal_reward = np.asarray(played.total_reward, np.float64)[..., list(seats)].mean(-1)
    returns[trial, number[step, trial]] = focal_reward[step, trial]
    ended_at[trial, number[step, trial]] = step + 1
    hits, belief = _belief_accuracy(played, seats, number, most)
    return TrialReturns(returns, ended_at, hits, belief)


def _belief_accuracy(
    played: TrialTrajectory, seats: Sequence[int], number: Int[np.ndarray, "T E"], most: int
) -> tuple[Float[np.ndarray, "E K"], Float[np.ndarray, "E K"]]:
    """Returns hits and beliefs by trial and episode.

    A step counts for a pair of players while both are alive, if the co-player takes something later.
    """
    trials = number.shape[1]
    unknown = np.full((trials, most), np.nan)
    if played.goals is None:
        return unknown, unknown
    goals, alive = np.asarray(played.goals, np.float64), np.asarray(played.alive)
    taken = _next_taken(np.asarray(played.took), np.asarray(played.over))
    sums = np.zeros((3, trials, most))
    for focal, ego in enumerate(seats):
        for other in range(1, alive.shape[-1]):
            seat = (ego + other) % alive.shape[-1]
            counts = alive[..., ego] & alive[..., seat] & (taken[..., seat] > 0) & (number < most)
            step, trial = np.nonzero(counts)
            belief, truth = goals[step, trial, focal, other], taken[step, trial, seat] - 1
            place = (trial, number[step, trial])
            np.add.at(sums[0], place, belief.argmax(-1) == truth)
            np.add.at(sums[1], place, belief[np.arange(len(truth)), truth])
            np.add.at(sums[2], place, 1)
    hits, beliefs = (np.divide(total, sums[2], out=unknown.copy(), where=sums[2] > 0) for total in sums[:2])
    return hits, beliefs


def _next_taken(took: Int[np.ndarray, "T E n"], over: Bool[np.ndarray, "T E"]) -> Int[np.ndarray, "T E n"]:
    """Returns the first thing that each seat takes at this step or later in the episode; 0 for nothing."""
    first = np.zeros_like(took)
    later = np.zeros_like(took[0])
    for step in reversed(range(len(took))):
        later = np.where(over[step][:, None], 0, later)
        later = np.where(took[step] > 0, took[step], later)
        first[step] = later
    return first

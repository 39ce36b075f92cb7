"""What a few training seeds allow one to say: means, interquartile means, differences, each with its interval.

Scores are [seeds, tasks]: one row a training seed, which is the unit of replication. Where the same trained seeds face
all tasks (`shared`), a row is drawn as a whole; where every task has runs of its own, rows are drawn within each task
(the strata). The percentiles of a bootstrap are too narrow for few seeds; so it says how far a statistic scatters, and
Student's t how many times that an interval is wide.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from hopplus.errors import InputError

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 3
"""Seeds below which there is no interval."""
SEEDS = "training seeds"

Scores = Float[np.ndarray, "seeds tasks"]
Statistic = Callable[[Float[np.ndarray, "... seeds tasks"]], Float[np.ndarray, "..."]]


@dataclass(frozen=True)
class Estimate:
    """A value, and how sure it is."""

    value: float
    low: float | None
    """The lower end of the interval; None where there are too few seeds for one."""
    high: float | None
    seeds: int
    meaning: str
    """What the interval is one of, in words."""

    def text(self, digits: int = 3) -> str:
        """`2.795 [2.780, 2.810]`."""
        if self.low is None or self.high is None:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


@dataclass(frozen=True)
class Comparison:
    """Whether one is better than another."""

    difference: Estimate
    probability_of_improvement: Estimate
    outside_noise: bool
    """Whether the interval of the difference leaves out 0."""


def mean(scores: Float[np.ndarray, "... seeds tasks"]) -> Float[np.ndarray, "..."]:
    """Over seeds and tasks."""
    return scores.mean((-2, -1))


def interquartile_mean(scores: Float[np.ndarray, "... seeds tasks"]) -> Float[np.ndarray, "..."]:
    """The mean of the middle half of all scores."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def probability_of_improvement(
    ours: Float[np.ndarray, "... seeds tasks"], theirs: Float[np.ndarray, "... others tasks"]
) -> Float[np.ndarray, "..."]:
    """How often a seed of ours beats one of theirs, a tie counting half; the mean over tasks."""
    difference = ours[..., :, None, :] - theirs[..., None, :, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean((-3, -2, -1))


def estimate(
    scores: Scores, statistic: Statistic = mean, shared: bool = True, seed: int = 0, unit: str | None = None
) -> Estimate:
    """A statistic of scores with its 95% interval, over training seeds unless rows are another `unit`."""
    scores = _checked(scores)
    seeds, tasks = scores.shape
    spread = _spread(statistic(_resampled(scores, shared, np.random.default_rng(seed))), seeds)
    freedom = (seeds - 1) * (1 if shared else tasks)
    return _estimate(float(statistic(scores)), spread, freedom, seeds, shared, unit=unit or SEEDS)


def compare(ours: Scores, theirs: Scores, shared: bool = True, seed: int = 0) -> Comparison:
    """The difference of two means and the probability of improvement, of independent runs on the same tasks."""
    ours, theirs = _checked(ours), _checked(theirs)
    if ours.shape[1] != theirs.shape[1]:
        raise InputError(f"scores on {ours.shape[1]} tasks cannot be compared with scores on {theirs.shape[1]}")
    generator, fewest = np.random.default_rng(seed), min(len(ours), len(theirs))
    drawn = [_resampled(scores, shared, generator) for scores in (ours, theirs)]
    spreads = [_spread(mean(one), one.shape[1]) for one in drawn]
    freedom = _welch(spreads, [one.shape[1] - 1 for one in drawn])
    difference = _estimate(float(mean(ours) - mean(theirs)), math.hypot(*spreads), freedom, fewest, shared)
    won = probability_of_improvement(ours, theirs)
    spread = _spread(probability_of_improvement(*drawn), fewest)
    improvement = _estimate(float(won), spread, freedom, fewest, shared, limits=(0.0, 1.0))
    outside = difference.low is not None and difference.high is not None and difference.low * difference.high > 0
    return Comparison(difference, improvement, outside)


def _checked(scores: Scores) -> Scores:
    scores = np.asarray(scores, float)
    if scores.ndim != 2 or not scores.size:
        raise InputError(f"scores must be [seeds, tasks], with at least one of each, not {scores.shape}")
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite numbers")
    return scores


def _resampled(scores: Scores, shared: bool, generator: np.random.Generator) -> Float[np.ndarray, "R seeds tasks"]:
    seeds, tasks = scores.shape
    if shared:
        return scores[generator.integers(seeds, size=(RESAMPLES, seeds))]
    index: Int[np.ndarray, "R seeds tasks"] = generator.integers(seeds, size=(RESAMPLES, seeds, tasks))
    return scores[index, np.arange(tasks)]


def _spread(resampled: Float[np.ndarray, " R"], seeds: int) -> float:
    """The standard error of a statistic; a bootstrap's own is too small by what a variance over n - 1 makes up for."""
    return float(resampled.std() * np.sqrt(seeds / max(seeds - 1, 1)))


def _welch(spreads: list[float], freedoms: list[int]) -> float:
    """The degrees of freedom of a difference of two means that scatter differently."""
    squares = np.square(spreads)
    below = sum(square**2 / max(freedom, 1) for square, freedom in zip(squares, freedoms, strict=True))
    return float(squares.sum() ** 2 / below) if below else float(sum(freedoms))


def _estimate(
    value: float,
    spread: float,
    freedom: float,
    seeds: int,
    shared: bool,
    limits: tuple[float, float] = (-np.inf, np.inf),
    unit: str = SEEDS,
) -> Estimate:
    if seeds < FEWEST:
        return Estimate(value, None, None, seeds, f"no interval: fewer than {FEWEST} {unit}")
    half = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * spread  # Student's t; importing scipy.stats takes a second
    how = "drawn whole" if shared else "drawn within each task"
    meaning = f"{CONFIDENCE:.0%} interval over {seeds} {unit}, bootstrapped, {how}"
    return Estimate(value, float(max(value - half, limits[0])), float(min(value + half, limits[1])), seeds, meaning)

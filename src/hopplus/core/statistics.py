"""Interval estimates from few training seeds: means, interquartile means and differences.

Scores are [seeds, tasks]: one row per training seed, which is the unit of replication. If the same trained seeds face
all tasks (`shared`), the bootstrap resamples whole rows. If every task has runs of its own, it resamples rows within
each task (the strata). Percentile intervals of a bootstrap are too narrow for few seeds. So the bootstrap gives only
the standard error, and Student's t the width of the interval in standard errors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from hopplus.core.errors import InputError

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 3
"""Minimum number of seeds for an interval."""
SEEDS = "training seeds"

Scores = Float[np.ndarray, "seeds tasks"]
Statistic = Callable[[Float[np.ndarray, "... seeds tasks"]], Float[np.ndarray, "..."]]


@dataclass(frozen=True)
class Estimate:
    """A statistic and its interval."""

    value: float
    low: float | None
    """Lower end of the interval; None if there are too few seeds."""
    high: float | None
    """Upper end of the interval; None if there are too few seeds."""
    seeds: int
    meaning: str
    """Description of the interval: its level, its unit of replication and the resampling."""

    def text(self, digits: int = 3) -> str:
        """Formats `2.795 [2.780, 2.810]`; the value alone without an interval."""
        if self.low is None or self.high is None:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


@dataclass(frozen=True)
class Comparison:
    """Comparison of two sets of runs."""

    difference: Estimate
    probability_of_improvement: Estimate
    outside_noise: bool
    """True if the interval of the difference excludes 0."""


def mean(scores: Float[np.ndarray, "... seeds tasks"]) -> Float[np.ndarray, "..."]:
    """Mean over seeds and tasks."""
    return scores.mean((-2, -1))


def interquartile_mean(scores: Float[np.ndarray, "... seeds tasks"]) -> Float[np.ndarray, "..."]:
    """Mean of the middle half of all scores."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def probability_of_improvement(
    scores: Float[np.ndarray, "... seeds tasks"], baseline: Float[np.ndarray, "... baseline_seeds tasks"]
) -> Float[np.ndarray, "..."]:
    """Probability that a seed beats a seed of the baseline, ties counting half; averaged over tasks."""
    difference = scores[..., :, None, :] - baseline[..., None, :, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean((-3, -2, -1))


def estimate(
    scores: Scores, statistic: Statistic = mean, shared: bool = True, seed: int = 0, unit: str | None = None
) -> Estimate:
    """Estimates a statistic of scores with its 95% interval.

    Args:
        scores: [seeds, tasks].
        statistic: Function of scores [..., seeds, tasks].
        shared: True if the same trained seeds face all tasks.
        seed: Seed of the bootstrap.
        unit: Name of the rows if they are not training seeds.
    """
    scores = _checked(scores)
    seeds, tasks = scores.shape
    error = _bootstrap_error(statistic(_resample(scores, shared, np.random.default_rng(seed))), seeds)
    freedom = (seeds - 1) * (1 if shared else tasks)
    return _estimate(float(statistic(scores)), error, freedom, seeds, shared, unit=unit or SEEDS)


def compare(scores: Scores, baseline: Scores, shared: bool = True, seed: int = 0) -> Comparison:
    """Difference of means and probability of improvement of independent runs on the same tasks."""
    scores, baseline = _checked(scores), _checked(baseline)
    if scores.shape[1] != baseline.shape[1]:
        raise InputError(f"scores on {scores.shape[1]} tasks cannot be compared with scores on {baseline.shape[1]}")
    generator, fewest = np.random.default_rng(seed), min(len(scores), len(baseline))
    resamples = [_resample(sample, shared, generator) for sample in (scores, baseline)]
    errors = [_bootstrap_error(mean(sample), sample.shape[1]) for sample in resamples]
    freedom = _welch(errors, [sample.shape[1] - 1 for sample in resamples])
    difference = _estimate(float(mean(scores) - mean(baseline)), math.hypot(*errors), freedom, fewest, shared)
    probability = probability_of_improvement(scores, baseline)
    error = _bootstrap_error(probability_of_improvement(*resamples), fewest)
    improvement = _estimate(float(probability), error, freedom, fewest, shared, limits=(0.0, 1.0))
    outside = difference.low is not None and difference.high is not None and difference.low * difference.high > 0
    return Comparison(difference, improvement, outside)


def _checked(scores: Scores) -> Scores:
    scores = np.asarray(scores, float)
    if scores.ndim != 2 or not scores.size:
        raise InputError(f"scores must be [seeds, tasks], with at least one of each, not {scores.shape}")
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite numbers")
    return scores


def _resample(scores: Scores, shared: bool, generator: np.random.Generator) -> Float[np.ndarray, "R seeds tasks"]:
    seeds, tasks = scores.shape
    if shared:
        return scores[generator.integers(seeds, size=(RESAMPLES, seeds))]
    index: Int[np.ndarray, "R seeds tasks"] = generator.integers(seeds, size=(RESAMPLES, seeds, tasks))
    return scores[index, np.arange(tasks)]


def _bootstrap_error(resampled: Float[np.ndarray, " R"], seeds: int) -> float:
    """Standard error of a statistic; the factor corrects the bootstrap's bias, as a variance over n - 1 does."""
    return float(resampled.std() * np.sqrt(seeds / max(seeds - 1, 1)))


def _welch(errors: list[float], freedoms: list[int]) -> float:
    """Welch's degrees of freedom for a difference of two means with unequal variances."""
    squares = np.square(errors)
    denominator = sum(square**2 / max(freedom, 1) for square, freedom in zip(squares, freedoms, strict=True))
    return float(squares.sum() ** 2 / denominator) if denominator else float(sum(freedoms))


def _estimate(
    value: float,
    error: float,
    freedom: float,
    seeds: int,
    shared: bool,
    limits: tuple[float, float] = (-np.inf, np.inf),
    unit: str = SEEDS,
) -> Estimate:
    if seeds < FEWEST:
        return Estimate(value, None, None, seeds, f"no interval: fewer than {FEWEST} {unit}")
    half = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * error  # Student's t; importing scipy.stats takes a second
    resampling = "drawn whole" if shared else "drawn within each task"
    meaning = f"{CONFIDENCE:.0%} interval over {seeds} {unit}, bootstrapped, {resampling}"
    return Estimate(value, float(max(value - half, limits[0])), float(min(value + half, limits[1])), seeds, meaning)


def standard_error(values: Float[np.ndarray, "units *n"]) -> Float[np.ndarray, "*n"]:
    """Standard error of the means over independent units; 0 for a single unit."""
    units = len(values)
    return values.std(0, ddof=1) / np.sqrt(units) if units > 1 else np.zeros(values.shape[1:])

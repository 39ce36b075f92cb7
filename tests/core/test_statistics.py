"""Statistics against values computed by hand, and the coverage of intervals."""

import numpy as np
import pytest
from scipy import stats

from hopplus.core import statistics
from hopplus.core.errors import InputError
from hopplus.core.statistics import (
    compare,
    estimate,
    interquartile_mean,
    mean,
    probability_of_improvement,
)


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([[0.0, 1.0], [2.0, 100.0]])) == pytest.approx(1.5)
    scores = np.random.default_rng(0).normal(size=(6, 8))
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores.reshape(-1), 0.25))


def test_probability_of_improvement_by_hand() -> None:
    """Task 1: both seeds beat the baseline; task 2: one wins, one ties."""
    scores, baseline = np.array([[2.0, 1.0], [3.0, 0.0]]), np.array([[1.0, 0.0]])
    assert probability_of_improvement(scores, baseline) == pytest.approx((1 + 0.75) / 2)
    assert probability_of_improvement(baseline, scores) == pytest.approx(1 - (1 + 0.75) / 2)


def test_the_interval_of_a_mean_of_one_task_is_students() -> None:
    scores = np.array([[2.7], [2.9], [2.8], [2.6], [3.0]])
    result = estimate(scores)
    low, high = stats.t.interval(0.95, 4, loc=scores.mean(), scale=stats.sem(scores[:, 0]))
    assert (result.low, result.high) == pytest.approx((low, high), abs=0.005)
    assert result.seeds == 5
    assert "95%" in result.meaning
    assert "5 training seeds" in result.meaning
    assert result.text(2) == f"2.80 [{result.low:.2f}, {result.high:.2f}]"


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_intervals_cover_at_the_stated_rate(
    seeds: int, shared: bool, statistic: statistics.Statistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 experiments on 4 tasks whose true score is 0. With `shared`, the scores of a seed are correlated over tasks:
    resampled independently, the intervals would cover far too seldom."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    hits = 0
    for trial in range(300):
        generator = np.random.default_rng(trial)
        skill = generator.normal(size=(seeds, 1)) if shared else 0.0
        result = estimate(skill + generator.normal(size=(seeds, 4)), statistic, shared, seed=trial)
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 0 <= result.high
    assert 0.91 <= hits / 300 <= 0.99


def test_rows_resampled_independently_would_cover_too_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of one seed on several tasks are treated as if they came from several seeds."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    hits = 0
    for trial in range(200):
        generator = np.random.default_rng(trial)
        scores = generator.normal(size=(5, 1)) + 0.3 * generator.normal(size=(5, 6))
        result = estimate(scores, shared=False, seed=trial)
        hits += result.low is not None and result.high is not None and result.low <= 0 <= result.high
    assert hits / 200 < 0.8


def test_a_comparison_reports_whether_the_difference_is_outside_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)

    def sample_scores(trial: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(trial)
        return generator.normal(size=(5, 2)), 3 * generator.normal(size=(8, 2))

    alarms = sum(compare(*sample_scores(trial), seed=trial).outside_noise for trial in range(300))
    assert alarms / 300 < 0.09, "false alarms"
    scores, baseline = sample_scores(0)
    result = compare(scores + 20, baseline, seed=1)
    assert result.outside_noise
    assert result.difference.value == pytest.approx(20 + scores.mean() - baseline.mean())
    assert result.probability_of_improvement.value == 1.0


def test_few_seeds_have_no_interval() -> None:
    result = estimate(np.array([[1.0], [2.0]]))
    assert (result.low, result.high) == (None, None)
    assert "fewer than 3" in result.meaning
    assert not compare(np.array([[5.0], [6.0]]), np.array([[1.0], [2.0], [1.5]])).outside_noise


@pytest.mark.parametrize("scores", [np.zeros((0, 3)), np.zeros(3), np.array([[np.nan, 1.0]])])
def test_bad_scores(scores: np.ndarray) -> None:
    with pytest.raises(InputError):
        estimate(scores)
    with pytest.raises(InputError, match="tasks"):
        compare(np.zeros((3, 2)), np.zeros((3, 1)))

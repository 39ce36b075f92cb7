"""Likelihoods of opponent models: the mixture of models is exact Bayes, and its sweep files can be run."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from experiment_scripts import EXPERIMENTS, RESULTS, imported
from hopplus.cli.sweep import check_cells
from hopplus.sweeps.plan import read_plan


@pytest.fixture
def script() -> Iterator[ModuleType]:
    """The script as a module."""
    with imported("likelihood") as module:
        yield module


@pytest.mark.parametrize("name", ["likelihood", "distillation"])
def test_every_cell_can_be_trained_and_evaluated(name: str) -> None:
    plan = read_plan(EXPERIMENTS / f"{name}.toml")
    check_cells(plan)
    assert plan.seeds_together, "a page reports the minutes of all seeds together"


def test_the_page_is_made_from_the_saved_results(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    written = (tmp_path / "likelihood.md").read_text(encoding="utf-8")
    assert written == (RESULTS / "likelihood.md").read_text(encoding="utf-8")


def test_the_mixture_is_exact_bayes_over_the_actions_of_a_trial(script: ModuleType) -> None:
    """Two models, two episodes of two steps: posteriors carry over, and steps that do not count change nothing."""
    probabilities = np.array([[[0.9, 0.5], [0.8, 0.2]], [[0.3, 0.5], [0.4, 0.6]]])[..., None, None]
    counts = np.array([[True, False], [True, True]])[..., None, None]
    mixed = script.mixture(probabilities, counts)[..., 0, 0]
    after_first = np.array([0.9, 0.3]) / 1.2
    after_second = after_first * [0.8, 0.4] / (after_first @ [0.8, 0.4])
    np.testing.assert_allclose(mixed[0], [0.6, 0.5])
    np.testing.assert_allclose(mixed[1], [after_first @ [0.8, 0.4], after_second @ [0.2, 0.6]])


def test_means_by_episode_leave_out_steps_that_do_not_count(script: ModuleType) -> None:
    probabilities = np.array([[0.5, 0.0], [0.25, 0.5]])[..., None, None]
    counts = np.array([[True, False], [True, True]])[..., None, None]
    np.testing.assert_allclose(script._by_episode(probabilities, counts), np.log([0.5, np.sqrt(0.125)]))

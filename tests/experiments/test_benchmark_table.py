"""The benchmark's table: needs the full number of seeds, and equal training of all rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from experiment_scripts import imported


@pytest.fixture
def benchmark() -> Iterator[ModuleType]:
    """The script benchmark.py as a module."""
    with imported("benchmark") as module:
        yield module


def test_every_method_has_the_same_budget_and_co_players(benchmark: ModuleType) -> None:
    same = ("game", "cast", "seeds", "encoder", "trial_episodes", "hidden", "gamma", "num_envs")
    for board, game in benchmark.BOARDS.items():
        for regime in benchmark.REGIMES:
            names = [name for name, labels in benchmark.experiments().items() if labels[:2] == (board, regime)]
            cells = [benchmark.PLAN.cell(name) for name in names]
            assert len({str([cell.settings.get(key) for key in same]) for cell in cells}) == 1
            mixed = ",".join(["learner", *[f"mix(learner,{game.scripts})"] * 3])
            assert cells[0].settings["cast"] == {"self": "self-play", "pool": mixed}[regime]
            assert cells[0].settings["seeds"] == f"0-{benchmark.NUMBER_OF_SEEDS - 1}"
            for cell in cells:
                part = 10 if cell.labels["method"] == "hop" else 1
                assert cell.steps * part == cells[0].steps, cell.name
            assert benchmark.METHODS[game.methods[regime][-1]].startswith("HOP+")


def test_curricula_end_after_half_of_the_steps(benchmark: ModuleType) -> None:
    halves = {
        cell.name: str(cell.settings[key])
        for cell in benchmark.PLAN.cells
        for key in ("curriculum", "partner_steps")
        if key in cell.settings
    }
    assert len(halves) == 2
    for name, half in halves.items():
        assert int(half.partition(":")[0]) * 2 == benchmark.PLAN.cell(name).steps


def saved(mean: float, seeds: int) -> dict[str, Any]:
    """Results of a row, as `benchmark.py keep` saves them."""

    def row(name: str, oracle: float | None) -> dict[str, Any]:
        score = {"per_seed": [mean + 0.01 * seed for seed in range(seeds)], "oracle": oracle, "interval": "95%"}
        curve = [{"episode": 1, "mean": mean, "low": mean, "high": mean, "oracle": oracle}]
        return {"set": name, "seating": "one", "has_memory": True, "score": score, "curve": curve}

    return {
        "command": "hopplus train",
        "seconds": 60.0,
        "config": {"seeds": list(range(seeds)), "machine": "one", "versions": {"jax": "0"}},
        "evaluations": {"sampled": {"per_seed": [{"own_return": mean}] * seeds}},
        "adaptation": [row("cooperators", 2.0), row("cooperators-blind", None)],
    }


@pytest.fixture
def directory(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory from which the script reads results and to which it writes the page."""
    for name in ("SAVED", "RESULTS"):
        monkeypatch.setattr(benchmark, name, tmp_path)
    return tmp_path


def test_a_table_of_fewer_seeds_than_it_needs_is_refused(
    benchmark: ModuleType, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark.page()
    assert "no results are saved yet" in capsys.readouterr().out
    (directory / "4x4-self-ppo.json").write_text(json.dumps(saved(1.0, 2)))
    with pytest.raises(SystemExit, match="needs 5 seeds, and there are fewer of 4x4-self-ppo"):
        benchmark.page()
    assert not (directory / "benchmark.md").exists()


def test_the_table_names_better_and_worse_methods(benchmark: ModuleType, directory: Path) -> None:
    for name, mean in (("ppo", 1.0), ("recurrent", 1.6), ("hopplus", 1.5), ("liam", 1.502)):
        (directory / f"4x4-pool-{name}.json").write_text(json.dumps(saved(mean, 5)))
    benchmark.page()
    text = (directory / "benchmark.md").read_text()
    assert (
        "HOP+, codes is significantly better than: PPO. Significantly worse than: PPO with a recurrent memory." in text
    )
    assert "No significant difference: LIAM." in text
    assert "cooperators-blind" not in text, "there is no share of an unknown oracle"
    assert "| PPO | yes | 1.00 ± 0.00 | 0.51 [" in text
    assert "**+0.25 [" in text
    assert (directory / "benchmark-4x4-pool.png").exists()

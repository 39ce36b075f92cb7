"""Sweep benchmark: the compared ways, their empty caches, and the arithmetic of the figures."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from experiment_scripts import imported
from hopplus.benchmarks import sweep as bench
from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.core.errors import InputError
from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.workers import Show, SweepStatus

ROOT = Path(__file__).parent.parent.parent
SECONDS = {"ppo": 3.0, "hopplus": 5.0}
"""Duration of a cell in `pretend`."""
STEPS_PER_SECOND = {"ppo": 100.0, "hopplus": 10.0}


@pytest.fixture
def script() -> Iterator[ModuleType]:
    """Script that writes a part of the page."""
    with imported("sweep") as module:
        yield module


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Settings of each way; cells on two cores only pretend to run.

    A fake clock advances by 8 seconds with one worker, and by 5 seconds otherwise.
    """
    seen: list[dict[str, Any]] = []
    clock = [0.0]

    def pretend(sweep: Sweep, workers: int, retries: int, show: Show) -> SweepStatus:
        cache = Path(os.environ[bench.CACHE])
        seen.append({"workers": workers, "cpus": sweep.plan.cpus, "cache": cache, "was there": cache.exists()})
        cache.mkdir()
        status = SweepStatus()
        for cell in sweep.plan.cells:
            algorithm, run = cell.settings["algorithm"], sweep.run_path(cell)
            run.mkdir()
            (run / "config.json").write_text('{"format": 1, "seeds": [0]}', encoding="utf-8")
            steps = (10, 10 + STEPS_PER_SECOND[algorithm])
            lines = [{"seed": 0, "steps": count, "seconds": 7 + number} for number, count in enumerate(steps)]
            (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            status.done.append(cell.name)
            status.seconds[cell.name] = SECONDS[algorithm]
            show(status)
        clock[0] += 8 if workers == 1 else 5
        return status

    monkeypatch.setattr(bench, "own_cores", lambda: [0, 1])
    monkeypatch.setattr(bench, "run_here", pretend)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock[0])
    return seen


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(1, 2), (2, 1)]),
        (4, [(1, 4), (2, 2), (4, 1)]),
        (8, [(1, 8), (2, 4), (4, 2), (8, 1)]),
        (6, [(1, 6), (2, 3), (3, 2), (6, 1)]),
    ],
)
def test_every_split_uses_each_core_once_and_one_more_way_shares_them(
    cores: int, expected: list[tuple[int, int]]
) -> None:
    assert [(way.workers, way.cores) for way in bench.splits(cores)] == expected
    shared = [(cores, cores)] if cores > 1 else []
    assert [(way.workers, way.cores) for way in bench.ways(cores)] == [*expected, *shared]


def test_cells_are_half_ppo_and_half_hopplus_all_different_and_valid() -> None:
    plan = bench.plan_of(6)
    assert [cell.settings["algorithm"] for cell in plan.cells] == 3 * ["ppo"] + 3 * ["hopplus"]
    assert len({json.dumps(dict(cell.settings)) for cell in plan.cells}) == 6
    check_cells(plan)


def test_each_way_has_a_separate_empty_temporary_cache(
    pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bench.CACHE, "before")
    bench.measure(2)
    assert [(way["workers"], way["cpus"]) for way in pretended] == [(1, 2), (2, 1), (2, 2)]
    assert len({way["cache"] for way in pretended}) == 3
    assert not any(way["was there"] or way["cache"].exists() for way in pretended)
    assert os.environ[bench.CACHE] == "before"


def test_throughput_is_relative_to_cells_one_by_one(pretended: list[dict[str, Any]]) -> None:
    done: list[float] = []
    figures = bench.measure(4, done.append)
    one_by_one, split, shared = figures["rows"]
    assert one_by_one["cell_seconds"] == 2 * 3 + 2 * 5
    assert one_by_one["seconds"] == 8
    assert split["seconds"] == 5
    assert split["cells_per_minute"] == 60 * 4 / 5
    assert split["ratio_to_one_by_one"] == figures["ratio"] == 16 / 5
    assert split["steps_per_second"] == STEPS_PER_SECOND
    assert [row["shared"] for row in figures["rows"]] == [False, False, True]
    assert shared["seconds"] == split["seconds"]
    assert figures["best"] == {"workers": 2, "cores": 1}
    assert done == sorted(done)
    assert done[-1] == 1


def test_a_failing_cell_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_here", lambda *_: SweepStatus(failed={"ppo": "out of memory"}))
    with pytest.raises(InputError, match="the cell ppo cannot be timed: out of memory"):
        bench.measure(2)


def test_the_command_prints_one_row_per_way(
    pretended: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "sweep", "--cells", "2"]) == 0
    output = capsys.readouterr().out
    assert "2, shared" in output
    assert "1.60 times as fast as its cells one by one; best split: 2 parallel cells, cores each: 1" in output


def test_the_page_shows_the_measurement(script: ModuleType, pretended: list[dict[str, Any]]) -> None:
    text = script.written(bench.measure(2) | {"load_at_start": 0.1})
    assert "| 2 | 1 | 5 | 24.0 | 8 | 1.60 | 200 | 20 |" in text
    assert "is 1.60 times as fast as its cells one by one" in text
    assert "2.00 (PPO) and 2.00 (HOP+) times as fast" in text
    assert "3.0 to 3.0 s (PPO) and 5.0 to 5.0 s (HOP+) one by one" in text
    assert "share all cores (`cpus = 2` and `--workers 2`) take 0% more time" in text
    assert "was not idle" not in text
    assert "was not idle" in script.written(bench.measure(2) | {"load_at_start": 3.0})


def test_the_page_is_made_from_the_stored_figures_and_the_rest_is_unchanged(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    stored = json.loads(script.MEASURED.read_text(encoding="utf-8"))
    assert script.with_part(text, script.written(stored), script.BEGINS) == text
    other = script.with_part(text, "something else\n", script.BEGINS)
    assert script.with_part(other, script.written(stored), script.BEGINS) == text

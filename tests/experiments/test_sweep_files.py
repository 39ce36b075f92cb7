"""The sweep files of the experiments: cells can be run, every row of a page has a cell, saved results make a page."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from experiment_scripts import EXPERIMENTS, RESULTS, imported
from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.plan import Cell, SweepPlan, read_plan

SCRIPTS = ("ppo", "hop_plus", "benchmark")


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A script of the experiments as a module."""
    with imported(request.param) as module:
        yield module


def plan_of(script: ModuleType) -> SweepPlan:
    """Plan of a script's sweep file."""
    return read_plan(EXPERIMENTS / f"{script.__name__}.toml")


def rows_of(script: ModuleType) -> list[str]:
    """Rows of a script's page."""
    return list(script.experiments() if script.__name__ == "benchmark" else script.EXPERIMENTS)


def test_every_cell_can_be_trained_and_evaluated_and_is_a_row_of_the_page(script: ModuleType) -> None:
    plan = plan_of(script)
    check_cells(plan)
    assert sorted(cell.name for cell in plan.cells) == sorted(rows_of(script))
    assert plan.seeds_together, "a page reports the minutes of all seeds together"


def without_former_defaults(command: list[str]) -> list[str]:
    """Arguments without those that were the defaults of HOP+ when the results were saved."""
    text = " ".join(command)
    return sorted(text.replace(" --preset plain", "").replace(" --partner none", "").split())


def test_every_saved_result_has_the_command_of_its_cell(script: ModuleType) -> None:
    for cell in plan_of(script).cells:
        if not (file := script.SAVED / f"{cell.name}.json").exists():
            continue
        saved = json.loads(file.read_text(encoding="utf-8"))
        expected = without_former_defaults(["hopplus", *cell.argv()])
        assert without_former_defaults(saved["command"].split()) == expected, cell.name


JUDGED = {
    "ppo": {"own cast, sampled", "own cast, greedy"},
    "hop_plus": {"sampled"},
    "benchmark": {"sampled", "held-out"},
}


def test_every_cell_has_the_evaluations_of_its_page(script: ModuleType) -> None:
    plan = plan_of(script)
    for cell in plan.cells:
        assert {judge.name for judge in plan.judges if judge.judges(cell)} >= JUDGED[script.__name__], cell.name


# --------------------------------------------------------------------------------------------------------------- keep

SEEDS = range(5)
FIGURES = {"ppo": "ppo", "hop_plus": "hopplus", "benchmark": "benchmark"}
SAVED_CELL = {"ppo": "4x4", "hop_plus": "adapt-none", "benchmark": "4x4-self-ppo"}
ROW = {
    "ppo": "one network for all seats | 1 M | 1.020 ± 0.020 | 1.020 ± 0.020 | 1.00 to 1.04 | 34.0% | 1.0 |",
    "hop_plus": "| HOP+, no goals | 0.2 M x 5 | 1.020 ± 0.020 |  | 100.0% | 1.0 |",
    "benchmark": "| PPO | yes | 1.02 ± 0.02 | 0.51 [",
}


def evaluated() -> dict[str, Any]:
    """Figures of `hopplus evaluate`."""
    rows = [{"seed": seed, "mean_return": 1.0, "own_return": 1 + 0.01 * seed} for seed in SEEDS]
    return {"mean_return": 1.0, "own_return": 1.0, "own_standard_error": 0.0, "per_seat": [], "per_seed": rows}


def adapted() -> dict[str, Any]:
    """Figures of `hopplus adapt`."""
    score = {"per_seed": [1 + 0.01 * seed for seed in SEEDS], "oracle": 2.0, "interval": "95%", "mean": 1.02}
    score |= {"low": 1.0, "high": 1.04, "share_of_oracle": 0.51}
    point = {"episode": 1, "mean": 1.23456, "low": None, "high": 2, "oracle": 2, "more": 0}
    row = {"set": "cooperators", "seating": "one", "split": "held-out", "regime": "self", "met_before": []}
    return {"rows": [{**row, "has_memory": True, "score": score, "curve": [point], "weights": "frozen"}]}


def write_run(sweep: Sweep, cell: Cell) -> None:
    """Write the files of an evaluated run that `keep` reads."""
    for inner in ("evaluation", "judged"):
        (sweep.run_path(cell) / inner).mkdir(parents=True)
    about = {"format": 1, "versions": {"jax": "0"}, "commit": "c", "machine": "one", "started": "now", "settings": {}}
    config = {**about, "training": {"steps": cell.steps}, "seeds": list(SEEDS), "learners": [0, 2]}
    config["ceilings"] = {"mean": 3.0}
    lines = [
        {"seed": seed, "steps": steps, "seconds": 0.26, "return": [None, 9, 1.00004, 9], "value_loss": [1, 9, 2, 9]}
        | {"evaluation": [2, 9, 3, 9]}
        for steps in (10, 20)
        for seed in SEEDS
    ]
    written = {
        sweep.run_path(cell) / "config.json": json.dumps(config),
        sweep.run_path(cell) / "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        sweep.run_path(cell) / "evaluation" / "final.json": json.dumps({"format": 1, "seconds": 60.0}),
    }
    for judge in sweep.judges(cell):
        result = adapted() if judge.command == "adapt" else evaluated()
        written[sweep.judged_path(cell, judge)] = json.dumps(result)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def directory(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory from which the script reads its sweep and to which it writes the page."""
    for name, path in {"RESULTS": tmp_path, "SAVED": tmp_path / "kept", "SWEEP": tmp_path / "sweep"}.items():
        monkeypatch.setattr(script, name, path)
    return tmp_path


@pytest.fixture
def sweep(script: ModuleType, directory: Path) -> Sweep:
    """Sweep with one finished cell."""
    sweep = Sweep(directory / "sweep", plan_of(script), "")
    sweep.path.mkdir()
    (sweep.path / "sweep.json").write_text(
        json.dumps({"format": 1, "identity": "", "plan": sweep.plan.described()}), encoding="utf-8"
    )
    write_run(sweep, sweep.plan.cell(SAVED_CELL[script.__name__]))
    return sweep


def keep(script: ModuleType, *names: str) -> None:
    """Save results as `keep [NAME ...]` does."""
    script.keep(script.SWEEP, script.SAVED, names, script.condensed)


def test_saved_results_of_a_sweep_make_a_page(
    script: ModuleType, directory: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(script)
    assert capsys.readouterr().out.startswith("1 saved, unfinished: ")
    name = SAVED_CELL[script.__name__]
    (file,) = (directory / "kept").iterdir()
    assert file.name == f"{name}.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    assert saved["command"] == "hopplus " + " ".join(sweep.plan.cell(name).argv())
    assert saved["curves"]["3"]["return"] == [[None, 1.0], [None, 1.0]]
    assert saved["curves"]["3"]["steps"] == [10, 20]
    committed = json.loads((RESULTS / FIGURES[script.__name__] / file.name).read_text(encoding="utf-8"))
    assert list(saved) == list(committed)
    assert saved["evaluations"].keys() == committed["evaluations"].keys()
    script.page()
    (page,) = directory.glob("*.md")
    assert ROW[script.__name__] in page.read_text(encoding="utf-8")


def test_without_a_sweep_nothing_is_saved(script: ModuleType, directory: Path) -> None:
    with pytest.raises(SystemExit, match=r"is not a sweep: it has no sweep\.json; hopplus sweep experiments/"):
        keep(script)


def test_an_unknown_cell_is_refused(script: ModuleType, sweep: Sweep) -> None:
    with pytest.raises(SystemExit, match=r"no cell of .* is called 'unknown'"):
        keep(script, SAVED_CELL[script.__name__], "unknown")
    assert not script.SAVED.exists()


TINY = """
[common]
algorithm = "ppo"
steps = 1_000
seeds = "0-4"
hidden = [8]
num_envs = 8

[[cells]]
name = "wanted"

[[cells]]
name = "not wanted"

[[judge]]
name = "own cast, sampled"
episodes = 10

[[judge]]
name = "own cast, greedy"
episodes = 10
greedy = true

[[judge]]
name = "sampled"
episodes = 10

[[judge]]
name = "held-out"
command = "adapt"
against = "defectors"
seating = "one"
trials = 1
"""


@pytest.fixture(scope="module")
def run_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweep that was run except for one cell, with the evaluations of all pages."""
    path = tmp_path_factory.mktemp("run")
    (path / "tiny.toml").write_text(TINY, encoding="utf-8")
    assert main(["sweep", str(path / "tiny.toml"), "--out", str(path / "sweep"), "--only", "wanted"]) == 0
    return path / "sweep"


@pytest.mark.slow
def test_a_sweep_that_was_run_makes_a_page(script: ModuleType, directory: Path, run_sweep: Path) -> None:
    assert [path.name for path in (run_sweep / "cells").iterdir()] == ["wanted"]
    name = SAVED_CELL[script.__name__]
    shutil.copytree(run_sweep / "cells" / "wanted", directory / "sweep" / "cells" / name)
    described = json.loads((run_sweep / "sweep.json").read_text(encoding="utf-8").replace('"wanted"', f'"{name}"'))
    judges = described["plan"]["judges"]
    described["plan"]["judges"] = [judge for judge in judges if judge["name"] in JUDGED[script.__name__]]
    (directory / "sweep" / "sweep.json").write_text(json.dumps(described), encoding="utf-8")
    keep(script)
    assert [file.stem for file in (directory / "kept").iterdir()] == [name]
    script.page()
    (page,) = directory.glob("*.md")
    assert "hopplus train ppo --steps 1000 --seeds 0-4 --hidden 8 --num-envs 8" in page.read_text(encoding="utf-8")

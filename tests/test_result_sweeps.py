"""The sweep files of docs/results: they can be run, every row of a page has its cell, and what is kept makes a page."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.plan import Cell, Plan, read_plan

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SCRIPTS = ("ppo", "hop_plus", "contest")


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(RESULTS))
    yield importlib.import_module(request.param)
    for name in (*SCRIPTS, "pages"):
        sys.modules.pop(name, None)


def plan_of(script: ModuleType) -> Plan:
    return read_plan(RESULTS / f"{script.__name__}.toml")


def rows_of(script: ModuleType) -> list[str]:
    return list(script.experiments() if script.__name__ == "contest" else script.EXPERIMENTS)


def test_every_cell_can_be_trained_and_judged_and_is_a_row_of_the_page(script: ModuleType) -> None:
    plan = plan_of(script)
    check_cells(plan)
    assert sorted(cell.name for cell in plan.cells) == sorted(rows_of(script))
    assert plan.seeds_together, "a page tells the minutes of all seeds together"


def test_every_kept_figure_is_of_a_cell_that_is_trained_like_it(script: ModuleType) -> None:
    for cell in plan_of(script).cells:
        if not (file := script.KEPT / f"{cell.name}.json").exists():
            continue
        kept = json.loads(file.read_text(encoding="utf-8"))
        assert sorted(kept["command"].split()) == sorted(["hopplus", *cell.words()]), cell.name


JUDGED = {
    "ppo": {"own cast, sampled", "own cast, greedy"},
    "hop_plus": {"sampled"},
    "contest": {"sampled", "held-out"},
}


def test_every_cell_is_judged_as_its_page_needs_it(script: ModuleType) -> None:
    plan = plan_of(script)
    for cell in plan.cells:
        assert {judge.name for judge in plan.judges if judge.judges(cell)} >= JUDGED[script.__name__], cell.name


# --------------------------------------------------------------------------------------------------------------- keep

SEEDS = range(5)
FIGURES = {"ppo": "ppo", "hop_plus": "hopplus", "contest": "contest"}
KEPT_OF = {"ppo": "4x4", "hop_plus": "adapt-none", "contest": "4x4-self-ppo"}
SAID = {
    "ppo": "one network for all seats | 1 M | 1.020 ± 0.020 | 1.020 ± 0.020 | 1.00 to 1.04 | 34.0% | 1.0 |",
    "hop_plus": "| HOP+, no goals | 0.2 M x 5 | 1.020 ± 0.020 |  | 100.0% | 1.0 |",
    "contest": "| PPO | yes | 1.02 ± 0.02 | 0.51 [",
}


def evaluated() -> dict[str, Any]:
    rows = [{"seed": seed, "mean_return": 1.0, "own_return": 1 + 0.01 * seed} for seed in SEEDS]
    return {"mean_return": 1.0, "own_return": 1.0, "own_standard_error": 0.0, "per_seat": [], "per_seed": rows}


def adapted() -> dict[str, Any]:
    score = {"per_seed": [1 + 0.01 * seed for seed in SEEDS], "oracle": 2.0, "interval": "95%", "mean": 1.02}
    score |= {"low": 1.0, "high": 1.04, "share_of_oracle": 0.51}
    point = {"episode": 1, "mean": 1.23456, "low": None, "high": 2, "oracle": 2, "more": 0}
    row = {"set": "cooperators", "seating": "one", "split": "held-out", "regime": "self", "met_before": []}
    return {"rows": [{**row, "remembers": True, "score": score, "curve": [point], "weights": "frozen"}]}


def write_run(sweep: Sweep, cell: Cell) -> None:
    """A run of a cell, judged, by hand: as much as `keep` looks at."""
    for inner in ("evaluation", "judged"):
        (sweep.run_path(cell) / inner).mkdir(parents=True)
    about = {"versions": {"jax": "0"}, "commit": "c", "machine": "one", "started": "now", "settings": {}}
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
        sweep.run_path(cell) / "evaluation" / "final.json": json.dumps({"seconds": 60.0}),
    }
    for judge in sweep.judges(cell):
        found = adapted() if judge.command == "adapt" else evaluated()
        written[sweep.judged_path(cell, judge)] = json.dumps(found)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def place(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a script finds its sweep, and writes."""
    for name, path in {"HERE": tmp_path, "KEPT": tmp_path / "kept", "SWEEP": tmp_path / "sweep"}.items():
        monkeypatch.setattr(script, name, path)
    return tmp_path


@pytest.fixture
def sweep(script: ModuleType, place: Path) -> Sweep:
    """A sweep of which one cell is done."""
    sweep = Sweep(place / "sweep", plan_of(script), "")
    sweep.path.mkdir()
    (sweep.path / "sweep.json").write_text(
        json.dumps({"identity": "", "plan": sweep.plan.described()}), encoding="utf-8"
    )
    write_run(sweep, sweep.plan.cell(KEPT_OF[script.__name__]))
    return sweep


def keep(script: ModuleType, *names: str) -> None:
    script.keep(script.SWEEP, script.KEPT, names, script.condensed)


def test_what_is_kept_of_a_sweep_makes_a_page(
    script: ModuleType, place: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(script)
    assert capsys.readouterr().out.startswith("1 kept, not done yet: ")
    name = KEPT_OF[script.__name__]
    (file,) = (place / "kept").iterdir()
    assert file.name == f"{name}.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["command"] == "hopplus " + " ".join(sweep.plan.cell(name).words())
    assert kept["curves"]["3"]["return"] == [[None, 1.0], [None, 1.0]]
    assert kept["curves"]["3"]["steps"] == [10, 20]
    committed = json.loads((RESULTS / FIGURES[script.__name__] / file.name).read_text(encoding="utf-8"))
    assert list(kept) == list(committed)
    assert kept["evaluations"].keys() == committed["evaluations"].keys()
    script.page()
    (page,) = place.glob("*.md")
    assert SAID[script.__name__] in page.read_text(encoding="utf-8")


def test_without_a_sweep_nothing_is_kept(script: ModuleType, place: Path) -> None:
    with pytest.raises(SystemExit, match=r"is not a sweep: it has no sweep\.json; hopplus sweep docs/results/"):
        keep(script)


def test_a_name_that_no_cell_has_is_not_kept(script: ModuleType, sweep: Sweep) -> None:
    with pytest.raises(SystemExit, match=r"no cell of .* is called 'nobody'"):
        keep(script, KEPT_OF[script.__name__], "nobody")
    assert not script.KEPT.exists()


TINY = """
[common]
recipe = "ppo"
steps = 1_000
seeds = "0-4"
hidden = [8]
environments = 8

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
tables = 1
"""


@pytest.fixture(scope="module")
def run_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that was really run, but for one of its cells, judged as all pages need it."""
    path = tmp_path_factory.mktemp("run")
    (path / "tiny.toml").write_text(TINY, encoding="utf-8")
    assert main(["sweep", str(path / "tiny.toml"), "--out", str(path / "sweep"), "--only", "wanted"]) == 0
    return path / "sweep"


@pytest.mark.slow
def test_a_sweep_that_was_run_makes_a_page(script: ModuleType, place: Path, run_sweep: Path) -> None:
    assert [path.name for path in (run_sweep / "cells").iterdir()] == ["wanted"]
    name = KEPT_OF[script.__name__]
    shutil.copytree(run_sweep / "cells" / "wanted", place / "sweep" / "cells" / name)
    described = json.loads((run_sweep / "sweep.json").read_text(encoding="utf-8").replace('"wanted"', f'"{name}"'))
    judges = described["plan"]["judges"]
    described["plan"]["judges"] = [judge for judge in judges if judge["name"] in JUDGED[script.__name__]]
    (place / "sweep" / "sweep.json").write_text(json.dumps(described), encoding="utf-8")
    keep(script)
    assert [file.stem for file in (place / "kept").iterdir()] == [name]
    script.page()
    (page,) = place.glob("*.md")
    assert "hopplus train ppo --steps 1000 --seeds 0-4 --hidden 8 --environments 8" in page.read_text(encoding="utf-8")

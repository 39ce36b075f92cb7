"""Sweeps as they run: in processes, killed and gone on with, with cells that fail, on Ray; nothing twice or lost."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.cell import run_cell
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.sweeps import estimate, workers
from hopplus.sweeps.directory import ATTEMPTS, Sweep, begin_or_go_on, open_sweep
from hopplus.sweeps.on_ray import Mirror, Store, files_of
from hopplus.sweeps.plan import Cell, make_plan
from hopplus.sweeps.workers import run_here, start_cell
from hopplus.training import checkpoint

SMALL = {
    "game": "msh-4x4-2h1s", "environments": 4, "rollout_steps": 8, "hidden": [8], "minibatch": 64, "epochs": 2,
    "chunk": 2, "steps": 1280, "seeds": "0-1", "save_seconds": 0, "parameters": "independent",
}  # fmt: skip
FOUND: dict[str, Any] = {
    "title": "small",
    "reference": "0.01",
    "common": {"recipe": "ppo", **SMALL},
    "grid": {"learning_rate": [0.01, 0.001]},
    "judge": [{"name": "sampled", "command": "evaluate", "episodes": 20}],
}
FOUR = {**FOUND, "grid": {**FOUND["grid"], "parameters": ["shared", "independent"]}}
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("cheap_trainings")


def written(path: Path, found: dict[str, Any]) -> Path:
    """A sweep file; TOML of plain values is JSON but for its tables."""

    def value(one: Any) -> str:
        return json.dumps(one)

    lines = [f"{key} = {value(one)}" for key, one in found.items() if not isinstance(one, dict | list)]
    for key, one in found.items():
        for table in one if isinstance(one, list) else [one] if isinstance(one, dict) else []:
            lines.append(f"[[{key}]]" if isinstance(one, list) else f"[{key}]")
            lines += [f"{inner} = {value(setting)}" for inner, setting in table.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def outcome(path: Path) -> dict[str, Any]:
    """Everything that a sweep's cells came to, bit for bit, but for times."""
    sweep, found = open_sweep(path), {}
    for cell in sweep.plan.cells:
        run = sweep.run_path(cell)
        saved = checkpoint.load(run / "checkpoints")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        judged = json.loads((run / "judged" / "sampled.json").read_text(encoding="utf-8"))
        found[cell.name] = (
            saved.number,
            {name: array.tobytes() for name, array in saved.arrays.items()},
            [{key: value for key, value in line.items() if key != "seconds"} for line in lines],
            {key: value for key, value in judged.items() if key not in ("run", "seconds")},
        )
    return found


def successes(path: Path) -> Counter[str]:
    """How often each cell was done."""
    return Counter(line["cell"] for line in open_sweep(path).attempts() if line.get("code") == 0)


class Ended:
    """In the place of a cell's process: one that has ended."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code

    wait = poll

    def kill(self) -> None: ...


@contextlib.contextmanager
def cells_in_this_process() -> Iterator[None]:
    """Sweeps in here run a cell, one after the other, without starting a process for it."""

    def start(sweep: Sweep, cell: Cell, place: int) -> Ended:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(sweep.log_path(cell).open("a", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(log))
            stack.enter_context(contextlib.redirect_stderr(log))
            return Ended(run_cell(sweep.path, cell.name))

    with pytest.MonkeyPatch.context() as patch:
        for module in (workers, estimate):
            patch.setattr(module, "start_at", start)
        yield


def sweep_words(file: Path, out: Path) -> list[str]:
    return ["sweep", str(file), "--out", str(out), "--workers", "2"]


def undisturbed(directory: Path, found: dict[str, Any]) -> Path:
    """A sweep that nothing happened to; its file is beside it."""
    with cells_in_this_process():
        assert main(sweep_words(written(directory / "small.toml", found), directory / "sweep")) == 0
    return directory / "sweep"


@pytest.fixture(scope="module")
def done(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("done"), FOUND)


@pytest.fixture(scope="module")
def four_done(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("done"), FOUR)


# ----------------------------------------------------------------------------------------------------------------- runs


def test_every_cell_is_an_ordinary_run_and_is_judged(done: Path, capsys: Capture) -> None:
    sweep = open_sweep(done)
    assert len(sweep.plan.cells) == 2
    assert all(sweep.is_done(cell) and sweep.fraction(cell) == 1 for cell in sweep.plan.cells)
    assert successes(done) == Counter(cell.name for cell in sweep.plan.cells)
    assert main(["runs", str(done / "cells"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in listed} == {"finished"}
    assert {row["steps"] for row in listed} == {1280}


def test_a_sweep_that_is_done_runs_nothing_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (done / ATTEMPTS).read_bytes()
    monkeypatch.setattr(workers, "start_cell", lambda *_: pytest.fail("a cell was run again"))
    assert main(sweep_words(done.parent / "small.toml", done)) == 0
    assert (done / ATTEMPTS).read_bytes() == before


def test_a_cell_that_ended_after_its_sweep_was_killed_is_recorded(done: Path) -> None:
    kept = (done / ATTEMPTS).read_text(encoding="utf-8")
    lines = kept.splitlines(keepends=True)
    (done / ATTEMPTS).write_text("".join(line for line in lines if '"code": 0' not in line), encoding="utf-8")
    try:
        assert not successes(done)
        assert main(sweep_words(done.parent / "small.toml", done)) == 0
        assert set(successes(done).values()) == {1}
    finally:
        (done / ATTEMPTS).write_text(kept, encoding="utf-8")


def test_its_tables_have_a_row_a_cell(done: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["tables", str(done), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| 0.001 | 2 |" in text
    assert "More than 0.01" in text
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    cell = open_sweep(done).plan.cells[0]
    run = done / "cells" / cell.name
    own = [row["own_return"] for row in json.loads((run / "evaluation" / "final.json").read_text())["per_seed"]]
    assert kept["rows"][0]["columns"]["return"]["per_seed"] == own


def test_cells_and_judges_may_be_added_and_cells_may_not_be_changed(done: Path, capsys: Capture) -> None:
    longer = {**FOUND, "judge": [*FOUND["judge"], {"name": "greedy", "command": "evaluate", "greedy": True}]}
    with begin_or_go_on(done, make_plan(longer, "small"), 2) as sweep:
        cell = sweep.plan.cells[0]
        assert [words[0] for words in sweep.commands(cell)] == ["evaluate"]
        assert workers.first_standing(sweep).waiting == [cell.name for cell in sweep.plan.cells]
    with begin_or_go_on(done, make_plan(FOUND, "small"), 2) as sweep:
        assert sweep.commands(cell) == []
    other = written(done.parent / "other.toml", {**FOUND, "common": {**FOUND["common"], "steps": 9_999}})
    assert main(["sweep", str(other), "--out", str(done)]) == 2
    assert "was run with steps 1280, and now it is 9999" in capsys.readouterr().err


def test_two_sweeps_never_write_into_one_directory(done: Path, tmp_path: Path, capsys: Capture) -> None:
    with begin_or_go_on(done, make_plan(FOUND, "small"), 2):
        assert main(["sweep", str(done.parent / "small.toml"), "--out", str(done)]) == 2
        assert "another sweep is running in" in capsys.readouterr().err
    (tmp_path / "thesis.txt").write_text("all I have", encoding="utf-8")
    assert main(["sweep", str(done.parent / "small.toml"), "--out", str(tmp_path)]) == 2
    assert "is not empty, and not a sweep" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dry_run_times_every_kind_of_cell_and_leaves_nothing(
    processes: bool, done: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = sorted(done.parent.rglob("*"))
    with contextlib.nullcontext() if processes else cells_in_this_process():
        assert main([*sweep_words(done.parent / "small.toml", tmp_path / "out"), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["cell"] for cell in found["cells"]] == [cell.name for cell in open_sweep(done).plan.cells]
    assert all(cell["steps_per_second"] > 0 for cell in found["cells"])
    assert found["seconds"] == pytest.approx(sum(cell["seconds"] for cell in found["cells"]) / found["workers"])
    assert not (tmp_path / "out").exists()
    assert sorted(done.parent.rglob("*")) == before


# --------------------------------------------------------------------------------------------------------------- killed


def sweeping(file: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hopplus.cli.main", *sweep_words(file, out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def begun(path: Path) -> int:
    """How many attempts have been begun."""
    return len(open_sweep(path).attempts()) if (path / ATTEMPTS).exists() else 0


def learning(path: Path) -> bool:
    """Whether a cell has begun to learn."""
    return begun(path) > 0 and any(map(open_sweep(path).fraction, open_sweep(path).plan.cells))


def kill_and_go_on(file: Path, out: Path, kills: int, seed: int) -> None:
    """Kill a sweep so many times, each some time after it has begun with another cell; then let it end."""
    moments = random.Random(seed)
    for _ in range(kills):
        process, before = sweeping(file, out), begun(out)
        while begun(out) == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 8))
        process.kill()
        process.wait()
    assert sweeping(file, out).wait() == 0


def test_killed_and_gone_on_with_it_comes_to_the_same(done: Path, tmp_path: Path) -> None:
    """Killed while a cell learns; it goes on in this process."""
    file, out = done.parent / "small.toml", tmp_path / "sweep"
    process = sweeping(file, out)
    while process.poll() is None and not learning(out):
        time.sleep(0.02)
    process.kill()
    process.wait()
    with cells_in_this_process():
        assert main(sweep_words(file, out)) == 0
    assert outcome(out) == outcome(done)
    assert set(successes(out).values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 10])
def test_killed_several_times_it_comes_to_the_same(kills: int, four_done: Path, tmp_path: Path) -> None:
    kill_and_go_on(four_done.parent / "small.toml", tmp_path / "sweep", kills, seed=kills)
    assert outcome(tmp_path / "sweep") == outcome(four_done)
    assert set(successes(tmp_path / "sweep").values()) == {1}


def test_a_cell_ends_with_whoever_started_it(tmp_path: Path) -> None:
    endless = {**FOUND, "common": {**FOUND["common"], "steps": 10**9}, "judge": []}
    process = sweeping(written(tmp_path / "endless.toml", endless), tmp_path / "sweep")
    try:
        logs = tmp_path / "sweep" / "logs"
        while process.poll() is None and not any("hopplus train" in log.read_text() for log in logs.glob("*.txt")):
            time.sleep(0.05)
        assert process.poll() is None
        assert _running(tmp_path)
    finally:
        process.kill()
    for _ in range(300):
        if not _running(tmp_path):
            return
        time.sleep(0.1)
    pytest.fail("a cell outlived the sweep that was killed")


def _running(path: Path) -> bool:
    """Whether a process of this machine has a directory among its words."""
    if not Path("/proc").is_dir():
        pytest.skip("processes are listed in /proc, which is not here")
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = words.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "hopplus.cli.cell" in text and str(path) in text:
            return True
    return False


def test_stopped_politely_every_training_saves_itself(done: Path, tmp_path: Path, capsys: Capture) -> None:
    endless = {**FOUND, "common": {**FOUND["common"], "steps": 10**9, "save_seconds": 10**6}, "judge": []}
    with begin_or_go_on(tmp_path / "sweep", make_plan(endless, "endless"), 2) as sweep:
        first = sweep.plan.cells[0]

        def learning() -> bool:
            return sweep.fraction(first) > 0

        with pytest.raises(KeyboardInterrupt):
            run_here(sweep, 1, 0, lambda standing: None, learning)
        assert checkpoint.load(sweep.run_path(first) / "checkpoints").number > 0


# --------------------------------------------------------------------------------------------------------------- failed


def test_a_cell_that_fails_is_tried_again_then_reported_and_the_rest_goes_on(tmp_path: Path, capsys: Capture) -> None:
    diverges = {"name": "wild", "learning_rate": 1e30, "gradient_norm": 1e30}
    found = {**FOUND, "grid": {"learning_rate": [0.01]}, "cells": [diverges]}
    found["reference"] = "wild"
    file = written(
        tmp_path / "wild.toml", {key: found[key] for key in ("title", "reference", "common", "grid", "cells")}
    )
    with cells_in_this_process():
        assert main([*sweep_words(file, tmp_path / "sweep"), "--retries", "1"]) == 1
    said = capsys.readouterr()
    assert "the cell wild failed: training stopped: seed 0" in said.err
    attempts = open_sweep(tmp_path / "sweep").attempts()
    assert [line["code"] for line in attempts if line["cell"] == "wild" and "code" in line] == [1, 1]
    assert successes(tmp_path / "sweep") == Counter({"learning_rate-0.01": 1})
    assert main(["tables", str(tmp_path / "sweep")]) == 0
    assert "not done yet, and not in the table: wild" in capsys.readouterr().out


class Sleeper:
    """In the place of a cell: a process that does nothing for long."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *_: Any) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return self.started[-1]


def test_a_full_disk_ends_the_sweep_with_one_sentence_and_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    sleeper, written_before = Sleeper(), []

    def full(path: Path, text: str) -> None:
        written_before.append(text)
        if len(written_before) > 1:
            raise InputError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(workers, "start_at", sleeper)
    monkeypatch.setattr("hopplus.sweeps.directory.append_text", full)
    file = written(tmp_path / "small.toml", FOUND)
    assert main(["sweep", str(file), "--out", str(tmp_path / "sweep"), "--workers", "2"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert len(sleeper.started) == 1
    assert sleeper.started[0].poll() is not None


def test_a_worker_has_as_many_threads_as_cores(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: started.append({"command": command, **how}))
    sweep = open_sweep(done)
    start_cell(sweep, sweep.plan.cells[0], 3, [0, 1, 2], gpu=1)
    assert started[0]["env"]["NPROC"] == started[0]["env"]["OMP_NUM_THREADS"] == "3"
    assert started[0]["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert started[0]["command"][-1] == "0,1,2"


# ------------------------------------------------------------------------------------------------------------------ Ray


def test_a_node_of_its_own_begins_with_what_is_known_and_sends_back_what_changes(done: Path, tmp_path: Path) -> None:
    sweep = open_sweep(done)
    name = sweep.plan.cells[0].name
    store = Store(str(done))
    mirror = Mirror(tmp_path / "node", name, (done / "sweep.json").read_bytes(), store.begin(name))
    assert store.begun() == [name]
    there = open_sweep(tmp_path / "node")
    assert there.is_done(there.plan.cell(name))
    assert mirror.changes()[0] == {}
    other = Store(str(tmp_path / "home"))
    other.take(name, files_of(done, name), list(files_of(done, name)))
    run = tmp_path / "node" / "cells" / name
    (run / "evaluation" / "more.json").write_text("{}", encoding="utf-8")
    oldest = checkpoint.found(run / "checkpoints")[-1]
    oldest.unlink()
    changed, names = mirror.changes()
    assert list(changed) == [f"cells/{name}/evaluation/more.json"]
    other.take(name, changed, names)
    assert files_of(tmp_path / "home", name) == files_of(tmp_path / "node", name)
    assert not (tmp_path / "home" / "cells" / name / "checkpoints" / oldest.name).exists()
    assert not (tmp_path / "home" / "cells" / name / "lock").exists()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Three nodes of one core each, on this machine."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, nodes
    made.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("scratch", [False, True])
def test_on_a_cluster_that_loses_a_node_all_cells_finish_as_they_do_here(
    scratch: bool, cluster: Any, four_done: Path, tmp_path: Path
) -> None:
    made, nodes = cluster
    out = tmp_path / "sweep"
    words = ["--on", "ray", "--address", made.address, *(["--scratch", str(tmp_path / "scratch")] if scratch else [])]
    command = [sys.executable, "-m", "hopplus.cli.main", *sweep_words(four_done.parent / "small.toml", out)]
    process = subprocess.Popen([*command, *words])
    while begun(out) < 3 and process.poll() is None:
        time.sleep(0.2)
    made.remove_node(nodes[0], allow_graceful=False)
    assert process.wait() == 0
    assert outcome(out) == outcome(four_done)
    assert set(successes(out).values()) == {1}

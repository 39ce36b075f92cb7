"""Running sweeps: in processes, killed and resumed, with failing cells, on Ray; no cell is lost or run twice."""

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

from hopplus.cli.main import main
from hopplus.cli.sweep_cell import run_cell
from hopplus.core.errors import InputError
from hopplus.core.files import write_text
from hopplus.sweeps import directory, estimate, workers
from hopplus.sweeps.directory import ATTEMPTS, PLAN, Sweep, open_sweep, start_or_resume
from hopplus.sweeps.plan import Cell, make_plan
from hopplus.sweeps.ray_backend import Mirror, Store, files_of
from hopplus.sweeps.workers import run_here, start_cell
from hopplus.training import checkpoint

SMALL = {
    "game": "msh-4x4-2h1s", "num_envs": 4, "num_steps": 8, "hidden": [8], "minibatch_size": 64, "update_epochs": 2,
    "iterations_per_call": 2, "steps": 1280, "seeds": "0-1", "checkpoint_seconds": 0, "parameters": "independent",
}  # fmt: skip
DESCRIPTION: dict[str, Any] = {
    "title": "small",
    "reference": "0.01",
    "common": {"algorithm": "ppo", **SMALL},
    "grid": {"learning_rate": [0.01, 0.001]},
    "judge": [{"name": "sampled", "command": "evaluate", "episodes": 20}],
}
FOUR = {**DESCRIPTION, "grid": {**DESCRIPTION["grid"], "parameters": ["shared", "independent"]}}
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("cheap_trainings")


def written(path: Path, description: dict[str, Any]) -> Path:
    """Writes a sweep file; plain values in TOML are those in JSON, except for tables."""
    scalars = {key: value for key, value in description.items() if not isinstance(value, dict | list)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in scalars.items()]
    for key, value in description.items():
        for table in value if isinstance(value, list) else [value] if isinstance(value, dict) else []:
            lines.append(f"[[{key}]]" if isinstance(value, list) else f"[{key}]")
            lines += [f"{inner} = {json.dumps(setting)}" for inner, setting in table.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def outcome(path: Path) -> dict[str, Any]:
    """Returns all results of a sweep's cells, bit for bit, except times."""
    sweep, by_cell = open_sweep(path), {}
    for cell in sweep.plan.cells:
        run = sweep.run_path(cell)
        saved = checkpoint.load(run / "checkpoints")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        judged = json.loads((run / "judged" / "sampled.json").read_text(encoding="utf-8"))
        by_cell[cell.name] = (
            saved.number,
            {name: array.tobytes() for name, array in saved.arrays.items()},
            [{key: value for key, value in line.items() if key != "seconds"} for line in lines],
            {key: value for key, value in judged.items() if key not in ("run", "seconds")},
        )
    return by_cell


def successes(path: Path) -> Counter[str]:
    """Counts the successful attempts at each cell."""
    return Counter(line["cell"] for line in open_sweep(path).attempts() if line.get("code") == 0)


class Ended:
    """Finished process, in place of a cell's."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code

    wait = poll

    def kill(self) -> None: ...


@contextlib.contextmanager
def cells_in_this_process() -> Iterator[None]:
    """Runs cells one after the other in this process."""

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


def sweep_argv(file: Path, out: Path) -> list[str]:
    return ["sweep", str(file), "--out", str(out), "--workers", "2"]


def uninterrupted(directory: Path, description: dict[str, Any]) -> Path:
    """Returns the directory of a sweep that was not interrupted; its file is next to it."""
    with cells_in_this_process():
        assert main(sweep_argv(written(directory / "small.toml", description), directory / "sweep")) == 0
    return directory / "sweep"


@pytest.fixture(scope="module")
def done(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uninterrupted(tmp_path_factory.mktemp("done"), DESCRIPTION)


@pytest.fixture(scope="module")
def four_done(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uninterrupted(tmp_path_factory.mktemp("done"), FOUR)


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


def test_a_finished_sweep_runs_no_cell_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (done / ATTEMPTS).read_bytes()
    monkeypatch.setattr(workers, "start_cell", lambda *_: pytest.fail("a cell was run again"))
    assert main(sweep_argv(done.parent / "small.toml", done)) == 0
    assert (done / ATTEMPTS).read_bytes() == before


def test_a_cell_that_ended_after_its_sweep_was_killed_is_recorded(done: Path) -> None:
    before = (done / ATTEMPTS).read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    (done / ATTEMPTS).write_text("".join(line for line in lines if '"code": 0' not in line), encoding="utf-8")
    try:
        assert not successes(done)
        assert main(sweep_argv(done.parent / "small.toml", done)) == 0
        assert set(successes(done).values()) == {1}
    finally:
        (done / ATTEMPTS).write_text(before, encoding="utf-8")


def test_tables_have_one_row_per_cell(done: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["tables", str(done), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| 0.001 | 2 |" in text
    assert "Difference from 0.01" in text
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    cell = open_sweep(done).plan.cells[0]
    run = done / "cells" / cell.name
    returns = [row["own_return"] for row in json.loads((run / "evaluation" / "final.json").read_text())["per_seed"]]
    assert results["rows"][0]["columns"]["return"]["per_seed"] == returns


def test_cells_and_judges_may_be_added_and_cells_may_not_be_changed(done: Path, capsys: Capture) -> None:
    longer = {
        **DESCRIPTION,
        "judge": [*DESCRIPTION["judge"], {"name": "greedy", "command": "evaluate", "greedy": True}],
    }
    with start_or_resume(done, make_plan(longer, "small"), 2) as sweep:
        cell = sweep.plan.cells[0]
        assert [argv[0] for argv in sweep.commands(cell)] == ["evaluate"]
        assert workers.initial_status(sweep).waiting == [cell.name for cell in sweep.plan.cells]
    with start_or_resume(done, make_plan(DESCRIPTION, "small"), 2) as sweep:
        assert sweep.commands(cell) == []
    other = written(done.parent / "other.toml", {**DESCRIPTION, "common": {**DESCRIPTION["common"], "steps": 9_999}})
    assert main(["sweep", str(other), "--out", str(done)]) == 2
    assert "was run with steps 1280, and now it is 9999" in capsys.readouterr().err


def test_two_sweeps_never_write_into_one_directory(done: Path, tmp_path: Path, capsys: Capture) -> None:
    with start_or_resume(done, make_plan(DESCRIPTION, "small"), 2):
        assert main(["sweep", str(done.parent / "small.toml"), "--out", str(done)]) == 2
        assert "another sweep is running in" in capsys.readouterr().err
    (tmp_path / "thesis.txt").write_text("all I have", encoding="utf-8")
    assert main(["sweep", str(done.parent / "small.toml"), "--out", str(tmp_path)]) == 2
    assert "is not empty, and not a sweep" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dry_run_times_every_group_of_cells_and_leaves_nothing(
    processes: bool, done: Path, tmp_path: Path, capsys: Capture
) -> None:
    before = sorted(done.parent.rglob("*"))
    with contextlib.nullcontext() if processes else cells_in_this_process():
        assert main([*sweep_argv(done.parent / "small.toml", tmp_path / "out"), "--dry-run", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [cell["cell"] for cell in figures["cells"]] == [cell.name for cell in open_sweep(done).plan.cells]
    assert all(cell["steps_per_second"] > 0 for cell in figures["cells"])
    assert figures["seconds"] == pytest.approx(sum(cell["seconds"] for cell in figures["cells"]) / figures["workers"])
    assert not (tmp_path / "out").exists()
    assert sorted(done.parent.rglob("*")) == before


# --------------------------------------------------------------------------------------------------------------- killed


def sweeping(file: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hopplus.cli.main", *sweep_argv(file, out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def started(path: Path) -> int:
    """Returns the number of lines about attempts."""
    return len(open_sweep(path).attempts()) if (path / ATTEMPTS).exists() else 0


def learning(path: Path) -> bool:
    """Returns whether a cell has started to learn."""
    return started(path) > 0 and any(map(open_sweep(path).fraction, open_sweep(path).plan.cells))


def kill_and_resume(file: Path, out: Path, kills: int, seed: int) -> None:
    """Kills a sweep several times, each some time after it has started another cell; then lets it finish."""
    moments = random.Random(seed)
    for _ in range(kills):
        process, before = sweeping(file, out), started(out)
        while started(out) == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(moments.uniform(0, 8))
        process.kill()
        process.wait()
    assert sweeping(file, out).wait() == 0


def test_a_killed_and_resumed_sweep_has_the_same_results(done: Path, tmp_path: Path) -> None:
    """The sweep is killed while a cell learns, and resumed in this process."""
    file, out = done.parent / "small.toml", tmp_path / "sweep"
    process = sweeping(file, out)
    while process.poll() is None and not learning(out):
        time.sleep(0.02)
    process.kill()
    process.wait()
    with cells_in_this_process():
        assert main(sweep_argv(file, out)) == 0
    assert outcome(out) == outcome(done)
    assert set(successes(out).values()) == {1}


@pytest.mark.parametrize("file", [PLAN, ATTEMPTS])
def test_a_sweep_killed_while_it_is_created_is_resumed(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(DESCRIPTION, "small")

    def write_or_die(path: Path, text: str) -> None:
        if path.name == file:
            raise KeyboardInterrupt
        write_text(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(directory, "write_text", write_or_die)
        with pytest.raises(KeyboardInterrupt), start_or_resume(tmp_path / "sweep", plan, workers=1):
            pass
    with start_or_resume(tmp_path / "sweep", plan, workers=1) as sweep:
        assert sweep.plan.cells == open_sweep(tmp_path / "sweep").plan.cells


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 10])
def test_a_sweep_killed_several_times_has_the_same_results(kills: int, four_done: Path, tmp_path: Path) -> None:
    kill_and_resume(four_done.parent / "small.toml", tmp_path / "sweep", kills, seed=kills)
    assert outcome(tmp_path / "sweep") == outcome(four_done)
    assert set(successes(tmp_path / "sweep").values()) == {1}


def test_a_cell_ends_with_the_sweep_that_started_it(tmp_path: Path) -> None:
    endless = {**DESCRIPTION, "common": {**DESCRIPTION["common"], "steps": 10**9}, "judge": []}
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
    """Returns whether a process of this machine has a directory among its arguments."""
    if not Path("/proc").is_dir():
        pytest.skip("listing processes needs /proc")
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = command_line.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "hopplus.cli.sweep_cell" in text and str(path) in text:
            return True
    return False


def test_trainings_of_a_stopped_sweep_save_a_checkpoint(done: Path, tmp_path: Path, capsys: Capture) -> None:
    endless = {
        **DESCRIPTION,
        "common": {**DESCRIPTION["common"], "steps": 10**9, "checkpoint_seconds": 10**6},
        "judge": [],
    }
    with start_or_resume(tmp_path / "sweep", make_plan(endless, "endless"), 2) as sweep:
        first = sweep.plan.cells[0]

        def learning() -> bool:
            return sweep.fraction(first) > 0

        with pytest.raises(KeyboardInterrupt):
            run_here(sweep, 1, 0, lambda status: None, learning)
        assert checkpoint.load(sweep.run_path(first) / "checkpoints").number > 0


# --------------------------------------------------------------------------------------------------------------- failed


def test_a_failing_cell_is_retried_and_reported_and_others_continue(tmp_path: Path, capsys: Capture) -> None:
    diverges = {"name": "wild", "learning_rate": 1e30, "max_grad_norm": 1e30}
    description = {**DESCRIPTION, "grid": {"learning_rate": [0.01]}, "cells": [diverges]}
    description["reference"] = "wild"
    file = written(
        tmp_path / "wild.toml", {key: description[key] for key in ("title", "reference", "common", "grid", "cells")}
    )
    with cells_in_this_process():
        assert main([*sweep_argv(file, tmp_path / "sweep"), "--retries", "1"]) == 1
    output = capsys.readouterr()
    assert "the cell wild failed: training stopped: seed 0" in output.err
    attempts = open_sweep(tmp_path / "sweep").attempts()
    assert [line["code"] for line in attempts if line["cell"] == "wild" and "code" in line] == [1, 1]
    assert successes(tmp_path / "sweep") == Counter({"learning_rate-0.01": 1})
    assert main(["tables", str(tmp_path / "sweep")]) == 0
    assert "unfinished, not in the table: wild" in capsys.readouterr().out


class Sleeper:
    """Long idle process, in place of a cell's."""

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
    file = written(tmp_path / "small.toml", DESCRIPTION)
    assert main(["sweep", str(file), "--out", str(tmp_path / "sweep"), "--workers", "2"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert len(sleeper.started) == 1
    assert sleeper.started[0].poll() is not None


def test_a_worker_has_as_many_threads_as_cores(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append({"command": command, **options}))
    sweep = open_sweep(done)
    start_cell(sweep, sweep.plan.cells[0], 3, [0, 1, 2], gpu=1)
    assert started[0]["env"]["NPROC"] == started[0]["env"]["OMP_NUM_THREADS"] == "3"
    assert started[0]["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert started[0]["command"][-1] == "0,1,2"


# ------------------------------------------------------------------------------------------------------------------ Ray


def test_a_remote_node_starts_from_the_cells_files_and_sends_back_changes(done: Path, tmp_path: Path) -> None:
    sweep = open_sweep(done)
    name = sweep.plan.cells[0].name
    store = Store(str(done))
    mirror = Mirror(tmp_path / "node", name, (done / "sweep.json").read_bytes(), store.start(name))
    assert store.started() == [name]
    there = open_sweep(tmp_path / "node")
    assert there.is_done(there.plan.cell(name))
    assert mirror.changes()[0] == {}
    other = Store(str(tmp_path / "home"))
    other.take(name, files_of(done, name), list(files_of(done, name)))
    run = tmp_path / "node" / "cells" / name
    (run / "evaluation" / "more.json").write_text("{}", encoding="utf-8")
    oldest = checkpoint.list_checkpoints(run / "checkpoints")[-1]
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
    three_nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [three_nodes.add_node(num_cpus=1) for _ in range(2)]
    yield three_nodes, nodes
    three_nodes.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("scratch", [False, True])
def test_a_cluster_that_loses_a_node_has_the_same_results(
    scratch: bool, cluster: Any, four_done: Path, tmp_path: Path
) -> None:
    three_nodes, nodes = cluster
    out = tmp_path / "sweep"
    options = [
        "--on",
        "ray",
        "--address",
        three_nodes.address,
        *(["--scratch", str(tmp_path / "scratch")] if scratch else []),
    ]
    command = [sys.executable, "-m", "hopplus.cli.main", *sweep_argv(four_done.parent / "small.toml", out)]
    process = subprocess.Popen([*command, *options])
    while started(out) < 3 and process.poll() is None:
        time.sleep(0.2)
    three_nodes.remove_node(nodes[0], allow_graceful=False)
    assert process.wait() == 0
    assert outcome(out) == outcome(four_done)
    assert set(successes(out).values()) == {1}

"""Runs that are killed, interrupted, extended or diverge, and resume bit for bit."""

import dataclasses
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.cli.main import main
from hopplus.core.struct import names_and_leaves
from hopplus.training import checkpoint, trainer
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, describe, prepare
from hopplus.training.logging import Log
from hopplus.training.policies import load_policy
from hopplus.training.run import Run, new_run, open_run
from run_directories import (
    ALGORITHM,
    ARGV,
    CHUNKS,
    STEPS,
    TRAINING,
    Capture,
    Disk,
    Killed,
    assert_same,
    at_chunk,
    error_of,
    interrupt,
    metrics,
    poison,
    resume,
    watched,
)

pytestmark = pytest.mark.usefixtures("cheap_trainings")


# --------------------------------------------------------------------------------------------------------------- killed


def test_a_run_killed_at_any_file_operation_resumes_bit_for_bit(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training dies twenty times: between two file operations, or in the middle of a write."""
    moments, experiment, disk, seen = random.Random(0), prepare(TRAINING, ALGORITHM), Disk(monkeypatch), [0]
    disk.error = Killed()
    with new_run(tmp_path / "run", describe(experiment)) as run:
        pass

    def watch(lines: Any, experiment: Experiment) -> None:
        seen[0] = lines[0]["iteration"] // TRAINING.iterations_per_call

    def resume_training() -> dict[str, Any]:
        saved = checkpoint.load(run.checkpoints) if checkpoint.list_checkpoints(run.checkpoints) else None
        return trainer.train(run, experiment, saved, watch, checkpoint_seconds=0)

    for _ in range(20):
        left, outcome = moments.randrange(1, 24), moments.choice(["before", "half", "after"])

        def plan(operation: str, outcome: str = outcome) -> str:
            nonlocal left
            left -= 1
            return "do" if left > 0 else outcome if left == 0 else "before"

        disk.plan = plan
        with pytest.raises(Killed):
            resume_training()
        disk.plan = lambda operation: "do"
        if seen[0] > 1:
            saved = checkpoint.load(run.checkpoints)
            assert saved.damaged == ()
            assert saved.number >= seen[0] - 1
    resume_training()
    assert_same(run.path, reference)


def kill(argv: list[str], path: Path, chunks: int, delay: float, check: Callable[[], None] = lambda: None) -> None:
    """Trains in a separate process, and ends it with SIGKILL `delay` seconds after `chunks` more chunks."""
    first_number = (
        checkpoint.load(path / "checkpoints").number if checkpoint.list_checkpoints(path / "checkpoints") else 0
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "hopplus.cli.main", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr
    try:
        while process.poll() is None and not (path / "config.json").is_file():
            time.sleep(0.002)
        while process.poll() is None and len(open_run(path).metrics()) < first_number + chunks:
            time.sleep(0.002)
        time.sleep(delay)
        if hasattr(signal, "SIGSTOP"):
            process.send_signal(signal.SIGSTOP)
            check()
    finally:
        process.kill()
        stderr = process.communicate()[1].decode()
    assert process.returncode < 0, f"it ended by itself: {process.returncode}, {stderr}"
    written = len(open_run(path).metrics())
    if written > 1:
        saved = checkpoint.load(path / "checkpoints")
        assert saved.damaged == ()
        assert saved.number >= written - 1


def test_a_run_killed_by_the_system_resumes_bit_for_bit(reference: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "run"

    def assert_rejected() -> None:
        assert "another training is writing" in error_of(capsys, resume(path), 2)
        assert "another training is writing" in error_of(capsys, [*ARGV, "--out", str(path)], 2)

    kill([*ARGV, "--out", str(path)], path, chunks=3, delay=0.0, check=assert_rejected)
    assert main(resume(path)) == 0
    assert_same(path, reference)


@pytest.mark.slow
def test_a_run_killed_several_times_resumes_bit_for_bit(reference: Path, tmp_path: Path) -> None:
    path, moments = tmp_path / "run", random.Random(1)
    kill([*ARGV, "--out", str(path)], path, moments.randrange(1, 8), moments.uniform(0, 0.05))
    for _ in range(2):
        kill(resume(path), path, moments.randrange(1, 8), moments.uniform(0, 0.05))
    assert main(resume(path)) == 0
    assert_same(path, reference)


@pytest.mark.slow
def test_a_run_killed_twenty_times_resumes_bit_for_bit(tmp_path: Path) -> None:
    """With shared parameters and an annealed learning rate."""
    argv = [word for word in ARGV if word not in ("--no-anneal-lr", "--parameters", "independent")]
    argv[-1] = str(200 * STEPS)
    assert main([*argv, "--out", str(tmp_path / "reference")]) == 0
    path, moments = tmp_path / "run", random.Random()
    kill([*argv, "--out", str(path)], path, moments.randrange(4), moments.uniform(0, 0.1))
    for _ in range(19):
        kill(resume(path), path, moments.randrange(4), moments.uniform(0, 0.1))
    assert main(resume(path)) == 0
    assert_same(path, tmp_path / "reference")


# ---------------------------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_saves_a_checkpoint_first(
    how: str, save_seconds: str, reference: Path, tmp_path: Path, capsys: Capture
) -> None:
    if how == "SIGTERM" and threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread")
    path = tmp_path / "run"
    stop = interrupt if how == "Ctrl-C" else lambda: signal.raise_signal(signal.SIGTERM)
    with watched(at_chunk(4, stop)):
        sentence = error_of(capsys, [*ARGV, "--out", str(path), "--checkpoint-seconds", save_seconds], 130)
    assert f"stopped and saved; resume with: hopplus train --resume {path}" in sentence
    assert checkpoint.load(path / "checkpoints").number == 4
    assert metrics(path) == metrics(reference)[:4]
    with watched(at_chunk(5, stop)):
        error_of(capsys, [*resume(path), "--checkpoint-seconds", save_seconds], 130)
    assert checkpoint.load(path / "checkpoints").number == 5
    assert main(resume(path)) == 0
    assert_same(path, reference)


EVALUATED_ARGV = [*ARGV[:-1], str(8 * STEPS), "--target", "1000"]
"""Command line with a target that is never reached: an evaluation after every chunk."""


@pytest.fixture(scope="module")
def evaluated(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of that training, not interrupted."""
    path = tmp_path_factory.mktemp("evaluated") / "run"
    assert main([*EVALUATED_ARGV, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize("where", ["evaluating", "before logging", "after logging"])
def test_a_run_interrupted_within_a_chunk_resumes_bit_for_bit(where: str, evaluated: Path, tmp_path: Path) -> None:
    owner, name = (CompiledLoop, "evaluate") if where == "evaluating" else (Log, "write")
    act, calls = getattr(owner, name), [0]

    def stop(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4 and where != "after logging":
            raise KeyboardInterrupt
        result = act(*arguments)
        if calls[0] == 4:
            raise KeyboardInterrupt
        return result

    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stop)
        assert main([*EVALUATED_ARGV, "--out", str(path), "--checkpoint-seconds", "1000"]) == 130
    assert checkpoint.load(path / "checkpoints").number in (3, 4)
    assert main(resume(path)) == 0
    assert len(metrics(path)) == 8
    assert all("evaluation" in line for line in metrics(path))
    assert_same(path, evaluated)


# -------------------------------------------------------------------------------------------------------------- resumed


def test_a_run_resumed_with_more_steps_equals_a_longer_run(reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert main([*ARGV[:-1], str(8 * STEPS), "--out", str(path)]) == 0
    assert checkpoint.load(path / "checkpoints").number == 8
    assert metrics(path) == metrics(reference)[:8]
    assert main(resume(path, "--steps", str(CHUNKS * STEPS))) == 0
    assert open_run(path).config == {**open_run(reference).config, "started": open_run(path).config["started"]}
    assert_same(path, reference)


def test_resuming_a_finished_run_changes_nothing(reference: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(reference, tmp_path / "run"))
    assert main(resume(path)) == 0
    assert_same(path, reference)


# ------------------------------------------------------------------------------------------------------------- diverged


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
def test_a_loss_that_is_not_finite_stops_training_at_the_last_finite_state(
    save_seconds: str, reference: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, chunk=6, seed=0, seat=1)
        sentence = error_of(capsys, [*ARGV, "--out", str(path), "--checkpoint-seconds", save_seconds], 1)
    assert "seed 0: policy_loss of seat 1" in sentence
    assert "value_loss of seat 1" in sentence
    assert "seat 0" not in sentence
    assert "a parameter is not a finite number after iteration 12" in sentence
    saved = checkpoint.load(path / "checkpoints")
    assert saved.number == 5
    assert str(saved.path) in sentence
    assert all(np.isfinite(array).all() for array in saved.arrays.values())
    assert [line["iteration"] for line in metrics(path)] == [2, 4, 6, 8, 10]
    assert main(resume(path)) == 0
    assert_same(path, reference)


def test_divergence_in_the_first_chunk_leaves_the_initial_state(
    reference: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, chunk=1, seed=0, seat=0)
        assert "after iteration 2" in error_of(capsys, [*ARGV, "--out", str(path)], 1)
    assert checkpoint.load(path / "checkpoints").number == 0
    assert main(resume(path)) == 0
    assert_same(path, reference)


# ---------------------------------------------------------------------------------------------------------------- seeds


def test_a_seed_is_the_same_alone_and_with_others_and_is_named_if_it_diverges(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(seeds: str) -> tuple[Any, Any]:
        loop = trainer.CompiledLoop(prepare(dataclasses.replace(TRAINING, seeds=seeds), ALGORITHM))
        first = loop.init_states()
        return first, loop.iterate(first, 0)[0]

    for together, alone in zip(states("0-2"), states("1"), strict=True):
        arrays_of_seed_1 = {name: np.asarray(leaf[1]) for name, leaf in arrays(together).items()}
        arrays_alone = {name: np.asarray(leaf[0]) for name, leaf in arrays(alone).items()}
        assert arrays_of_seed_1.keys() == arrays_alone.keys()
        assert {name.partition("/")[0] for name in arrays_of_seed_1} == {
            "key",
            "iteration",
            "steps",
            "train_state",
            "rollout_state",
        }
        for name, array in arrays_of_seed_1.items():
            if name.startswith("train_state/"):
                np.testing.assert_allclose(array, arrays_alone[name], rtol=1e-3, atol=1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(array, arrays_alone[name], err_msg=name)
        arrays_of_seed_0 = {name: np.asarray(leaf[0]) for name, leaf in arrays(together).items()}
        assert not np.array_equal(arrays_of_seed_1["key"], arrays_of_seed_0["key"])
        assert any(
            not np.array_equal(arrays_of_seed_1[name], arrays_of_seed_0[name])
            for name in arrays_of_seed_1
            if name.startswith("train_state/params")
        )

    poison(monkeypatch, chunk=3, seed=1, seat=0)
    argv = [*ARGV, "--seeds", "0-2", "--out", str(tmp_path / "run")]
    assert "seed 1: policy_loss of seat 0" in error_of(capsys, argv, 1)
    assert checkpoint.load(tmp_path / "run" / "checkpoints").number == 2


def arrays(state: Any) -> dict[str, Any]:
    plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, state)
    return names_and_leaves(plain)


def is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


# ------------------------------------------------------------------------------------------------------ a run in a seat


def test_the_policy_of_a_run_in_a_seat_is_stored_with_the_training(reference: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(reference, tmp_path / "other"))
    argv = [*ARGV[:-1], str(6 * STEPS), "--cast", f"learner,{other}"]
    assert main([*argv, "--out", str(tmp_path / "whole")]) == 0
    path = tmp_path / "run"
    with watched(at_chunk(3, interrupt)):
        assert main([*argv, "--out", str(path)]) == 130
    (stored,) = (path / "co_players").glob("*.safetensors")
    shutil.rmtree(other)
    assert main(resume(path)) == 0
    assert_same(path, tmp_path / "whole")
    run: Run = open_run(path)
    assert run.config["learners"] == [0]
    assert all(line["policy_loss"][1] is None and line["trained_on"][0][1] == 0 for line in run.metrics())
    policy = load_policy(str(stored))
    expected = open_run(reference).policies()[1]
    assert policy.seat == 1
    jax.tree.map(np.testing.assert_array_equal, policy.params, expected.params)

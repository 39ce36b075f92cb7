"""Small training runs on disk, their comparison, and simulated failures of the disk and of the optimiser."""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hopplus.algorithms import PPO
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.training import checkpoint, trainer
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.run import open_run

CHUNKS = 40
STEPS = 64
"""Environment steps per chunk: 4 environments, 8 steps, 2 iterations."""
TRAINING = TrainingConfig(game="msh-4x4-2h1s", steps=CHUNKS * STEPS, iterations_per_call=2)
ALGORITHM = PPO(
    num_envs=4, num_steps=8, hidden=(8,), minibatch_size=64, update_epochs=2, parameters="independent", anneal_lr=False
)
ARGV = (
    "train ppo --game msh-4x4-2h1s --iterations-per-call 2 --num-envs 4 --num-steps 8 --hidden 8"
    " --minibatch-size 64 --update-epochs 2"
    f" --parameters independent --no-anneal-lr --checkpoint-seconds 0 --steps {CHUNKS * STEPS}"
).split()
"""Command line of the same training. Nearly all tests use it, since compilation takes most of their time."""
DISK_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Capture = pytest.CaptureFixture[str]


class Killed(BaseException):
    """Death of the process: nothing catches it, and no file changes after it."""


@contextlib.contextmanager
def watched(watch: trainer.Watch) -> Iterator[None]:
    """Context in which commands call `watch` after every chunk, in place of the progress bar."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_train, "_bar", lambda experiment: contextlib.nullcontext(watch))
        yield


def at_chunk(number: int, act: Callable[[], None]) -> trainer.Watch:
    """Callback that calls `act` after a chunk."""
    return lambda lines, experiment: act() if lines[0]["iteration"] == number * TRAINING.iterations_per_call else None


def interrupt() -> None:
    """Simulates Ctrl-C."""
    raise KeyboardInterrupt


def resume(path: Path, *argv: str) -> list[str]:
    """Command line that resumes a run."""
    return ["train", "--resume", str(path), "--checkpoint-seconds", "0", *argv]


def error_of(capsys: Capture, argv: list[str], code: int) -> str:
    """Error message of a command that exits with this code: one sentence."""
    capsys.readouterr()
    assert main(argv) == code
    sentence = capsys.readouterr().err.strip()
    assert sentence.startswith("hopplus: ")
    assert "\n" not in sentence
    return sentence


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and modification times of all files below a directory."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def without_seconds(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries that do not depend on the clock."""
    return {key: part for key, part in value.items() if key != "seconds"}


def metrics(path: Path) -> list[dict[str, Any]]:
    """Logged metrics of a run, without times."""
    return [without_seconds(line) for line in open_run(path).metrics()]


def assert_same(path: Path, other: Path) -> None:
    """Asserts that two runs are bit-equal, except for times."""
    first, second = checkpoint.load(path / "checkpoints"), checkpoint.load(other / "checkpoints")
    assert (first.number, first.damaged) == (second.number, ())
    assert without_seconds(first.notes) == without_seconds(second.notes)
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert (array.dtype, array.shape) == (second.arrays[name].dtype, second.arrays[name].shape), name
        assert array.tobytes() == second.arrays[name].tobytes(), name
    assert metrics(path) == metrics(other)
    finals = [open_run(run).evaluations()["final"] for run in (path, other)]
    assert without_seconds(finals[0]) == without_seconds(finals[1])


def temporary_files(path: Path) -> list[Path]:
    """Unfinished files that a write has left behind."""
    return list(path.rglob(".hopplus-*"))


class Disk:
    """Interceptor of all operations that change files.

    `plan(operation)` returns "do", or the moment at which `error` is raised: "before", "half" or "after".
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.plan: Callable[[str], str] = lambda operation: "do"
        self.error: BaseException = DISK_FULL
        for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
            patch.setattr(owner, name, self._observed(name, getattr(owner, name)))
        patch.setattr(Path, "open", self._open(Path.open))

    def do(self, operation: str, act: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        """Performs an operation as planned; `half` performs a part of it."""
        outcome = self.plan(operation)
        if outcome in ("before", "half"):
            if outcome == "half":
                half()
            raise self.error
        result = act()
        if outcome == "after":
            raise self.error
        return result

    def _observed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: self.do(name, lambda: act(*arguments, **options))

    def _open(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if not set(mode) & set("wax"):
                return act(path, mode, *arguments, **options)
            if path.name == "lock":
                return act(path, mode, *arguments, **options)
            return self.do("open", lambda: ObservedFile(self, act(path, mode, *arguments, **options)))

        return opened


class ObservedFile:
    """Open file whose writes pass through a `Disk`."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self.disk, self.file = disk, file

    def write(self, data: Any) -> int:
        return self.disk.do(
            "write", lambda: self.file.write(data), lambda: (self.file.write(data[: len(data) // 2]), self.file.flush())
        )

    def __enter__(self) -> "ObservedFile":
        return self

    def __exit__(self, *error: Any) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def poison(monkeypatch: pytest.MonkeyPatch, chunk: int, seed: int, seat: int) -> None:
    """Sets the parameters of one seat of one seed (by index) to NaN before a chunk."""
    compute, calls = CompiledLoop.iterate, [0]

    def poisoned(loop: CompiledLoop, states: Any, steps: int) -> Any:
        calls[0] += 1
        if calls[0] == chunk:
            params = jax.tree.map(lambda leaf: leaf.at[seed, seat].set(jnp.nan), states.train_state.params)
            states = dataclasses.replace(states, train_state=dataclasses.replace(states.train_state, params=params))
        return compute(loop, states, steps)

    monkeypatch.setattr(CompiledLoop, "iterate", poisoned)

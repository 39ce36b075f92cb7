"""Runs on the disk: killed, damaged, without room, twice at once, diverged, gone on with; nothing of it is lost."""

import ast
import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

import hopplus
from hopplus.algorithms import PPO
from hopplus.algorithms.ppo_update import METRIC_NAMES
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.errors import DamagedCheckpointWarning, InputError
from hopplus.core.struct import names_and_leaves
from hopplus.training import checkpoint, trainer
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, describe, prepare
from hopplus.training.logging import Log
from hopplus.training.policies import load_policy
from hopplus.training.run import Run, locked, new_run, open_run

CHUNKS = 40
STEPS = 64
"""Of one chunk: 4 environments, 8 steps, 2 iterations."""
TRAINING = TrainingConfig(game="msh-4x4-2h1s", steps=CHUNKS * STEPS, iterations_per_call=2)
RECIPE = PPO(
    num_envs=4, num_steps=8, hidden=(8,), minibatch_size=64, update_epochs=2, parameters="independent", anneal_lr=False
)
WORDS = (
    "train ppo --game msh-4x4-2h1s --iterations-per-call 2 --num-envs 4 --num-steps 8 --hidden 8"
    " --minibatch-size 64 --update-epochs 2"
    f" --parameters independent --no-anneal-lr --checkpoint-seconds 0 --steps {CHUNKS * STEPS}"
).split()
"""The same as words; one training for nearly all of the tests, since compiling is what costs time."""
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("cheap_trainings")


class Killed(BaseException):
    """The process is dead: nothing catches it, and no file changes after it."""


# -------------------------------------------------------------------------------------------------------------- helpers


@pytest.fixture(scope="module")
def reference(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training that nothing disturbs."""
    path = tmp_path_factory.mktemp("reference") / "run"
    assert main([*WORDS, "--out", str(path)]) == 0
    assert open_run(path).config["settings"] == json.loads(json.dumps(dataclasses.asdict(RECIPE)))
    assert open_run(path).config["training"] == json.loads(json.dumps(dataclasses.asdict(TRAINING)))
    return path


@pytest.fixture(scope="module")
def stopped_early(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped four chunks before its end; to be copied, not changed."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    with watched(at_chunk(CHUNKS - 4, interrupt)):
        assert main([*WORDS, "--out", str(path)]) == 130
    return path


@pytest.fixture
def unfinished(stopped_early: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(stopped_early, tmp_path / "unfinished"))


@contextlib.contextmanager
def watched(watch: trainer.Watch) -> Iterator[None]:
    """Commands in here call this after every chunk, instead of moving a bar."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_train, "_bar", lambda setup: contextlib.nullcontext(watch))
        yield


def at_chunk(number: int, act: Callable[[], None]) -> trainer.Watch:
    """Do something after a chunk."""
    return lambda lines, setup: act() if lines[0]["iteration"] == number * TRAINING.iterations_per_call else None


def interrupt() -> None:
    raise KeyboardInterrupt


def resume(path: Path, *words: str) -> list[str]:
    return ["train", "--resume", str(path), "--checkpoint-seconds", "0", *words]


def said(capsys: Capture, words: list[str], code: int) -> str:
    """What a command that ends with this code says on standard error: one sentence."""
    capsys.readouterr()
    assert main(words) == code
    sentence = capsys.readouterr().err.strip()
    assert sentence.startswith("hopplus: ")
    assert "\n" not in sentence
    return sentence


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a directory: what is in it, and when it was written."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def without_seconds(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key != "seconds"}


def metrics(path: Path) -> list[dict[str, Any]]:
    return [without_seconds(line) for line in open_run(path).metrics()]


def assert_same(path: Path, other: Path) -> None:
    """Two runs agree to the last bit, in all that a clock does not decide."""
    one, two = checkpoint.load(path / "checkpoints"), checkpoint.load(other / "checkpoints")
    assert (one.number, one.damaged) == (two.number, ())
    assert without_seconds(one.notes) == without_seconds(two.notes)
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert (array.dtype, array.shape) == (two.arrays[name].dtype, two.arrays[name].shape), name
        assert array.tobytes() == two.arrays[name].tobytes(), name
    assert metrics(path) == metrics(other)
    finals = [open_run(run).evaluations()["final"] for run in (path, other)]
    assert without_seconds(finals[0]) == without_seconds(finals[1])


def temporary_files(path: Path) -> list[Path]:
    return list(path.rglob(".hopplus-*"))


class Disk:
    """The operations by which files change, each asked about before it is done.

    `plan(operation)` says "do"; or "before", "half" or "after", which is where `error` is raised instead.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.plan: Callable[[str], str] = lambda operation: "do"
        self.error: BaseException = FULL
        for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
            patch.setattr(owner, name, self._asked(name, getattr(owner, name)))
        patch.setattr(Path, "open", self._open(Path.open))

    def do(self, operation: str, act: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        how = self.plan(operation)
        if how in ("before", "half"):
            if how == "half":
                half()
            raise self.error
        result = act()
        if how == "after":
            raise self.error
        return result

    def _asked(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: self.do(name, lambda: act(*arguments, **options))

    def _open(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if not set(mode) & set("wax"):
                return act(path, mode, *arguments, **options)
            if path.name == "lock":
                return act(path, mode, *arguments, **options)
            return self.do("open", lambda: Written(self, act(path, mode, *arguments, **options)))

        return opened


class Written:
    """An open file whose writes the disk is asked about."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self.disk, self.file = disk, file

    def write(self, data: Any) -> int:
        return self.disk.do(
            "write", lambda: self.file.write(data), lambda: (self.file.write(data[: len(data) // 2]), self.file.flush())
        )

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *error: Any) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


# --------------------------------------------------------------------------------------------------------------- killed


def test_killed_at_any_operation_and_resumed_it_is_bit_equal(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty deaths in one training: between any two operations on files, or in the middle of a write."""
    moments, setup, disk, seen = random.Random(0), prepare(TRAINING, RECIPE), Disk(monkeypatch), [0]
    disk.error = Killed()
    with new_run(tmp_path / "run", describe(setup)) as run:
        pass

    def watch(lines: Any, setup: Experiment) -> None:
        seen[0] = lines[0]["iteration"] // TRAINING.iterations_per_call

    def go_on() -> dict[str, Any]:
        saved = checkpoint.load(run.checkpoints) if checkpoint.list_checkpoints(run.checkpoints) else None
        return trainer.train(run, setup, saved, watch, checkpoint_seconds=0)

    for _ in range(20):
        left, how = moments.randrange(1, 24), moments.choice(["before", "half", "after"])

        def plan(operation: str, how: str = how) -> str:
            nonlocal left
            left -= 1
            return "do" if left > 0 else how if left == 0 else "before"

        disk.plan = plan
        with pytest.raises(Killed):
            go_on()
        disk.plan = lambda operation: "do"
        if seen[0] > 1:
            kept = checkpoint.load(run.checkpoints)
            assert kept.damaged == ()
            assert kept.number >= seen[0] - 1
    go_on()
    assert_same(run.path, reference)


def kill(words: list[str], path: Path, chunks: int, delay: float, check: Callable[[], None] = lambda: None) -> None:
    """Train in a process of its own and end it with SIGKILL, so long after so many more chunks."""
    begun = checkpoint.load(path / "checkpoints").number if checkpoint.list_checkpoints(path / "checkpoints") else 0
    process = subprocess.Popen(
        [sys.executable, "-m", "hopplus.cli.main", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr
    try:
        while process.poll() is None and not (path / "config.json").is_file():
            time.sleep(0.002)
        while process.poll() is None and len(open_run(path).metrics()) < begun + chunks:
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
        kept = checkpoint.load(path / "checkpoints")
        assert kept.damaged == ()
        assert kept.number >= written - 1


def test_killed_by_the_system_and_resumed_it_is_bit_equal(reference: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "run"

    def refused() -> None:
        assert "another training is writing" in said(capsys, resume(path), 2)
        assert "another training is writing" in said(capsys, [*WORDS, "--out", str(path)], 2)

    kill([*WORDS, "--out", str(path)], path, chunks=3, delay=0.0, check=refused)
    assert main(resume(path)) == 0
    assert_same(path, reference)


@pytest.mark.slow
def test_killed_by_the_system_several_times(reference: Path, tmp_path: Path) -> None:
    path, moments = tmp_path / "run", random.Random(1)
    kill([*WORDS, "--out", str(path)], path, moments.randrange(1, 8), moments.uniform(0, 0.05))
    for _ in range(2):
        kill(resume(path), path, moments.randrange(1, 8), moments.uniform(0, 0.05))
    assert main(resume(path)) == 0
    assert_same(path, reference)


@pytest.mark.slow
def test_killed_by_the_system_twenty_times(tmp_path: Path) -> None:
    """With parameters in common and a step size that falls."""
    words = [word for word in WORDS if word not in ("--no-anneal-lr", "--parameters", "independent")]
    words[-1] = str(200 * STEPS)
    assert main([*words, "--out", str(tmp_path / "reference")]) == 0
    path, moments = tmp_path / "run", random.Random()
    kill([*words, "--out", str(path)], path, moments.randrange(4), moments.uniform(0, 0.1))
    for _ in range(19):
        kill(resume(path), path, moments.randrange(4), moments.uniform(0, 0.1))
    assert main(resume(path)) == 0
    assert_same(path, tmp_path / "reference")


# -------------------------------------------------------------------------------------------------------------- damaged


def flipped(place: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[int(place * (len(data) - 1))] ^= 1
        return bytes(changed)

    return flip


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "only the length of the header": lambda data: data[:8],
    "half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "with a byte more": lambda data: data + b"\0",
    "a bit of the first byte": flipped(0),
    "a bit of the header": flipped(0.02),
    "a bit in the middle": flipped(0.5),
    "a bit of the last byte": flipped(1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(
    damage: str, unfinished: Path, reference: Path, capsys: Capture
) -> None:
    newest, older = checkpoint.list_checkpoints(unfinished / "checkpoints")
    newest.write_bytes(DAMAGE[damage](newest.read_bytes()))
    sentence = f"the checkpoint {newest.name} of {unfinished} is damaged; using the one before it"
    with pytest.warns(DamagedCheckpointWarning, match=re.escape(sentence)):
        assert checkpoint.load(unfinished / "checkpoints").path == older
    assert said(capsys, resume(unfinished), 0) == f"hopplus: {sentence}"
    assert_same(unfinished, reference)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("evaluate RUN --cast self,nobody", "there is no player 'nobody'"),
        ("adapt RUN --against nobody", "'nobody'"),
        ("crossplay RUN --with nobody", "there is no player 'nobody'"),
        ("match msh-4x4-2h1s --cast RUN,nobody", "there is no player 'nobody'"),
        ("watch --run RUN --cast self,nobody", "there is no player 'nobody'"),
        ("train ppo --game msh-4x4-2h1s --init policy=RUN --hidden 4 --out OUT", "does not fit"),
        ("report RUN --out OUT", ""),
    ],
)
def test_whatever_loads_a_damaged_checkpoint_says_so_once(
    words: str, more: str, reference: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it loads it. The commands end before they compile anything."""
    path = Path(shutil.copytree(reference, tmp_path / "run"))
    newest, _ = checkpoint.list_checkpoints(path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-1])

    def stop(*arguments: Any, **options: Any) -> Any:
        raise InputError("no episode is played here")

    monkeypatch.setattr("hopplus.visualization.replay.episodes_of", stop)
    names = {"RUN": str(path), "OUT": str(tmp_path / "out")}
    given = [re.sub("RUN|OUT", lambda name: names[name[0]], word) for word in words.split()]
    capsys.readouterr()
    assert main(given) == (2 if more else 0)
    first, *rest = filter(None, capsys.readouterr().err.splitlines())
    assert first == f"hopplus: the checkpoint {newest.name} of {path} is damaged; using the one before it"
    assert len(rest) == bool(more)
    assert more in "".join(rest)


def test_where_all_checkpoints_are_damaged_it_says_so(unfinished: Path, capsys: Capture) -> None:
    for path in checkpoint.list_checkpoints(unfinished / "checkpoints"):
        path.write_bytes(path.read_bytes()[:-1])
    before = contents(unfinished)
    assert "are damaged" in said(capsys, resume(unfinished, "--steps", "9999"), 2)
    assert contents(unfinished) == before
    assert "are damaged" in said(capsys, ["evaluate", str(unfinished)], 2)


def test_a_whole_checkpoint_says_nothing(unfinished: Path, reference: Path, capsys: Capture) -> None:
    assert main(resume(unfinished)) == 0
    assert "damaged" not in capsys.readouterr().err
    assert_same(unfinished, reference)


# ---------------------------------------------------------------------------------------------------------- a full disk


@pytest.mark.parametrize(("operation", "how"), [("open", "before"), ("write", "half"), ("fsync", "before")])
def test_a_full_disk_ends_a_training_and_costs_nothing(
    operation: str, how: str, unfinished: Path, reference: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    def fill() -> None:
        disk.plan = lambda asked: how if asked == operation else "do"

    with watched(at_chunk(CHUNKS - 2, fill)):
        sentence = said(capsys, resume(unfinished), 2)
    assert "cannot write" in sentence
    assert "No space left on device" in sentence
    assert not temporary_files(unfinished)
    kept = checkpoint.load(unfinished / "checkpoints")
    assert (kept.number, kept.damaged) == (CHUNKS - 3, ())
    disk.plan = lambda asked: "do"
    assert main(resume(unfinished)) == 0
    assert_same(unfinished, reference)


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
def test_files_that_may_not_grow_end_a_training(
    save_seconds: str, tmp_path: Path, reference: Path, capsys: Capture
) -> None:
    """The system itself refuses, whichever file it is: a checkpoint, the metrics, or the events of TensorBoard."""
    resource = pytest.importorskip("resource")
    path, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    size = checkpoint.list_checkpoints(reference / "checkpoints")[0].stat().st_size

    def limit() -> None:
        most = size // 2 if save_seconds == "0" else 9000
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))

    try:
        with watched(at_chunk(3, limit)):
            sentence = said(capsys, [*WORDS, "--out", str(path), "--checkpoint-seconds", save_seconds], 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write" in sentence
    assert "File too large" in sentence
    assert not temporary_files(path)
    if save_seconds == "0":
        assert checkpoint.load(path / "checkpoints").number == 2
    assert main(resume(path)) == 0
    assert_same(path, reference)


# ------------------------------------------------------------------------------------------------- two in one directory


def test_a_second_training_into_a_directory_is_refused(reference: Path, unfinished: Path, capsys: Capture) -> None:
    before = contents(reference)
    sentence = said(capsys, [*WORDS, "--out", str(reference)], 2)
    assert "already holds a run" in sentence
    assert f"--resume {reference}" in sentence
    assert contents(reference) == before
    before = contents(unfinished)
    with locked(unfinished):
        for words in ([*WORDS, "--out", str(unfinished)], resume(unfinished), resume(unfinished, "--steps", "9999")):
            assert "another training is writing" in said(capsys, words, 2)
    assert "already holds a run" in said(capsys, [*WORDS, "--out", str(unfinished)], 2)
    assert contents(unfinished) == before


def test_a_directory_of_other_things_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    before = contents(tmp_path)
    assert "is not empty" in said(capsys, [*WORDS, "--out", str(tmp_path)], 2)
    assert contents(tmp_path) == before


# ------------------------------------------------------------------------------------------------------------- diverged


def poison(monkeypatch: pytest.MonkeyPatch, chunk: int, seed: int, seat: int) -> None:
    """Before this chunk, one parameter of one seat of one seed (by place) becomes NaN."""
    compute, calls = CompiledLoop.iterate, [0]

    def poisoned(programs: CompiledLoop, states: Any, steps: int) -> Any:
        calls[0] += 1
        if calls[0] == chunk:
            params = jax.tree.map(lambda leaf: leaf.at[seed, seat].set(jnp.nan), states.train_state.params)
            states = dataclasses.replace(states, train_state=dataclasses.replace(states.train_state, params=params))
        return compute(programs, states, steps)

    monkeypatch.setattr(CompiledLoop, "iterate", poisoned)


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
def test_a_loss_that_is_no_number_stops_it_at_the_last_good_state(
    save_seconds: str, reference: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, chunk=6, seed=0, seat=1)
        sentence = said(capsys, [*WORDS, "--out", str(path), "--checkpoint-seconds", save_seconds], 1)
    assert "seed 0: policy_loss of seat 1" in sentence
    assert "value_loss of seat 1" in sentence
    assert "seat 0" not in sentence
    assert "a parameter is not a finite number after iteration 12" in sentence
    kept = checkpoint.load(path / "checkpoints")
    assert kept.number == 5
    assert str(kept.path) in sentence
    assert all(np.isfinite(array).all() for array in kept.arrays.values())
    assert [line["iteration"] for line in metrics(path)] == [2, 4, 6, 8, 10]
    assert main(resume(path)) == 0
    assert_same(path, reference)


def test_divergence_in_the_first_chunk_leaves_the_start(reference: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, chunk=1, seed=0, seat=0)
        assert "after iteration 2" in said(capsys, [*WORDS, "--out", str(path)], 1)
    assert checkpoint.load(path / "checkpoints").number == 0
    assert main(resume(path)) == 0
    assert_same(path, reference)


# ---------------------------------------------------------------------------------------------------------------- seeds


def test_a_seed_is_the_same_alone_and_beside_others_and_is_named_where_it_diverges(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(seeds: str) -> tuple[Any, Any]:
        programs = trainer.CompiledLoop(prepare(dataclasses.replace(TRAINING, seeds=seeds), RECIPE))
        first = programs.init_states()
        return first, programs.iterate(first, 0)[0]

    for together, alone in zip(states("0-2"), states("1"), strict=True):
        here = {name: np.asarray(leaf[1]) for name, leaf in arrays(together).items()}
        there = {name: np.asarray(leaf[0]) for name, leaf in arrays(alone).items()}
        assert here.keys() == there.keys()
        assert {name.partition("/")[0] for name in here} == {
            "key",
            "iteration",
            "steps",
            "train_state",
            "rollout_state",
        }
        for name, array in here.items():
            if name.startswith("train_state/"):
                np.testing.assert_allclose(array, there[name], rtol=1e-3, atol=1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(array, there[name], err_msg=name)
        others = {name: np.asarray(leaf[0]) for name, leaf in arrays(together).items()}
        assert not np.array_equal(here["key"], others["key"])
        assert any(
            not np.array_equal(here[name], others[name]) for name in here if name.startswith("train_state/params")
        )

    poison(monkeypatch, chunk=3, seed=1, seat=0)
    words = [*WORDS, "--seeds", "0-2", "--out", str(tmp_path / "run")]
    assert "seed 1: policy_loss of seat 0" in said(capsys, words, 1)
    assert checkpoint.load(tmp_path / "run" / "checkpoints").number == 2


def arrays(state: Any) -> dict[str, Any]:
    plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, state)
    return names_and_leaves(plain)


def is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


# ------------------------------------------------------------------------------------------------------------- going on


def test_it_goes_on_with_more_steps_bit_for_bit(reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert main([*WORDS[:-1], str(8 * STEPS), "--out", str(path)]) == 0
    assert checkpoint.load(path / "checkpoints").number == 8
    assert metrics(path) == metrics(reference)[:8]
    assert main(resume(path, "--steps", str(CHUNKS * STEPS))) == 0
    assert open_run(path).config == {**open_run(reference).config, "started": open_run(path).config["started"]}
    assert_same(path, reference)


def test_a_finished_run_has_nothing_to_go_on_with(reference: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(reference, tmp_path / "run"))
    assert main(resume(path)) == 0
    assert_same(path, reference)


CHANGES = {
    "learning_rate": ("--learning-rate", "0.1"),
    "iterations_per_call": ("--iterations-per-call", "3"),
    "cast": ("--cast", "learner,ns"),
    "seeds": ("--seeds", "0-1"),
    "game": ("--game", "msh-4x4-2h1s:T=9"),
    "hidden": ("--hidden", "16"),
    "anneal_lr": ("--anneal-lr",),
    "partner": ("--partner", "ns"),
    "--out": ("--out", "elsewhere"),
}


@pytest.mark.parametrize("setting", CHANGES)
def test_other_settings_on_the_way_are_refused_by_name(setting: str, unfinished: Path, capsys: Capture) -> None:
    before = contents(unfinished)
    sentence = said(capsys, resume(unfinished, *CHANGES[setting]), 2)
    expected = "--out and --resume exclude each other" if setting == "--out" else f"this run has {setting}="
    assert expected in sentence
    assert contents(unfinished) == before


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "empty": (lambda config: b"", "cannot be read"),
    "cut": (lambda config: json.dumps(config).encode()[:-20], "cannot be read"),
    "not text": (lambda config: b"\xff\xfe\x00", "cannot be read"),
    "a list": (lambda config: b"[]", "does not describe a run"),
    "an unknown algorithm": (lambda config: as_bytes(config, algorithm="pop"), "there is no algorithm"),
    "without seeds": (
        lambda config: as_bytes({key: value for key, value in config.items() if key != "seeds"}),
        "does not describe a run",
    ),
    "a number as training": (lambda config: as_bytes(config, training=5), "does not describe a run"),
    "nothing in training": (lambda config: as_bytes(config, training={}), "does not describe a run"),
    "an unknown setting": (lambda config: as_bytes(config, settings={"lerning_rate": 1}), "learning_rate"),
    "an unknown setting of the training": (
        lambda config: as_bytes(config, training={**config["training"], "stpes": 1}),
        "stpes",
    ),
}


def as_bytes(config: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**config, **changes}).encode()


@pytest.mark.parametrize("damage", CONFIGS)
def test_a_damaged_config_is_refused(damage: str, unfinished: Path, capsys: Capture) -> None:
    change, expected = CONFIGS[damage]
    file = unfinished / "config.json"
    file.write_bytes(change(json.loads(file.read_text())))
    before = contents(unfinished)
    assert expected in said(capsys, resume(unfinished), 2)
    assert contents(unfinished) == before
    capsys.readouterr()
    assert main(["runs", str(unfinished.parent), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_damaged_metrics_are_refused(unfinished: Path, capsys: Capture) -> None:
    file = unfinished / "metrics.jsonl"
    file.write_text(file.read_text()[30:])
    before = contents(unfinished)
    assert "metrics.jsonl" in said(capsys, resume(unfinished), 2)
    assert contents(unfinished) == before


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: Capture) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        for words in (resume(path), ["evaluate", str(path)]):
            assert f"{path} is not a run" in said(capsys, words, 2)
    assert contents(tmp_path) == {}


# ---------------------------------------------------------------------------------------------------- nothing runs code


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_in_the_place_of_a_checkpoint_is_not_run(protocol: int, unfinished: Path, capsys: Capture) -> None:
    ran = unfinished.parent / "ran"
    data = pickle.dumps(Payload(ran), protocol)
    pickle.loads(data)
    assert ran.exists()
    ran.unlink()
    name = f"{CHUNKS:010d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    (unfinished / "checkpoints" / name).write_bytes(data)
    assert name in said(capsys, resume(unfinished), 2)
    policy = unfinished.parent / "policy.safetensors"
    policy.write_bytes(data)
    cast = [*WORDS, "--cast", f"learner,{policy}", "--out", str(unfinished.parent / "other")]
    assert "policy.safetensors" in said(capsys, cast, 2)
    assert not ran.exists()


def test_a_file_of_other_arrays_is_no_policy(unfinished: Path, tmp_path: Path, capsys: Capture) -> None:
    file = checkpoint.list_checkpoints(unfinished / "checkpoints")[0]
    cast = [*WORDS, "--cast", f"learner,{file}", "--out", str(tmp_path / "other")]
    assert file.name in said(capsys, cast, 2)


RUNS_CODE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def ways_to_run_code(source: str) -> list[str]:
    """Where a source imports a module whose files are programs, or lets NumPy or torch load such files."""
    found = []
    for node in ast.walk(ast.parse(source)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [module for module in modules if module.partition(".")[0] in RUNS_CODE]
        if isinstance(node, ast.Call):
            pickled = [word for word in node.keywords if word.arg == "allow_pickle"]
            found += ["allow_pickle" for word in pickled if ast.unparse(word.value) != "False"]
            found += [text for text in [ast.unparse(node.func)] if text in ("torch.load", "eval", "exec")]
    return found


def test_no_source_loads_what_can_run_code() -> None:
    assert ways_to_run_code("import pickle") == ["pickle"]
    assert ways_to_run_code("from dill.source import x") == ["dill.source"]
    assert ways_to_run_code("np.load(f, allow_pickle=False)") == []
    assert ways_to_run_code("np.load(f, allow_pickle=True)\ntorch.load(f)") == ["allow_pickle", "torch.load"]
    sources = list(Path(hopplus.__file__).parent.rglob("*.py"))
    assert len(sources) > 40
    assert {str(path): ways_to_run_code(path.read_text(encoding="utf-8")) for path in sources} == {
        str(path): [] for path in sources
    }


# -------------------------------------------------------------------------------------------------------------- figures

BY_SEAT = ("return", "length", "took_hare", "took_stag", *METRIC_NAMES, "explained_variance")


def test_metrics_hold_every_figure_by_seat(reference: Path) -> None:
    lines = open_run(reference).metrics()
    assert [line["iteration"] for line in lines] == list(range(2, 2 * CHUNKS + 1, 2))
    assert [line["steps"] for line in lines] == list(range(STEPS, CHUNKS * STEPS + 1, STEPS))
    assert {line["seed"] for line in lines} == {0}
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    for name in BY_SEAT:
        assert {len(line[name]) for line in lines} == {2}, name
        known = [value for line in lines for value in line[name] if value is not None]
        assert len(known) > CHUNKS
        assert len(set(known)) > 1 or name in ("took_stag", "clip_fraction"), name
    for line in lines:
        assert np.shape(line["trained_on"]) == (2, 2)
        assert line["trained_on"][0][1] == line["trained_on"][1][0] == 0
    assert set(METRIC_NAMES) == {"policy_loss", "value_loss", "entropy", "kl", "clip_fraction"}


def test_tensorboard_holds_the_same_figures(reference: Path) -> None:
    lines = open_run(reference).metrics()
    found: dict[tuple[str, int], float] = {}
    for file in (reference / "events" / "seed-0").iterdir():
        for event in events(file.read_bytes()):
            found.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
    wanted = {
        (f"{name}/seat_{seat}", line["steps"]): value
        for line in lines
        for name in BY_SEAT
        for seat, value in enumerate(line[name])
        if value is not None
    }
    assert len(wanted) > 10 * CHUNKS
    assert {key: value for key, value in found.items() if key in wanted} == pytest.approx(wanted, rel=1e-6)


def events(data: bytes) -> list[Any]:
    """The records of a TensorBoard file: length (8 bytes), its checksum (4), data, its checksum (4)."""
    found, place, read = [], 0, vars(event_pb2)["Event"].FromString
    while place < len(data):
        (length,) = struct.unpack("<Q", data[place : place + 8])
        found.append(read(data[place + 12 : place + 12 + length]))
        place += length + 16
    return found


# ------------------------------------------------------------------------------------------------------ stopped, listed


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_stopped_it_saves_first(how: str, save_seconds: str, reference: Path, tmp_path: Path, capsys: Capture) -> None:
    if how == "SIGTERM" and threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread")
    path = tmp_path / "run"
    stop = interrupt if how == "Ctrl-C" else lambda: signal.raise_signal(signal.SIGTERM)
    with watched(at_chunk(4, stop)):
        sentence = said(capsys, [*WORDS, "--out", str(path), "--checkpoint-seconds", save_seconds], 130)
    assert f"stopped and saved; resume with: hopplus train --resume {path}" in sentence
    assert checkpoint.load(path / "checkpoints").number == 4
    assert metrics(path) == metrics(reference)[:4]
    with watched(at_chunk(5, stop)):
        said(capsys, [*resume(path), "--checkpoint-seconds", save_seconds], 130)
    assert checkpoint.load(path / "checkpoints").number == 5
    assert main(resume(path)) == 0
    assert_same(path, reference)


JUDGED = [*WORDS[:-1], str(8 * STEPS), "--target", "1000"]
"""A target that is never reached: an evaluation after every chunk."""


@pytest.fixture(scope="module")
def judged(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "run"
    assert main([*JUDGED, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize("where", ["evaluating", "before logging", "after logging"])
def test_stopped_in_the_middle_of_a_chunk_it_goes_on_as_if_it_had_not_been(
    where: str, judged: Path, tmp_path: Path
) -> None:
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
        assert main([*JUDGED, "--out", str(path), "--checkpoint-seconds", "1000"]) == 130
    assert checkpoint.load(path / "checkpoints").number in (3, 4)
    assert main(resume(path)) == 0
    assert len(metrics(path)) == 8
    assert all("evaluation" in line for line in metrics(path))
    assert_same(path, judged)


def test_runs_are_listed_with_their_states(
    reference: Path, stopped_early: Path, tmp_path: Path, capsys: Capture
) -> None:
    for name, source in (("done", reference), ("busy", reference), ("early", stopped_early), ("torn", stopped_early)):
        shutil.copytree(source, tmp_path / "some" / name)
    (tmp_path / "some" / "torn" / "config.json").write_text('{"algorithm": "ppo"')
    with locked(tmp_path / "some" / "busy"):
        capsys.readouterr()
        assert main(["runs", str(tmp_path), "--json"]) == 0
        rows = {Path(row["run"]).name: row for row in json.loads(capsys.readouterr().out)}
        assert main(["runs", str(tmp_path)]) == 0
        assert "4 runs" in capsys.readouterr().out
    states = {name: row["state"].partition(":")[0] for name, row in rows.items()}
    assert states == {"done": "finished", "busy": "training", "early": "unfinished", "torn": "unreadable"}
    assert rows["done"]["own_return"] == open_run(reference).evaluations()["final"]["own_return"]
    assert (rows["done"]["steps"], rows["early"]["steps"]) == (CHUNKS * STEPS, (CHUNKS - 4) * STEPS)
    assert rows["early"]["own_return"] is None
    assert (rows["done"]["algorithm"], rows["done"]["game"], rows["done"]["seeds"]) == ("ppo", "msh-4x4-2h1s", [0])
    assert "there is no directory" in said(capsys, ["runs", str(tmp_path / "nowhere")], 2)


# ------------------------------------------------------------------------------------------------------ a run in a seat


def test_a_run_sits_in_a_seat_and_is_kept_when_it_goes_away(reference: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(reference, tmp_path / "other"))
    words = [*WORDS[:-1], str(6 * STEPS), "--cast", f"learner,{other}"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    path = tmp_path / "run"
    with watched(at_chunk(3, interrupt)):
        assert main([*words, "--out", str(path)]) == 130
    (kept,) = (path / "co_players").glob("*.safetensors")
    shutil.rmtree(other)
    assert main(resume(path)) == 0
    assert_same(path, tmp_path / "whole")
    run: Run = open_run(path)
    assert run.config["learners"] == [0]
    assert all(line["policy_loss"][1] is None and line["trained_on"][0][1] == 0 for line in run.metrics())
    policy = load_policy(str(kept))
    wanted = open_run(reference).policies()[1]
    assert policy.seat == 1
    jax.tree.map(np.testing.assert_array_equal, policy.params, wanted.params)

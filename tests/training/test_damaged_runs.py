"""Damaged files, full disks, occupied directories and changed settings: reported in one sentence, without loss."""

import ast
import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hopplus
from hopplus.cli.main import main
from hopplus.core.errors import DamagedCheckpointWarning, InputError
from hopplus.training import checkpoint
from hopplus.training.run import locked
from run_directories import (
    ARGV,
    CHUNKS,
    Capture,
    Disk,
    assert_same,
    at_chunk,
    contents,
    error_of,
    resume,
    temporary_files,
    watched,
)

pytestmark = pytest.mark.usefixtures("cheap_trainings")


# -------------------------------------------------------------------------------------------------- damaged checkpoints


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
def test_a_damaged_checkpoint_is_reported_and_the_previous_checkpoint_is_used(
    damage: str, unfinished: Path, reference: Path, capsys: Capture
) -> None:
    newest, older = checkpoint.list_checkpoints(unfinished / "checkpoints")
    newest.write_bytes(DAMAGE[damage](newest.read_bytes()))
    sentence = f"the checkpoint {newest.name} of {unfinished} is damaged; using the one before it"
    with pytest.warns(DamagedCheckpointWarning, match=re.escape(sentence)):
        assert checkpoint.load(unfinished / "checkpoints").path == older
    assert error_of(capsys, resume(unfinished), 0) == f"hopplus: {sentence}"
    assert_same(unfinished, reference)


@pytest.mark.parametrize(
    ("command", "more"),
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
def test_every_command_reports_a_damaged_checkpoint_once(
    command: str, more: str, reference: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report per command, however often it loads the checkpoint. The commands end before they compile."""
    path = Path(shutil.copytree(reference, tmp_path / "run"))
    newest, _ = checkpoint.list_checkpoints(path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-1])

    def stop(*arguments: Any, **options: Any) -> Any:
        raise InputError("no episode is played here")

    monkeypatch.setattr("hopplus.visualization.replay.episodes_of", stop)
    names = {"RUN": str(path), "OUT": str(tmp_path / "out")}
    argv = [re.sub("RUN|OUT", lambda name: names[name[0]], word) for word in command.split()]
    capsys.readouterr()
    assert main(argv) == (2 if more else 0)
    first, *rest = filter(None, capsys.readouterr().err.splitlines())
    assert first == f"hopplus: the checkpoint {newest.name} of {path} is damaged; using the one before it"
    assert len(rest) == bool(more)
    assert more in "".join(rest)


def test_a_run_whose_checkpoints_are_all_damaged_is_rejected(unfinished: Path, capsys: Capture) -> None:
    for path in checkpoint.list_checkpoints(unfinished / "checkpoints"):
        path.write_bytes(path.read_bytes()[:-1])
    before = contents(unfinished)
    assert "are damaged" in error_of(capsys, resume(unfinished, "--steps", "9999"), 2)
    assert contents(unfinished) == before
    assert "are damaged" in error_of(capsys, ["evaluate", str(unfinished)], 2)


def test_an_intact_checkpoint_causes_no_warning(unfinished: Path, reference: Path, capsys: Capture) -> None:
    assert main(resume(unfinished)) == 0
    assert "damaged" not in capsys.readouterr().err
    assert_same(unfinished, reference)


# ------------------------------------------------------------------------------------------------------------ full disk


@pytest.mark.parametrize(("operation", "outcome"), [("open", "before"), ("write", "half"), ("fsync", "before")])
def test_a_full_disk_ends_a_training_and_loses_nothing(
    operation: str, outcome: str, unfinished: Path, reference: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    def fill() -> None:
        disk.plan = lambda asked: outcome if asked == operation else "do"

    with watched(at_chunk(CHUNKS - 2, fill)):
        sentence = error_of(capsys, resume(unfinished), 2)
    assert "cannot write" in sentence
    assert "No space left on device" in sentence
    assert not temporary_files(unfinished)
    saved = checkpoint.load(unfinished / "checkpoints")
    assert (saved.number, saved.damaged) == (CHUNKS - 3, ())
    disk.plan = lambda asked: "do"
    assert main(resume(unfinished)) == 0
    assert_same(unfinished, reference)


@pytest.mark.parametrize("save_seconds", ["0", "1000"])
def test_a_file_size_limit_ends_a_training_and_loses_nothing(
    save_seconds: str, tmp_path: Path, reference: Path, capsys: Capture
) -> None:
    """The system limits the size of every file: checkpoints, metrics and TensorBoard events."""
    resource = pytest.importorskip("resource")
    path, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    size = checkpoint.list_checkpoints(reference / "checkpoints")[0].stat().st_size

    def limit() -> None:
        most = size // 2 if save_seconds == "0" else 9000
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))

    try:
        with watched(at_chunk(3, limit)):
            sentence = error_of(capsys, [*ARGV, "--out", str(path), "--checkpoint-seconds", save_seconds], 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write" in sentence
    assert "File too large" in sentence
    assert not temporary_files(path)
    if save_seconds == "0":
        assert checkpoint.load(path / "checkpoints").number == 2
    assert main(resume(path)) == 0
    assert_same(path, reference)


# ------------------------------------------------------------------------------------------------- occupied directories


def test_a_second_training_into_a_directory_is_rejected(reference: Path, unfinished: Path, capsys: Capture) -> None:
    before = contents(reference)
    sentence = error_of(capsys, [*ARGV, "--out", str(reference)], 2)
    assert "already holds a run" in sentence
    assert f"--resume {reference}" in sentence
    assert contents(reference) == before
    before = contents(unfinished)
    with locked(unfinished):
        for argv in ([*ARGV, "--out", str(unfinished)], resume(unfinished), resume(unfinished, "--steps", "9999")):
            assert "another training is writing" in error_of(capsys, argv, 2)
    assert "already holds a run" in error_of(capsys, [*ARGV, "--out", str(unfinished)], 2)
    assert contents(unfinished) == before


def test_a_directory_of_other_files_is_rejected_and_unchanged(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    before = contents(tmp_path)
    assert "is not empty" in error_of(capsys, [*ARGV, "--out", str(tmp_path)], 2)
    assert contents(tmp_path) == before


# ------------------------------------------------------------------------------------------------------- rejected input

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
def test_changed_settings_of_a_resumed_run_are_rejected_by_name(
    setting: str, unfinished: Path, capsys: Capture
) -> None:
    before = contents(unfinished)
    sentence = error_of(capsys, resume(unfinished, *CHANGES[setting]), 2)
    expected = "--out and --resume exclude each other" if setting == "--out" else f"this run has {setting}="
    assert expected in sentence
    assert contents(unfinished) == before


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "empty": (lambda config: b"", "cannot be read"),
    "cut": (lambda config: json.dumps(config).encode()[:-20], "cannot be read"),
    "not text": (lambda config: b"\xff\xfe\x00", "cannot be read"),
    "a list": (lambda config: b"[]", "does not describe a run"),
    "another format": (
        lambda config: as_bytes(config, format=2),
        "has format 2, and this version of hopplus reads format 1",
    ),
    "without a format": (lambda config: as_bytes(config, format=None), "states no format"),
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
def test_a_damaged_config_is_rejected(damage: str, unfinished: Path, capsys: Capture) -> None:
    change, expected = CONFIGS[damage]
    file = unfinished / "config.json"
    file.write_bytes(change(json.loads(file.read_text())))
    before = contents(unfinished)
    assert expected in error_of(capsys, resume(unfinished), 2)
    assert contents(unfinished) == before
    capsys.readouterr()
    assert main(["runs", str(unfinished.parent), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_damaged_metrics_are_rejected(unfinished: Path, capsys: Capture) -> None:
    file = unfinished / "metrics.jsonl"
    file.write_text(file.read_text()[30:])
    before = contents(unfinished)
    assert "metrics.jsonl" in error_of(capsys, resume(unfinished), 2)
    assert contents(unfinished) == before


def test_a_directory_that_is_not_a_run_is_rejected(tmp_path: Path, capsys: Capture) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        for argv in (resume(path), ["evaluate", str(path)]):
            assert f"{path} is not a run" in error_of(capsys, argv, 2)
    assert contents(tmp_path) == {}


# --------------------------------------------------------------------------------------------- no loaded file runs code


class Payload:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_in_place_of_a_checkpoint_is_not_executed(protocol: int, unfinished: Path, capsys: Capture) -> None:
    ran = unfinished.parent / "ran"
    data = pickle.dumps(Payload(ran), protocol)
    pickle.loads(data)
    assert ran.exists()
    ran.unlink()
    name = f"{CHUNKS:010d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    (unfinished / "checkpoints" / name).write_bytes(data)
    assert name in error_of(capsys, resume(unfinished), 2)
    policy = unfinished.parent / "policy.safetensors"
    policy.write_bytes(data)
    cast = [*ARGV, "--cast", f"learner,{policy}", "--out", str(unfinished.parent / "other")]
    assert "policy.safetensors" in error_of(capsys, cast, 2)
    assert not ran.exists()


def test_a_checkpoint_is_not_accepted_as_a_policy(unfinished: Path, tmp_path: Path, capsys: Capture) -> None:
    file = checkpoint.list_checkpoints(unfinished / "checkpoints")[0]
    cast = [*ARGV, "--cast", f"learner,{file}", "--out", str(tmp_path / "other")]
    assert file.name in error_of(capsys, cast, 2)


RUNS_CODE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def unsafe_loads(source: str) -> list[str]:
    """Imports and calls in a source by which a loaded file could run code."""
    findings = []
    for node in ast.walk(ast.parse(source)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        findings += [module for module in modules if module.partition(".")[0] in RUNS_CODE]
        if isinstance(node, ast.Call):
            pickled = [keyword for keyword in node.keywords if keyword.arg == "allow_pickle"]
            findings += ["allow_pickle" for keyword in pickled if ast.unparse(keyword.value) != "False"]
            findings += [text for text in [ast.unparse(node.func)] if text in ("torch.load", "eval", "exec")]
    return findings


def test_no_source_loads_files_that_can_run_code() -> None:
    assert unsafe_loads("import pickle") == ["pickle"]
    assert unsafe_loads("from dill.source import x") == ["dill.source"]
    assert unsafe_loads("np.load(f, allow_pickle=False)") == []
    assert unsafe_loads("np.load(f, allow_pickle=True)\ntorch.load(f)") == ["allow_pickle", "torch.load"]
    sources = list(Path(hopplus.__file__).parent.rglob("*.py"))
    assert len(sources) > 40
    assert {str(path): unsafe_loads(path.read_text(encoding="utf-8")) for path in sources} == {
        str(path): [] for path in sources
    }

"""Metrics of a run: the log, TensorBoard, and the list of runs."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from hopplus.algorithms.ppo_update import METRIC_NAMES
from hopplus.cli.main import main
from hopplus.training.run import locked, open_run
from run_directories import CHUNKS, STEPS, Capture, error_of

pytestmark = pytest.mark.usefixtures("cheap_trainings")


BY_SEAT = ("return", "length", "took_hare", "took_stag", *METRIC_NAMES, "explained_variance")


def test_metrics_hold_every_value_by_seat(reference: Path) -> None:
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


def test_tensorboard_holds_the_same_metrics(reference: Path) -> None:
    lines = open_run(reference).metrics()
    logged: dict[tuple[str, int], float] = {}
    for file in (reference / "events" / "seed-0").iterdir():
        for event in events(file.read_bytes()):
            logged.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
    expected = {
        (f"{name}/seat_{seat}", line["steps"]): value
        for line in lines
        for name in BY_SEAT
        for seat, value in enumerate(line[name])
        if value is not None
    }
    assert len(expected) > 10 * CHUNKS
    assert {key: value for key, value in logged.items() if key in expected} == pytest.approx(expected, rel=1e-6)


def events(data: bytes) -> list[Any]:
    """Records of a TensorBoard file: length (8 bytes), its checksum (4), data, its checksum (4)."""
    records, place, read = [], 0, vars(event_pb2)["Event"].FromString
    while place < len(data):
        (length,) = struct.unpack("<Q", data[place : place + 8])
        records.append(read(data[place + 12 : place + 12 + length]))
        place += length + 16
    return records


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
    assert "there is no directory" in error_of(capsys, ["runs", str(tmp_path / "nowhere")], 2)

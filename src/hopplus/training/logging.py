"""How a training goes, as lines of metrics.jsonl and as TensorBoard's scalars."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.files import append_text, write_text
from hopplus.training.run import METRICS, Run, as_json

Line = dict[str, Any]
"""One chunk of one seed: `seed`, `iteration`, `steps`, `seconds`, and metrics, lists being by seat."""


class Log:
    """Writes a run's lines as they come. What a killed training wrote after its last checkpoint is taken back."""

    def __init__(self, run: Run, iteration: int) -> None:
        kept = [line for line in run.metrics() if line["iteration"] <= iteration]
        self._path = run.path / METRICS
        write_text(self._path, "".join(as_json(line) + "\n" for line in kept))
        purge = {line["seed"]: line["steps"] + 1 for line in kept}
        self._events = {seed: Events(events_directory(run) / f"seed-{seed}", purge.get(seed)) for seed in run.seeds}

    def write(self, lines: Sequence[Line]) -> None:
        """Append the lines of one chunk, whole."""
        append_text(self._path, "".join(as_json(line) + "\n" for line in lines))
        for line in lines:
            self._events[line["seed"]].write(scalars(line), line["steps"])

    def close(self) -> None:
        for events in self._events.values():
            events.close()


class Events:
    """One seed's file for TensorBoard, written at once: tensorboardX's own writer has a thread that dies of a full
    disk, and whoever writes then waits for ever."""

    def __init__(self, directory: Path, purge_step: int | None) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(directory / "events"))
            if purge_step is not None:
                log = SessionLog(status=SessionLog.START)
                self._writer.write_event(Event(wall_time=time.time(), step=purge_step, session_log=log))
            self._writer.flush()
        except OSError as error:
            raise InputError(f"cannot write into {directory}: {error.strerror}") from None

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Append scalars."""
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        try:
            for name, value in values.items():
                self._writer.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
            self._writer.flush()
        except OSError as error:
            raise InputError(f"cannot write into {self._directory}: {error.strerror}") from None

    def close(self) -> None:
        """Everything has been written, or has failed and been reported, before."""
        with contextlib.suppress(OSError):
            self._writer.close()


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """A line's figures as TensorBoard names them: `return/seat_0`, ..., `return/mean`, and `steps_per_second`."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if name in ("seed", "iteration", "steps", "trained_on"):
            continue
        if isinstance(value, list):
            by_seat = {f"{name}/seat_{seat}": one for seat, one in enumerate(value) if one is not None}
            known = [one for one in by_seat.values() if math.isfinite(one)]
            found.update({**by_seat, **({f"{name}/mean": sum(known) / len(known)} if known else {})})
        elif isinstance(value, int | float):
            found[name] = float(value)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def events_directory(run: Run) -> Path:
    """Where TensorBoard looks."""
    return run.path / "events"

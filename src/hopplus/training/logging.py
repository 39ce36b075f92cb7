"""Logs of a training: metrics.jsonl and TensorBoard scalars."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.files import append_text, write_text
from hopplus.training.run import METRICS, Run, as_json

Line = dict[str, Any]
"""Metrics of one compiled call of one seed: `seed`, `iteration`, `steps`, `seconds`, and metrics; lists are by seat."""


class Log:
    """Log of a run. Lines that a killed training wrote after its last checkpoint are removed on opening."""

    def __init__(self, run: Run, iteration: int) -> None:
        kept = [line for line in run.metrics() if line["iteration"] <= iteration]
        self._path = run.path / METRICS
        write_text(self._path, "".join(as_json(line) + "\n" for line in kept))
        purge = {line["seed"]: line["steps"] + 1 for line in kept}
        self._events = {seed: Events(events_directory(run) / f"seed-{seed}", purge.get(seed)) for seed in run.seeds}

    def write(self, lines: Sequence[Line]) -> None:
        """Appends the lines of one compiled call."""
        append_text(self._path, "".join(as_json(line) + "\n" for line in lines))
        for line in lines:
            self._events[line["seed"]].write(scalars(line), line["steps"])

    def close(self) -> None:
        """Closes the event files."""
        for events in self._events.values():
            events.close()


class Events:
    """TensorBoard file of one seed, written synchronously.

    The writer of tensorboardX has a thread that dies on a full disk, after which every write blocks.
    """

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
        """Appends scalars."""
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        try:
            for name, value in values.items():
                self._writer.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
            self._writer.flush()
        except OSError as error:
            raise InputError(f"cannot write into {self._directory}: {error.strerror}") from None

    def close(self) -> None:
        """Closes the file; every write was flushed or has failed before."""
        with contextlib.suppress(OSError):
            self._writer.close()


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """TensorBoard scalars of a line: `return/seat_0`, ..., `return/mean`."""
    by_tag: dict[str, float] = {}
    for name, value in line.items():
        if name in ("seed", "iteration", "steps", "trained_on"):
            continue
        if isinstance(value, list):
            by_seat = {f"{name}/seat_{seat}": number for seat, number in enumerate(value) if number is not None}
            known = [number for number in by_seat.values() if math.isfinite(number)]
            by_tag.update({**by_seat, **({f"{name}/mean": sum(known) / len(known)} if known else {})})
        elif isinstance(value, int | float):
            by_tag[name] = float(value)
    return {name: value for name, value in by_tag.items() if math.isfinite(value)}


def events_directory(run: Run) -> Path:
    """Directory of the TensorBoard files."""
    return run.path / "events"

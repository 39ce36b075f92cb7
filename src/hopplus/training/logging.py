"""How a training goes, as lines of metrics.jsonl and as TensorBoard's scalars."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.files import write_text
from hopplus.training.run import METRICS, Run, as_json

Line = dict[str, Any]
"""One chunk of one seed: `seed`, `iteration`, `steps`, `seconds`, and metrics, lists being by seat."""


class Log:
    """Writes a run's lines as they come. What a killed training wrote after its last checkpoint is taken back."""

    def __init__(self, run: Run, iteration: int) -> None:
        from tensorboardX import SummaryWriter

        kept = [line for line in run.metrics() if line["iteration"] <= iteration]
        self._path = run.path / METRICS
        write_text(self._path, "".join(as_json(line) + "\n" for line in kept))
        purge = {line["seed"]: line["steps"] + 1 for line in kept}
        self._writers = {
            seed: SummaryWriter(str(run.path / "events" / f"seed-{seed}"), purge_step=purge.get(seed))
            for seed in run.seeds
        }

    def write(self, lines: Sequence[Line]) -> None:
        """Append the lines of one chunk, whole."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(as_json(line) + "\n" for line in lines))
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}") from None
        for line in lines:
            writer = self._writers[line["seed"]]
            for name, value in scalars(line).items():
                writer.add_scalar(name, value, line["steps"])

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


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

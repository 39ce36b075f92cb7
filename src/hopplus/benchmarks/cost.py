"""What an iteration of a training costs, here and elsewhere: a model of a few constants, fitted to measured points."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

WORK = ("operations", "flops", "bytes")
FEWEST_ROWS = 4
"""One more than there are constants to fit."""
Row = Mapping[str, Any]
"""A point: its work, and `held_bytes` and `state_bytes`; where it was measured, `seconds` and `memory_bytes`."""


@dataclass(frozen=True)
class Cost:
    """What a unit of each kind of work takes on a machine."""

    seconds_per_operation: float
    seconds_per_flop: float
    seconds_per_byte: float
    memory_per_held_byte: float
    """Bytes of memory for each that the loops of the program hold, beside the state of the training."""


@dataclass(frozen=True)
class Device:
    """A machine on which nothing was measured, by its data sheet."""

    name: str
    flops_per_second: float
    bytes_per_second: float
    memory_bytes: float
    seconds_per_kernel: float
    """To start one; no data sheet says it."""


def predict(row: Row, cost: Cost) -> float:
    """Seconds of an iteration: beginning operations, multiplying matrices and moving bytes, one after the other."""
    return (
        cost.seconds_per_operation * row["operations"]
        + cost.seconds_per_flop * row["flops"]
        + cost.seconds_per_byte * row["bytes"]
    )


def predict_memory(row: Row, cost: Cost) -> float:
    """Bytes of memory that an iteration takes."""
    return row["state_bytes"] + cost.memory_per_held_byte * row["held_bytes"]


def fit(rows: Sequence[Row]) -> Cost:
    """The cost, nowhere negative, with the least squares of relative errors in measured rows."""
    work = np.array([[row[name] / row["seconds"] for name in WORK] for row in rows])
    unit = work.max(0)
    seconds = nnls(work / unit, np.ones(len(rows)))[0] / unit
    held = np.array([row["held_bytes"] / row["memory_bytes"] for row in rows])
    rest = np.array([1 - row["state_bytes"] / row["memory_bytes"] for row in rows])
    return Cost(*map(float, seconds), memory_per_held_byte=float(held @ rest / (held @ held)))


def errors(rows: Sequence[Row], cost: Callable[[Row], Cost]) -> list[dict[str, float]]:
    """Of every measured row, how far off it is predicted: as a share of what was measured, in seconds and memory."""
    return [
        {
            "seconds": predict(row, cost(row)) / row["seconds"] - 1,
            "memory": predict_memory(row, cost(row)) / row["memory_bytes"] - 1,
        }
        for row in rows
    ]


def left_out(rows: Sequence[Row]) -> list[dict[str, float]]:
    """The errors of every measured row if it is predicted from all the others."""
    return errors(rows, lambda row: fit([other for other in rows if other is not row]))


def elsewhere(cost: Cost, here: Mapping[str, float], device: Device) -> Cost:
    """What the same work would cost on a device that is used as well as this machine is.

    `here` has this machine's `matmul_flops` and `copy_bandwidth`, of which programs reach a share, taken to be the same
    there (of a product of matrices no more than all of it), and `operations_per_kernel`.
    """
    return Cost(
        device.seconds_per_kernel / here["operations_per_kernel"],
        max(cost.seconds_per_flop * here["matmul_flops"], 1.0) / device.flops_per_second,
        cost.seconds_per_byte * here["copy_bandwidth"] / device.bytes_per_second,
        cost.memory_per_held_byte,
    )

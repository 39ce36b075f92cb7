"""What an iteration of a training costs, here and elsewhere: a model of a few constants, fitted to measured points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

WORK = ("operations", "flops", "bytes")
FEWEST_ROWS = 4
"""One more than there are constants to fit."""
Row = Mapping[str, Any]
"""A point: recipe, work, `alive_bytes` and `state_bytes`; where it was measured, also `seconds` and `memory_bytes`."""


@dataclass(frozen=True)
class Cost:
    """What a unit of each kind of work takes on a machine."""

    seconds_per_operation: float
    seconds_per_flop: float
    seconds_per_byte: float
    memory_per_alive_byte: float
    """Bytes of memory for each that is needed at once, beside the state of the training before and after."""


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
    return row["state_bytes"] + cost.memory_per_alive_byte * row["alive_bytes"]


def fit(rows: Sequence[Row]) -> Cost:
    """The cost, nowhere negative, with the least squares of relative errors in measured rows."""
    work = np.array([[row[name] / row["seconds"] for name in WORK] for row in rows])
    unit = work.max(0)
    seconds = nnls(work / unit, np.ones(len(rows)))[0] / unit
    alive = np.array([row["alive_bytes"] / row["memory_bytes"] for row in rows])
    rest = np.array([1 - row["state_bytes"] / row["memory_bytes"] for row in rows])
    return Cost(*map(float, seconds), memory_per_alive_byte=float(alive @ rest / (alive @ alive)))


def fit_each(rows: Sequence[Row]) -> dict[str, Cost]:
    """The cost by recipe: a compiler makes kernels of different programs with different success."""
    recipes = dict.fromkeys(row["recipe"] for row in rows)
    return {recipe: fit([row for row in rows if row["recipe"] == recipe]) for recipe in recipes}


def left_out(rows: Sequence[Row]) -> list[dict[str, float]]:
    """How far off each measured row is if it is predicted from all others of its recipe: of `seconds` and `memory`, as
    a share of what was measured."""
    found = []
    for row in rows:
        cost = fit([other for other in rows if other is not row and other["recipe"] == row["recipe"]])
        seconds, memory = predict(row, cost), predict_memory(row, cost)
        found.append({"seconds": seconds / row["seconds"] - 1, "memory": memory / row["memory_bytes"] - 1})
    return found


def operations_per_kernel(rows: Sequence[Row]) -> dict[str, float]:
    """Of how many operations the compiler makes one kernel, by recipe."""
    recipes = dict.fromkeys(row["recipe"] for row in rows)
    return {
        recipe: float(np.median([row["operations"] / row["kernels"] for row in rows if row["recipe"] == recipe]))
        for recipe in recipes
    }


def elsewhere(
    cost: Cost, device: Device, matmul_flops: float, copy_bandwidth: float, operations_per_kernel: float
) -> Cost:
    """What the same work would cost on a device that is used as well as this machine is.

    Of this machine's matmul_flops and copy_bandwidth a program reaches a share, taken to be the same there (of a
    product of matrices no more than all of it).
    """
    return Cost(
        device.seconds_per_kernel / operations_per_kernel,
        max(cost.seconds_per_flop * matmul_flops, 1.0) / device.flops_per_second,
        cost.seconds_per_byte * copy_bandwidth / device.bytes_per_second,
        cost.memory_per_alive_byte,
    )

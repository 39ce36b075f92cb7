"""Cost model of a training iteration: a few constants, fitted to measured points, and predictions for other devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

WORK = ("operations", "flops", "bytes")
FEWEST_ROWS = 4
"""One more than the number of fitted constants."""
CostRow = Mapping[str, Any]
"""Algorithm, work, `alive_bytes` and `state_bytes` of a point; if measured, also `seconds` and `memory_bytes`."""


@dataclass(frozen=True)
class Cost:
    """Cost per unit of work on a machine."""

    seconds_per_operation: float
    seconds_per_flop: float
    seconds_per_byte: float
    memory_per_alive_byte: float
    """Bytes of memory per live byte, in addition to the training state before and after."""


@dataclass(frozen=True)
class Device:
    """Device without measurements, by its data sheet."""

    name: str
    flops_per_second: float
    bytes_per_second: float
    memory_bytes: float
    seconds_per_kernel: float
    """Launch time of a kernel; not in data sheets."""


def predict(row: CostRow, cost: Cost) -> float:
    """Returns the predicted seconds of an iteration: the sum over operations, matrix products and memory traffic."""
    return (
        cost.seconds_per_operation * row["operations"]
        + cost.seconds_per_flop * row["flops"]
        + cost.seconds_per_byte * row["bytes"]
    )


def predict_memory(row: CostRow, cost: Cost) -> float:
    """Returns the predicted memory of an iteration in bytes."""
    return row["state_bytes"] + cost.memory_per_alive_byte * row["alive_bytes"]


def fit(rows: Sequence[CostRow]) -> Cost:
    """Fits non-negative costs to measured rows by least squares of relative errors."""
    work = np.array([[row[name] / row["seconds"] for name in WORK] for row in rows])
    unit = work.max(0)
    seconds = nnls(work / unit, np.ones(len(rows)))[0] / unit
    alive = np.array([row["alive_bytes"] / row["memory_bytes"] for row in rows])
    rest = np.array([1 - row["state_bytes"] / row["memory_bytes"] for row in rows])
    return Cost(*map(float, seconds), memory_per_alive_byte=float(alive @ rest / (alive @ alive)))


def fit_each(rows: Sequence[CostRow]) -> dict[str, Cost]:
    """Fits the cost by algorithm, because the compiler fuses different programs differently well."""
    algorithms = dict.fromkeys(row["algorithm"] for row in rows)
    return {algorithm: fit([row for row in rows if row["algorithm"] == algorithm]) for algorithm in algorithms}


def left_out(rows: Sequence[CostRow]) -> list[dict[str, float]]:
    """Returns leave-one-out errors: each row predicted from the others of its algorithm.

    Returns:
        Relative errors of `seconds` and `memory`, by row.
    """
    errors = []
    for row in rows:
        cost = fit([other for other in rows if other is not row and other["algorithm"] == row["algorithm"]])
        seconds, memory = predict(row, cost), predict_memory(row, cost)
        errors.append({"seconds": seconds / row["seconds"] - 1, "memory": memory / row["memory_bytes"] - 1})
    return errors


def operations_per_kernel(rows: Sequence[CostRow]) -> dict[str, float]:
    """Returns the median number of operations per compiled kernel, by algorithm."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(row["algorithm"], []).append(row["operations"] / row["kernels"])
    return {algorithm: float(np.median(values)) for algorithm, values in ratios.items()}


def elsewhere(
    cost: Cost, device: Device, matmul_flops: float, copy_bandwidth: float, operations_per_kernel: float
) -> Cost:
    """Returns the predicted cost on another device.

    A program reaches a share of this machine's `matmul_flops` and `copy_bandwidth`; the share is assumed to be the same
    on the device, and at most 1 for matrix products.
    """
    return Cost(
        device.seconds_per_kernel / operations_per_kernel,
        max(cost.seconds_per_flop * matmul_flops, 1.0) / device.flops_per_second,
        cost.seconds_per_byte * copy_bandwidth / device.bytes_per_second,
        cost.memory_per_alive_byte,
    )

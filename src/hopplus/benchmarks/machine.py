"""Description and peak performance of this machine."""

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def machine() -> str:
    """Returns a description of the machine."""
    device = jax.devices()[0].device_kind
    return f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__} on {device}"


def load_average() -> float | None:
    """Returns the load average of the last minute; None where it is unavailable."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def best_seconds(call: Callable[[], Any], rounds: int) -> float:
    """Returns the shortest time of a number of calls, each waited for."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - started)
    return best


def copy_bandwidth(megabytes: int = 256) -> float:
    """Returns the bytes read and written per second by a plain copy of an array larger than the caches."""
    values = jnp.zeros(megabytes * 2**20 // 4, jnp.float32)
    copy = jax.jit(lambda values: values + 1)
    jax.block_until_ready(copy(values))
    return 2 * values.nbytes / best_seconds(lambda: copy(values), 5)


def matmul_flops(size: int = 1024) -> float:
    """Returns the floating-point operations per second of a plain product of square matrices."""
    matrix = jnp.ones((size, size), jnp.float32)
    multiply = jax.jit(lambda matrix: matrix @ matrix)
    jax.block_until_ready(multiply(matrix))
    return 2 * size**3 / best_seconds(lambda: multiply(matrix), 10)


def peak_memory() -> float | None:
    """Returns the peak memory of this process in bytes; None where it is unavailable."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)

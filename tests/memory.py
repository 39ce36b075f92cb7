"""Bounded memory of a test process: every compiled program holds memory and memory maps."""

import gc
import os
import sys
from pathlib import Path

MAX_MEMORY_MAPS = 30_000
"""A process with 65,530 memory maps crashes on Linux."""
MAX_RESIDENT_BYTES = 2_000_000_000


def bound_memory() -> None:
    """Drops all compiled programs once they take too much memory or too many memory maps."""
    jax = sys.modules.get("jax")
    if jax is not None and (_memory_maps() > MAX_MEMORY_MAPS or _resident_bytes() > MAX_RESIDENT_BYTES):
        jax.clear_caches()
        gc.collect()


def _memory_maps() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0

"""One cell of a sweep in a process of its own: `python -m hopplus.cli.sweep_cell SWEEP NAME CORES`.

The process ends with its parent, even if the parent is killed: its standard input is a pipe from the parent.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Run a cell on the given cores; the process ends with its parent.

    Args:
        arguments: Directory of the sweep, name of the cell, and cores as comma-separated numbers (empty: any).
    """
    path, name, cores = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    return run_cell(Path(path), name)


def run_cell(path: Path, name: str) -> int:
    """Run the remaining commands of a cell of a sweep until one fails; returns the exit code."""
    from hopplus.cli.main import main as command
    from hopplus.core.files import make_directory
    from hopplus.sweeps.directory import JUDGED, open_sweep

    sweep = open_sweep(path)
    cell = sweep.plan.cell(name)
    for argv in sweep.commands(cell):
        print(f"$ hopplus {' '.join(argv)}", flush=True)
        if argv[0] != "train":
            make_directory(sweep.run_path(cell) / JUDGED)
        if code := command(argv):
            return code
    return 0


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not through the buffer of sys.stdin: its lock would be held at exit
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One cell of a sweep in a process of its own: `python -m hopplus.cli.cell SWEEP NAME CORES`.

It ends when whoever started it does, even if that was killed: its standard input is a pipe that closes then.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Run a cell on the given cores, as long as the process that started this one is there."""
    path, name, cores = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    return run_cell(Path(path), name)


def run_cell(path: Path, name: str) -> int:
    """Run the commands that a cell of a sweep still needs, until one fails; its exit code."""
    from hopplus.cli.main import main as command
    from hopplus.files import make_directory
    from hopplus.sweeps.directory import JUDGED, open_sweep

    sweep = open_sweep(path)
    cell = sweep.plan.cell(name)
    for words in sweep.commands(cell):
        print(f"$ hopplus {' '.join(words)}", flush=True)
        if words[0] != "train":
            make_directory(sweep.run_path(cell) / JUDGED)
        if code := command(words):
            return code
    return 0


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not by the buffer of sys.stdin, whose lock would be held at the end
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Seconds until a command has answered in a new process, with an empty cache and with a full one.

python benchmarks/startup.py [--rounds N]     prints a table and writes benchmarks/startup.json
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOPPLUS = (sys.executable, "-m", "hopplus.cli.main")
COMMANDS = {
    "train ppo --target 2.8": (("train", "ppo", "--target", "2.8", "--out", "{run}"), None),
    "match, scripted players": (("match", "msh-4x4-4h1s", "--cast", "ns,ns,nh,random"), None),
    "play, first board": (("play", "--terminal", "--seed", "1"), "episode 1 of"),
    "a typo": (("train", "ppo", "--stpes", "5"), None),
}
"""Words of a command, and what it prints when it has answered; by default when it ends."""


def seconds(words: tuple[str, ...], until: str | None, cache: str) -> float:
    """Wall time of one command until it has answered."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with tempfile.TemporaryDirectory() as directory:
        command = [*HOPPLUS, *(word.format(run=Path(directory, "run")) for word in words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=directory, env=environment, text=True, **pipes)
        assert process.stdout
        for line in process.stdout:
            if until is not None and until in line:
                break
        taken = time.perf_counter() - begun
        process.communicate("q\n" if until else None)
        return taken


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    figures: dict[str, dict[str, list[float]]] = {name: {"cold": [], "warm": []} for name in COMMANDS}
    for _ in range(rounds):
        for name, (words, until) in COMMANDS.items():
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    figures[name][state].append(round(seconds(words, until, cache), 2))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    figures = measure(parser.parse_args().rounds)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    result = {"machine": machine, "seconds": figures}
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print("| command | cold | warm |\n|---|---|---|")
    for name, row in figures.items():
        print(f"| {name} | {min(row['cold']):.1f} | {min(row['warm']):.1f} |")


if __name__ == "__main__":
    main()

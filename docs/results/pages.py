"""What the pages of results have in common: commands as a person would type them, markdown, intervals over seeds."""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats


def hopplus(*words: str) -> None:
    """Run a command of this repository, as a person would."""
    subprocess.run([sys.executable, "-m", "hopplus.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def train_or_go_on(run: Path, words: list[str]) -> None:
    """Train as a command says; go on where the same command was broken off, and with nothing else."""
    said, command = run.with_name(f"{run.name}.command"), " ".join(words)
    if not (run / "config.json").exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        said.write_text(command)
        hopplus(*words, "--out", str(run), "--no-report")
    elif said.exists() and said.read_text() == command:
        hopplus("train", "--resume", str(run), "--no-report")
    else:
        sys.exit(f"{run} was not trained by this command: take it away first")


def figures_from(directory: Path, *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    file = directory / f"{Path(words[1]).name}.{words[0]}.json"
    hopplus(*words, "--json", str(file))
    found = json.loads(file.read_text())
    file.unlink()
    return found


def load_kept(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What was kept of experiments, by name and in this order."""
    return {name: json.loads(file.read_text()) for name in names if (file := directory / f"{name}.json").exists()}


def by_seed(kept: dict[str, Any], which: str) -> list[float]:
    """The learners' own mean return of every seed in one of the evaluations that were kept."""
    return [row["own_return"] for row in kept["evaluations"][which]["per_seed"]]


def head(*columns: str) -> str:
    """The first lines of a table."""
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


@dataclass
class Page:
    """Markdown in the making."""

    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def text(self) -> str:
        return "\n".join(self.lines).rstrip() + "\n"


def interval(values: list[float], digits: int = 3) -> str:
    """Mean and 95% interval over seeds (Student's t)."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"

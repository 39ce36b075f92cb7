"""What the pages of results have in common: what is kept of a sweep, commands, markdown, intervals over seeds."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hopplus.errors import InputError
from hopplus.files import write_text
from hopplus.sweeps.directory import Sweep, figures, open_sweep
from hopplus.sweeps.plan import Cell, narrowed

RUNS = Path(__file__).parent.parent.parent / "runs" / "results"
"""Where sweeps and fits are."""
ENDS = "<!-- up to here -->"
"""The mark after which a page is written by hand again."""
POINTS = 60
"""How many points of a curve are kept."""
BUSY = 1.0
"""A load above which the machine had something else to do."""
Figures = Mapping[str, Any]
"""What `hopplus.sweeps.directory.figures` knows of a cell."""


def hopplus(*words: str) -> None:
    """Run a command of this repository, as a person would."""
    subprocess.run([sys.executable, "-m", "hopplus.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def figures_from(directory: Path, *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    file = directory / f"{Path(words[1]).name}.{words[0]}.json"
    hopplus(*words, "--json", str(file))
    found = json.loads(file.read_text())
    file.unlink()
    return found


def sweep_in(directory: Path) -> Sweep:
    """A sweep that has been run here, or the end."""
    try:
        return open_sweep(directory)
    except InputError as error:
        sys.exit(f"{error}; hopplus sweep docs/results/{directory.name}.toml --out runs/results/{directory.name}")


def keep(
    directory: Path, kept: Path, names: Sequence[str], condensed: Callable[[Cell, Figures], dict[str, Any]]
) -> None:
    """Keep what matters of the cells of a sweep that are done; of those alone that are named, if some are."""
    sweep = sweep_in(directory)
    try:
        chosen = narrowed(sweep.plan, names).cells
    except InputError as error:
        sys.exit(str(error))
    kept.mkdir(exist_ok=True)
    for cell in chosen:
        if sweep.is_done(cell):
            write_text(kept / f"{cell.name}.json", json.dumps(condensed(cell, figures(sweep, cell))) + "\n")
    missing = [cell.name for cell in chosen if not sweep.is_done(cell)]
    print(f"{len(chosen) - len(missing)} kept" + (f", not done yet: {', '.join(missing)}" if missing else ""))


def condensed_run(cell: Cell, found: Figures, curves_of: Sequence[str]) -> dict[str, Any]:
    """What is kept of every run: how it was made, its curves by seat that learns, and what evaluations found."""
    config, curves = found["config"], {}
    for seed in config["seeds"]:
        own = [line for line in found["metrics"] if line["seed"] == seed]
        chosen = np.unique(np.linspace(0, len(own) - 1, POINTS).round().astype(int))
        picked = [own[index] for index in chosen]
        curves[str(seed)] = {
            "steps": [line["steps"] for line in picked],
            "seconds": [round(line["seconds"], 1) for line in picked],
            **{
                key: [[rounded(line[key][seat]) for seat in config["learners"]] for line in picked]
                for key in curves_of
                if key in picked[0]
            },
        }
    about = ("versions", "commit", "machine", "started", "settings", "training", "seeds", "learners", "ceilings")
    brief = ("mean_return", "own_return", "own_standard_error", "per_seat", "per_seed")
    return {
        "name": cell.name,
        "command": "hopplus " + " ".join(cell.words()),
        "seconds": found["final"]["seconds"],
        "config": {key: config[key] for key in about},
        "curves": curves,
        "evaluations": {
            name: {key: one[key] for key in brief} for name, one in found["judged"].items() if "rows" not in one
        },
    }


def adaptation_rows(found: Figures) -> list[dict[str, Any]]:
    """What `hopplus adapt` found: a row for every set of co-players that was met."""
    return [row for one in found["judged"].values() for row in one.get("rows", ())]


def rounded(value: float | None) -> float | None:
    """As it is kept; None stays."""
    return None if value is None else round(value, 4)


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


def if_busy(load: float | None) -> str:
    """What is to be said of times that were measured on a machine that was not idle; nothing if it was."""
    if load is None or load <= BUSY:
        return ""
    return (
        f" **It was not idle (a load of {load:.1f} when this began): times are too long, and only their ratios are"
        " worth something.**"
    )


def with_part(text: str, part: str, begins: str) -> str:
    """A page with another text between a mark and the next `ENDS`."""
    before, _, rest = text.partition(begins)
    _, _, after = rest.partition(ENDS)
    return f"{before}{begins}\n{part}{ENDS}{after}"


def interval(values: list[float], digits: int = 3) -> str:
    """Mean and 95% interval over seeds (Student's t)."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"

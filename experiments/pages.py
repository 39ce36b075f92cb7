"""Shared helpers of the result pages: saved results of a sweep, commands, Markdown, intervals over seeds."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hopplus.core.errors import InputError
from hopplus.core.files import write_text
from hopplus.sweeps.directory import Sweep, figures, open_sweep
from hopplus.sweeps.plan import Cell, narrowed

ROOT = Path(__file__).parent.parent
"""Directory of the repository."""
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
"""Directory of the result pages."""
RUNS = ROOT / "runs" / "results"
"""Directory of the sweeps and fits."""
ENDS = "<!-- up to here -->"
"""Mark of the end of a generated part of a page."""
POINTS = 60
"""Saved points of a curve."""
BUSY = 1.0
"""Load above which the machine counts as busy with other jobs."""
Figures = Mapping[str, Any]
"""Figures of a cell, as returned by `hopplus.sweeps.directory.figures`."""


@dataclass(frozen=True)
class Experiment:
    """Row of a table of a page: a cell of the page's sweep."""

    section: str
    label: str


def hopplus(*argv: str) -> None:
    """Run a `hopplus` command of this repository in a process of its own."""
    subprocess.run([sys.executable, "-m", "hopplus.cli.main", *argv], check=True, stdout=subprocess.DEVNULL)


def figures_from(directory: Path, *argv: str) -> dict[str, Any]:
    """Run a `hopplus` command and return its JSON figures."""
    file = directory / f"{Path(argv[1]).name}.{argv[0]}.json"
    hopplus(*argv, "--json", str(file))
    figures = json.loads(file.read_text())
    file.unlink()
    return figures


def sweep_in(directory: Path) -> Sweep:
    """Open the sweep in a directory; exit with a message if there is none."""
    try:
        return open_sweep(directory)
    except InputError as error:
        sys.exit(f"{error}; hopplus sweep experiments/{directory.name}.toml --out runs/results/{directory.name}")


def keep(
    directory: Path, out: Path, names: Sequence[str], condensed: Callable[[Cell, Figures], dict[str, Any]]
) -> None:
    """Save condensed results of the finished cells of a sweep, one JSON file per cell.

    Args:
        directory: Directory of the sweep.
        out: Directory for the files.
        names: Cells to save; all if empty.
        condensed: Function that selects the figures to save.
    """
    sweep = sweep_in(directory)
    try:
        chosen = narrowed(sweep.plan, names).cells
    except InputError as error:
        sys.exit(str(error))
    out.mkdir(exist_ok=True)
    for cell in chosen:
        if sweep.is_done(cell):
            write_text(out / f"{cell.name}.json", json.dumps(condensed(cell, figures(sweep, cell))) + "\n")
    missing = [cell.name for cell in chosen if not sweep.is_done(cell)]
    print(f"{len(chosen) - len(missing)} saved" + (f", unfinished: {', '.join(missing)}" if missing else ""))


def condensed_run(cell: Cell, run: Figures, curves_of: Sequence[str]) -> dict[str, Any]:
    """Results to save of a run: configuration, evaluations and curves.

    Args:
        cell: Cell of the sweep.
        run: Figures of the cell.
        curves_of: Metrics whose curves are saved, per learner's seat.
    """
    config, curves = run["config"], {}
    for seed in config["seeds"]:
        lines = [line for line in run["metrics"] if line["seed"] == seed]
        chosen = np.unique(np.linspace(0, len(lines) - 1, POINTS).round().astype(int))
        picked = [lines[index] for index in chosen]
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
        "command": "hopplus " + " ".join(cell.argv()),
        "seconds": run["final"]["seconds"],
        "config": {key: config[key] for key in about},
        "curves": curves,
        "evaluations": {
            name: {key: result[key] for key in brief} for name, result in run["judged"].items() if "rows" not in result
        },
    }


def adaptation_rows(run: Figures) -> list[dict[str, Any]]:
    """Rows of `hopplus adapt`, one per set of co-players."""
    return [row for result in run["judged"].values() for row in result.get("rows", ())]


def rounded(value: float | None) -> float | None:
    """Value rounded for saving; None stays."""
    return None if value is None else round(value, 4)


def load_saved(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Saved results by name, in the order of `names`; missing ones are left out."""
    return {name: json.loads(file.read_text()) for name in names if (file := directory / f"{name}.json").exists()}


def by_seed(result: dict[str, Any], which: str) -> list[float]:
    """Learners' mean return of every seed in a saved evaluation."""
    return [row["own_return"] for row in result["evaluations"][which]["per_seed"]]


def head(*columns: str) -> str:
    """Header lines of a Markdown table."""
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


@dataclass
class Page:
    """Builder of a Markdown page."""

    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        """Append a paragraph."""
        self.lines += [*lines, ""]

    def text(self) -> str:
        """Text of the page."""
        return "\n".join(self.lines).rstrip() + "\n"


def if_busy(load: float | None) -> str:
    """Warning about timings on a busy machine; empty for an idle one."""
    if load is None or load <= BUSY:
        return ""
    return (
        f" **The machine was not idle (load {load:.1f} at the start): times are too long, and only their ratios are"
        " meaningful.**"
    )


def with_part(text: str, part: str, begins: str) -> str:
    """Replace the part of a page between a mark and the next `ENDS`."""
    before, _, rest = text.partition(begins)
    _, _, after = rest.partition(ENDS)
    return f"{before}{begins}\n{part}{ENDS}{after}"


def interval(values: list[float], digits: int = 3) -> str:
    """Mean and 95% interval over seeds (Student's t), as text."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"

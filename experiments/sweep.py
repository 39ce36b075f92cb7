"""Speed of sweeps: `page` writes a part of docs/sweeps.md from the figures of `hopplus bench sweep`.

python experiments/sweep.py page    # reads benchmarks/sweep.json only
"""

import json
import sys
from typing import Any

from hopplus.core.files import write_text
from pages import DOCS, ROOT, Page, head, if_busy, with_part

PAGE, MEASURED = DOCS / "sweeps.md", ROOT / "benchmarks" / "sweep.json"
BEGINS = "<!-- from here on written by experiments/sweep.py -->"
NAMES = {"ppo": "PPO", "hopplus": "HOP+"}


def page() -> None:
    """Write the measured speeds into docs/sweeps.md."""
    if not MEASURED.exists():
        sys.exit("there are no measurements yet: hopplus bench sweep --json benchmarks/sweep.json")
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    write_text(PAGE, with_part(PAGE.read_text(encoding="utf-8"), written(figures), BEGINS))


def written(figures: dict[str, Any]) -> str:
    """Measured speeds as Markdown."""
    text, rows = Page(), figures["rows"]
    halves = " and ".join(f"half {NAMES[name]} with {steps:,} steps" for name, steps in figures["steps"].items())
    text.add(
        f"`hopplus bench sweep` runs {figures['cells']} cells on `{figures['game']}`, {halves}. Each cell has its own"
        " learning rate, so that it compiles its own programs. The cells run one by one with all cores, as by hand;"
        " with every split of the cores; and with as many parallel cells as cores, all of which share all cores. Each"
        " variant was run once, with a cold compilation cache"
        f" ([figures](../benchmarks/sweep.json); {figures['machine']}).{if_busy(figures['load_at_start'])}"
    )
    speeds = [f"{NAMES[name]}, total steps/s" for name in figures["steps"]]
    columns = ("parallel cells", "cores each", "seconds", "cells per minute", "sum of the cells, s", "x one by one")
    text.add(head(*columns, *speeds) + "\n" + "\n".join(line(row, figures) for row in rows))
    best = figures["best"]
    text.add(
        f"A sweep with the default of one core per cell is {figures['ratio']:.2f} times as fast as its cells one by"
        f" one. The best split of the {figures['cores']} cores is {best['workers']} parallel cells with"
        f" {best['cores']} each.{shared(figures)}"
    )
    text.add(f"{spread(figures)} {longer(figures)}")
    return text.text()


def line(row: dict[str, Any], figures: dict[str, Any]) -> str:
    """Line of the table for one variant."""
    cells = [
        str(row["workers"]),
        f"{row['cores']}, shared" if row["shared"] else str(row["cores"]),
        f"{row['seconds']:.0f}",
        f"{row['cells_per_minute']:.1f}",
        f"{row['cell_seconds']:.0f}",
        f"{row['ratio_to_one_by_one']:.2f}",
        *(f"{row['workers'] * row['steps_per_second'][name]:,.0f}" for name in figures["steps"]),
    ]
    return f"| {' | '.join(cells)} |"


def shared(figures: dict[str, Any]) -> str:
    """Comparison of shared cores with the best split; empty if shared cores were not run."""
    least = min(row["seconds"] for row in figures["rows"] if not row["shared"])
    return "".join(
        f" {row['workers']} parallel cells that share all cores (`cpus = {row['cores']}` and"
        f" `--workers {row['workers']}`) take {abs(row['seconds'] / least - 1):.0%}"
        f" {'less' if row['seconds'] < least else 'more'} time than that."
        for row in figures["rows"]
        if row["shared"]
    )


def spread(figures: dict[str, Any]) -> str:
    """Range of the times of nearly equal cells one by one, which limits the precision of all ratios."""
    ranges = []
    for algorithm in figures["steps"]:
        by_cell = figures["rows"][0]["seconds_by_cell"].items()
        times = [seconds for name, seconds in by_cell if name.startswith(f"{algorithm}-")]
        ranges.append(f"{min(times):.1f} to {max(times):.1f} s ({NAMES[algorithm]})")
    return (
        "Precision: cells of one algorithm are nearly the same work, but took"
        f" {' and '.join(ranges)} one by one. The benchmark was not repeated, and another run may give other ratios."
    )


def longer(figures: dict[str, Any]) -> str:
    """Share of the time that is not training, and the gain of one core per cell without it."""
    one_by_one, *others = figures["rows"]
    training = sum(
        figures["cells"] / 2 * steps / one_by_one["steps_per_second"][name] for name, steps in figures["steps"].items()
    )
    default = next((row for row in others if row["cores"] == 1), one_by_one)
    gains = [
        f"{default['workers'] * default['steps_per_second'][name] / one_by_one['steps_per_second'][name]:.2f}"
        f" ({NAMES[name]})"
        for name in figures["steps"]
    ]
    return (
        f"These cells are short: one by one, {1 - training / one_by_one['cell_seconds']:.0%} of their time is start-up,"
        " compilation and the final evaluation. The last columns are the speed of a compiled cell times the number of"
        f" parallel cells. By that measure one core per cell is {' and '.join(gains)} times as fast as one by one. Long"
        " trainings, which were not measured, should come closer to that."
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()

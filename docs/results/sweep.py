"""How fast a sweep is: `page` writes a part of docs/sweeps.md from what `hopplus bench sweep` has measured.

python docs/results/sweep.py page    # from benchmarks/sweep.json alone
"""

import json
import sys
from pathlib import Path
from typing import Any

from pages import Page, head, if_busy, with_part

from hopplus.files import write_text

DOCS = Path(__file__).parent.parent
PAGE, MEASURED = DOCS / "sweeps.md", DOCS.parent / "benchmarks" / "sweep.json"
BEGINS = "<!-- from here on written by docs/results/sweep.py -->"
NAMES = {"ppo": "PPO", "hopplus": "HOP+"}


def page() -> None:
    """Write what was measured into the page about sweeps."""
    if not MEASURED.exists():
        sys.exit("nothing is measured yet: hopplus bench sweep --json benchmarks/sweep.json")
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    write_text(PAGE, with_part(PAGE.read_text(encoding="utf-8"), written(figures), BEGINS))


def written(figures: dict[str, Any]) -> str:
    """What was measured, as Markdown."""
    text, rows = Page(), figures["rows"]
    halves = " and ".join(f"half {NAMES[recipe]} with {steps:,} steps" for recipe, steps in figures["steps"].items())
    text.add(
        f"`hopplus bench sweep` runs {figures['cells']} cells on `{figures['game']}`, {halves}, each with a learning"
        " rate of its own, so that each has programs of its own to compile. They are run one by one with all cores, as"
        " by hand; with every split of the cores; and with as many cells at a time as cores, all of which may use all"
        " cores. Each way was run once, and began with nothing compiled"
        f" ([figures](../benchmarks/sweep.json); {figures['machine']}).{if_busy(figures['load_at_start'])}"
    )
    speeds = [f"{NAMES[recipe]}, steps/s of all" for recipe in figures["steps"]]
    columns = ("cells at a time", "cores each", "seconds", "cells a minute", "sum of the cells, s", "x one by one")
    text.add(head(*columns, *speeds) + "\n" + "\n".join(line(row, figures) for row in rows))
    best = figures["best"]
    text.add(
        f"So a sweep by default, one core a cell, does {figures['ratio']:.2f} times as much as its cells one by one,"
        f" and the best split of the {figures['cores']} cores is {best['workers']} at a time with {best['cores']} each."
        f"{shared(figures)}"
    )
    text.add(f"{spread(figures)} {longer(figures)}")
    return text.text()


def line(row: dict[str, Any], figures: dict[str, Any]) -> str:
    """A way to run the cells, as a line of the table."""
    cells = [
        str(row["workers"]),
        f"{row['cores']}, shared" if row["shared"] else str(row["cores"]),
        f"{row['seconds']:.0f}",
        f"{row['cells_per_minute']:.1f}",
        f"{row['cell_seconds']:.0f}",
        f"{row['ratio_to_one_by_one']:.2f}",
        *(f"{row['workers'] * row['steps_per_second'][recipe]:,.0f}" for recipe in figures["steps"]),
    ]
    return f"| {' | '.join(cells)} |"


def shared(figures: dict[str, Any]) -> str:
    """How cells that share all cores do, beside the best split; nothing where that was not run."""
    least = min(row["seconds"] for row in figures["rows"] if not row["shared"])
    return "".join(
        f" {row['workers']} at a time that share all cores (`cpus = {row['cores']}` and `--workers {row['workers']}`)"
        f" take {abs(row['seconds'] / least - 1):.0%} {'less' if row['seconds'] < least else 'more'} time than that."
        for row in figures["rows"]
        if row["shared"]
    )


def spread(figures: dict[str, Any]) -> str:
    """How much cells differ one by one that are nearly the same work: no ratio is better known than that."""
    ranges = []
    for recipe in figures["steps"]:
        own = [took for name, took in figures["rows"][0]["seconds_by_cell"].items() if name.startswith(f"{recipe}-")]
        ranges.append(f"{min(own):.1f} to {max(own):.1f} s ({NAMES[recipe]})")
    return (
        "How sure that is: cells of one recipe are nearly the same work, and yet they took"
        f" {' and '.join(ranges)} one by one. It has not been repeated, and another run may give other ratios."
    )


def longer(figures: dict[str, Any]) -> str:
    """How much of the time is not training, and what one core a cell gains without it."""
    one_by_one, *others = figures["rows"]
    training = sum(
        figures["cells"] / 2 * steps / one_by_one["steps_per_second"][recipe]
        for recipe, steps in figures["steps"].items()
    )
    default = next((row for row in others if row["cores"] == 1), one_by_one)
    gains = [
        f"{default['workers'] * default['steps_per_second'][recipe] / one_by_one['steps_per_second'][recipe]:.2f}"
        f" ({NAMES[recipe]})"
        for recipe in figures["steps"]
    ]
    return (
        f"These cells are short: one by one, {1 - training / one_by_one['cell_seconds']:.0%} of their time is starting,"
        " compiling and the evaluation at the end. The last columns are the speed of a cell once it is compiled, times"
        f" the cells at a time: by that one core a cell is {' and '.join(gains)} times as fast as one by one. Long"
        " trainings, which were not run for this, should come nearer to that."
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()

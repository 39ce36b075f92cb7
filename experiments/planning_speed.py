"""Speed of planning: `page` writes a part of docs/speed.md from the figures of `hopplus bench planning`.

python experiments/planning_speed.py page    # reads benchmarks/planning.json only
"""

import json
import sys
from typing import Any

from hopplus.core.files import write_text
from pages import DOCS, ROOT, Page, head, if_busy, with_part

PAGE, MEASURED = DOCS / "speed.md", ROOT / "benchmarks" / "planning.json"
BEGINS = "<!-- from here on written by experiments/planning_speed.py -->"
FACTS = ("game", "planner", "batch")


def page() -> None:
    """Write the measured speeds into docs/speed.md."""
    if not MEASURED.exists():
        sys.exit("there are no measurements yet: hopplus bench planning --json benchmarks/planning.json")
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    write_text(PAGE, with_part(PAGE.read_text(encoding="utf-8"), written(figures), BEGINS))


def written(figures: dict[str, Any]) -> str:
    """Measured speeds as Markdown."""
    text = Page()
    text.add(
        "`hopplus bench planning`: the first decision of seat 0 in fresh games, by the pretrained"
        f" `{figures['policy']}` with each planner; the best of {figures['rounds']} rounds in turn"
        f" ([figures](../benchmarks/planning.json); {figures['machine']}).{if_busy(figures['load_at_start'])} `ms` is"
        " the mean time until all decisions of a batch are made, over at least 8 decisions, and `max ms` that of the"
        " slowest batch. A batch of 1 is a person who waits for one agent. Ratios are of simulated steps/s."
    )
    columns = ("ms", "max ms", "decisions/s", "steps/decision", "steps/s", "x tree", "x mctx", "compile s")
    text.add(head(*FACTS, *columns) + "\n" + "\n".join(map(speed_line, figures["rows"])))
    text.add(
        "`mctx` is a plain use of mctx with the same networks and the tree's settings. It does not filter beliefs,"
        " reads boards as dense features, and keeps one outcome per edge."
    )
    text.add(
        "Each part of a simulated step alone, in equally large batches, as a share of the time of one step. The rest is"
        " sampling, the queue or the trees, and idle slots; it is negative where the compiler fuses parts:"
    )
    rows = [row for row in figures["rows"] if row["shares"] is not None]
    names = list(rows[0]["shares"]) if rows else []
    text.add(head(*FACTS, *(name.replace("_", " ") for name in names)) + "\n" + "\n".join(map(share_line, rows)))
    text.add(
        "Sequential halving against as many simulations of every candidate as halving spends on its best one; the"
        " paired test, half of the simulations without halving, is included:"
    )
    columns = ("candidates", "steps/decision with halving", "without", "ratio", "settings without")
    text.add(head("game", *columns) + "\n" + "\n".join(map(halving_line, figures["halving"])))
    if (played := figures["all_seats"]) is not None:
        text.add(
            f"With all four seats planning {played['belief_samples']} x {played['simulations']} simulations of tree"
            f" search on `{played['game']}`: {played['steps_per_second']:,.0f} environment steps/s,"
            f" {played['ratio_to_notes']:,.0f} times the speed in the original notes."
        )
    return text.text()


def facts(row: dict[str, Any]) -> str:
    """First cells of a row."""
    return f"| `{row['game']}` | {row['planner']} | {row['batch']} |"


def speed_line(row: dict[str, Any]) -> str:
    """Row of the table of speeds."""
    steps = ("-", "-")
    if row["steps_per_second"] is not None:
        steps = (f"{row['steps_per_decision']:,.0f}", f"{row['steps_per_second']:,.0f}")
    ratios = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("ratio_to_tree", "ratio_to_mctx"))
    times = (
        f"{row['milliseconds']:,.1f}",
        f"{row['longest_milliseconds']:,.1f}",
        f"{row['decisions_per_second']:,.0f}",
    )
    return f"{facts(row)} {' | '.join((*times, *steps, *ratios))} | {row['compile_seconds']:.1f} |"


def share_line(row: dict[str, Any]) -> str:
    """Row of the table of shares."""
    return f"{facts(row)} {' | '.join(f'{100 * share:.0f}%' for share in row['shares'].values())} |"


def halving_line(row: dict[str, Any]) -> str:
    """Row of the table of simulated steps with and without sequential halving."""
    steps = (f"{row[name]['steps_per_decision']:,.0f}" for name in ("halving", "every"))
    cells = (f"`{row['game']}`", row["candidates"], *steps, f"{row['ratio']:.1f}", f"`{row['every']['planner']}`")
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()

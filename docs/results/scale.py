"""How cost grows: `page` writes docs/scale.md and its picture from what `hopplus bench scale` has measured.

python docs/results/scale.py page    # from benchmarks/scale.json alone
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator
from pages import Page, head, if_busy

from hopplus.benchmarks.cost import Cost, Device, elsewhere, predict, predict_memory
from hopplus.files import write_text
from hopplus.report.figures import COLOURS, new_figure, save_figure

DOCS = Path(__file__).parent.parent
MEASURED = DOCS.parent / "benchmarks" / "scale.json"
NAMES = {"ppo": "PPO", "hopplus": "HOP+, no search", "hop": "HOP, searching"}
AXES = {
    "players": ("players", "players"),
    "board": ("side", "side of the board"),
    "environments": ("environments", "environments"),
    "simulations": ("simulations", "simulations a tree"),
}
"""What is varied: its field, and what the figure calls it."""
DEVICES = (
    Device("A100 (40 GB)", 19.5e12, 1555e9, 40e9, 5e-6),
    Device("L4", 30.3e12, 300e9, 24e9, 5e-6),
)
"""Single-precision peak, bandwidth and size of memory by the data sheets; what starting a kernel takes is assumed."""
MACHINES = (1, 8, 64)
Row = dict[str, Any]


def series(rows: Sequence[Row], recipe: str, vary: str) -> list[Row]:
    """A recipe's rows along one axis, its base case among them, in order; nothing if it was not varied."""
    found = [row for row in rows if row["recipe"] == recipe and row["vary"] in (vary, "base")]
    field = AXES[vary][0]
    return sorted(found, key=lambda row: row[field]) if len(found) > 1 else []


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Microseconds a step along each axis, measured as points and by the model as lines."""
    (figure, axes), costs = new_figure(2, 2), fitted(figures)
    for axis, (vary, (field, label)) in zip(axes.flat, AXES.items(), strict=True):
        values: list[int] = []
        for colour, (recipe, name) in zip(COLOURS, NAMES.items(), strict=False):
            if not (rows := series(figures["rows"], recipe, vary)):
                continue
            across = [row[field] for row in rows]
            values = sorted({*values, *across})
            axis.plot(across, [1e6 * row["seconds_per_step"] for row in rows], "o", color=colour, label=name)
            axis.plot(
                across, [1e6 * predict(row, costs[recipe]) / row["steps"] for row in rows], "-", color=colour, alpha=0.5
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda time, _: f"{time:,.0f}")
        axis.set_xticks(values, [f"{value:,}" for value in values])
        axis.minorticks_off()
        axis.set_xlabel(label, fontsize=8)
        axis.set_ylabel("µs a step", fontsize=8)
        if values:
            axis.legend(fontsize=7)
    save_figure(path, figure)


def measured_table(rows: Sequence[Row], vary: str) -> str:
    """What was measured along one axis, beside the base case."""
    field = AXES[vary][0]
    columns = ("", field, "µs a step", "x base", "GFLOP", "GB moved", "memory, MB", "parameters", "compile, s")
    lines = [
        f"| {NAMES[recipe]} | {row[field]:,} | {1e6 * row['seconds_per_step']:,.1f} | {row['ratio_to_base']:.2f} |"
        f" {row['flops'] / 1e9:,.2f} | {row['bytes'] / 1e9:,.2f} | {row['memory_bytes'] / 1e6:,.1f} |"
        f" {row['parameters']:,} | {row['compile_seconds']:.0f} |"
        for recipe in NAMES
        for row in series(rows, recipe, vary)
    ]
    return head(*columns) + "\n" + "\n".join(lines)


def growth(rows: Sequence[Row]) -> str:
    """By how much cost grows from one end of each axis to the other."""
    lines = []
    for vary, (field, label) in AXES.items():
        for recipe, name in NAMES.items():
            if not (found := series(rows, recipe, vary)):
                continue
            first, last = found[0], found[-1]
            ratios = [last[key] / first[key] for key in ("seconds_per_step", "memory_bytes", "compile_seconds")]
            told = " | ".join(f"x {ratio:,.2f}" for ratio in ratios)
            lines.append(f"| {label}: {first[field]:,} to {last[field]:,} | {name} | {told} |")
    return head("from, to", "", "time a step", "memory", "compile") + "\n" + "\n".join(lines)


def described(row: Row) -> str:
    """A point in words."""
    searching = f", {row['simulations']} simulations" if row["simulations"] else ""
    return (
        f"{NAMES[row['recipe']]}, {row['players']} players, {row['side']}x{row['side']},"
        f" {row['environments']:,} environments{searching}"
    )


def error_line(recipe: str, rows: Sequence[tuple[Row, dict[str, float]]]) -> str:
    """How far off the model is where it had not seen the point."""
    cells = [NAMES[recipe]]
    for what in ("seconds", "memory"):
        errors = [error[what] for _, error in rows]
        worst = int(np.argmax(np.abs(errors)))
        cells += [f"{100 * np.median(np.abs(errors)):.0f}%", f"{100 * errors[worst]:+.0f}% ({changed(rows[worst][0])})"]
    corners = [error for row, error in rows if row["vary"] == "corner"]
    cells.append(" ".join(f"{100 * error['seconds']:+.0f}%, {100 * error['memory']:+.0f}%" for error in corners) or "-")
    return f"| {' | '.join(cells)} |"


def changed(row: Row) -> str:
    """What is other at a point than in the base case."""
    if row["vary"] not in AXES:
        return row["vary"]
    field, label = AXES[row["vary"]]
    return f"{label}: {row[field]:,}"


def elsewhere_table(figures: dict[str, Any], costs: dict[str, Cost]) -> str:
    """Steps/s and memory of points on machines on which nothing was measured."""
    lines = []
    for row in figures["ahead"]:
        cost, each = costs[row["recipe"]], figures["operations_per_kernel"][row["recipe"]]
        there = [
            elsewhere(cost, device, figures["matmul_flops"], figures["copy_bandwidth"], each) for device in DEVICES
        ]
        here = row["steps"] / predict(row, cost)
        cells = [f"{described(row)}", f"{here:,.0f}"]
        for other in there:
            seconds = predict(row, other)
            starting, speed = other.seconds_per_operation * row["operations"] / seconds, row["steps"] / seconds
            cells.append(f"{speed:,.0f} (x {speed / here:.1f}; {100 * starting:.0f}%)")
        memory = predict_memory(row, cost)
        full = ", ".join(device.name for device in DEVICES if memory > device.memory_bytes)
        cells.append(f"{memory / 1e9:,.2f} GB" + (f": too much for {full}" if full else ""))
        lines.append(f"| {' | '.join(cells)} |")
    columns = ("training", "this machine, by the model", *(device.name for device in DEVICES), "memory")
    return head(*columns) + "\n" + "\n".join(lines)


def cluster_table(rows: Sequence[Row]) -> str:
    """Steps/s of a sweep whose cells have machines of this kind to themselves."""
    bases = [row for row in rows if row["vary"] == "base"]
    lines = [
        " | ".join(
            ["", described(row), *(f"{number / row['seconds_per_step']:,.0f}" for number in MACHINES), ""]
        ).strip()
        for row in bases
    ]
    return head("steps/s", "1 machine (measured)", *(f"{number}" for number in MACHINES[1:])) + "\n" + "\n".join(lines)


def page() -> None:
    """Write scale.md and its picture."""
    if not MEASURED.exists():
        sys.exit("nothing is measured yet: hopplus bench scale --json benchmarks/scale.json")
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    draw(DOCS / "images" / "scale.png", figures)
    write_text(DOCS / "scale.md", written(figures))


def written(figures: dict[str, Any]) -> str:
    """The page about what was measured."""
    costs, text = fitted(figures), Page()
    text.add("# Larger worlds")
    for add in (add_beginning, add_measured, add_model, add_elsewhere, add_limits):
        add(text, figures, costs)
    return text.text()


def fitted(figures: dict[str, Any]) -> dict[str, Cost]:
    """The costs, by recipe."""
    return {recipe: Cost(**cost) for recipe, cost in figures["cost"].items()}


def add_beginning(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    text.add(
        "How the cost of a training grows with players, board, environments and simulations: measured here, and what it"
        " would be on other machines by a model, which is said to be a model wherever it is one. Generated by"
        " `python docs/results/scale.py page` from [what was measured](../benchmarks/scale.json), which"
        " `hopplus bench scale --json benchmarks/scale.json` makes anew."
    )
    text.add(
        f"Machine: {figures['machine']}; a plain product of matrices reaches {figures['matmul_flops'] / 1e9:,.0f}"
        f" GFLOP/s there, a plain copy {figures['copy_bandwidth'] / 1e9:,.1f} GB/s." + if_busy(figures["load_at_start"])
    )


def add_measured(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    text.add("## Measured")
    text.add(
        "The base case is `msh-4x4-4h1s`: 4 players, one stag, 4 hares, no blocks, 128 environments x 32 steps an"
        " iteration (HOP: 32 x 16, every seat searching with 3 trees of 32 simulations before every action), one"
        " seed, the recipe's default network. One thing is changed at a time; there are as many hares as players. An"
        f" iteration is play and learning; it is timed {figures['rounds']} times, always from the same state after 3"
        " iterations, and the best counts. A step is one of one environment, of all its players."
    )
    text.add("![Time a step by players, board, environments and simulations](images/scale.png)")
    text.add("*Points are measured, lines are the model below. Both axes are logarithmic.*")
    text.add(growth(figures["rows"]))
    for vary, (_, label) in AXES.items():
        text.add(f"### By {label}")
        text.add(measured_table(figures["rows"], vary))
    text.add(
        "GFLOP (of products of matrices) and GB moved are of one iteration, counted in its trace with every loop as"
        " often as it is gone through (XLA's own `cost_analysis` takes the body of a loop once: it gives one number"
        " for 1 and for 4 iterations). Bytes are those of all operations one by one; the compiler makes one kernel of"
        " several, so that fewer are moved. Memory is XLA's `memory_analysis`: what goes in and out, and what is needed"
        " on the way."
    )
    shares = [row["living_share"] for row in figures["rows"]]
    text.add(
        f"Only rows of players who are still there are learnt from: {100 * min(shares):.0f} to"
        f" {100 * max(shares):.0f}% of them at these points, more on large boards, where players who have hardly"
        " learnt anything find nothing to hunt. That is part of what a larger board costs, and is counted."
    )


def add_model(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    text.add("## The model")
    text.add("Seconds of an iteration:")
    text.add("$$\nt = c_o \\cdot \\text{operations} + c_f \\cdot \\text{flops} + c_b \\cdot \\text{bytes}\n$$")
    text.add("and bytes of memory, where alive are the results (play, trees, batches) that are still needed at once:")
    text.add("$$\nm = \\text{state before and after} + c_m \\cdot \\text{alive}\n$$")
    text.add(
        "All of these are counted in the trace of a training, without compiling or running it. The constants of each"
        " recipe are fitted to its measured points by least squares of relative errors, none negative; in brackets the"
        " share of a plain product's or a plain copy's speed (more than all of it, where operations became one kernel"
        " and bytes were never moved). A constant of 0 means that the points cannot tell it from the others."
    )
    lines = [
        f"| {NAMES[recipe]} | {1e6 * cost.seconds_per_operation:.3g} |"
        f" {1e12 * cost.seconds_per_flop:.3g} ({share(cost.seconds_per_flop * figures['matmul_flops'])}) |"
        f" {1e12 * cost.seconds_per_byte:.3g} ({share(cost.seconds_per_byte * figures['copy_bandwidth'])}) |"
        f" {cost.memory_per_alive_byte:.2f} | {figures['operations_per_kernel'][recipe]:.1f} |"
        for recipe, cost in costs.items()
    ]
    columns = ("", "$c_o$, µs", "$c_f$, ps", "$c_b$, ps", "$c_m$", "operations a kernel")
    text.add(head(*columns) + "\n" + "\n".join(lines))
    text.add(
        "Each point predicted from the recipe's others; the last column is a point at which players, board and"
        " environments are all changed, predicted from points with one of them changed:"
    )
    rows = list(zip(figures["rows"], figures["left_out"], strict=True))
    text.add(
        head("", "time: median error", "worst", "memory: median error", "worst", "several things changed: time, memory")
        + "\n"
        + "\n".join(error_line(recipe, [both for both in rows if both[0]["recipe"] == recipe]) for recipe in costs)
    )


def share(times: float) -> str:
    """What takes so many times as long as at best reaches this share of it; what takes no time, none."""
    return f"{100 / times:.0f}%" if times else "-"


def add_elsewhere(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    text.add("## Extrapolated: GPUs and clusters")
    text.add(
        "**Nothing in this section was measured on the machine it speaks of.** A GPU is taken to reach the same share"
        " of its peak as this machine does of a plain product and a plain copy, and to need"
        f" {1e6 * DEVICES[0].seconds_per_kernel:.0f} µs for every kernel, of which there are taken to be as many as"
        " here. Peaks by data sheet: "
        + "; ".join(
            f"{device.name} {device.flops_per_second / 1e12:.1f} TFLOP/s in single precision,"
            f" {device.bytes_per_second / 1e9:,.0f} GB/s"
            for device in DEVICES
        )
        + ". Steps/s, everybody being there to the end of an episode; in brackets how many times this machine's, and"
        " which share of the time goes into starting kernels:"
    )
    text.add(elsewhere_table(figures, costs))
    text.add(
        "What to make of it: where most of the time is starting kernels, the figure is as good as the 5 µs (2 to 10 are"
        " usual) and more environments are nearly free, up to the memory; seeds (`--seeds 0-7`) are as good as"
        " environments for that. Loops whose length is known only when they run (a way back up a tree) are counted"
        " once, and a GPU asks the host in each round of them: a search is likely to be slower than told."
        " Small matrices fill a CPU better than a GPU, which makes the figures too high; tensor cores, which would"
        " multiply faster, are not counted, which makes them too low."
    )
    text.add(
        "Cells of a sweep know nothing of each other, so that N machines of this kind play N times as many steps/s."
        " That is arithmetic, not a measurement: starting, compiling (see above, once for each kind of cell and"
        " machine) and collecting the results are not in it, nor is a last cell for which all others wait."
    )
    text.add(cluster_table(figures["rows"]))


def add_limits(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    text.add("## Limits")
    text.add(
        "- Boards have at most 19 rows and columns, games at most 8 players: more ends in one sentence when the game"
        " is made. Every size was run above, one at a time; both at once were only traced.\n"
        "- Networks are dense in the cells of the board as seen from a player's own: parameters grow with the cells"
        " (see the table), and so does what is kept of play.\n"
        "- Rows are shuffled by one 32-bit number each, which holds its place too: 2 million rows in an iteration"
        " leave 10 random bits.\n"
        "- Not varied: blocks (they cost when a board is drawn), the length of episodes, the width of networks,"
        " several seeds at once ([speed](speed.md) has eight)."
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()

"""Cost of training at scale: `page` writes docs/scale.md and its figure from the figures of `hopplus bench scale`.

python experiments/scale.py page    # reads benchmarks/scale.json only
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator

from hopplus.benchmarks.cost import Cost, Device, elsewhere, predict, predict_memory
from hopplus.core.files import write_text
from hopplus.visualization.figures import COLOURS, new_figure, save_figure
from pages import DOCS, ROOT, Page, head, if_busy

MEASURED = ROOT / "benchmarks" / "scale.json"
NAMES = {"ppo": "PPO", "hopplus": "HOP+, no search", "hop": "HOP, search"}
AXES = {
    "players": ("players", "players"),
    "board": ("side", "side of the board"),
    "environments": ("environments", "environments"),
    "simulations": ("simulations", "simulations per tree"),
}
"""Varied factors: field of the rows, and label of the axis."""
DEVICES = (
    Device("A100 (40 GB)", 19.5e12, 1555e9, 40e9, 5e-6),
    Device("L4", 30.3e12, 300e9, 24e9, 5e-6),
)
"""Single-precision peak, bandwidth and size of memory from the data sheets; the time to launch a kernel is assumed."""
MACHINES = (1, 8, 64)
Row = dict[str, Any]


def series(rows: Sequence[Row], algorithm: str, vary: str) -> list[Row]:
    """Rows of an algorithm along one axis, with the base case, in order; empty if the factor was not varied."""
    chosen = [row for row in rows if row["algorithm"] == algorithm and row["vary"] in (vary, "base")]
    field = AXES[vary][0]
    return sorted(chosen, key=lambda row: row[field]) if len(chosen) > 1 else []


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Draw microseconds per step along each axis: measurements as points, the model as lines."""
    (figure, axes), costs = new_figure(2, 2), fitted(figures)
    for axis, (vary, (field, label)) in zip(axes.flat, AXES.items(), strict=True):
        values: list[int] = []
        for colour, (algorithm, name) in zip(COLOURS, NAMES.items(), strict=False):
            if not (rows := series(figures["rows"], algorithm, vary)):
                continue
            across = [row[field] for row in rows]
            values = sorted({*values, *across})
            axis.plot(across, [1e6 * row["seconds_per_step"] for row in rows], "o", color=colour, label=name)
            predicted = [1e6 * predict(row, costs[algorithm]) / row["steps"] for row in rows]
            axis.plot(across, predicted, "-", color=colour, alpha=0.5)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda time, _: f"{time:,.0f}")
        axis.set_xticks(values, [f"{value:,}" for value in values])
        axis.minorticks_off()
        axis.set_xlabel(label, fontsize=8)
        axis.set_ylabel("µs per step", fontsize=8)
        if values:
            axis.legend(fontsize=7)
    save_figure(path, figure)


def measured_table(rows: Sequence[Row], vary: str) -> str:
    """Table of the measurements along one axis, relative to the base case."""
    field = AXES[vary][0]
    columns = ("", field, "µs per step", "x base", "GFLOP", "GB moved", "memory, MB", "parameters", "compile, s")
    lines = [
        f"| {NAMES[algorithm]} | {row[field]:,} | {1e6 * row['seconds_per_step']:,.1f} | {row['ratio_to_base']:.2f} |"
        f" {row['flops'] / 1e9:,.2f} | {row['bytes'] / 1e9:,.2f} | {row['memory_bytes'] / 1e6:,.1f} |"
        f" {row['parameters']:,} | {row['compile_seconds']:.0f} |"
        for algorithm in NAMES
        for row in series(rows, algorithm, vary)
    ]
    return head(*columns) + "\n" + "\n".join(lines)


def growth(rows: Sequence[Row]) -> str:
    """Table of the growth of cost from one end of each axis to the other."""
    lines = []
    for vary, (field, label) in AXES.items():
        for algorithm, name in NAMES.items():
            if not (points := series(rows, algorithm, vary)):
                continue
            first, last = points[0], points[-1]
            ratios = [last[key] / first[key] for key in ("seconds_per_step", "memory_bytes", "compile_seconds")]
            cells = " | ".join(f"x {ratio:,.2f}" for ratio in ratios)
            lines.append(f"| {label}: {first[field]:,} to {last[field]:,} | {name} | {cells} |")
    return head("range", "", "time per step", "memory", "compile") + "\n" + "\n".join(lines)


def described(row: Row) -> str:
    """Description of a point."""
    searching = f", {row['simulations']} simulations" if row["simulations"] else ""
    return (
        f"{NAMES[row['algorithm']]}, {row['players']} players, {row['side']}x{row['side']},"
        f" {row['environments']:,} environments{searching}"
    )


def error_line(algorithm: str, rows: Sequence[tuple[Row, dict[str, float]]]) -> str:
    """Line of the model's errors at points that were left out of its fit."""
    cells = [NAMES[algorithm]]
    for quantity in ("seconds", "memory"):
        errors = [error[quantity] for _, error in rows]
        worst = int(np.argmax(np.abs(errors)))
        cells += [f"{100 * np.median(np.abs(errors)):.0f}%", f"{100 * errors[worst]:+.0f}% ({changed(rows[worst][0])})"]
    corners = [error for row, error in rows if row["vary"] == "corner"]
    cells.append(" ".join(f"{100 * error['seconds']:+.0f}%, {100 * error['memory']:+.0f}%" for error in corners) or "-")
    return f"| {' | '.join(cells)} |"


def changed(row: Row) -> str:
    """Difference of a point from the base case, as text."""
    if row["vary"] not in AXES:
        return row["vary"]
    field, label = AXES[row["vary"]]
    return f"{label}: {row[field]:,}"


def elsewhere_table(figures: dict[str, Any], costs: dict[str, Cost]) -> str:
    """Table of predicted steps/s and memory on other machines."""
    lines = []
    for row in figures["ahead"]:
        cost, each = costs[row["algorithm"]], figures["operations_per_kernel"][row["algorithm"]]
        device_costs = [
            elsewhere(cost, device, figures["matmul_flops"], figures["copy_bandwidth"], each) for device in DEVICES
        ]
        here = row["steps"] / predict(row, cost)
        cells = [f"{described(row)}", f"{here:,.0f}"]
        for device_cost in device_costs:
            seconds = predict(row, device_cost)
            launching, speed = device_cost.seconds_per_operation * row["operations"] / seconds, row["steps"] / seconds
            cells.append(f"{speed:,.0f} (x {speed / here:.1f}; {100 * launching:.0f}%)")
        memory = predict_memory(row, cost)
        full = ", ".join(device.name for device in DEVICES if memory > device.memory_bytes)
        cells.append(f"{memory / 1e9:,.2f} GB" + (f": too much for {full}" if full else ""))
        lines.append(f"| {' | '.join(cells)} |")
    columns = ("training", "this machine (model)", *(device.name for device in DEVICES), "memory")
    return head(*columns) + "\n" + "\n".join(lines)


def cluster_table(rows: Sequence[Row]) -> str:
    """Table of the steps/s of a sweep on several machines of this type, one cell each."""
    bases = [row for row in rows if row["vary"] == "base"]
    lines = [
        " | ".join(
            ["", described(row), *(f"{number / row['seconds_per_step']:,.0f}" for number in MACHINES), ""]
        ).strip()
        for row in bases
    ]
    return head("steps/s", "1 machine (measured)", *(f"{number}" for number in MACHINES[1:])) + "\n" + "\n".join(lines)


def page() -> None:
    """Write scale.md and its figure."""
    if not MEASURED.exists():
        sys.exit("there are no measurements yet: hopplus bench scale --json benchmarks/scale.json")
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    draw(DOCS / "images" / "scale.png", figures)
    write_text(DOCS / "scale.md", written(figures))


def written(figures: dict[str, Any]) -> str:
    """Text of the page."""
    costs, text = fitted(figures), Page()
    text.add("# Scaling")
    for add in (add_introduction, add_measured, add_model, add_elsewhere, add_limits):
        add(text, figures, costs)
    return text.text()


def fitted(figures: dict[str, Any]) -> dict[str, Cost]:
    """Fitted cost models by algorithm."""
    return {algorithm: Cost(**cost) for algorithm, cost in figures["cost"].items()}


def add_introduction(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    """Add the introduction."""
    text.add(
        "Cost of training as a function of players, board size, environments and simulations: measured on this machine,"
        " and extrapolated to other machines by a model. Figures of the model are marked as such. Generated by"
        " `python experiments/scale.py page` from [the measurements](../benchmarks/scale.json). To reproduce them:"
        " `hopplus bench scale --json benchmarks/scale.json`."
    )
    text.add(
        f"Machine: {figures['machine']}; a matrix product reaches {figures['matmul_flops'] / 1e9:,.0f} GFLOP/s, and a"
        f" copy {figures['copy_bandwidth'] / 1e9:,.1f} GB/s." + if_busy(figures["load_at_start"])
    )


def add_measured(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    """Add the section with the measurements."""
    text.add("## Measured")
    text.add(
        "The base case is `msh-4x4-4h1s`: 4 players, one stag, 4 hares, no blocks, 128 environments x 32 steps per"
        " iteration (HOP: 32 x 16, every seat searches with 3 trees of 32 simulations before every action), one"
        " seed, the algorithm's default network. One factor is varied at a time; there are as many hares as players. An"
        f" iteration is a rollout and an update. It is timed {figures['rounds']} times, always from the same state"
        " after 3 iterations, and the best time counts. A step is one step of one environment, with all its players."
    )
    text.add("![Time per step by players, board, environments and simulations](images/scale.png)")
    text.add("*Points are measurements, lines are the model below. Both axes are logarithmic.*")
    text.add(growth(figures["rows"]))
    for vary, (_, label) in AXES.items():
        text.add(f"### By {label}")
        text.add(measured_table(figures["rows"], vary))
    text.add(
        "GFLOP (of matrix products) and GB moved are those of one iteration, counted in its trace with every loop"
        " multiplied by its length (XLA's own `cost_analysis` counts the body of a loop once: it gives the same number"
        " for 1 and for 4 iterations). Bytes are the sum over all operations; the compiler fuses several operations"
        " into one kernel, which moves fewer. Memory is XLA's `memory_analysis`: inputs, outputs and temporaries."
    )
    shares = [row["living_share"] for row in figures["rows"]]
    text.add(
        f"Only the transitions of players that are still in the game are trained on: {100 * min(shares):.0f} to"
        f" {100 * max(shares):.0f}% of all rows at these points, more on large boards, where barely trained players"
        " catch nothing. This is part of the cost of a larger board, and is included."
    )


def add_model(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    """Add the section about the cost model."""
    text.add("## Model")
    text.add("Seconds per iteration:")
    text.add("$$\nt = c_o \\cdot \\text{operations} + c_f \\cdot \\text{flops} + c_b \\cdot \\text{bytes}\n$$")
    text.add("and bytes of memory, where alive are the results (rollouts, trees, batches) needed at the same time:")
    text.add("$$\nm = \\text{state before and after} + c_m \\cdot \\text{alive}\n$$")
    text.add(
        "All of these are counted in the trace of a training, without compiling or running it. The constants of each"
        " algorithm are fitted to its measured points by non-negative least squares of relative errors. In brackets:"
        " the share of the speed of a matrix product or a copy (above full speed where operations were fused and"
        " bytes were never moved). A constant of 0 means that the points cannot distinguish it from the others."
    )
    lines = [
        f"| {NAMES[algorithm]} | {1e6 * cost.seconds_per_operation:.3g} |"
        f" {1e12 * cost.seconds_per_flop:.3g} ({share(cost.seconds_per_flop * figures['matmul_flops'])}) |"
        f" {1e12 * cost.seconds_per_byte:.3g} ({share(cost.seconds_per_byte * figures['copy_bandwidth'])}) |"
        f" {cost.memory_per_alive_byte:.2f} | {figures['operations_per_kernel'][algorithm]:.1f} |"
        for algorithm, cost in costs.items()
    ]
    columns = ("", "$c_o$, µs", "$c_f$, ps", "$c_b$, ps", "$c_m$", "operations per kernel")
    text.add(head(*columns) + "\n" + "\n".join(lines))
    text.add(
        "Errors at each point when the model is fitted to the algorithm's other points. The last column is a point at"
        " which players, board and environments all differ from the base case, predicted from points at which one of"
        " them does:"
    )
    rows = list(zip(figures["rows"], figures["left_out"], strict=True))
    text.add(
        head("", "time: median error", "worst", "memory: median error", "worst", "several factors: time, memory")
        + "\n"
        + "\n".join(error_line(name, [pair for pair in rows if pair[0]["algorithm"] == name]) for name in costs)
    )


def share(times: float) -> str:
    """Share of the best speed for a time relative to the best time; "-" for no time."""
    return f"{100 / times:.0f}%" if times else "-"


def add_elsewhere(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    """Add the section about other machines."""
    text.add("## Extrapolated: GPUs and clusters")
    text.add(
        "**Nothing in this section was measured on the machines in question.** A GPU is assumed to reach the same share"
        " of its peak as this machine reaches of a matrix product and of a copy, to need"
        f" {1e6 * DEVICES[0].seconds_per_kernel:.0f} µs per kernel, and to run as many kernels as this machine. Peaks"
        " from the data sheets: "
        + "; ".join(
            f"{device.name} {device.flops_per_second / 1e12:.1f} TFLOP/s in single precision,"
            f" {device.bytes_per_second / 1e9:,.0f} GB/s"
            for device in DEVICES
        )
        + ". Steps/s, with all players in the game until the end of an episode; in brackets the ratio to this machine,"
        " and the share of the time spent on launching kernels:"
    )
    text.add(elsewhere_table(figures, costs))
    text.add(
        "Where launching kernels takes most of the time, the figure is as accurate as the assumed 5 µs (2 to 10 are"
        " usual), and more environments or seeds (`--seeds 0-7`) are nearly free, up to the memory. Loops whose length"
        " is only known at run time (the backup in a tree) are counted once, and a GPU synchronises with the host in"
        " each of their iterations: a search is likely to be slower than predicted. Small matrices use a CPU better"
        " than a GPU, which makes the figures too high. Tensor cores, which would be faster, are not included, which"
        " makes them too low."
    )
    text.add(
        "Cells of a sweep are independent, so N machines of this type play N times as many steps/s. This is arithmetic,"
        " not a measurement: it excludes start-up, compilation (see above, once per type of cell and machine),"
        " collecting the results, and waiting for the last cell."
    )
    text.add(cluster_table(figures["rows"]))


def add_limits(text: Page, figures: dict[str, Any], costs: dict[str, Cost]) -> None:
    """Add the section about limits."""
    text.add("## Limits")
    text.add(
        "- Boards have at most 19 rows and columns, games at most 8 players; a larger game is an input error. Every"
        " size was run above, one factor at a time; both maxima together were only traced.\n"
        "- Networks are dense in the cells of the ego-centred board: parameters grow with the cells (see the table),"
        " and so do the stored rollouts.\n"
        "- Rows are shuffled by one 32-bit number each, which also holds their index: 2 million rows per iteration"
        " leave 10 random bits.\n"
        "- Not varied: blocks (they cost time when a board is generated), the length of episodes, the width of"
        " networks, several seeds at once ([speed](speed.md) has eight)."
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()

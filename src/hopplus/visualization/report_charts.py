"""Charts of a report: learning curves, adaptation curves and cross-play matrices from the files of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hopplus.core.formatting import short_names
from hopplus.core.statistics import FEWEST
from hopplus.visualization.charts import MOST_POINTS, Chart, Curve, heat_map, line_chart, places
from hopplus.visualization.style import seat_colour

if TYPE_CHECKING:
    from hopplus.training.run import Run

Line = Mapping[str, Any]
"""Line of metrics.jsonl."""
Series = Sequence[Sequence[Line]]
"""Lines by seed, equally many for all seeds."""
RECALLS = ("moa_recall_", "recall_")
"""Prefixes of per-action recall metrics: in training, and in a fit."""
TITLES = {
    "own_return": "Return of agents with neutral preferences",
    "regret": "Mean regret of the neutral preference",
    "length": "Episode length",
    "entropy": "Policy entropy",
    "kl": "KL divergence per update",
    "value_loss": "Value loss",
    "explained_variance": "Explained variance of the value",
    "moa_top1": "Opponent model: top-1 accuracy",
    "moa_cross_entropy": "Opponent model: cross-entropy",
    "belief_entropy": "Belief entropy",
    "belief_accuracy": "Belief accuracy",
    "world_exact": "World model: share of exactly predicted next states",
    "plan_depth": "Planning: mean depth of simulations",
    "plan_value_error": "Planning: absolute error of the planned value",
    "top1": "Top-1 action accuracy",
    "cross_entropy": "Action cross-entropy",
    "exact": "Share of exactly predicted next states",
    "exact_10": "Share of exactly predicted states ten steps ahead",
    "reward_mse": "Reward MSE",
}
"""Titles of the charts beside the return, by metric name; a chart is drawn if the run has the metric."""


def series_of(lines: Sequence[Line], seeds: Sequence[int], points: int = MOST_POINTS) -> Series:
    """Groups lines by seed and thins them out.

    Returns:
        At most `points` lines for each seed that has any, the longest seed first. A seed that stopped early repeats its
        last line.
    """
    lines_by_seed: dict[int, list[Line]] = {seed: [] for seed in seeds}
    for line in lines:
        if line["seed"] in lines_by_seed:
            lines_by_seed[line["seed"]].append(line)
    longest_first = sorted(filter(None, lines_by_seed.values()), key=len, reverse=True)
    indices = places(len(longest_first[0]), points) if longest_first else []
    return [[seed_lines[min(index, len(seed_lines) - 1)] for index in indices] for seed_lines in longest_first]


def learning_charts(run: "Run", lines: Sequence[Line], points: int = MOST_POINTS) -> list[Chart]:
    """Returns the learning curves of a run, means over seeds with intervals: metrics by seat, and recalls by action."""
    series = series_of(lines, run.seeds, points)
    evaluated_lines = [line for line in lines if "evaluation" in line]
    names = {name for seed_lines in series for line in seed_lines for name in line}
    seats, axes = run.config.get("learners", [0]), ("epochs" if "fit" in run.config else "environment steps", "minutes")
    charts = []
    for name, title in ({"return": "Return in training"} | TITLES).items():
        curves = [_seat_curve(series, name, seat) for seat in seats] if name in names else []
        known = [curve for curve in curves if any(value is not None for value in curve.values)]
        if name == "return" and evaluated_lines:
            evaluated = series_of(evaluated_lines, run.seeds, points)
            greedy = mean_over_seeds(evaluated, mean_over_seats("evaluation", seats), "greedy")
            known.append(replace(greedy, colour="#7f7f7f", dashed=True))
        if known:
            charts.append(line_chart(title, known, *axes))
    recalls = sorted(name for name in names if name.startswith(RECALLS))
    if recalls:
        by_action = [
            mean_over_seeds(series, mean_over_seats(name, seats), name.split("recall_")[1]) for name in recalls
        ]
        charts.append(line_chart("Opponent model: recall by action", by_action, *axes))
    return charts


def _seat_curve(series: Series, name: str, seat: int) -> Curve:
    """Returns the curve of one metric at one seat."""

    def value(line: Line) -> float | None:
        metric = line.get(name)
        return metric[seat] if isinstance(metric, list) else metric

    by_seat = any(isinstance(line.get(name), list) for seed_lines in series for line in seed_lines)
    return mean_over_seeds(series, value, f"seat {seat}" if by_seat else name, seat_colour(seat))


def mean_over_seats(name: str, seats: Sequence[int]) -> Callable[[Line], float | None]:
    """Returns a function from a line to the mean of a metric over seats; None if it is unknown for one of them."""

    def mean(line: Line) -> float | None:
        metric = line.get(name)
        values = [metric[seat] for seat in seats] if isinstance(metric, list) else [metric]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    return mean


def mean_over_seeds(
    series: Series, value: Callable[[Line], float | None], name: str, colour: str | None = None
) -> Curve:
    """Returns the mean over seeds with its 95% interval (Student's t)."""
    from scipy.special import stdtrit

    first = series[0] if series else []
    values = np.array([[_number(value(line)) for line in seed_lines] for seed_lines in series], float).reshape(
        len(series), len(first)
    )
    values[~np.isfinite(values)] = np.nan
    mean, low, high = values.sum(0) / max(len(series), 1), None, None
    if len(series) >= FEWEST:
        half = stdtrit(len(series) - 1, 0.975) * values.std(0, ddof=1) / len(series) ** 0.5
        low, high = _plain(mean - half), _plain(mean + half)
    steps = [float(line.get("steps", line.get("iteration", 0))) for line in first]
    minutes = [round(line.get("seconds", 0) / 60, 3) for line in first]
    return Curve(name, steps, _plain(mean), low, high, minutes, colour)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _plain(values: np.ndarray) -> list[float | None]:
    return [round(float(value), 5) if np.isfinite(value) else None for value in values]


def adaptation_charts(rows: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[Chart]:
    """Returns one chart per co-player set and protocol: own reward by episode, beside the oracle where it is known.

    Args:
        rows: Name of the run, protocol and adaptation row (see `adaptation_rows`).
    """
    panels = dict.fromkeys((row["set"], protocol) for _, protocol, row in rows)
    charts = []
    for panel in panels:
        panel_rows = [(name, row) for name, protocol, row in rows if (row["set"], protocol) == panel]
        curves = [_adaptation_curve(name, row) for name, row in panel_rows]
        oracle = [point for point in panel_rows[0][1]["curve"] if point["oracle"] is not None]
        if oracle:
            episodes, values = ([point[key] for point in oracle] for key in ("episode", "oracle"))
            curves.append(Curve("oracle", episodes, values, colour="#7f7f7f", dashed=True))
        title = f"Own reward with {panel[0]}; {panel[1]}; bands: {interval_names([row for _, row in panel_rows])}"
        charts.append(line_chart(title, curves, "episode with the same players"))
    return charts


def interval_names(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the kinds of intervals in adaptation rows, each once."""
    return "; ".join(dict.fromkeys(row["score"]["interval"] for row in rows))


def _adaptation_curve(name: str, row: Mapping[str, Any]) -> Curve:
    columns = {key: [point[key] for point in row["curve"]] for key in ("episode", "mean", "low", "high")}
    band = (None, None) if None in columns["low"] else (columns["low"], columns["high"])
    return Curve(name, columns["episode"], columns["mean"], *band)


def crossplay_charts(evaluations: Mapping[str, Any]) -> list[Chart]:
    """Returns the cross-play matrices of a run as heat maps."""
    charts = []
    for name, evaluation in evaluations.items():
        if name.startswith("crossplay-"):
            rows, columns = evaluation["rows"], evaluation["columns"]
            values = np.full((len(rows), len(columns)), np.nan)
            for cell in evaluation["cells"]:
                values[rows.index(cell["row"]), columns.index(cell["column"])] = cell["mean"]
            row_names, column_names = short_names(rows), short_names(columns)
            title = "Cross-play: own reward of the rows with the columns"
            charts.append(heat_map(title, row_names, column_names, values, "own reward"))
    return charts

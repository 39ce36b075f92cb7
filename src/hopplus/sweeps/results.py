"""Results of a sweep: one row per cell, with training seeds as units of replication, as one small JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.statistics import Comparison, Estimate, compare, estimate
from hopplus.sweeps.directory import Sweep, figures, open_sweep
from hopplus.sweeps.plan import Cell
from hopplus.visualization.charts import places

RETURN = "return"
"""Column of the greedy evaluation at the end of every training."""
POINTS = 60
"""Points per curve."""


@dataclass(frozen=True)
class Column:
    """Values of one metric, by training seed of a row."""

    per_seed: list[float]
    unit: str
    """`own reward` or `share of the oracle`."""
    ceiling: float | None = None

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds, with an interval."""
        return estimate(np.array(self.per_seed)[:, None])


@dataclass(frozen=True)
class Row:
    """Cells that differ only in their seeds."""

    labels: dict[str, str]
    """Value by axis."""
    game: str
    seeds: list[int]
    steps: int
    seconds: float
    """Duration of training, all seeds."""
    commands: list[str]
    commits: list[str | None]
    machines: list[str]
    columns: dict[str, Column]
    curve: dict[str, list[Any]]
    """`steps` [points], and `return` [seeds, points]: the learners' mean return in training."""

    @property
    def name(self) -> str:
        """All labels."""
        return ", ".join(self.labels.values())


@dataclass(frozen=True)
class Results:
    """Results of a sweep."""

    title: str
    reference: str | None
    rows: list[Row]
    missing: list[str] = field(default_factory=list)
    """Cells that are not done."""

    def columns(self) -> list[str]:
        """Returns the names of all columns, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row.columns))

    def axes(self) -> list[str]:
        """Returns the axes in which rows differ, or all axes of a single row."""
        axes = list(dict.fromkeys(axis for row in self.rows for axis in row.labels))
        differing = [axis for axis in axes if len({row.labels.get(axis) for row in self.rows}) > 1]
        return differing or axes

    def beside_reference(self, row: Row, column: str) -> Comparison | None:
        """Compares a row with the reference row of otherwise equal labels; None if there is none."""
        for other in self.rows:
            axes = [axis for axis, label in other.labels.items() if label == self.reference]
            same = {**other.labels, **{axis: row.labels.get(axis, "") for axis in axes}} == row.labels
            if axes and same and other is not row and column in other.columns and column in row.columns:
                values, reference = (np.array(each.columns[column].per_seed)[:, None] for each in (row, other))
                return compare(values, reference)
        return None


def collect(sweep: Sweep) -> Results:
    """Returns the results of the finished cells. Raises InputError if there are none."""
    groups: dict[str, list[Cell]] = {}
    for cell in sweep.plan.cells:
        if sweep.is_done(cell):
            same = {key: value for key, value in cell.settings.items() if key != "seeds"}
            groups.setdefault(json.dumps([_labels(cell), same], sort_keys=True), []).append(cell)
    if not groups:
        raise InputError(f"{sweep.path} has no cell that is done yet: hopplus sweep FILE.toml")
    missing = [cell.name for cell in sweep.plan.cells if not sweep.is_done(cell)]
    rows = [_row(cells, [figures(sweep, cell) for cell in cells]) for cells in groups.values()]
    return Results(sweep.plan.title, sweep.plan.reference, rows, missing)


def _labels(cell: Cell) -> dict[str, str]:
    return {axis: label for axis, label in cell.labels.items() if axis != "seeds"}


def _row(cells: Sequence[Cell], by_cell: Sequence[Mapping[str, Any]]) -> Row:
    configs, finals = ([cell_figures[key] for cell_figures in by_cell] for key in ("config", "final"))
    per_seed = [row["own_return"] for final in finals for row in final["per_seed"]]
    columns = {RETURN: Column(per_seed, "own reward", finals[0]["ceiling"])}
    for name in by_cell[0]["judged"]:
        columns |= _judged(name, [cell_figures["judged"][name] for cell_figures in by_cell])
    curves = [_curve(cell_figures["metrics"], config) for cell_figures, config in zip(by_cell, configs, strict=True)]
    return Row(
        labels=_labels(cells[0]),
        game=configs[0]["training"]["game"],
        seeds=[seed for config in configs for seed in config["seeds"]],
        steps=max(step for final in finals for step in final["steps"]),
        seconds=sum(final["seconds"] for final in finals),
        commands=["hopplus " + " ".join(cell.argv()) for cell in cells],
        commits=sorted({config["commit"] for config in configs}, key=str),
        machines=sorted({config["machine"] for config in configs}),
        columns=columns,
        curve={"steps": curves[0][0], "return": [returns for _, by_seed in curves for returns in by_seed]},
    )


def _judged(name: str, by_cell: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Returns the columns of a judge: one for `evaluate`; the mean over sets and one per set for `adapt`."""
    if "rows" not in by_cell[0]:
        returns = [row["own_return"] for judged in by_cell for row in judged["per_seed"]]
        return {name: Column(returns, "own reward")} if None not in returns else {}
    columns: dict[str, Column] = {}
    for number, row in enumerate(by_cell[0]["rows"]):
        scores = [score for judged in by_cell for score in judged["rows"][number]["score"]["per_seed"]]
        oracle = row["score"]["oracle"]
        seated = row["set"] if row["seating"] == "one" else f"two more and {row['set']}"
        if oracle:
            columns[f"{name}: {seated}"] = Column([score / oracle for score in scores], "share of the oracle")
        else:
            columns[f"{name}: {seated}"] = Column(scores, "own reward")
    shares = [column.per_seed for column in columns.values() if column.unit == "share of the oracle"]
    if len(shares) > 1:
        columns = {f"{name}: mean of sets": Column(np.mean(shares, 0).tolist(), "share of the oracle"), **columns}
    return columns


def _curve(
    metrics: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> tuple[list[int], list[list[float | None]]]:
    """Returns steps, and the learners' mean return by seed, thinned out."""
    by_seed, steps = [], []
    for seed in config["seeds"]:
        lines = [line for line in metrics if line["seed"] == seed]
        chosen = [lines[place] for place in places(len(lines), POINTS)]
        steps = [line["steps"] for line in chosen]
        by_seed.append([_mean([line["return"][seat] for seat in config["learners"]]) for line in chosen])
    return steps, by_seed


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def as_plain(results: Results) -> dict[str, Any]:
    """Returns the results for JSON; `from_plain` is the inverse."""
    return asdict(results)


def from_plain(plain: Mapping[str, Any]) -> Results:
    """Returns the results that `as_plain` turned into plain values."""
    rows = [
        Row(**{**row, "columns": {name: Column(**column) for name, column in row["columns"].items()}})
        for row in plain["rows"]
    ]
    return Results(**{**plain, "rows": rows})


def read_results(path: Path) -> Results:
    """Returns the results of a sweep directory, or of a results file."""
    if path.is_dir():
        return collect(open_sweep(path))
    try:
        return from_plain(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"there is no sweep {path}, nor a file of its results") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not hold the results of a sweep: {error}") from None

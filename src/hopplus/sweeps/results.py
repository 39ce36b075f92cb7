"""What came of a sweep: a row for every cell, training seeds being the unit of replication, as one small JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.errors import InputError
from hopplus.evaluation.statistics import Comparison, Estimate, compare, estimate
from hopplus.report.charts import places
from hopplus.sweeps.directory import Sweep, figures, open_sweep
from hopplus.sweeps.plan import Cell

RETURN = "return"
"""The column of the greedy evaluation at the end of every training."""
POINTS = 60
"""How many points of a curve are kept."""


@dataclass(frozen=True)
class Column:
    """A figure of every training seed of a row."""

    per_seed: list[float]
    unit: str
    """`own reward` or `share of the oracle`."""
    ceiling: float | None = None

    @property
    def estimate(self) -> Estimate:
        return estimate(np.array(self.per_seed)[:, None])


@dataclass(frozen=True)
class Row:
    """Cells that differ in their seeds alone."""

    labels: dict[str, str]
    """By axis."""
    game: str
    seeds: list[int]
    steps: int
    seconds: float
    """Of training, all its seeds."""
    commands: list[str]
    commits: list[str | None]
    machines: list[str]
    columns: dict[str, Column]
    curve: dict[str, list[Any]]
    """`steps` [points], and `return` [seeds, points]: the learners' mean in training."""

    @property
    def name(self) -> str:
        return ", ".join(self.labels.values())


@dataclass(frozen=True)
class Results:
    """A whole sweep's."""

    title: str
    reference: str | None
    rows: list[Row]
    missing: list[str] = field(default_factory=list)
    """Cells that are not done."""

    def columns(self) -> list[str]:
        """The names of all columns, in order."""
        return list(dict.fromkeys(name for row in self.rows for name in row.columns))

    def axes(self) -> list[str]:
        """The axes in which rows differ, or all if there is but one row."""
        every = list(dict.fromkeys(axis for row in self.rows for axis in row.labels))
        differing = [axis for axis in every if len({row.labels.get(axis) for row in self.rows}) > 1]
        return differing or every

    def beside_reference(self, row: Row, column: str) -> Comparison | None:
        """How a row's figure differs from that of the reference in the same place; None where there is none."""
        for other in self.rows:
            axes = [axis for axis, label in other.labels.items() if label == self.reference]
            same = {**other.labels, **{axis: row.labels.get(axis, "") for axis in axes}} == row.labels
            if axes and same and other is not row and column in other.columns and column in row.columns:
                ours, theirs = (np.array(one.columns[column].per_seed)[:, None] for one in (row, other))
                return compare(ours, theirs)
        return None


def collect(sweep: Sweep) -> Results:
    """What is known of the cells that are done; InputError where none is."""
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


def _row(cells: Sequence[Cell], found: Sequence[Mapping[str, Any]]) -> Row:
    configs, finals = ([one[key] for one in found] for key in ("config", "final"))
    per_seed = [row["own_return"] for final in finals for row in final["per_seed"]]
    columns = {RETURN: Column(per_seed, "own reward", finals[0]["ceiling"])}
    for name in found[0]["judged"]:
        columns |= _judged(name, [one["judged"][name] for one in found])
    curves = [_curve(one["metrics"], config) for one, config in zip(found, configs, strict=True)]
    return Row(
        labels=_labels(cells[0]),
        game=configs[0]["training"]["game"],
        seeds=[seed for config in configs for seed in config["seeds"]],
        steps=max(step for final in finals for step in final["steps"]),
        seconds=sum(final["seconds"] for final in finals),
        commands=["hopplus " + " ".join(cell.words()) for cell in cells],
        commits=sorted({config["commit"] for config in configs}, key=str),
        machines=sorted({config["machine"] for config in configs}),
        columns=columns,
        curve={"steps": curves[0][0], "return": [values for _, several in curves for values in several]},
    )


def _judged(name: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """The columns of a judge: one for an evaluation; for an adaptation the mean over sets, and one a set."""
    if "rows" not in found[0]:
        own = [row["own_return"] for one in found for row in one["per_seed"]]
        return {name: Column(own, "own reward")} if None not in own else {}
    columns: dict[str, Column] = {}
    for number, row in enumerate(found[0]["rows"]):
        scores = [score for one in found for score in one["rows"][number]["score"]["per_seed"]]
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
    """Steps, and of every seed the learners' mean return at them, thinned out."""
    several, steps = [], []
    for seed in config["seeds"]:
        own = [line for line in metrics if line["seed"] == seed]
        chosen = [own[place] for place in places(len(own), POINTS)]
        steps = [line["steps"] for line in chosen]
        several.append([_mean([line["return"][seat] for seat in config["learners"]]) for line in chosen])
    return steps, several


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def as_plain(results: Results) -> dict[str, Any]:
    """As JSON has it: `from_plain` gives the same again."""
    return asdict(results)


def from_plain(found: Mapping[str, Any]) -> Results:
    """What `as_plain` gave."""
    rows = [
        Row(**{**row, "columns": {name: Column(**column) for name, column in row["columns"].items()}})
        for row in found["rows"]
    ]
    return Results(**{**found, "rows": rows})


def read_results(path: Path) -> Results:
    """Those of a sweep's directory, or of a file that was kept of it."""
    if path.is_dir():
        return collect(open_sweep(path))
    try:
        return from_plain(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"there is no sweep {path}, nor a file of its results") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not hold the results of a sweep: {error}") from None

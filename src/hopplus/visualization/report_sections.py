"""Sections of a report: state, tables, remarks, charts, pictures and replays of each run, and comparison of runs."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.formatting import percent, with_interval
from hopplus.evaluation.seat_symmetry import spread_test
from hopplus.visualization.charts import LINE_COLOURS, MOST_POINTS, Chart, line_chart
from hopplus.visualization.replay import replays
from hopplus.visualization.report_charts import (
    Line,
    adaptation_charts,
    crossplay_charts,
    interval_names,
    learning_charts,
    mean_over_seats,
    mean_over_seeds,
    series_of,
)

if TYPE_CHECKING:
    from hopplus.training.run import Run

SEAT_TEST_LEVEL = 0.01
"""Significance level below which seats are reported as different."""
LARGEST_PICTURE = 2_000_000
"""Bytes; larger pictures are not shown."""


@dataclass(frozen=True)
class HtmlTable:
    """Table of a page; the first column holds the row headers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ReportImage:
    """Picture from the run directory, as a data URL."""

    title: str
    data: str


@dataclass
class ReportSection:
    """Section of the page about one run."""

    name: str
    state: str
    settings: HtmlTable
    remarks: list[str] = field(default_factory=list)
    tables: list[HtmlTable] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    pictures: list[ReportImage] = field(default_factory=list)
    replays: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class RunComparison:
    """Section of the page about several runs together."""

    tables: Sequence[HtmlTable]
    charts: Sequence[Chart]


@dataclass(frozen=True)
class RunFigures:
    """Contents of the files of a run, read once."""

    run: "Run"
    name: str
    lines: Sequence[Line]
    evaluations: Mapping[str, Any]


def read_figures(run: "Run", name: str) -> RunFigures:
    """Reads the files of a run. Raises InputError if one is damaged."""
    return RunFigures(run, name, run.metrics(), run.evaluations())


def section_of(figures: RunFigures, sets: int | None, points: int = MOST_POINTS) -> ReportSection:
    """Returns the section of a run.

    Args:
        figures: Contents of the run's files.
        sets: Held-out sets shown in replays beside self-play; None for no replays.
        points: Maximum points per curve.
    """
    with _explain_missing_data(figures.run):
        section = _section_without_replays(figures, points)
    if sets is not None and "fit" not in figures.run.config:
        _add_replays(section, figures.run, sets)
    return section


@contextlib.contextmanager
def _explain_missing_data(run: "Run") -> Iterator[None]:
    """Turns errors from incomplete but readable files into one InputError."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"the files of {run.path} lack data for a report: {reason}") from error


def _section_without_replays(figures: RunFigures, points: int) -> ReportSection:
    run, lines, evaluations = figures.run, figures.lines, figures.evaluations
    final = evaluations.get("final")
    section = ReportSection(figures.name, _state(run, lines, final), _settings(run))
    section.tables.append(_overview(run, lines))
    if "fit" not in run.config:
        _add_results(section, run, final, evaluations)
    adaptation = [(figures.name, protocol, row) for protocol, row in adaptation_rows(evaluations)]
    section.charts += learning_charts(run, lines, points) + adaptation_charts(adaptation)
    section.charts += crossplay_charts(evaluations)
    section.pictures += _pictures(run)
    return section


def _state(run: "Run", lines: Sequence[Line], final: Mapping[str, Any] | None) -> str:
    if not lines:
        return "No metrics have been logged yet."
    last = max(line.get("steps", line.get("iteration", 0)) for line in lines[-len(run.seeds) :])
    steps = f"{last:,} {'epochs' if 'fit' in run.config else 'steps'} per seed"
    state = run.state(lines, final)
    if final is None or state != "finished":
        return f"{'Still training' if state == 'training' else 'Unfinished'}, after {steps}."
    if "own_return" not in final:
        return f"Finished after {steps}."
    share = f", {100 * final['share_of_ceiling']:.1f}% of the ceiling" if final["share_of_ceiling"] else ""
    return (
        f"Finished after {steps}: mean return {final['mean_return']:.3f} of {final['ceiling']:g}{share};"
        f" learners {final['own_return']:.3f}."
    )


def _overview(run: "Run", lines: Sequence[Line]) -> HtmlTable:
    config = run.config
    training = config.get("training", {})
    minutes = (
        f"{lines[-1]['seconds'] / 60:.1f} minutes, all seeds together" if lines and "seconds" in lines[-1] else "-"
    )
    rows = [
        ("algorithm", config.get("algorithm") or f"fit of {config.get('fit')}"),
        ("game", training.get("game") or config.get("game", "-")),
        ("cast", training.get("cast") or "; ".join(config.get("data", {}).get("casts", [])) or "-"),
        ("seeds", ", ".join(map(str, run.seeds))),
        ("time", minutes),
        ("machine", config.get("machine", "-")),
        ("versions", ", ".join(f"{name} {number}" for name, number in config.get("versions", {}).items())),
        ("commit", config.get("commit") or "-"),
        ("started", config.get("started", "-")),
    ]
    return HtmlTable("Overview", ("", ""), [(key, str(value)) for key, value in rows])


def _settings(run: "Run") -> HtmlTable:
    settings = {**run.config.get("training", {}), **run.config.get("settings", {})}
    return HtmlTable(
        "All settings", ("setting", "value"), [(key, json.dumps(value)) for key, value in settings.items()]
    )


def _add_results(
    section: ReportSection, run: "Run", final: Mapping[str, Any] | None, evaluations: Mapping[str, Any]
) -> None:
    if final is not None and "per_seat" in final:
        rows = [(str(row["seat"]), f"{row['mean']:.3f}", f"{row['standard_error']:.3f}") for row in final["per_seat"]]
        unit = "seeds" if len(run.seeds) > 1 else "episodes"
        caption = f"Greedy evaluation: {final['episodes']} episodes per seed; standard errors over {unit}"
        section.tables.append(HtmlTable(caption, ("seat", "mean return", "standard error"), rows))
        if (verdict := seat_verdict(run, final)) is not None:
            section.remarks.append(verdict)
    adaptation = adaptation_rows(evaluations)
    if adaptation:
        head = ("co-players", "protocol", "own reward", "share of oracle", "met in training")
        rows = [
            (
                row["set"],
                protocol,
                f"{with_interval(row['score'])} ({_score_window(row['score'])})",
                percent(row["score"].get("share_of_oracle")),
                ", ".join(row["met_before"]) or "none",
            )
            for protocol, row in adaptation
        ]
        intervals = interval_names([row for _, row in adaptation])
        section.tables.append(HtmlTable(f"Adaptation to the same co-players; {intervals}", head, rows))


def adaptation_rows(evaluations: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the rows of all `hopplus adapt` evaluations, each with a description of its protocol."""
    rows = []
    for name, evaluation in evaluations.items():
        for row in evaluation.get("rows", []) if name.startswith("adapt-") else []:
            parts = (
                "one focal player" if row["seating"] == "one" else "three focal players",
                "weights updated" if row["update_weights"] else "weights frozen",
                "greedy" if row["greedy"] else "",
                "" if row["protocol"] == "few-shot" else f"protocol {row['protocol']}",
                _planner_in(name),
            )
            rows.append((", ".join(part for part in parts if part), row))
    return rows


def _planner_in(name: str) -> str:
    """Returns the planner that the name of an evaluation contains."""
    planner = name.rpartition("-planner-")[2] if "-planner-" in name else ""
    return "" if planner in ("", "off") else f"planner {planner}"


def _score_window(score: Mapping[str, Any]) -> str:
    return f"{score['unit']} {score['first']} to {score['last']}"


def seat_verdict(run: "Run", final: Mapping[str, Any]) -> str | None:
    """Returns the result of the test for equal returns of all seats, for self-play in which all seats learn.

    Returns:
        None if the seats need not be equal, or for a single seed.
    """
    by_seat = [row["by_seat"] for row in final["per_seed"] if "by_seat" in row]
    all_learn = len(final["learners"]) == len(final["per_seat"])
    if run.config["training"]["cast"] != "self-play" or not all_learn or len(by_seat) < 2:
        return None
    spread, p_value = spread_test(np.array(by_seat))
    return (
        f"Seats: the highest mean exceeds the lowest by {spread:.3f} (permutation test, p = {p_value:.2g}):"
        f" {'no significant difference' if p_value > SEAT_TEST_LEVEL else 'the seats differ'}."
    )


def _add_replays(section: ReportSection, run: "Run", sets: int) -> None:
    from hopplus.training import checkpoint
    from hopplus.training.run import check_training

    if not checkpoint.list_checkpoints(run.checkpoints):
        section.remarks.append("No replay: there is no checkpoint yet.")
        return
    try:
        section.replays += replays(check_training(run), sets)
    except InputError as error:
        section.remarks.append(f"No replay: {error}.")


def _pictures(run: "Run") -> list[ReportImage]:
    """Returns the pictures in the run's `diagnostics` directory."""
    pictures = []
    for file in sorted((run.path / "diagnostics").rglob("*.png")):
        if file.stat().st_size <= LARGEST_PICTURE:
            data = base64.b64encode(file.read_bytes()).decode()
            title = f"{file.parent.name}: {file.stem.replace('-', ' ').replace('_', ' ')}"
            pictures.append(ReportImage(title, f"data:image/png;base64,{data}"))
    return pictures


def compare_runs(runs: Sequence[RunFigures], points: int) -> RunComparison:
    """Returns the comparison of runs: a table of results, mean returns in training, and adaptation curves."""
    rows, curves = [], []
    for number, figures in enumerate(runs):
        run, lines = figures.run, figures.lines
        rows.append(_comparison_row(figures))
        if any("return" in line for line in lines):
            mean_return = mean_over_seats("return", run.config.get("learners", [0]))
            colour = LINE_COLOURS[number % len(LINE_COLOURS)]
            series = series_of(lines, run.seeds, points)
            curves.append(mean_over_seeds(series, mean_return, figures.name, colour))
    head = ("run", "algorithm", "game", "cast", "seeds", "steps", "learners' return", "share of ceiling")
    charts = []
    if curves:
        charts.append(line_chart("Return in training", curves, "environment steps", "minutes"))
    adaptation = [(figures.name, *row) for figures in runs for row in adaptation_rows(figures.evaluations)]
    charts += adaptation_charts(adaptation)
    return RunComparison([HtmlTable("Side by side", head, rows)], charts)


def _comparison_row(figures: RunFigures) -> tuple[str, ...]:
    run, lines, final = figures.run, figures.lines, figures.evaluations.get("final") or {}
    training = run.config.get("training", {})
    return (
        figures.name,
        run.config.get("algorithm") or f"fit of {run.config.get('fit')}",
        training.get("game") or run.config.get("game", "-"),
        training.get("cast", "-"),
        str(len(run.seeds)),
        f"{lines[-1]['steps']:,}" if lines and "steps" in lines[-1] else "-",
        f"{final['own_return']:.3f}" if "own_return" in final else "-",
        percent(final.get("share_of_ceiling")),
    )

"""A run, or several side by side, as one page that can be looked at, sent and cited: it holds everything it needs."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hopplus
from hopplus.errors import InputError
from hopplus.evaluation.statistics import FEWEST
from hopplus.files import write_text
from hopplus.report.charts import Chart, Curve, heat_map, line_chart
from hopplus.report.figures import COLOURS
from hopplus.report.replay import SETS, replays
from hopplus.report.style import seat_colour

if TYPE_CHECKING:
    from hopplus.training.run import Run

NAME = "report.html"
SETS_OF_SEVERAL = 1
"""Where several runs are on one page, each is shown beside itself and so many sets, lest the page grow too large."""
STANDS_OUT = 4.0
"""Seats differ, if their means lie so many standard errors of a difference apart, which hardly happens by chance."""
LARGEST_PICTURE = 2_000_000
RECALL = "moa_recall_"
TITLES = {
    "own_return": "Return of those who like what the game pays for",
    "length": "Steps an episode",
    "entropy": "Entropy of the policy",
    "kl": "Change of the policy in an update (KL)",
    "value_loss": "Value loss",
    "explained_variance": "Explained variance of the value",
    "moa_top1": "Model of others: share of actions foreseen",
    "moa_cross_entropy": "Model of others: cross-entropy",
    "belief_entropy": "Entropy of beliefs",
    "belief_accuracy": "Beliefs that came true",
    "world_exact": "World model: next states foreseen exactly",
    "search_depth": "Depth of searches",
    "search_value_error": "Error of what searches expect",
    "top1": "Share of actions foreseen",
    "loss": "Loss",
    "state_exact": "Next states foreseen exactly",
}
"""Of the curves that a page shows, beside the return, where a run has them."""


@dataclass(frozen=True)
class Table:
    """A table of a page; the first column heads the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A picture that lies in the run's directory."""

    title: str
    data: str


@dataclass
class Part:
    """What the page says of one run."""

    name: str
    state: str
    settings: Table
    remarks: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    replays: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """What the page says of several runs together."""

    tables: Sequence[Table]
    charts: Sequence[Chart]


def write_report(runs: Sequence["Run"], path: Path, sets: int | None = SETS) -> Path:
    """Write the page of some runs, replays with so many held-out sets among it, or none at all; InputError where the
    files of one cannot be read."""
    write_text(path, page_of(runs, sets))
    return path


def page_of(runs: Sequence["Run"], sets: int | None = SETS) -> str:
    """The page as HTML."""
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    names = short_names([run.path for run in runs])
    shown = sets if sets is None or len(runs) == 1 else min(sets, SETS_OF_SEVERAL)
    parts = [part_of(run, name, shown) for run, name in zip(runs, names, strict=True)]
    asset = {name: (resources.files("hopplus.report") / "assets" / name).read_text("utf-8") for name in ASSETS}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: Markup(_harmless(value))
    return environment.from_string(asset["page.html"]).render(
        title=f"{' and '.join(names[:3])}{' and others' if len(names) > 3 else ''}",
        version=hopplus.__version__,
        runs=parts,
        comparison=_compared(runs, names) if len(runs) > 1 else None,
        style=Markup(asset["page.css"]),
        script=Markup(asset["page.js"]),
        plotly=Markup(get_plotlyjs()),
    )


ASSETS = ("page.html", "page.css", "page.js")


def short_names(paths: Sequence[Path]) -> list[str]:
    """The runs' directories by their last parts, as many as are needed to tell them apart."""
    resolved = [path.resolve() for path in paths]
    for parts in range(1, 10):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _harmless(value: Any) -> str:
    """JSON that cannot end the script in which it stands."""
    from hopplus.training.run import as_json

    return as_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -------------------------------------------------------------------------------------------------------- one run


def part_of(run: "Run", name: str, sets: int | None) -> Part:
    """Everything that a run's files have to tell, and replays with so many held-out sets, unless it is None."""
    lines, evaluations = run.metrics(), run.evaluations()
    final = evaluations.get("final")
    part = Part(name, _state(run, lines, final), _settings(run))
    part.tables.append(_what_was_run(run, lines))
    if "fit" not in run.config:
        _add_results(part, run, final, evaluations)
    part.charts += learning_charts(run, lines) + adaptation_charts(evaluations) + crossplay_charts(evaluations)
    part.pictures += _pictures(run)
    if sets is not None and "fit" not in run.config:
        _add_replays(part, run, sets)
    return part


def _state(run: "Run", lines: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None) -> str:
    from hopplus.training.run import is_locked

    if not lines:
        return "Nothing has been learnt yet."
    steps = f"{lines[-1].get('steps', lines[-1].get('iteration', 0)):,} {'epochs' if 'fit' in run.config else 'steps'}"
    if final is None:
        return f"{'Still in training' if is_locked(run.path) else 'Unfinished'}, after {steps} a seed."
    if "own_return" not in final:
        return f"Finished after {steps} a seed."
    share = f", {100 * final['share_of_ceiling']:.1f}% of the ceiling" if final["share_of_ceiling"] else ""
    return (
        f"Finished after {steps} a seed: mean return {final['mean_return']:.3f} of {final['ceiling']:g}{share};"
        f" learners {final['own_return']:.3f}."
    )


def _what_was_run(run: "Run", lines: Sequence[Mapping[str, Any]]) -> Table:
    config = run.config
    training = config.get("training", {})
    minutes = (
        f"{lines[-1]['seconds'] / 60:.1f} minutes, all seeds together" if lines and "seconds" in lines[-1] else "-"
    )
    rows = [
        ("what", config.get("recipe") or f"fit of {config.get('fit')}"),
        ("game", training.get("game") or config.get("game", "-")),
        ("who plays", training.get("cast") or "; ".join(config.get("data", {}).get("casts", [])) or "-"),
        ("seeds", ", ".join(map(str, run.seeds))),
        ("time", minutes),
        ("machine", config.get("machine", "-")),
        ("versions", ", ".join(f"{name} {number}" for name, number in config.get("versions", {}).items())),
        ("commit", config.get("commit") or "-"),
        ("started", config.get("started", "-")),
    ]
    return Table("What was run", ("", ""), [(key, str(value)) for key, value in rows])


def _settings(run: "Run") -> Table:
    settings = {**run.config.get("training", {}), **run.config.get("settings", {})}
    return Table("All settings", ("setting", "value"), [(key, json.dumps(value)) for key, value in settings.items()])


def _add_results(part: Part, run: "Run", final: Mapping[str, Any] | None, evaluations: Mapping[str, Any]) -> None:
    if final is not None and "per_seat" in final:
        rows = [(str(row["seat"]), f"{row['mean']:.3f}", f"{row['standard_error']:.3f}") for row in final["per_seat"]]
        caption = f"Greedy play after the training: {final['episodes']} episodes a seed"
        part.tables.append(Table(caption, ("seat", "mean return", "standard error"), rows))
        if (verdict := seat_verdict(run, final)) is not None:
            part.remarks.append(verdict)
    rows = [
        (
            row["set"],
            f"{row['score']['mean']:.3f}" + _bracket(row["score"]),
            _share(row["score"].get("share_of_oracle")),
            ", ".join(row["met_before"]) or "nobody",
        )
        for name, found in evaluations.items()
        if name.startswith("adapt-")
        for row in found.get("rows", [])
        if Path(row["focal"]).name == run.path.name
    ]
    if rows:
        head = ("with", "own reward, episodes 6 to 10", "of the oracle", "met in training")
        part.tables.append(Table("Meeting players again and again, weights frozen", head, rows))


def _bracket(score: Mapping[str, Any]) -> str:
    return "" if score["low"] is None else f" [{score['low']:.3f}, {score['high']:.3f}]"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def seat_verdict(run: "Run", final: Mapping[str, Any]) -> str | None:
    """Whether seats differ that ought to be alike: all of them learn with one parameter set or by the same rule, in
    self-play. None where they need not be alike."""
    seats = final["per_seat"]
    if run.config["training"]["cast"] != "self-play" or len(final["learners"]) != len(seats):
        return None
    means = np.array([row["mean"] for row in seats])
    error = float(np.sqrt(2 * np.mean([row["standard_error"] ** 2 for row in seats])))
    apart = float(means.max() - means.min())
    alike = apart <= STANDS_OUT * error
    return (
        f"Seats: the highest mean is {apart:.3f} above the lowest, {apart / max(error, 1e-12):.1f} standard errors of a"
        f" difference ({error:.3f}): {'no seat stands out' if alike else 'the seats differ, and ought not to'}."
    )


def _add_replays(part: Part, run: "Run", sets: int) -> None:
    from hopplus.training import checkpoint

    if not checkpoint.found(run.checkpoints):
        part.remarks.append("There is no replay: nothing has been saved yet.")
        return
    try:
        part.replays += replays(run, sets)
    except InputError as error:
        part.remarks.append(f"There is no replay: {error}.")


def _pictures(run: "Run") -> list[Picture]:
    """What diagnoses have drawn."""
    found = []
    for file in sorted((run.path / "diagnostics").rglob("*.png")):
        if file.stat().st_size <= LARGEST_PICTURE:
            data = base64.b64encode(file.read_bytes()).decode()
            title = f"{file.parent.name}: {file.stem.replace('-', ' ').replace('_', ' ')}"
            found.append(Picture(title, f"data:image/png;base64,{data}"))
    return found


# --------------------------------------------------------------------------------------------------------- charts


def learning_charts(run: "Run", lines: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """The return and other figures, a line a seat that learns, means over seeds with their intervals; and how well
    others' actions were foreseen, a line an action."""
    seats, axes = run.config.get("learners", [0]), ("epochs" if "fit" in run.config else "environment steps", "minutes")
    charts = []
    for name, title in ({"return": "Return in training"} | TITLES).items():
        curves = [_curve(lines, run.seeds, name, seat) for seat in seats] if any(name in line for line in lines) else []
        known = [curve for curve in curves if any(value is not None for value in curve.values)]
        if name == "return" and (judged := _judged(lines, run.seeds, seats)) is not None:
            known.append(judged)
        if known:
            charts.append(line_chart(title, known, *axes))
    recalls = sorted({name for line in lines[:1] for name in line if name.startswith(RECALL)})
    if recalls:
        by_action = [
            _over_seeds(lines, run.seeds, _mean_of(name, seats), name.removeprefix(RECALL)) for name in recalls
        ]
        charts.append(line_chart("Model of others: share foreseen, by action", by_action, *axes))
    return charts


def _curve(lines: Sequence[Mapping[str, Any]], seeds: Sequence[int], name: str, seat: int) -> Curve:
    """One figure at one seat over a training."""

    def value(line: Mapping[str, Any]) -> float | None:
        found = line.get(name)
        return found[seat] if isinstance(found, list) else found

    by_seat = any(isinstance(line.get(name), list) for line in lines)
    return _over_seeds(lines, seeds, value, f"seat {seat}" if by_seat else name, seat_colour(seat))


def _judged(lines: Sequence[Mapping[str, Any]], seeds: Sequence[int], seats: Sequence[int]) -> Curve | None:
    """The learners' mean in greedy evaluations on the way."""
    judged = [line for line in lines if "evaluation" in line]
    if not judged:
        return None
    return replace(_over_seeds(judged, seeds, _mean_of("evaluation", seats), "greedy", "#7f7f7f"), dashed=True)


def _mean_of(name: str, seats: Sequence[int]) -> Callable[[Mapping[str, Any]], float | None]:
    """A figure of a line, mean over some seats; None where it is not known of one."""

    def mean(line: Mapping[str, Any]) -> float | None:
        values = line.get(name, [])
        known = [values[seat] for seat in seats if seat < len(values) and values[seat] is not None]
        return float(np.mean(known)) if len(known) == len(seats) else None

    return mean


def _over_seeds(
    lines: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    value: Callable[[Mapping[str, Any]], float | None],
    name: str,
    colour: str | None = None,
) -> Curve:
    """Mean over seeds and its interval (Student's t), as far as all seeds have come."""
    from scipy import stats

    by_seed = [[line for line in lines if line["seed"] == seed] for seed in seeds]
    length = min(map(len, by_seed))
    values = np.array([[_number(value(line)) for line in own[:length]] for own in by_seed], float)
    mean, low, high = values.mean(0), None, None
    if len(seeds) >= FEWEST:
        half = stats.t.ppf(0.975, len(seeds) - 1) * values.std(0, ddof=1) / len(seeds) ** 0.5
        low, high = _plain(mean - half), _plain(mean + half)
    first = by_seed[0][:length]
    steps = [float(line.get("steps", line.get("iteration", 0))) for line in first]
    minutes = [round(line.get("seconds", 0) / 60, 3) for line in first]
    return Curve(name, steps, _plain(mean), low, high, minutes, colour)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _plain(values: np.ndarray) -> list[float | None]:
    return [round(float(value), 5) if np.isfinite(value) else None for value in values]


def adaptation_charts(evaluations: Mapping[str, Any]) -> list[Chart]:
    """Own reward by episode, a chart a set of co-players, beside the oracle where it is known."""
    rows = [row for name, found in evaluations.items() if name.startswith("adapt-") for row in found.get("rows", [])]
    panels = dict.fromkeys((row["set"], row["seating"]) for row in rows)
    charts = []
    for name, seating in panels:
        chosen = [row for row in rows if (row["set"], row["seating"]) == (name, seating)]
        curves = [_by_episode(row) for row in {json.dumps(row["focal"]): row for row in chosen}.values()]
        oracle = [point for point in chosen[0]["curve"] if point["oracle"] is not None]
        if oracle:
            episodes, values = ([point[key] for point in oracle] for key in ("episode", "oracle"))
            curves.append(Curve("oracle", episodes, values, colour="#7f7f7f", dashed=True))
        title = f"Own reward with {name}" if seating == "one" else f"Own reward, three with one of {name}"
        charts.append(line_chart(title, curves, "episode with the same players"))
    return charts


def _by_episode(row: Mapping[str, Any]) -> Curve:
    columns = {key: [point[key] for point in row["curve"]] for key in ("episode", "mean", "low", "high")}
    band = (None, None) if None in columns["low"] else (columns["low"], columns["high"])
    return Curve(Path(row["focal"]).name, columns["episode"], columns["mean"], *band)


def crossplay_charts(evaluations: Mapping[str, Any]) -> list[Chart]:
    """Matrices of who earns what with whom."""
    charts = []
    for name, found in evaluations.items():
        if name.startswith("crossplay-"):
            rows, columns = found["rows"], found["columns"]
            values = np.full((len(rows), len(columns)), np.nan)
            for cell in found["cells"]:
                values[rows.index(cell["row"]), columns.index(cell["column"])] = cell["mean"]
            names = [[Path(name).name for name in side] for side in (rows, columns)]
            title = "Cross-play: own reward of the rows with the columns"
            charts.append(heat_map(title, names[0], names[1], values, "own reward"))
    return charts


# ------------------------------------------------------------------------------------------------------- several runs


def _compared(runs: Sequence["Run"], names: Sequence[str]) -> Comparison:
    """Runs side by side: what each is, how good, and their mean returns over steps and minutes."""
    rows, curves = [], []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        lines, final = run.metrics(), run.evaluations().get("final") or {}
        training = run.config.get("training", {})
        rows.append(
            (
                name,
                run.config.get("recipe") or f"fit of {run.config.get('fit')}",
                training.get("game") or run.config.get("game", "-"),
                training.get("cast", "-"),
                str(len(run.seeds)),
                f"{lines[-1]['steps']:,}" if lines and "steps" in lines[-1] else "-",
                f"{final['own_return']:.3f}" if "own_return" in final else "-",
                _share(final.get("share_of_ceiling")),
            )
        )
        if any("return" in line for line in lines):
            own = _mean_of("return", run.config["learners"])
            curves.append(_over_seeds(lines, run.seeds, own, name, COLOURS[number % len(COLOURS)]))
    head = ("run", "recipe", "game", "who plays", "seeds", "steps", "learners' return", "of the ceiling")
    charts = []
    if curves:
        charts.append(line_chart("Return in training", curves, "environment steps", "minutes"))
    met = {name: row for run in runs for name, row in run.evaluations().items() if name.startswith("adapt-")}
    charts += adaptation_charts(met)
    return Comparison([Table("Side by side", head, rows)], charts)

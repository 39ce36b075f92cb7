"""A run, or several side by side, as one page that can be looked at, sent and cited: it holds everything it needs."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hopplus
from hopplus.diagnostics.seats import spread_test
from hopplus.errors import InputError
from hopplus.evaluation.statistics import FEWEST
from hopplus.files import write_text
from hopplus.notation import percent, short_names, with_interval
from hopplus.report.charts import LINE_COLOURS, MOST_POINTS, Chart, Curve, heat_map, line_chart, places
from hopplus.report.replay import SETS, replays
from hopplus.report.style import seat_colour

if TYPE_CHECKING:
    from hopplus.training.run import Run

NAME = "report.html"
SETS_OF_SEVERAL = 1
"""Where several runs are on one page, each is shown beside itself and so many sets, lest the page grow too large."""
UNLIKELY = 0.01
"""Seats are said to differ, if chance alone would bring that about less often than this."""
LARGEST_PICTURE = 2_000_000
LARGEST_PAGE = 10_000_000
"""In bytes: what can still be sent by mail. Pictures, then replays, are left out of a page that would be larger."""
FEWEST_POINTS = 50
"""Where several runs are on one page, they share what points a curve has; each has so many at least."""
Line = Mapping[str, Any]
Series = Sequence[Sequence[Line]]
"""Lines of metrics.jsonl by seed, all seeds having as many."""
RECALLS = ("moa_recall_", "recall_")
"""How the names of figures begin that are of one action: in a training, and in a fit."""
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
    "cross_entropy": "Cross-entropy of actions",
    "exact": "Next states foreseen exactly",
    "exact_10": "States foreseen exactly ten steps ahead",
    "reward_mse": "Squared error of rewards",
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
    told = [read_told(run, name) for run, name in zip(runs, names, strict=True)]
    points = max(FEWEST_POINTS, MOST_POINTS // len(runs))
    parts = [part_of(one, shown, points) for one in told]
    comparison = _compared(told, points) if len(runs) > 1 else None
    asset = {name: (resources.files("hopplus.report") / "assets" / name).read_text("utf-8") for name in ASSETS}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: Markup(_harmless(value))
    template = environment.from_string(asset["page.html"])

    def render() -> str:
        return template.render(
            title=f"{' and '.join(names[:3])}{' and others' if len(names) > 3 else ''}",
            version=hopplus.__version__,
            runs=parts,
            comparison=comparison,
            style=Markup(asset["page.css"]),
            script=Markup(asset["page.js"]),
            plotly=Markup(get_plotlyjs()),
        )

    page = render()
    while (excess := len(page.encode()) - LARGEST_PAGE) > 0:
        if not leave_out(parts, excess):
            raise InputError(f"the page would have {(LARGEST_PAGE + excess) / 1e6:.0f} MB: take fewer runs at a time")
        page = render()
    return page


ASSETS = ("page.html", "page.css", "page.js")


def leave_out(parts: Sequence[Part], excess: int) -> bool:
    """Take out of a page what makes up so many bytes, pictures first, then replays, the last ones first, and say so
    there; False where neither is left."""
    freed = 0
    for kind in ("pictures", "replays"):
        for part in reversed(parts):
            things, count = getattr(part, kind), 0
            while things and freed < excess:
                freed += len(_harmless(things.pop()))
                count += 1
            if count:
                part.remarks.append(f"Left out, lest the page grow too large: {count} {kind}.")
    return freed > 0


def _harmless(value: Any) -> str:
    """JSON that cannot end the script in which it stands."""
    from hopplus.training.run import as_json

    return as_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -------------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Told:
    """What a run's files hold, read once."""

    run: "Run"
    name: str
    lines: Sequence[Line]
    evaluations: Mapping[str, Any]


def read_told(run: "Run", name: str) -> Told:
    """A run's files; InputError where one is damaged."""
    return Told(run, name, run.metrics(), run.evaluations())


def part_of(told: Told, sets: int | None, points: int = MOST_POINTS) -> Part:
    """Everything that a run's files have to tell, in curves of at most so many points, and replays with so many
    held-out sets, unless it is None."""
    with _as_a_page_needs_them(told.run):
        part = _without_replays(told, points)
    if sets is not None and "fit" not in told.run.config:
        _add_replays(part, told.run, sets)
    return part


@contextlib.contextmanager
def _as_a_page_needs_them(run: "Run") -> Iterator[None]:
    """Files that are whole but lack something, as those that somebody has changed, end in one sentence too."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        lack = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"the files of {run.path} are not as a page needs them: {lack}") from error


def _without_replays(told: Told, points: int) -> Part:
    run, lines, evaluations = told.run, told.lines, told.evaluations
    final = evaluations.get("final")
    part = Part(told.name, _state(run, lines, final), _settings(run))
    part.tables.append(_what_was_run(run, lines))
    if "fit" not in run.config:
        _add_results(part, run, final, evaluations)
    met = [(told.name, how, row) for how, row in met_rows(evaluations)]
    part.charts += learning_charts(run, lines, points) + adaptation_charts(met) + crossplay_charts(evaluations)
    part.pictures += _pictures(run)
    return part


def _state(run: "Run", lines: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None) -> str:
    if not lines:
        return "Nothing has been learnt yet."
    far = max(line.get("steps", line.get("iteration", 0)) for line in lines[-len(run.seeds) :])
    steps = f"{far:,} {'epochs' if 'fit' in run.config else 'steps'}"
    state = run.state(lines, final)
    if final is None or state != "finished":
        return f"{'Still in training' if state == 'training' else 'Unfinished'}, after {steps} a seed."
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
        over = "seeds" if len(run.seeds) > 1 else "episodes"
        caption = f"Greedy play after the training: {final['episodes']} episodes a seed; standard errors over {over}"
        part.tables.append(Table(caption, ("seat", "mean return", "standard error"), rows))
        if (verdict := seat_verdict(run, final)) is not None:
            part.remarks.append(verdict)
    met = met_rows(evaluations)
    if met:
        head = ("with", "how", "own reward", "of the oracle", "met in training")
        rows = [
            (
                row["set"],
                how,
                f"{with_interval(row['score'])} ({_when(row['score'])})",
                percent(row["score"].get("share_of_oracle")),
                ", ".join(row["met_before"]) or "nobody",
            )
            for how, row in met
        ]
        part.tables.append(Table(f"Meeting the same players again and again; {_intervals(met)}", head, rows))


def met_rows(evaluations: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What `hopplus adapt` found, every row with how it was done."""
    found = []
    for name, evaluation in evaluations.items():
        for row in evaluation.get("rows", []) if name.startswith("adapt-") else []:
            parts = (
                "one of them" if row["seating"] == "one" else "three of them with one",
                "weights updated" if row["update_weights"] else "weights frozen",
                "greedy" if row["greedy"] else "",
                "" if row["protocol"] == "few-shot" else f"protocol {row['protocol']}",
                "with search" if name.endswith("-search-on") else "",
            )
            found.append((", ".join(part for part in parts if part), row))
    return found


def _intervals(met: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """What the intervals of these rows are of."""
    return "; ".join(dict.fromkeys(row["score"]["interval"] for _, row in met))


def _when(score: Mapping[str, Any]) -> str:
    return f"{score['unit']} {score['first']} to {score['last']}"


def seat_verdict(run: "Run", final: Mapping[str, Any]) -> str | None:
    """Whether seats differ that ought to be alike, all of them learning in self-play; None where they need not be
    alike, or where there is but one seed."""
    by_seat = [row["by_seat"] for row in final["per_seed"] if "by_seat" in row]
    everybody = len(final["learners"]) == len(final["per_seat"])
    if run.config["training"]["cast"] != "self-play" or not everybody or len(by_seat) < 2:
        return None
    apart, chance = spread_test(np.array(by_seat))
    return (
        f"Seats: the highest mean is {apart:.3f} above the lowest; as much or more comes about by chance in"
        f" {100 * chance:.2g}% of cases: {'no seat stands out' if chance > UNLIKELY else 'the seats differ'}."
    )


def _add_replays(part: Part, run: "Run", sets: int) -> None:
    from hopplus.training import checkpoint
    from hopplus.training.run import check_training

    if not checkpoint.found(run.checkpoints):
        part.remarks.append("There is no replay: nothing has been saved yet.")
        return
    try:
        part.replays += replays(check_training(run), sets)
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


def series_of(lines: Sequence[Line], seeds: Sequence[int], points: int = MOST_POINTS) -> Series:
    """The lines of every seed that has some, the longest first, at most so many of each: a seed that has reached its
    target stays where it was."""
    found: dict[int, list[Line]] = {seed: [] for seed in seeds}
    for line in lines:
        if line["seed"] in found:
            found[line["seed"]].append(line)
    by_seed = sorted((own for own in found.values() if own), key=len, reverse=True)
    chosen = places(len(by_seed[0]), points) if by_seed else []
    return [[own[min(place, len(own) - 1)] for place in chosen] for own in by_seed]


def learning_charts(run: "Run", lines: Sequence[Line], points: int = MOST_POINTS) -> list[Chart]:
    """The return and other figures, a line a seat that learns, means over seeds with their intervals; and how well
    others' actions were foreseen, a line an action."""
    series = series_of(lines, run.seeds, points)
    judged_lines = [line for line in lines if "evaluation" in line]
    names = {name for own in series for line in own for name in line}
    seats, axes = run.config.get("learners", [0]), ("epochs" if "fit" in run.config else "environment steps", "minutes")
    charts = []
    for name, title in ({"return": "Return in training"} | TITLES).items():
        curves = [_curve(series, name, seat) for seat in seats] if name in names else []
        known = [curve for curve in curves if any(value is not None for value in curve.values)]
        if name == "return" and judged_lines:
            judged = _over_seeds(series_of(judged_lines, run.seeds, points), _mean_of("evaluation", seats), "greedy")
            known.append(replace(judged, colour="#7f7f7f", dashed=True))
        if known:
            charts.append(line_chart(title, known, *axes))
    recalls = sorted(name for name in names if name.startswith(RECALLS))
    if recalls:
        by_action = [_over_seeds(series, _mean_of(name, seats), name.split("recall_")[1]) for name in recalls]
        charts.append(line_chart("Model of others: share foreseen, by action", by_action, *axes))
    return charts


def _curve(series: Series, name: str, seat: int) -> Curve:
    """One figure at one seat over a training."""

    def value(line: Mapping[str, Any]) -> float | None:
        found = line.get(name)
        return found[seat] if isinstance(found, list) else found

    by_seat = any(isinstance(line.get(name), list) for own in series for line in own)
    return _over_seeds(series, value, f"seat {seat}" if by_seat else name, seat_colour(seat))


def _mean_of(name: str, seats: Sequence[int]) -> Callable[[Mapping[str, Any]], float | None]:
    """A figure of a line, mean over some seats; None where it is not known of one."""

    def mean(line: Mapping[str, Any]) -> float | None:
        found = line.get(name)
        values = [found[seat] for seat in seats] if isinstance(found, list) else [found]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    return mean


def _over_seeds(series: Series, value: Callable[[Line], float | None], name: str, colour: str | None = None) -> Curve:
    """Mean over seeds and its interval (Student's t)."""
    from scipy.special import stdtrit

    first = series[0] if series else []
    values = np.array([[_number(value(line)) for line in own] for own in series], float).reshape(
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


def adaptation_charts(met: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[Chart]:
    """Own reward by episode of those who are named, with how each was judged; a chart a set of co-players and a way to
    judge, beside the oracle where it is known."""
    panels = dict.fromkeys((row["set"], how) for _, how, row in met)
    charts = []
    for panel in panels:
        chosen = [(name, row) for name, how, row in met if (row["set"], how) == panel]
        curves = [_by_episode(name, row) for name, row in chosen]
        oracle = [point for point in chosen[0][1]["curve"] if point["oracle"] is not None]
        if oracle:
            episodes, values = ([point[key] for point in oracle] for key in ("episode", "oracle"))
            curves.append(Curve("oracle", episodes, values, colour="#7f7f7f", dashed=True))
        bands = _intervals([("", row) for _, row in chosen])
        title = f"Own reward with {panel[0]}; {panel[1]}; bands: {bands}"
        charts.append(line_chart(title, curves, "episode with the same players"))
    return charts


def _by_episode(name: str, row: Mapping[str, Any]) -> Curve:
    columns = {key: [point[key] for point in row["curve"]] for key in ("episode", "mean", "low", "high")}
    band = (None, None) if None in columns["low"] else (columns["low"], columns["high"])
    return Curve(name, columns["episode"], columns["mean"], *band)


def crossplay_charts(evaluations: Mapping[str, Any]) -> list[Chart]:
    """Matrices of who earns what with whom."""
    charts = []
    for name, found in evaluations.items():
        if name.startswith("crossplay-"):
            rows, columns = found["rows"], found["columns"]
            values = np.full((len(rows), len(columns)), np.nan)
            for cell in found["cells"]:
                values[rows.index(cell["row"]), columns.index(cell["column"])] = cell["mean"]
            names = [short_names(side) for side in (rows, columns)]
            title = "Cross-play: own reward of the rows with the columns"
            charts.append(heat_map(title, names[0], names[1], values, "own reward"))
    return charts


# ------------------------------------------------------------------------------------------------------- several runs


def _compared(every: Sequence[Told], points: int) -> Comparison:
    """Runs side by side: what each is, how good, and their mean returns over steps and minutes."""
    rows, curves = [], []
    for number, told in enumerate(every):
        run, name, lines, final = told.run, told.name, told.lines, told.evaluations.get("final") or {}
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
                percent(final.get("share_of_ceiling")),
            )
        )
        if any("return" in line for line in lines):
            own = _mean_of("return", run.config.get("learners", [0]))
            colour = LINE_COLOURS[number % len(LINE_COLOURS)]
            curves.append(_over_seeds(series_of(lines, run.seeds, points), own, name, colour))
    head = ("run", "recipe", "game", "who plays", "seeds", "steps", "learners' return", "of the ceiling")
    charts = []
    if curves:
        charts.append(line_chart("Return in training", curves, "environment steps", "minutes"))
    met = [(told.name, *one) for told in every for one in met_rows(told.evaluations)]
    charts += adaptation_charts(met)
    return Comparison([Table("Side by side", head, rows)], charts)

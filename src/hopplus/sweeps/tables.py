"""Tables and curves of a sweep's results: Markdown, CSV, LaTeX, PNG and PDF."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import make_directory, write_text
from hopplus.core.formatting import duration
from hopplus.core.statistics import Comparison, estimate
from hopplus.sweeps.results import RETURN, Results, Row, as_plain
from hopplus.training.run import as_json
from hopplus.visualization.export import write_csv
from hopplus.visualization.figures import COLOURS, label_steps, new_figure, save_figure

DIGITS = 3
STYLES = ("-", "--", ":", "-.")


def write_all(results: Results, directory: Path) -> list[Path]:
    """Writes all tables and figures of a sweep, and the results they are made from."""
    make_directory(directory)
    files = {name: directory / name for name in ("results.md", "results.csv", "results.tex", "results.json")}
    write_text(files["results.md"], markdown(results))
    write_csv(files["results.csv"], long_rows(results))
    write_text(files["results.tex"], latex(results))
    write_text(files["results.json"], as_json(as_plain(results)) + "\n")
    figures = [directory / "curves.png", directory / "curves.pdf"]
    for path in figures:
        draw_curves(path, results)
    return [*files.values(), *figures]


def table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows: labels, then mean and interval of every column."""
    axes, columns = results.axes(), results.columns()
    ceiling = {row.columns[RETURN].ceiling for row in results.rows}
    head = [*axes, "seeds", *columns]
    if len(ceiling) == 1 and None not in ceiling:
        head[head.index(RETURN)] = f"{RETURN} (of {ceiling.pop():g})"
    body = []
    for row in results.rows:
        cells = [row.columns[name].estimate.text(DIGITS) if name in row.columns else "-" for name in columns]
        body.append([*(row.labels.get(axis, "-") for axis in axes), str(len(row.seeds)), *cells])
    return head, body


def differences(results: Results) -> tuple[list[str], list[list[str]]] | None:
    """Returns differences from the reference, in bold where the interval excludes 0; None without a reference."""
    axes, columns, body = results.axes(), results.columns(), []
    for row in results.rows:
        comparisons = [results.beside_reference(row, name) for name in columns]
        if any(comparisons):
            body.append([*(row.labels.get(axis, "-") for axis in axes), *map(_difference, comparisons)])
    return ([*axes, *columns], body) if body else None


def _difference(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    difference = comparison.difference
    text = f"{difference.value:+.{DIGITS}f}"
    if difference.low is not None and difference.high is not None:
        text += f" [{difference.low:+.{DIGITS}f}, {difference.high:+.{DIGITS}f}]"
    return f"**{text}**" if comparison.outside_noise else text


def markdown(results: Results) -> str:
    """Returns the results page."""
    parts = [f"# {results.title}", _markdown_table(*table(results))]
    first = next(iter(results.rows[0].columns.values())).estimate
    parts.append(
        f"Means over training seeds ({first.meaning}). `{RETURN}`: mean return of the learners in 1,000 greedy episodes"
        " of their training cast. Other columns: mean return, or, for a named set of co-players, the share of the"
        " oracle's return."
    )
    beside = differences(results)
    if beside is not None:
        parts += [f"Difference from {results.reference}, in bold where the interval excludes 0:"]
        parts += [_markdown_table(*beside)]
    if results.missing:
        parts.append(f"Not finished, and not in the table: {', '.join(results.missing)}.")
    parts += ["![Return in training](curves.png)", "Commands:", f"```text\n{_commands(results.rows)}\n```"]
    machines = "; ".join(sorted({machine for row in results.rows for machine in row.machines}))
    commits = ", ".join(sorted({str(commit) for row in results.rows for commit in row.commits}))
    seconds = sum(row.seconds for row in results.rows)
    parts.append(f"Machine: {machines}. Commit: {commits}. Training took {duration(seconds)} in all.")
    return "\n\n".join(parts) + "\n"


def _commands(rows: Sequence[Row]) -> str:
    return "\n".join(command for row in rows for command in row.commands)


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def latex(results: Results) -> str:
    """Returns the table in LaTeX, for the package booktabs."""
    head, body = table(results)
    labels = len(results.axes())
    out = io.StringIO()
    out.write(f"% {results.title}; needs \\usepackage{{booktabs}}\n")
    out.write(f"\\begin{{tabular}}{{{'l' * labels}{'r' * (len(head) - labels)}}}\n\\toprule\n")
    out.write(" & ".join(map(escaped, head)) + " \\\\\n\\midrule\n")
    for line in body:
        out.write(" & ".join(map(escaped, line)) + " \\\\\n")
    out.write("\\bottomrule\n\\end{tabular}\n")
    return out.getvalue()


def escaped(text: str) -> str:
    """Escapes a text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def long_rows(results: Results) -> list[dict[str, Any]]:
    """Returns one row per value (long format)."""
    axes, rows = list(dict.fromkeys(axis for row in results.rows for axis in row.labels)), []
    for row in results.rows:
        for name, column in row.columns.items():
            for seed, value in zip(row.seeds, column.per_seed, strict=True):
                labels = {axis: row.labels.get(axis, "") for axis in axes}
                figure = {"game": row.game, "steps": row.steps, "figure": name, "unit": column.unit}
                rows.append({**{**figure, **labels}, "seed": seed, "value": value})
    return rows


def draw_curves(path: Path, results: Results) -> None:
    """Draws the training return by environment step, with intervals over seeds; one panel per game."""
    games = list(dict.fromkeys(row.game for row in results.rows))
    figure, panels = new_figure(1, len(games))
    for panel, game in zip(panels[0], games, strict=True):
        rows = [row for row in results.rows if row.game == game]
        axes = [axis for axis in results.axes() if len({row.labels.get(axis) for row in rows}) > 1] or results.axes()
        for number, row in enumerate(rows):
            places = [place for place in range(len(row.curve["steps"])) if _is_complete(row, place)]
            steps = [row.curve["steps"][place] for place in places]
            points = [estimate(np.array([[seed[place]] for seed in row.curve["return"]])) for place in places]
            colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
            label = ", ".join(row.labels.get(axis, "-") for axis in axes)
            panel.plot(steps, [point.value for point in points], style, color=colour, label=label)
            if points and points[0].low is not None:
                low, high = ([getattr(point, side) for point in points] for side in ("low", "high"))
                panel.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set_title(game, fontsize=9)
        label_steps(panel)
        panel.legend(fontsize=7)
    panels[0][0].set_ylabel("return in training", fontsize=8)
    save_figure(path, figure)


def _is_complete(row: Row, place: int) -> bool:
    """Returns whether every seed has a finished episode at a point of the curve."""
    return all(seed[place] is not None for seed in row.curve["return"])

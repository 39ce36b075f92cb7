"""A sweep's results for a paper: Markdown, CSV, LaTeX, and curves."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.evaluation.statistics import estimate
from hopplus.files import make_directory, write_text
from hopplus.notation import duration
from hopplus.report.figures import COLOURS, label_steps, new_figure, save_figure
from hopplus.report.tables import write_csv
from hopplus.sweeps.results import RETURN, Results, Row, as_plain
from hopplus.training.run import as_json

DIGITS = 3
STYLES = ("-", "--", ":", "-.")


def write_all(results: Results, directory: Path) -> list[Path]:
    """Every table and figure of a sweep, and what they are made from."""
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
    """Head and cells: labels, then every column's mean and interval."""
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
    """What every row has more than the reference, in bold where the interval leaves out 0; None without one."""
    axes, columns, body = results.axes(), results.columns(), []
    for row in results.rows:
        found = [results.beside_reference(row, name) for name in columns]
        if not any(found):
            continue
        cells = []
        for one in found:
            text = "-" if one is None else f"{one.difference.value:+.{DIGITS}f}"
            if one is not None and one.difference.low is not None and one.difference.high is not None:
                text += f" [{one.difference.low:+.{DIGITS}f}, {one.difference.high:+.{DIGITS}f}]"
            cells.append(f"**{text}**" if one is not None and one.outside_noise else text)
        body.append([*(row.labels.get(axis, "-") for axis in axes), *cells])
    return ([*axes, *columns], body) if body else None


def markdown(results: Results) -> str:
    """The whole page."""
    parts = [f"# {results.title}", _markdown_table(*table(results))]
    first = next(iter(results.rows[0].columns.values())).estimate
    parts.append(
        f"Means over training seeds ({first.meaning}). `{RETURN}`: the learners' own reward in 1,000 greedy episodes of"
        " the cast that they were trained in. Other columns: own reward, or, where a set of others is named, the share"
        " of what the oracle earns with it."
    )
    beside = differences(results)
    if beside is not None:
        parts += [f"More than {results.reference}, in bold where the interval leaves out 0:", _markdown_table(*beside)]
    if results.missing:
        parts.append(f"Not done, and not in the table: {', '.join(results.missing)}.")
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
    """The table for a paper, for the package booktabs."""
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
    """A text as LaTeX prints it."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def long_rows(results: Results) -> list[dict[str, Any]]:
    """A row for every figure, as statistics programs like it."""
    axes, found = list(dict.fromkeys(axis for row in results.rows for axis in row.labels)), []
    for row in results.rows:
        for name, column in row.columns.items():
            for seed, value in zip(row.seeds, column.per_seed, strict=True):
                labels = {axis: row.labels.get(axis, "") for axis in axes}
                figure = {"game": row.game, "steps": row.steps, "figure": name, "unit": column.unit}
                found.append({**{**figure, **labels}, "seed": seed, "value": value})
    return found


def draw_curves(path: Path, results: Results) -> None:
    """The return in training, by environment step, with its interval over seeds; a panel a game."""
    games = list(dict.fromkeys(row.game for row in results.rows))
    figure, panels = new_figure(1, len(games))
    for panel, game in zip(panels[0], games, strict=True):
        own = [row for row in results.rows if row.game == game]
        axes = [axis for axis in results.axes() if len({row.labels.get(axis) for row in own}) > 1] or results.axes()
        for number, row in enumerate(own):
            known = [place for place in range(len(row.curve["steps"])) if _known(row, place)]
            steps = [row.curve["steps"][place] for place in known]
            points = [estimate(np.array([[seed[place]] for seed in row.curve["return"]])) for place in known]
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


def _known(row: Row, place: int) -> bool:
    """Whether every seed has an episode that ended at a point of the curve."""
    return all(seed[place] is not None for seed in row.curve["return"])

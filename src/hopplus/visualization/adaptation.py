"""Figure of adaptation: own reward of the focal players by episode, beside the oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hopplus.visualization.figures import COLOURS, new_figure, save_figure

COLUMNS = 3


def draw_adaptation(path: Path, figures: Sequence[dict[str, Any]]) -> None:
    """Draws one panel per co-player set and seating, with a curve per focal player, and the oracle if known.

    Args:
        path: File to write.
        figures: Rows of `hopplus adapt --json`.
    """
    panels = list(dict.fromkeys((row["set"], row["seating"]) for row in figures))
    columns = min(COLUMNS, len(panels))
    figure, axes = new_figure(-(-len(panels) // columns), columns)
    colours = dict(zip(dict.fromkeys(row["focal"] for row in figures), COLOURS * len(figures), strict=False))
    for axis, panel in zip(axes.flat, panels, strict=False):
        rows = [row for row in figures if (row["set"], row["seating"]) == panel]
        for row in rows:
            _draw_curve(axis, row, colours[row["focal"]])
        _draw_oracle(axis, rows[0]["curve"])
        axis.set_title(panel[0] if panel[1] == "one" else f"three focal players with one of {panel[0]}", fontsize=9)
        axis.set_xlabel("episode", fontsize=8)
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("own reward", fontsize=8)
    lines, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", fontsize=7, ncols=len(names))
    figure.supxlabel(f"bands: {figures[0]['score']['interval']}", fontsize=7)
    save_figure(path, figure)


def _draw_curve(axis: Any, row: dict[str, Any], colour: str) -> None:
    episodes, means = ([point[key] for point in row["curve"]] for key in ("episode", "mean"))
    axis.plot(episodes, means, color=colour, linewidth=1.2, label=row["focal"])
    low, high = ([point[key] for point in row["curve"]] for key in ("low", "high"))
    if None not in low:
        axis.fill_between(episodes, low, high, color=colour, alpha=0.2, linewidth=0)


def _draw_oracle(axis: Any, curve: Sequence[dict[str, Any]]) -> None:
    known = [point for point in curve if point["oracle"] is not None]
    if known:
        episodes, values = [point["episode"] for point in known], [point["oracle"] for point in known]
        axis.step(episodes, values, where="mid", color="black", linewidth=0.8, linestyle="--", label="oracle")

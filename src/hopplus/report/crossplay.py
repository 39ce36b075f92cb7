"""Cross-play as a table of values and as a picture: who earns how much with whom."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.files import write_text
from hopplus.notation import short_names
from hopplus.report.figures import new_figure, save_figure


def write_csv(path: Path, figures: Mapping[str, Any]) -> None:
    """A line a cell and seat, and one for all seats of a cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "column", "seat", "mean", "low", "high", "seeds"))
    for cell in figures["cells"]:
        seeds = len(cell["seeds"])
        writer.writerow((cell["row"], cell["column"], "all", cell["mean"], cell["low"], cell["high"], seeds))
        for seat, mean in enumerate(cell["per_seat"]):
            writer.writerow((cell["row"], cell["column"], seat, mean, None, None, seeds))
    write_text(path, text.getvalue())


def draw_crossplay(path: Path, figures: Mapping[str, Any]) -> None:
    """A heat map with the means written into it."""
    rows, columns = figures["rows"], figures["columns"]
    means = np.full((len(rows), len(columns)), np.nan)
    for cell in figures["cells"]:
        means[rows.index(cell["row"]), columns.index(cell["column"])] = cell["mean"]
    figure, axes = new_figure(1, 1)
    figure.set_size_inches(2.6 + 0.8 * len(columns), 1.6 + 0.45 * len(rows))
    axis = axes[0][0]
    axis.grid(False)
    picture = axis.imshow(means, cmap="cividis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for row, column in np.argwhere(np.isfinite(means)):
        colour = "black" if means[row, column] > middle else "white"
        axis.text(column, row, f"{means[row, column]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(columns)), short_names(columns), rotation=30, ha="right")
    axis.set_yticks(range(len(rows)), short_names(rows))
    axis.set_xlabel("with")
    axis.set_ylabel("earns")
    figure.colorbar(picture, label="own reward")
    save_figure(path, figure)

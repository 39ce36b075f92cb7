"""Cross-play matrix as CSV and as a figure."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_text
from hopplus.core.formatting import short_names
from hopplus.visualization.figures import new_figure, save_figure


def write_csv(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes one line per cell and seat, and one for the mean over all seats of a cell."""
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
    """Draws a heat map with the mean own reward in each cell."""
    rows, columns = figures["rows"], figures["columns"]
    means = np.full((len(rows), len(columns)), np.nan)
    for cell in figures["cells"]:
        means[rows.index(cell["row"]), columns.index(cell["column"])] = cell["mean"]
    figure, axes = new_figure(1, 1)
    figure.set_size_inches(2.6 + 0.8 * len(columns), 1.6 + 0.45 * len(rows))
    axis = axes[0][0]
    axis.grid(False)
    heat_map = axis.imshow(means, cmap="cividis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for row, column in np.argwhere(np.isfinite(means)):
        colour = "black" if means[row, column] > middle else "white"
        axis.text(column, row, f"{means[row, column]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(columns)), short_names(columns), rotation=30, ha="right")
    axis.set_yticks(range(len(rows)), short_names(rows))
    axis.set_xlabel("co-players")
    axis.set_ylabel("focal player")
    figure.colorbar(heat_map, label="own reward")
    save_figure(path, figure)

"""Figures for papers and pages: one look, colours that colour-blind readers can tell apart, whole files or none."""

import io
from pathlib import Path
from typing import Any

from hopplus.files import write_bytes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
"""After Okabe and Ito."""


def new_figure(rows: int, columns: int, title: str = "") -> tuple[Any, Any]:
    """A figure and its axes [rows, columns]."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    matplotlib.rcParams.update({"grid.alpha": 0.25, "font.size": 9})
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False)


def label_steps(axis: Any) -> None:
    """Environment steps along the bottom, in millions, few enough to read."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1e6:g} M")
    axis.set_xlabel("environment steps", fontsize=8)


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure in the format that its name ends in."""
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix.removeprefix(".") or "png", dpi=120)
    write_bytes(path, data.getvalue())

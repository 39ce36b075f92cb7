"""Matplotlib figures: common style, colour-blind safe palette, atomic writes."""

import io
from pathlib import Path
from typing import Any

from hopplus.core.files import write_bytes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
"""Palette of Okabe and Ito."""


def new_figure(rows: int, columns: int, title: str = "") -> tuple[Any, Any]:
    """Returns a figure and its axes [rows, columns]."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    matplotlib.rcParams.update({"grid.alpha": 0.25, "font.size": 9})
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False)


def label_steps(axis: Any) -> None:
    """Labels the x axis with environment steps in millions."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1e6:g} M")
    axis.set_xlabel("environment steps", fontsize=8)


def save_figure(path: Path, figure: Any) -> None:
    """Writes a figure in the format of the file's suffix."""
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix.removeprefix(".") or "png", dpi=120)
    write_bytes(path, data.getvalue())

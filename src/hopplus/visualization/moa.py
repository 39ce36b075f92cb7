"""Figures of the action predictions of an opponent model (MOA)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.visualization.figures import COLOURS, new_figure

CEILINGS = {"history": "ceiling given the history", "agent_type": "ceiling given the agent type"}
"""Labels of the exact ceilings."""


def epoch_figure(
    number: int, rows: Sequence[dict[str, Any]], confusion: Float[np.ndarray, "A A"], ceilings: dict[str, Any]
) -> Any:
    """Returns the figure of one epoch: action frequencies, confusion matrix and recall."""
    figure, axes = new_figure(1, 3, f"after epoch {number}, held-out episodes")
    names = [row["action"] for row in rows]
    _distribution(axes[0, 0], names, rows)
    _confusion(axes[0, 1], names, confusion)
    _recall(axes[0, 2], names, rows, ceilings)
    return figure


def _distribution(axis: Any, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    places = np.arange(len(names))
    total = max(sum(row["predicted"] for row in rows), 1)
    axis.bar(places - 0.2, [row["share"] for row in rows], 0.4, color=COLOURS[0], label="true")
    axis.bar(places + 0.2, [row["predicted"] / total for row in rows], 0.4, color=COLOURS[1], label="predicted")
    _name_actions(axis, names)
    axis.set_title("action frequency", fontsize=9)
    axis.legend(fontsize=7)


def _confusion(axis: Any, names: Sequence[str], matrix: Float[np.ndarray, "A A"]) -> None:
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.ndindex(*matrix.shape):
        if matrix[row, column]:
            colour = "white" if shares[row, column] > 0.5 else "black"
            axis.text(column, row, f"{shares[row, column]:.2f}", ha="center", va="center", color=colour, fontsize=6)
    _name_actions(axis, names)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_xlabel("predicted", fontsize=8)
    axis.set_ylabel("true", fontsize=8)
    axis.set_title("confusion matrix, normalised by row", fontsize=9)
    axis.grid(False)


def _recall(axis: Any, names: Sequence[str], rows: Sequence[dict[str, Any]], ceilings: dict[str, Any]) -> None:
    places = np.arange(len(names))
    axis.bar(places, [row["recall"] for row in rows], 0.7, color=COLOURS[0], label="model")
    for number, (which, label) in enumerate(CEILINGS.items()):
        if which in ceilings:
            best = [row["recall"] for row in ceilings[which]["actions"]]
            axis.plot(places, best, "_", markersize=14, markeredgewidth=2, color=COLOURS[number + 1], label=label)
    _name_actions(axis, names)
    axis.set_ylim(0, 1.05)
    axis.set_title("recall", fontsize=9)
    axis.legend(fontsize=7)


def _name_actions(axis: Any, names: Sequence[str]) -> None:
    axis.set_xticks(range(len(names)), names, fontsize=7, rotation=45)


def summary_figure(figures: dict[str, Any]) -> Any:
    """Returns the summary figure: top-1 accuracy by epoch, by step and by agent type, and calibration."""
    figure, axes = new_figure(2, 2, f"{figures['goals']} goals on {figures['game']}, held-out episodes")
    epochs = figures["epochs"]
    by_epoch = ([row["epoch"] for row in epochs], [row["top1"] for row in epochs])
    axes[0, 0].plot(*by_epoch, "o-", color=COLOURS[0], label="model", markersize=4)
    for number, (which, label) in enumerate(CEILINGS.items()):
        if which in figures["ceilings"]:
            best = figures["ceilings"][which]["expected"]["top1"]
            axes[0, 0].axhline(best, linestyle="--", color=COLOURS[number + 1], label=label)
    axes[0, 0].set_title("top-1 by epoch", fontsize=9)
    axes[0, 0].legend(fontsize=7)
    _plot_with_ceilings(axes[0, 1], figures["by_time"], "-", "top-1 by step (last point: this step and later)")
    _plot_with_ceilings(axes[1, 0], figures["by_agent_type"], "", "top-1 by agent type")
    calibration = figures["calibration"]
    axes[1, 1].plot([0, 1], [0, 1], color="grey", linewidth=1)
    predicted, observed = [row["given"] for row in calibration], [row["right"] for row in calibration]
    axes[1, 1].plot(predicted, observed, "o-", color=COLOURS[0])
    axes[1, 1].set_xlabel("predicted probability", fontsize=8)
    axes[1, 1].set_ylabel("observed frequency", fontsize=8)
    axes[1, 1].set_title("calibration", fontsize=9)
    return figure


def _plot_with_ceilings(axis: Any, rows: Sequence[dict[str, Any]], line: str, title: str) -> None:
    """Plots the model's top-1 accuracy by label, and the ceilings on the same rows."""
    labels, places = [str(row["label"]) for row in rows], np.arange(len(rows))
    axis.plot(places, [row["top1"] for row in rows], f"o{line}", color=COLOURS[0], label="model", markersize=4)
    for number, (which, label) in enumerate(CEILINGS.items()):
        if rows and which in rows[0]["ceilings"]:
            best = [row["ceilings"][which]["top1"] for row in rows]
            style = {"linestyle": "--"} if line else {"linestyle": "", "marker": "_", "markersize": 24}
            axis.plot(places, best, color=COLOURS[number + 1], label=label, **style)
    axis.set_xticks(places, labels, fontsize=8)
    axis.margins(x=0.1 if line else 0.4)
    axis.set_title(title, fontsize=9)

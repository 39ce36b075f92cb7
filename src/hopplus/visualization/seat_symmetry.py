"""Figure of the seat-symmetry diagnosis: returns and learning curves by seat."""

from pathlib import Path
from typing import Any

import numpy as np

from hopplus.visualization.figures import COLOURS, label_steps, new_figure, save_figure

TITLES = {"return": "return", "value_loss": "value loss", "entropy": "entropy"}


def save_seats_figure(path: Path, figures: dict[str, Any], pictures: dict[str, Any]) -> None:
    """Writes learning curves by seat (mean and range over seeds) and the returns of scripted casts.

    Args:
        path: File to write.
        figures: Results of the diagnosis.
        pictures: Curves by training name (dicts of arrays), returns by scripted cast [batches, seats], and the steps.
    """
    trainings = [name for name, value in pictures.items() if isinstance(value, dict)]
    scripted = [name for name, value in pictures.items() if isinstance(value, np.ndarray)]
    figure, axes = new_figure(len(trainings) + 1, 3, f"{figures['game']}: seats compared")
    for row, training in enumerate(trainings):
        steps = np.array(pictures["steps" if training == "self-play" else "steps_alone"])
        for column, (name, title) in enumerate(TITLES.items()):
            _curves(axes[row, column], steps, pictures[training][name])
            axes[row, column].set_title(f"{training}: {title}", fontsize=9)
            label_steps(axes[row, column])
    for column, name in enumerate(scripted):
        values = pictures[name]
        jitter = np.linspace(-0.15, 0.15, len(values))
        for seat in range(values.shape[1]):
            axes[-1, column].plot(seat + jitter, values[:, seat], ".", color=COLOURS[seat % len(COLOURS)])
            axes[-1, column].plot([seat - 0.25, seat + 0.25], [values[:, seat].mean()] * 2, color="black")
        axes[-1, column].set_title(f"{name}: return by seat (dots: batches)", fontsize=9)
        axes[-1, column].set_xticks(range(values.shape[1]))
    for unused in axes[-1, len(scripted) :]:
        unused.axis("off")
    axes[0, 0].legend(fontsize=8)
    save_figure(path, figure)


def _curves(axis: Any, steps: np.ndarray, values: np.ndarray) -> None:
    """Plots mean and range over seeds of values [chunks, K, seats]."""
    for seat in range(values.shape[-1]):
        colour = COLOURS[seat % len(COLOURS)]
        axis.plot(steps, values[..., seat].mean(1), color=colour, label=f"seat {seat}")
        axis.fill_between(steps, values[..., seat].min(1), values[..., seat].max(1), color=colour, alpha=0.12)

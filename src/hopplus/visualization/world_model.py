"""Figures of world-model predictions: errors by horizon, impossible transitions, and example boards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.visualization.figures import COLOURS, new_figure

LEAST = 1e-12
"""Lower bound of drawn errors, as logarithmic axes cannot show 0."""
RANGE = (LEAST / 3, 2.0)
"""Common axis range of errors, so that models can be compared."""
CELL_INCHES = {True: 0.44, False: 0.34}
"""Side of a cell with a value: on small boards (True), and on others."""
SMALL = 5


def summary_figure(figures: dict[str, Any]) -> Any:
    """Returns the summary figure: errors by horizon and channel, impossible transitions, and errors by epoch."""
    figure, axes = new_figure(2, 3, f"{figures['kind']} world model of {figures['game']}, held-out episodes")
    ahead = figures["ahead"]
    steps = [row["ahead"] for row in ahead]
    for column, (name, title) in enumerate((("observation_mse", "observation MSE"), ("reward_mse", "reward MSE"))):
        axes[0, column].plot(steps, [max(row[name], LEAST) for row in ahead], "o-", color=COLOURS[0], markersize=4)
        axes[0, column].set(yscale="log", ylim=RANGE)
        _label_ahead(axes[0, column], f"{title} (at least {LEAST:g})")
    parts = {"exact": "all parts", "exact_board": "board", "exact_legal": "action masks", "exact_left": "departures"}
    parts["exact_over"] = "game over"
    for number, (name, label) in enumerate(parts.items()):
        shares = [row[name] for row in ahead]
        axes[0, 2].plot(steps, shares, "o-", color=COLOURS[number], label=label, markersize=4, alpha=0.8)
    lowest = min(row["exact"] for row in ahead)
    axes[0, 2].set_ylim(min(lowest - 0.05 * (1 - lowest), 0.99), 1 + 0.05 * max(1 - lowest, 0.01))
    axes[0, 2].legend(fontsize=7)
    _label_ahead(axes[0, 2], "share exactly right")
    _channels(axes[1, 0], ahead)
    _impossible(axes[1, 1], ahead)
    _epochs(axes[1, 2], figures["epochs"])
    return figure


def _label_ahead(axis: Any, title: str) -> None:
    axis.set_xlabel("steps ahead", fontsize=8)
    axis.set_title(title, fontsize=9)


def _channels(axis: Any, ahead: Sequence[dict[str, Any]]) -> None:
    names = list(ahead[0]["channel_mse"])
    shown = {0: ahead[0], 1: ahead[-1]}
    for number, row in shown.items():
        values = [max(row["channel_mse"][name], LEAST) for name in names]
        label = f"{row['ahead']} step{'s' if row['ahead'] > 1 else ''} ahead"
        axis.bar(np.arange(len(names)) + 0.4 * number - 0.2, values, 0.4, color=COLOURS[number], label=label)
    axis.set(yscale="log", ylim=RANGE)
    axis.set_xticks(range(len(names)), names, fontsize=7, rotation=30)
    axis.set_title(f"MSE by channel (at least {LEAST:g})", fontsize=9)
    axis.legend(fontsize=7)


def _impossible(axis: Any, ahead: Sequence[dict[str, Any]]) -> None:
    steps, below = [row["ahead"] for row in ahead], np.zeros(len(ahead))
    for number, name in enumerate(ahead[0]["impossible_by_kind"]):
        counts = np.array([row["impossible_by_kind"][name] for row in ahead])
        if counts.any():
            colour = COLOURS[number % len(COLOURS)]
            axis.bar(steps, counts, bottom=below, color=colour, label=name.replace("_", " "))
            below = below + counts
    if below.any():
        axis.legend(fontsize=7)
    else:
        total = sum(row["predictions"] for row in ahead)
        axis.text(0.5, 0.5, f"none in {total:,} transitions", ha="center", va="center", transform=axis.transAxes)
        axis.set(xlim=(0.5, max(steps) + 0.5), ylim=(0, 1), yticks=[])
    _label_ahead(axis, "impossible transitions")


def _epochs(axis: Any, epochs: Sequence[dict[str, Any]]) -> None:
    numbers = [row["epoch"] for row in epochs]
    for number, (name, label) in enumerate((("observation_mse", "observation MSE"), ("reward_mse", "reward MSE"))):
        values = [max(row[name], LEAST) for row in epochs]
        axis.plot(numbers, values, "o-", color=COLOURS[number], label=label, markersize=4)
    wrong = [max(1 - row["exact"], LEAST) for row in epochs]
    axis.plot(numbers, wrong, "o-", color=COLOURS[2], label="share not exact", markersize=4)
    axis.set(yscale="log", ylim=RANGE)
    axis.set_xlabel("epoch", fontsize=8)
    axis.set_title(f"one step ahead (at least {LEAST:g})", fontsize=9)
    axis.legend(fontsize=7)


def example_figure(example: Any, channels: Sequence[str], action_names: Sequence[str]) -> Any:
    """Returns a figure of the previous, predicted and true board, one column per channel, with all cell values."""
    boards = {"before": example.before, "predicted": example.predicted, "true": example.true}
    height, width, _ = example.true.shape
    actions = ", ".join(action_names[int(action)] for action in example.actions)
    rewards = [" ".join(f"{value:.4g}" for value in row) for row in (example.predicted_reward, example.reward)]
    title = f"{example.why}; actions: {actions}; rewards predicted: {rewards[0]}; true: {rewards[1]}"
    figure, axes = new_figure(len(boards), len(channels), title)
    inches = CELL_INCHES[max(height, width) <= SMALL]
    figure.set_size_inches(inches * (width + 0.6) * len(channels), inches * (height + 1) * len(boards) + 0.5)
    for row, (name, board) in enumerate(boards.items()):
        for column, channel in enumerate(channels):
            _board(axes[row, column], np.asarray(board[..., column], np.float64))
            if row == 0:
                axes[row, column].set_title(channel, fontsize=9)
        axes[row, 0].set_ylabel(name, fontsize=10)
    return figure


def _board(axis: Any, values: Float[np.ndarray, "H W"]) -> None:
    axis.imshow(values, cmap="Blues", vmin=0, vmax=1.4)
    for row, column in np.ndindex(*values.shape):
        faint = "0.6" if values[row, column] == 0 else "black"
        axis.text(
            column, row, _cell_text(float(values[row, column])), ha="center", va="center", color=faint, fontsize=5.5
        )
    axis.set(xticks=[], yticks=[])
    axis.spines[["top", "right"]].set_visible(True)
    axis.grid(False)


def _cell_text(value: float) -> str:
    """Formats the value of a cell with three decimals, or as its distance from 0 or 1 if that would be invisible."""
    nearest = round(value)
    distance = value - nearest
    if not distance:
        return str(nearest)
    if nearest in (0, 1) and abs(distance) < 5e-4:
        text = f"{distance:+.0e}".replace("e-0", "e-")
        return f"1{text}" if nearest else text.removeprefix("+")
    return f"{value:.3f}"

"""Pictures of what a world model predicts: how it fares further ahead, and boards with what it says of each cell."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.report.figures import COLOURS, new_figure

LEAST = 1e-12
"""Errors below this are drawn as this, on axes that cannot show 0."""
RANGE = (LEAST / 3, 2.0)
"""Of errors: the same in every picture, so that models can be compared."""
CELL_INCHES = {True: 0.44, False: 0.34}
"""Of a cell with a value written in it: on small boards, and on others."""
SMALL = 5


def summary_figure(figures: dict[str, Any]) -> Any:
    """What becomes of predictions further ahead, what is impossible in them, and how the fit got there."""
    figure, axes = new_figure(2, 3, f"{figures['kind']} world model of {figures['game']}, held-out episodes")
    ahead = figures["ahead"]
    steps = [row["ahead"] for row in ahead]
    for place, (name, title) in enumerate((("observation_mse", "observation MSE"), ("reward_mse", "reward MSE"))):
        axes[0, place].plot(steps, [max(row[name], LEAST) for row in ahead], "o-", color=COLOURS[0], markersize=4)
        axes[0, place].set(yscale="log", ylim=RANGE)
        _label_ahead(axes[0, place], f"{title} (at least {LEAST:g})")
    parts = {"exact": "everything", "exact_board": "board", "exact_legal": "legal masks", "exact_left": "who has left"}
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
    """The board before, as predicted and as it came, a column a channel, with every value written in its cell."""
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
        axis.text(column, row, written(float(values[row, column])), ha="center", va="center", color=faint, fontsize=5.5)
    axis.set(xticks=[], yticks=[])
    axis.spines[["top", "right"]].set_visible(True)
    axis.grid(False)


def written(value: float) -> str:
    """A value as it stands in a cell: three places, or how far from 0 or 1 it is where that could not be seen."""
    nearest = round(value)
    apart = value - nearest
    if not apart:
        return str(nearest)
    if nearest in (0, 1) and abs(apart) < 5e-4:
        little = f"{apart:+.0e}".replace("e-0", "e-")
        return f"1{little}" if nearest else little.removeprefix("+")
    return f"{value:.3f}"

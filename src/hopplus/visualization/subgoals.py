"""Figures of learnt subgoals: embeddings, accuracy of the inferred agent type, and policies by subgoal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hopplus.visualization.figures import COLOURS, new_figure


def embedding_figure(
    embeddings: dict[str, Float[np.ndarray, "R 2"]],
    labels: dict[str, tuple[Int[np.ndarray, " R"], Sequence[str]]],
    time: Int[np.ndarray, " R"],
) -> Any:
    """Returns a figure of each embedding (rows), coloured by each label and by time (columns)."""
    figure, axes = new_figure(len(embeddings), len(labels) + 1)
    for row, (name, points) in enumerate(embeddings.items()):
        for column, (label, (values, names)) in enumerate(labels.items()):
            axis = axes[row, column]
            for number, value_name in enumerate(names):
                chosen = values == number
                if chosen.any():
                    axis.scatter(
                        *points[chosen].T, s=5, color=COLOURS[number % len(COLOURS)], label=value_name, alpha=0.6
                    )
            axis.set_title(f"{name}, by {label}", fontsize=9)
            axis.legend(fontsize=7, markerscale=2)
        drawn = axes[row, -1].scatter(*points.T, s=5, c=time, cmap="viridis", alpha=0.6)
        figure.colorbar(drawn, ax=axes[row, -1], label="step")
        axes[row, -1].set_title(f"{name}, by time", fontsize=9)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def meaning_figure(figures: dict[str, Any], policies: Float[np.ndarray, "K A"], action_names: Sequence[str]) -> Any:
    """Returns a figure of the agent-type accuracy by step, beside exact Bayes, and of predictions by goal."""
    figure, axes = new_figure(1, 2, f"{figures['subgoals']} on {figures['game']}, held-out episodes")
    rows = figures["by_time"]
    steps = [row["step"] for row in rows]
    axes[0, 0].plot(
        steps, [row["agent_type_accuracy"] for row in rows], "o-", color=COLOURS[0], label="from the subgoal"
    )
    labels = {"exact_alone": "exact Bayes, each player alone", "exact": "exact Bayes, all players jointly"}
    for number, (name, label) in enumerate(labels.items()):
        if name in rows[0]:
            axes[0, 0].plot(steps, [row[name] for row in rows], "--", color=COLOURS[number + 1], label=label)
    axes[0, 0].set_xlabel("observed actions", fontsize=8)
    axes[0, 0].set_title("accuracy of the inferred agent type", fontsize=9)
    axes[0, 0].legend(fontsize=7)
    places, width = np.arange(len(action_names)), 0.8 / len(policies)
    for number, policy in enumerate(policies):
        colour = COLOURS[number % len(COLOURS)]
        axes[0, 1].bar(places - 0.4 + (number + 0.5) * width, policy, width, color=colour, label=f"goal {number}")
    axes[0, 1].set_xticks(places, action_names, fontsize=7, rotation=45)
    axes[0, 1].set_title("predicted actions in one state, by goal", fontsize=9)
    axes[0, 1].legend(fontsize=6, ncols=2)
    return figure

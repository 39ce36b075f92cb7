"""How good predictions of actions are: figures of probabilities [R, A] for rows with actions [R], in NumPy."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

TOP = 3


def chosen(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """The probability that each action had."""
    return probabilities[np.arange(len(actions)), actions]


def scores(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> dict[str, float]:
    """`top1` and `top3` (the share of rows whose action is the likeliest, or among the three likeliest; equals are
    shared out), and `cross_entropy`. An action of probability 0 makes it infinite: it is never hidden in a constant."""
    own = chosen(probabilities, actions)[:, None]
    higher, equal = (probabilities > own).sum(-1), (probabilities == own).sum(-1)
    with np.errstate(divide="ignore"):
        cross_entropy = float(-np.log(own).mean())
    hits = {f"top{k}": float(np.clip((k - higher) / equal, 0, 1).mean()) for k in (1, TOP)}
    return {**hits, "cross_entropy": cross_entropy}


def expected_scores(laws: Float[np.ndarray, "R A"]) -> dict[str, float]:
    """What the best predictor scores on average where actions are drawn from these laws: the ceiling."""
    ordered = np.sort(laws.astype(np.float64), axis=-1)[:, ::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(laws > 0, laws * np.log(laws), 0.0).sum(-1)
    tops = {f"top{k}": float(ordered[:, :k].sum(-1).mean()) for k in (1, TOP)}
    return {**tops, "cross_entropy": float(entropy.mean())}


def confusion(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> Float[np.ndarray, "A A"]:
    """How many rows of each action (rows) were predicted as each (columns); between equally likely ones a row is shared
    out, so that no action gains by its number."""
    likeliest = probabilities == probabilities.max(-1, keepdims=True)
    predicted = likeliest / likeliest.sum(-1, keepdims=True)
    return (actions[:, None] == np.arange(probabilities.shape[-1])).T.astype(float) @ predicted


def by_action(matrix: Float[np.ndarray, "A A"], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Count, share, precision, recall and F1 of every action, from a confusion matrix; 0 where there is nothing."""
    rows = []
    for number, name in enumerate(names):
        hits, count, predicted = matrix[number, number], matrix[number].sum(), matrix[:, number].sum()
        precision, recall = hits / max(predicted, 1), hits / max(count, 1)
        rows.append(
            {
                "action": name,
                "count": round(count),
                "share": float(count / max(matrix.sum(), 1)),
                "predicted": float(predicted),
                "precision": float(precision),
                "recall": float(recall),
                "f1": float(2 * precision * recall / (precision + recall)) if hits else 0.0,
            }
        )
    return rows


def calibration(
    probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"], bins: int = 10
) -> list[dict[str, float]]:
    """By probability that was given to any action: how many there were, its mean, and how often it was right."""
    given = probabilities.reshape(-1)
    right = (actions[:, None] == np.arange(probabilities.shape[-1])).reshape(-1)
    place = np.minimum((given * bins).astype(int), bins - 1)
    place = np.where(given > 0, place, -1)  # impossible actions would fill the first bin
    rows = []
    for number in range(bins):
        inside = place == number
        if inside.any():
            figures = {
                "count": int(inside.sum()),
                "given": float(given[inside].mean()),
                "right": float(right[inside].mean()),
            }
            rows.append({"from": number / bins, "to": (number + 1) / bins, **figures})
    return rows

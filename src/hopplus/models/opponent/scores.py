"""Scores of action predictions: probabilities [R, A] for rows with actions [R], in NumPy."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

TOP = 3


def chosen(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """Returns the predicted probability of each action."""
    return probabilities[np.arange(len(actions)), actions]


def scores(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> dict[str, float]:
    """Returns `top1`, `top3` and `cross_entropy`.

    Top-k is the share of rows whose action is among the k most likely; ties count fractionally. An action of
    probability 0 makes the cross-entropy infinite: it is never hidden by a constant.
    """
    taken = chosen(probabilities, actions)[:, None]
    higher, equal = (probabilities > taken).sum(-1), (probabilities == taken).sum(-1)
    with np.errstate(divide="ignore"):
        cross_entropy = float(-np.log(taken).mean())
    hits = {f"top{k}": float(np.clip((k - higher) / equal, 0, 1).mean()) for k in (1, TOP)}
    return {**hits, "cross_entropy": cross_entropy}


def expected_scores(probabilities: Float[np.ndarray, "R A"]) -> dict[str, float]:
    """Returns the expected scores of the optimal predictor of actions drawn from these probabilities: the ceiling."""
    ordered = np.sort(probabilities.astype(np.float64), axis=-1)[:, ::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(probabilities > 0, probabilities * np.log(probabilities), 0.0).sum(-1)
    tops = {f"top{k}": float(ordered[:, :k].sum(-1).mean()) for k in (1, TOP)}
    return {**tops, "cross_entropy": float(entropy.mean())}


def confusion(probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"]) -> Float[np.ndarray, "A A"]:
    """Returns the confusion matrix: actions (rows) by most likely prediction (columns).

    A row with ties counts fractionally, so that actions of low index have no advantage.
    """
    is_best = probabilities == probabilities.max(-1, keepdims=True)
    predicted = is_best / is_best.sum(-1, keepdims=True)
    return (actions[:, None] == np.arange(probabilities.shape[-1])).T.astype(float) @ predicted


def by_action(matrix: Float[np.ndarray, "A A"], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns count, share, precision, recall and F1 of every action, from a confusion matrix; 0 if undefined."""
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
    """Returns, by bin of predicted probability: the number of predictions, their mean, and the observed frequency."""
    predicted = probabilities.reshape(-1)
    is_taken = (actions[:, None] == np.arange(probabilities.shape[-1])).reshape(-1)
    bin_index = np.minimum((predicted * bins).astype(int), bins - 1)
    bin_index = np.where(predicted > 0, bin_index, -1)  # impossible actions would fill the first bin
    rows = []
    for number in range(bins):
        inside = bin_index == number
        if inside.any():
            figures = {
                "count": int(inside.sum()),
                "given": float(predicted[inside].mean()),
                "right": float(is_taken[inside].mean()),
            }
            rows.append({"from": number / bins, "to": (number + 1) / bins, **figures})
    return rows

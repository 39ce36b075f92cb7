"""Diagnosis of opponent models: scores of predictions beside exact ceilings."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hopplus.core.errors import InputError
from hopplus.fitting.loop import split
from hopplus.models.opponent.evaluation import EvalRows, flatten
from hopplus.models.opponent.model import OpponentModelFit, predictor
from hopplus.models.opponent.scores import by_action, calibration, confusion, expected_scores, scores
from hopplus.rollouts.dataset import Dataset
from hopplus.training.fitted import Fitted
from hopplus.training.population import make_population

LATEST = 10
"""Last step that is reported separately; later steps are pooled with it."""


@dataclass(frozen=True, eq=False)
class Epoch:
    """Scores of the model after one epoch, overall and by action."""

    number: int
    scores: dict[str, float]
    actions: list[dict[str, Any]]
    confusion: Float[np.ndarray, "A A"]


@dataclass(frozen=True, eq=False)
class MoaDiagnosis:
    """Diagnosis of a model's predictions on held-out episodes."""

    figures: dict[str, Any]
    epochs: list[Epoch]
    predictions: Float[np.ndarray, "R A"]
    """Filtered predictions of the last epoch."""
    actions: Int[np.ndarray, " R"]
    ceilings: dict[str, Float[np.ndarray, "A A"]]
    """Confusion matrices of the optimal predictors on the same rows."""


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None) -> MoaDiagnosis:
    """Evaluates every epoch of a fit on the held-out episodes of a dataset."""
    model = opponent_model(fitted)
    game, held_out = dataset.game, split(dataset.load()).held_out
    rows = EvalRows.of(
        dataset, model.trajectories(game, held_out), held_out, partial(make_population, game, dataset.agent_types)
    )
    predict, epochs, params = predictor(model, game), [], None
    filtered = given_goal = np.zeros((0, game.num_actions))
    for number in fitted.epochs:
        params = fitted.params(seed, number)
        filtered, given_goal = rows.predictions(predict, params)
        matrix = confusion(filtered, rows.actions)
        epochs.append(Epoch(number, scores(filtered, rows.actions), by_action(matrix, game.action_names), matrix))
    if not epochs:
        raise InputError(f"{fitted.run.path} has no epoch yet: hopplus fit --resume {fitted.run.path}")
    goal = _goals(model, rows, [predictions.after for predictions in predict(params, rows.trajectories)])
    exact = rows.exact_predictions()
    matrices = {which: confusion(optimal, rows.actions) for which, optimal in exact.items()}
    figures = {
        "run": str(fitted.run.path),
        "dataset": str(dataset.path),
        "game": game.name,
        "seed": fitted.run.seeds[0] if seed is None else seed,
        "goals": model.space,
        "rows": len(rows.actions),
        "epochs": [{"epoch": epoch.number, **epoch.scores, "actions": epoch.actions} for epoch in epochs],
        **epochs[-1].scores,
        "given_goal": scores(given_goal, rows.actions) if model.space != "none" else None,
        "ceilings": {
            which: {
                "expected": expected_scores(optimal),
                "on_these_rows": scores(optimal, rows.actions),
                "actions": by_action(matrices[which], game.action_names),
            }
            for which, optimal in exact.items()
        },
        "by_time": _by(np.minimum(rows.time, LATEST), filtered, rows, exact),
        "by_agent_type": _named(_by(rows.agent_type, filtered, rows, exact), dataset.agent_types),
        "by_goal": _named(_by(goal, filtered, rows, exact), model.goal_names(game)) if len(goal) else [],
        "calibration": calibration(filtered, rows.actions),
    }
    return MoaDiagnosis(figures, epochs, filtered, rows.actions, matrices)


def opponent_model(fitted: Fitted) -> OpponentModelFit:
    """Returns the model of a fit; raises InputError if it is not an opponent model."""
    if not isinstance(fitted.model, OpponentModelFit):
        raise InputError(f"{fitted.run.path} is a fit of {fitted.model.name}, which does not predict players")
    return fitted.model


def _goals(model: OpponentModelFit, rows: EvalRows, after: list[Any]) -> Int[np.ndarray, " R"]:
    """Goal of every row in hindsight: its label, or the most likely code at the end of the trajectory.

    Empty if goals are not finitely many.
    """
    if model.labelled is not None:
        return rows.goal
    if model.space != "codes":
        return np.zeros(0, int)
    final_codes = [np.asarray(belief).argmax(-1)[:, None] for belief in after]
    by_row = [
        np.broadcast_to(code, group.alive.shape) for code, group in zip(final_codes, rows.trajectories, strict=True)
    ]
    return flatten(rows.trajectories, by_row)


def _by(
    label: Int[np.ndarray, " R"], filtered: np.ndarray, rows: EvalRows, exact: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Scores of the rows with each label, with those of the optimal predictors on the same rows."""
    by_label = []
    for value in np.unique(label):
        chosen = label == value
        ceilings = {which: scores(optimal[chosen], rows.actions[chosen]) for which, optimal in exact.items()}
        metrics = scores(filtered[chosen], rows.actions[chosen])
        by_label.append({"label": int(value), "rows": int(chosen.sum()), **metrics, "ceilings": ceilings})
    return by_label


def _named(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{**row, "label": names[row["label"]]} for row in rows]

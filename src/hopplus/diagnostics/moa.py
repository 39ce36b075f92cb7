"""Does a model of another player predict what it does? Every figure beside the best that is possible."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hopplus.errors import InputError
from hopplus.learning.scores import by_action, calibration, confusion, expected_scores, scores
from hopplus.play.dataset import Dataset
from hopplus.training.fit import Fitted, split
from hopplus.training.fits.others import OthersModel, Rows, flatten, predictor

LATEST = 10
"""Steps are told apart up to this one; later ones are taken together."""


@dataclass(frozen=True, eq=False)
class Epoch:
    """What the model of one epoch comes to, action by action."""

    number: int
    scores: dict[str, float]
    actions: list[dict[str, Any]]
    confusion: Float[np.ndarray, "A A"]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All that is known of a model's predictions on held-out episodes."""

    figures: dict[str, Any]
    epochs: list[Epoch]
    predictions: Float[np.ndarray, "R A"]
    """Of the last epoch, filtered."""
    actions: Int[np.ndarray, " R"]
    ceilings: dict[str, Float[np.ndarray, "A A"]]
    """The best predictors' confusion matrices on the same rows."""


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None) -> Diagnosis:
    """Judge every epoch of a fit on the held-out part of a dataset."""
    model = others_model(fitted)
    game, held_out = dataset.game, split(dataset.load()).held_out
    rows = Rows.of(dataset, model.lives(game, held_out), held_out)
    predict, epochs, params = predictor(model, game), [], None
    filtered = given_goal = np.zeros((0, game.num_actions))
    for number in fitted.epochs:
        params = fitted.params(seed, number)
        filtered, given_goal = rows.predictions(predict, params)
        matrix = confusion(filtered, rows.actions)
        epochs.append(Epoch(number, scores(filtered, rows.actions), by_action(matrix, game.action_names), matrix))
    if not epochs:
        raise InputError(f"{fitted.run.path} has no epoch yet: hopplus fit --resume {fitted.run.path}")
    goal = _goals(model, rows, [said.after for said in predict(params, rows.lives)])
    laws = rows.laws()
    matrices = {which: confusion(law, rows.actions) for which, law in laws.items()}
    figures = {
        "run": str(fitted.run.path),
        "dataset": str(dataset.path),
        "game": game.name,
        "seed": fitted.run.seeds[0] if seed is None else seed,
        "goals": model.space,
        "rows": len(rows.actions),
        "epochs": [{"epoch": one.number, **one.scores, "actions": one.actions} for one in epochs],
        **epochs[-1].scores,
        "given_goal": scores(given_goal, rows.actions) if model.space != "none" else None,
        "ceilings": {
            which: {
                "expected": expected_scores(law),
                "on_these_rows": scores(law, rows.actions),
                "actions": by_action(matrices[which], game.action_names),
            }
            for which, law in laws.items()
        },
        "by_time": _by(np.minimum(rows.time, LATEST), filtered, rows, laws),
        "by_kind": _named(_by(rows.kind, filtered, rows, laws), dataset.kinds),
        "by_goal": _named(_by(goal, filtered, rows, laws), model.goal_names(game)) if len(goal) else [],
        "calibration": calibration(filtered, rows.actions),
    }
    return Diagnosis(figures, epochs, filtered, rows.actions, matrices)


def others_model(fitted: Fitted) -> OthersModel:
    """The model of a fit; InputError where it is not one of another player."""
    if not isinstance(fitted.model, OthersModel):
        raise InputError(f"{fitted.run.path} is a fit of {fitted.model.name}, which does not predict players")
    return fitted.model


def _goals(model: OthersModel, rows: Rows, after: list[Any]) -> Int[np.ndarray, " R"]:
    """The goal of every row in hindsight: the prey taken next, or the likeliest code at the end of the life; none where
    goals are not finite."""
    if model.space == "prey":
        return rows.goal
    if model.space != "codes":
        return np.zeros(0, int)
    likeliest = [np.asarray(belief).argmax(-1)[:, None] for belief in after]
    by_life = [np.broadcast_to(one, group.alive.shape) for one, group in zip(likeliest, rows.lives, strict=True)]
    return flatten(rows.lives, by_life)


def _by(
    label: Int[np.ndarray, " R"], filtered: np.ndarray, rows: Rows, laws: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Scores of the rows with each label, beside the best predictors' on the same rows."""
    found = []
    for value in np.unique(label):
        chosen = label == value
        ceilings = {which: scores(law[chosen], rows.actions[chosen]) for which, law in laws.items()}
        own = scores(filtered[chosen], rows.actions[chosen])
        found.append({"label": int(value), "rows": int(chosen.sum()), **own, "ceilings": ceilings})
    return found


def _named(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{**row, "label": names[row["label"]]} for row in rows]

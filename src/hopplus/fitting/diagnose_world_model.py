"""Diagnosis of world models: predictions one to ten steps ahead, compared with recorded episodes."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.core.errors import InputError
from hopplus.fitting.loop import split
from hopplus.games.grid import GridGame
from hopplus.models.world.loss import Network
from hopplus.models.world.metrics import figures, tally_windows
from hopplus.models.world.model import FAR_AHEAD, WorldModel
from hopplus.models.world.rows import ObservedStep, Windows, observed_from, windows
from hopplus.networks.world_model import Predicted
from hopplus.planning.simulator import predict
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.training.fitted import Fitted

SAMPLE = 4096
"""Number of steps, spread over the episodes, among which examples are chosen."""


@dataclass(frozen=True, eq=False)
class Example:
    """One step observed from one seat, with its prediction; players ego-first."""

    why: str
    """Reason for its choice."""
    actions: Int[np.ndarray, " n"]
    before: Int[np.ndarray, "H W C"]
    predicted: Float[np.ndarray, "H W C"]
    """Values before rounding."""
    true: Int[np.ndarray, "H W C"]
    predicted_reward: Float[np.ndarray, " n"]
    reward: Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class WorldModelDiagnosis:
    """Diagnosis of a world model's predictions on held-out episodes."""

    figures: dict[str, Any]
    """`ahead`: by steps ahead, of the last epoch; `epochs`: one step ahead, by epoch; `impossible`: total number."""
    examples: list[Example]
    channel_names: tuple[str, ...]


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None, examples: int = 4) -> WorldModelDiagnosis:
    """Evaluates every epoch of a fit on the held-out episodes of a dataset."""
    model, game = fitted.model, dataset.game
    if not isinstance(model, WorldModel) or not isinstance(game, GridGame):
        raise InputError(f"{fitted.run.path} is a fit of {fitted.model.name}, not of a world model")
    if not fitted.epochs:
        raise InputError(f"{fitted.run.path} has no epoch yet: hopplus fit --resume {fitted.run.path}")
    network, rows = model.network(game), windows(split(dataset.load()).held_out, FAR_AHEAD)
    rows = jax.tree.map(jnp.asarray, rows)
    by_epoch = []
    for number in fitted.epochs:
        tally = tally_windows(network, fitted.params(seed, number), game, rows)
        by_epoch.append([figures(tally, ahead, game.channel_names) for ahead in range(1, FAR_AHEAD + 1)])
    ahead = [{"ahead": k, **row} for k, row in enumerate(by_epoch[-1], 1) if row["predictions"]]
    metrics = {
        "run": str(fitted.run.path),
        "dataset": str(dataset.path),
        "game": game.name,
        "seed": fitted.run.seeds[0] if seed is None else seed,
        "kind": model.kind,
        "transitions": sum(row["predictions"] for row in ahead),
        "impossible": sum(row["impossible"] for row in ahead),
        "ahead": ahead,
        "epochs": [{"epoch": epoch, **rows[0]} for epoch, rows in zip(fitted.epochs, by_epoch, strict=True)],
    }
    chosen = choose_examples(network, fitted.params(seed), game, rows, examples)
    return WorldModelDiagnosis(metrics, chosen, game.channel_names)


def choose_examples(network: Network, params: Params, game: GridGame, rows: Windows, number: int) -> list[Example]:
    """Returns `number` steps: alternately the worst predicted, and steps with a reward."""
    sample = np.unique(np.linspace(0, len(rows.over) - 1, SAMPLE).astype(int))
    steps, predicted, errors = _one_step(network, params, game, jax.tree.map(lambda leaf: leaf[sample], rows))
    worst = [("among the worst", int(row)) for row in np.argsort(-np.asarray(errors), kind="stable")]
    rewarded = np.flatnonzero(np.asarray(steps.reward != 0).any(-1))
    spread = rewarded[np.linspace(0, len(rewarded) - 1, min(number, len(rewarded))).astype(int)]
    with_reward = [("a player gets a reward", int(row)) for row in spread]
    chosen = dict[int, str]()
    for pair in zip(worst, [*with_reward, *worst[: len(worst) - len(with_reward)]], strict=True):
        for why, row in pair:
            if len(chosen) < number:
                chosen.setdefault(row, why)
    return [
        _example(why, *jax.device_get(jax.tree.map(lambda leaf, row=row: leaf[row], (steps, predicted))))
        for row, why in chosen.items()
    ]


@partial(jax.jit, static_argnames=("network", "game"))
def _one_step(
    network: Network, params: Params, game: GridGame, rows: Windows
) -> tuple[ObservedStep, Predicted, Float[Array, " S"]]:
    """First steps of the windows from all seats in turn, their predictions, and the squared errors."""

    def predict_first(window: Windows, seat: Array) -> tuple[ObservedStep, Predicted, Array]:
        step = jax.tree.map(lambda leaf: leaf[0], observed_from(game, window, seat))
        predicted = predict(network, params, step.before, step.actions)
        return step, predicted, jnp.square(predicted.values - step.after.board).mean()

    return jax.vmap(predict_first)(rows, jnp.arange(len(rows.over)) % game.players)


def _example(why: str, step: ObservedStep, predicted: Predicted) -> Example:
    return Example(
        why=why,
        actions=np.asarray(step.actions),
        before=np.asarray(step.before.board),
        predicted=np.asarray(predicted.values),
        true=np.asarray(step.after.board),
        predicted_reward=np.asarray(predicted.reward),
        reward=np.asarray(step.reward),
    )

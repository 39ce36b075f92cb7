"""Does a world model know the rules? What it predicts one to ten steps ahead, compared with what came."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games.grid import GridGame
from hopplus.learning.world_model import Network, Seen, Windows, figures, seen_from, tally_windows, windows
from hopplus.networks.world_model import Predicted
from hopplus.planning.simulator import foresee
from hopplus.play.dataset import Dataset
from hopplus.players import Params
from hopplus.training.fit import Fitted, split
from hopplus.training.fits.world_model import FAR_AHEAD, WorldModel

SAMPLE = 4096
"""Of so many steps, spread over the episodes, the ones predicted worst are shown."""


@dataclass(frozen=True, eq=False)
class Example:
    """One step from one seat: what was seen, what was predicted, and what came; players ego-first."""

    why: str
    """It was chosen."""
    actions: Int[np.ndarray, " n"]
    before: Int[np.ndarray, "H W C"]
    predicted: Float[np.ndarray, "H W C"]
    """Not rounded."""
    true: Int[np.ndarray, "H W C"]
    predicted_reward: Float[np.ndarray, " n"]
    reward: Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All that is known of a world model's predictions on held-out episodes."""

    figures: dict[str, Any]
    """`ahead`: by steps ahead, of the last epoch; `epochs`: one step ahead, by epoch; `impossible`: in all steps."""
    examples: list[Example]


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None, examples: int = 4) -> Diagnosis:
    """Judge every epoch of a fit on the held-out part of a dataset."""
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
    found = {
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
    return Diagnosis(found, choose_examples(network, fitted.params(seed), game, rows, examples))


def choose_examples(network: Network, params: Params, game: GridGame, rows: Windows, number: int) -> list[Example]:
    """So many steps: the ones that are predicted worst, and ones in which somebody earned something, in turn."""
    sample = np.unique(np.linspace(0, len(rows.over) - 1, SAMPLE).astype(int))
    steps, predicted, errors = _one_step(network, params, game, jax.tree.map(lambda leaf: leaf[sample], rows))
    worst = [("among the worst", int(row)) for row in np.argsort(-np.asarray(errors), kind="stable")]
    earning = np.flatnonzero(np.asarray(steps.reward != 0).any(-1))
    spread = earning[np.linspace(0, len(earning) - 1, min(number, len(earning))).astype(int)]
    earned = [("somebody earned something", int(row)) for row in spread]
    chosen = dict[int, str]()
    for pair in zip(worst, [*earned, *worst[: len(worst) - len(earned)]], strict=True):
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
) -> tuple[Seen, Predicted, Float[Array, " S"]]:
    """The windows' first steps from all seats in turn, what is predicted of them, and its squared error."""

    def one(window: Windows, seat: Array) -> tuple[Seen, Predicted, Array]:
        step = jax.tree.map(lambda leaf: leaf[0], seen_from(game, window, seat))
        predicted = foresee(network, params, step.before, step.actions)
        return step, predicted, jnp.square(predicted.values - step.after.grid).mean()

    return jax.vmap(one)(rows, jnp.arange(len(rows.over)) % game.players)


def _example(why: str, step: Seen, predicted: Predicted) -> Example:
    return Example(
        why=why,
        actions=np.asarray(step.actions),
        before=np.asarray(step.before.grid),
        predicted=np.asarray(predicted.values),
        true=np.asarray(step.after.grid),
        predicted_reward=np.asarray(predicted.reward),
        reward=np.asarray(step.reward),
    )

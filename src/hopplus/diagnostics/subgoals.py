"""What do learnt subgoals mean? Whether they tell who a player is and what it will take, and whether they matter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hopplus.diagnostics.moa import others_model
from hopplus.errors import InputError, require
from hopplus.games import GridGame
from hopplus.learning import subgoals
from hopplus.learning.lives import Lives, lives_of
from hopplus.learning.moa import log_probabilities
from hopplus.play.dataset import Dataset, Recorded
from hopplus.players import Params
from hopplus.training.fit import Fitted, split
from hopplus.training.fits.others import OthersModel, Rows, flatten, predictor

DRAWN = 1500
"""Points that are drawn."""
LATEST = 10
"""Steps are told apart up to this one."""
CLUSTERS = 8
"""Into how many clusters points in a space are put."""
SWAPS = 2000
"""Rows whose goal is swapped."""
EXTRA = "analysis"
"""The extra of the package that installs scikit-learn."""


@dataclass(frozen=True, eq=False)
class Points:
    """Where rows lie among the subgoals, and what is known of them."""

    space: Float[np.ndarray, "R Z"]
    """A belief over codes, or the mean of what was inferred."""
    cluster: Int[np.ndarray, " R"]
    kind: Int[np.ndarray, " R"]
    prey: Int[np.ndarray, " R"]
    """What the player takes in the end."""
    time: Int[np.ndarray, " R"]
    rows: Rows


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Figures, and what pictures are drawn from."""

    figures: dict[str, Any]
    drawn: Points
    embeddings: dict[str, Float[np.ndarray, "R 2"]]
    """Of the drawn points: `PCA` and `t-SNE`."""
    policies: Float[np.ndarray, "K A"]
    """What is predicted in one state under each goal."""


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None) -> Diagnosis:
    """Judge a fit's subgoals on the held-out part of a dataset; clusters and codes get their names on the part that was
    learnt from."""
    model = others_model(fitted)
    if model.space not in ("codes", "gaussian"):
        raise InputError(f"{fitted.run.path} has goals of the kind {model.space!r}, which were not learnt")
    if model.networks == "seat":
        raise InputError(f"{fitted.run.path} has subgoals of each seat's own, which cannot be compared")
    if not fitted.epochs:
        raise InputError(f"{fitted.run.path} has no epoch yet: hopplus fit --resume {fitted.run.path}")
    require("sklearn", EXTRA)
    parts, params = split(dataset.load()), fitted.params(seed)
    learnt = _points(model, params, dataset, parts.learnt)
    held_out = _points(model, params, dataset, parts.held_out)
    cluster = _clusters(model, learnt)
    learnt, held_out = (replace(points, cluster=cluster(points.space)) for points in (learnt, held_out))
    game, knowledge = dataset.game, held_out.rows.knowledge
    prey_of = _majority(learnt.cluster, learnt.prey)
    kind_of = _majority(learnt.cluster, learnt.kind)
    figures = {
        "run": str(fitted.run.path),
        "dataset": str(dataset.path),
        "game": game.name,
        "seed": fitted.run.seeds[0] if seed is None else seed,
        "subgoals": model.space,
        "rows": len(held_out.kind),
        "kinds": list(dataset.kinds),
        "prey": list(game.taken_names),
        "purity_kind": _purity(held_out.cluster, held_out.kind),
        "purity_prey": _purity(held_out.cluster, held_out.prey),
        "usage": (np.bincount(held_out.cluster, minlength=_clusters_number(model)) / len(held_out.cluster)).tolist(),
        "kind_of_cluster": {str(number): dataset.kinds[kind] for number, kind in kind_of.items()},
        "by_time": _by_time(learnt, held_out, knowledge),
        "prey_accuracy": float((_named(held_out.cluster, prey_of) == held_out.prey).mean()),
        "prey_commonest": float(np.bincount(held_out.prey).max() / len(held_out.prey)),
        "visited_later": _visited_later(model, params, held_out.rows, game),
        "interventions": _interventions(model, params, game, held_out),
    }
    chosen = np.random.default_rng(0).choice(len(held_out.kind), min(DRAWN, len(held_out.kind)), replace=False)
    drawn = Points(*(values[chosen] for values in list(vars(held_out).values())[:-1]), rows=held_out.rows)
    return Diagnosis(figures, drawn, _embeddings(drawn.space), _policies(model, params, game, held_out))


# ------------------------------------------------------------------------------------------------------------ points


def _points(model: OthersModel, params: Params, dataset: Dataset, recorded: Recorded) -> Points:
    """Where recorded players lie, all still in one cluster."""
    lives = lives_of(dataset.game, recorded, boards=model.space == "gaussian", grouped=False)
    rows = Rows.of(dataset, lives, recorded)
    predict = predictor(model, dataset.game)
    space = flatten(lives, [said.belief for said in predict(params, lives)])
    took = np.asarray(recorded.episode.took).max(0)
    return Points(space, np.zeros(len(space), int), rows.kind, took[rows.episode, rows.seat], rows.time, rows)


def _clusters_number(model: OthersModel) -> int:
    return model.codes if model.space == "codes" else CLUSTERS


def _clusters(model: OthersModel, points: Points) -> Callable[[np.ndarray], np.ndarray]:
    """Codes are clusters already; points in a space are put into the nearest of a few centres."""
    if model.space == "codes":
        return lambda space: space.argmax(-1)
    centres = (
        require("sklearn.cluster", EXTRA)
        .KMeans(CLUSTERS, n_init="auto", random_state=0)
        .fit(points.space[:: max(1, len(points.space) // 20_000)])
    )
    return lambda space: np.asarray(centres.predict(space))


def _majority(cluster: Int[np.ndarray, " R"], label: Int[np.ndarray, " R"]) -> dict[int, int]:
    """The commonest label of every cluster."""
    return {int(one): int(np.bincount(label[cluster == one]).argmax()) for one in np.unique(cluster)}


def _named(cluster: Int[np.ndarray, " R"], names: dict[int, int]) -> Int[np.ndarray, " R"]:
    return np.array([names.get(number, 0) for number in range(cluster.max() + 1)])[cluster]


def _purity(cluster: Int[np.ndarray, " R"], label: Int[np.ndarray, " R"]) -> float:
    """The share of rows that have the commonest label of their cluster."""
    return float(sum(np.bincount(label[cluster == one]).max() for one in np.unique(cluster)) / len(label))


def _by_time(learnt: Points, held_out: Points, knowledge: Any) -> list[dict[str, Any]]:
    """How often the kind is told right before each step, from the subgoal alone; beside the exact posteriors.

    A code (or a cluster) is named after the kind with which it goes most often where it was learnt, every life counting
    as much as any other; the kind that is told is the one whose codes are believed in most. Nothing else ever hears of
    kinds.
    """
    named = _weights(learnt).T @ (share_of_life(learnt.rows)[:, None] * np.eye(learnt.kind.max() + 1)[learnt.kind])
    told = (_weights(held_out) @ np.eye(named.shape[1])[named.argmax(-1)]).argmax(-1) == held_out.kind
    exact = {} if knowledge is None else {"exact": knowledge.posterior, "exact_alone": knowledge.alone}
    best = {name: held_out.rows.at(value).argmax(-1) == held_out.kind for name, value in exact.items()}
    found = []
    for step in range(LATEST + 1):
        chosen = held_out.time == step
        if chosen.any():
            beside = {name: float(right[chosen].mean()) for name, right in best.items()}
            found.append({"step": step, "rows": int(chosen.sum()), "kind_told": float(told[chosen].mean()), **beside})
    return found


def _weights(points: Points) -> Float[np.ndarray, "R K"]:
    """How far each row belongs to each code or cluster."""
    return points.space if _is_belief(points.space) else np.eye(CLUSTERS)[points.cluster]


def share_of_life(rows: Rows) -> Float[np.ndarray, " R"]:
    """What each row is of its player's life: long lives must not outvote short ones."""
    lengths = np.zeros((rows.episode.max() + 1, rows.seat.max() + 1))
    np.add.at(lengths, (rows.episode, rows.seat), 1)
    return 1 / lengths[rows.episode, rows.seat]


def _is_belief(space: Float[np.ndarray, "R Z"]) -> bool:
    return bool((space >= 0).all() and np.allclose(space.sum(-1), 1, atol=1e-3))


def _embeddings(space: Float[np.ndarray, "R Z"]) -> dict[str, Float[np.ndarray, "R 2"]]:
    linear = require("sklearn.decomposition", EXTRA).PCA(2, random_state=0)
    perplexity = min(30.0, (len(space) - 1) / 3)
    close = require("sklearn.manifold", EXTRA).TSNE(2, perplexity=perplexity, random_state=0, init="pca")
    return {"PCA": linear.fit_transform(space), "t-SNE": close.fit_transform(space)}


# ----------------------------------------------------------------------------------------------------- subgoal states


def _visited_later(model: OthersModel, params: Params, rows: Rows, game: Any) -> dict[str, float] | None:
    """How often the cell in which the predicted subgoal shows the player is one that it comes to later; beside a cell
    drawn at random. Codes do not stand for states."""
    if model.space != "gaussian" or not isinstance(game, GridGame):
        return None
    network, hits, chance, total = model.network(game), 0.0, 0.0, 0
    for lives in rows.lives:
        inferred = subgoals.infer(network, params["network"], (lives,))
        board = np.asarray(subgoals.apply(network, params["network"], "decode", inferred.mean))
        predicted = board[..., 0].reshape(*lives.action.shape, -1).argmax(-1)
        here = np.asarray(lives.board)[..., 0].reshape(*lives.action.shape, -1) > 0
        alive = np.asarray(lives.alive)
        later = np.cumsum((here & alive[..., None])[:, ::-1], 1)[:, ::-1] - here > 0
        counted = alive & later.any(-1)
        hits += np.take_along_axis(later, predicted[..., None], -1)[..., 0][counted].sum()
        chance += later.mean(-1)[counted].sum()
        total += int(counted.sum())
    return {"share": float(hits / max(total, 1)), "by_chance": float(chance / max(total, 1)), "rows": total}


# ------------------------------------------------------------------------------------------------------ interventions


def _policies_of(model: OthersModel, params: Params, game: Any, points: Points) -> Callable[[Lives], Any]:
    """Predicted actions [N, L, K, A] of lives under each goal: every code, or every cluster's centre."""
    network = model.network(game)
    if model.space == "codes":
        return lambda lives: jnp.exp(log_probabilities(network, params["network"], lives))
    centres = [points.space[points.cluster == one].mean(0) for one in np.unique(points.cluster)]

    def under(lives: Lives) -> Any:
        def act(centre: Any) -> Any:
            goal = jnp.broadcast_to(centre, (*lives.action.shape, len(centre)))
            return jax.nn.softmax(subgoals.apply(network, params["network"], "act", lives.features, goal))

        return jnp.stack([act(jnp.asarray(centre)) for centre in centres], 2)

    return under


def _interventions(model: OthersModel, params: Params, game: Any, points: Points) -> dict[str, Any]:
    """What swapping the goal does to the predicted actions: the mean total variation between the policy of the goal
    that is believed in and that of another; 0 where goals do not matter."""
    lives = points.rows.lives
    policies = flatten(lives, [_policies_of(model, params, game, points)(group) for group in lives])
    index = np.random.default_rng(0).permutation(len(policies))[:SWAPS]
    place = {int(one): number for number, one in enumerate(np.unique(points.cluster))}
    own = (
        points.cluster[index]
        if model.space == "codes"
        else np.array([place[int(one)] for one in points.cluster[index]])
    )
    policies = policies[index]
    distance = 0.5 * np.abs(policies - policies[np.arange(len(index)), own][:, None]).sum(-1)
    others = np.arange(policies.shape[1]) != own[:, None]
    changed = policies.argmax(-1) != policies[np.arange(len(index)), own].argmax(-1)[:, None]
    return {
        "rows": len(index),
        "total_variation": float(distance[others].mean()),
        "likeliest_action_changes": float(changed[others].mean()),
        "largest_total_variation": float(distance.max(-1).mean()),
    }


def _policies(model: OthersModel, params: Params, game: Any, points: Points) -> Float[np.ndarray, "K A"]:
    """Under each goal, the predicted actions in that state at the start of a long life where they differ most."""
    group = points.rows.lives[-1]
    first = jax.tree.map(lambda leaf: leaf[:256, :1] if leaf.ndim > 1 else leaf[:256], group)
    policies = np.asarray(_policies_of(model, params, game, points)(first))[:, 0]
    return policies[policies.std(1).sum(-1).argmax()]

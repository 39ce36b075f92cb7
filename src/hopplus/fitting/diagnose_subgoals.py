"""Diagnosis of learnt subgoals: what they reveal of agent types and prey, and their effect on predictions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hopplus.core.errors import InputError, require
from hopplus.fitting.diagnose_moa import opponent_model
from hopplus.fitting.loop import split
from hopplus.games import GridGame
from hopplus.models.agent_trajectories import AgentTrajectories, split_by_agent
from hopplus.models.opponent import subgoals
from hopplus.models.opponent.evaluation import EvalRows, flatten
from hopplus.models.opponent.loss import log_probabilities
from hopplus.models.opponent.model import OpponentModelFit, predictor
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.exact_predictions import ExactPredictions
from hopplus.rollouts.population import Recorded
from hopplus.training.fitted import Fitted
from hopplus.training.population import make_population

DRAWN = 1500
"""Maximum number of points in a figure."""
LATEST = 10
"""Last step that is reported."""
CLUSTERS = 8
"""Number of clusters of Gaussian subgoals."""
SWAPS = 2000
"""Maximum number of rows of the interventions, which swap the goal."""
EXTRA = "analysis"
"""Extra of the package that installs scikit-learn."""


@dataclass(frozen=True, eq=False)
class Points:
    """Positions of rows in the subgoal space, with their labels."""

    space: Float[np.ndarray, "R Z"]
    """Belief over codes, or mean of the inferred subgoal."""
    cluster: Int[np.ndarray, " R"]
    agent_type: Int[np.ndarray, " R"]
    prey: Int[np.ndarray, " R"]
    """Item that the player takes in the end."""
    time: Int[np.ndarray, " R"]
    rows: EvalRows


@dataclass(frozen=True, eq=False)
class SubgoalDiagnosis:
    """Metrics, and the data of the figures."""

    figures: dict[str, Any]
    drawn: Points
    embeddings: dict[str, Float[np.ndarray, "R 2"]]
    """Embeddings of the drawn points: `PCA` and `t-SNE`."""
    policies: Float[np.ndarray, "K A"]
    """Predicted action probabilities in one state under each goal."""


def diagnose(fitted: Fitted, dataset: Dataset, seed: int | None = None) -> SubgoalDiagnosis:
    """Evaluates a fit's subgoals on the held-out episodes of a dataset.

    Clusters and codes are labelled on the training episodes.
    """
    model = opponent_model(fitted)
    if model.space not in ("codes", "gaussian"):
        raise InputError(f"{fitted.run.path} has the goal space {model.space!r}, whose goals are not learnt")
    if model.networks == "seat":
        raise InputError(f"{fitted.run.path} has separate subgoals per seat, which cannot be compared")
    if not fitted.epochs:
        raise InputError(f"{fitted.run.path} has no epoch yet: hopplus fit --resume {fitted.run.path}")
    require("sklearn", EXTRA)
    parts, params = split(dataset.load()), fitted.params(seed)
    train = _points(model, params, dataset, parts.train)
    held_out = _points(model, params, dataset, parts.held_out)
    cluster = _clusters(model, train)
    train, held_out = (replace(points, cluster=cluster(points.space)) for points in (train, held_out))
    game, exact = dataset.game, held_out.rows.exact
    prey_of = _majority(train.cluster, train.prey)
    type_of = _majority(train.cluster, train.agent_type)
    figures = {
        "run": str(fitted.run.path),
        "dataset": str(dataset.path),
        "game": game.name,
        "seed": fitted.run.seeds[0] if seed is None else seed,
        "subgoals": model.space,
        "rows": len(held_out.agent_type),
        "agent_types": list(dataset.agent_types),
        "prey": list(game.taken_names),
        "purity_agent_type": _purity(held_out.cluster, held_out.agent_type),
        "purity_prey": _purity(held_out.cluster, held_out.prey),
        "usage": (np.bincount(held_out.cluster, minlength=_num_clusters(model)) / len(held_out.cluster)).tolist(),
        "agent_type_of_cluster": {
            str(number): dataset.agent_types[agent_type] for number, agent_type in type_of.items()
        },
        "by_time": _by_time(train, held_out, exact),
        "prey_accuracy": float((_relabel(held_out.cluster, prey_of) == held_out.prey).mean()),
        "prey_commonest": float(np.bincount(held_out.prey).max() / len(held_out.prey)),
        "visited_later": _visited_later(model, params, held_out.rows, game),
        "interventions": _interventions(model, params, game, held_out),
    }
    chosen = np.random.default_rng(0).choice(
        len(held_out.agent_type), min(DRAWN, len(held_out.agent_type)), replace=False
    )
    drawn = Points(*(values[chosen] for values in list(vars(held_out).values())[:-1]), rows=held_out.rows)
    return SubgoalDiagnosis(figures, drawn, _embeddings(drawn.space), _policies(model, params, game, held_out))


# ------------------------------------------------------------------------------------------------------------ points


def _points(model: OpponentModelFit, params: Params, dataset: Dataset, recorded: Recorded) -> Points:
    """Positions of recorded players, all in one cluster."""
    groups = split_by_agent(dataset.game, recorded, boards=model.space == "gaussian", grouped=False)
    rows = EvalRows.of(dataset, groups, recorded, partial(make_population, dataset.game, dataset.agent_types))
    predict = predictor(model, dataset.game)
    space = flatten(groups, [predictions.belief for predictions in predict(params, groups)])
    took = np.asarray(recorded.trajectory.took).max(0)
    return Points(space, np.zeros(len(space), int), rows.agent_type, took[rows.episode, rows.seat], rows.time, rows)


def _num_clusters(model: OpponentModelFit) -> int:
    return model.codes if model.space == "codes" else CLUSTERS


def _clusters(model: OpponentModelFit, points: Points) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the assignment to clusters: the most likely code, or the nearest k-means centre in a space."""
    if model.space == "codes":
        return lambda space: space.argmax(-1)
    centres = (
        require("sklearn.cluster", EXTRA)
        .KMeans(CLUSTERS, n_init="auto", random_state=0)
        .fit(points.space[:: max(1, len(points.space) // 20_000)])
    )
    return lambda space: np.asarray(centres.predict(space))


def _majority(cluster: Int[np.ndarray, " R"], label: Int[np.ndarray, " R"]) -> dict[int, int]:
    """Most frequent label of every cluster."""
    return {int(number): int(np.bincount(label[cluster == number]).argmax()) for number in np.unique(cluster)}


def _relabel(cluster: Int[np.ndarray, " R"], labels: dict[int, int]) -> Int[np.ndarray, " R"]:
    return np.array([labels.get(number, 0) for number in range(cluster.max() + 1)])[cluster]


def _purity(cluster: Int[np.ndarray, " R"], label: Int[np.ndarray, " R"]) -> float:
    """Share of rows that have the most frequent label of their cluster."""
    return float(sum(np.bincount(label[cluster == number]).max() for number in np.unique(cluster)) / len(label))


def _by_time(train: Points, held_out: Points, exact: ExactPredictions | None) -> list[dict[str, Any]]:
    """Accuracy of the agent type inferred from the subgoal before each step, with that of the exact posteriors.

    A code (or cluster) is labelled with its most frequent agent type in the training episodes, every trajectory having
    the same weight. The inferred type is the one whose codes have the largest belief. The model itself is never given
    agent types.
    """
    counts = _weights(train).T @ (
        share_of_trajectory(train.rows)[:, None] * np.eye(train.agent_type.max() + 1)[train.agent_type]
    )
    right = (_weights(held_out) @ np.eye(counts.shape[1])[counts.argmax(-1)]).argmax(-1) == held_out.agent_type
    posteriors = {} if exact is None else {"exact": exact.posterior, "exact_alone": exact.alone}
    exact_right = {
        name: held_out.rows.at(value).argmax(-1) == held_out.agent_type for name, value in posteriors.items()
    }
    by_step = []
    for step in range(LATEST + 1):
        chosen = held_out.time == step
        if chosen.any():
            accuracy = {"agent_type_accuracy": right, **exact_right}
            means = {name: float(values[chosen].mean()) for name, values in accuracy.items()}
            by_step.append({"step": step, "rows": int(chosen.sum()), **means})
    return by_step


def _weights(points: Points) -> Float[np.ndarray, "R K"]:
    """Weight of each code or cluster in each row."""
    return points.space if _is_belief(points.space) else np.eye(CLUSTERS)[points.cluster]


def share_of_trajectory(rows: EvalRows) -> Float[np.ndarray, " R"]:
    """Returns the inverse length of each row's trajectory: long trajectories must not outvote short ones."""
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


def _visited_later(model: OpponentModelFit, params: Params, rows: EvalRows, game: Any) -> dict[str, float] | None:
    """Share of rows whose decoded subgoal shows the player in a cell that it visits later, with that of random cells.

    None for codes, which do not stand for states.
    """
    if model.space != "gaussian" or not isinstance(game, GridGame):
        return None
    network, hits, chance, total = model.network(game), 0.0, 0.0, 0
    for group in rows.trajectories:
        inferred = subgoals.infer(network, params["network"], (group,))
        board = np.asarray(subgoals.apply(network, params["network"], "decode", inferred.mean))
        predicted = board[..., 0].reshape(*group.action.shape, -1).argmax(-1)
        here = np.asarray(group.board)[..., 0].reshape(*group.action.shape, -1) > 0
        alive = np.asarray(group.alive)
        later = np.cumsum((here & alive[..., None])[:, ::-1], 1)[:, ::-1] - here > 0
        counted = alive & later.any(-1)
        hits += np.take_along_axis(later, predicted[..., None], -1)[..., 0][counted].sum()
        chance += later.mean(-1)[counted].sum()
        total += int(counted.sum())
    return {"share": float(hits / max(total, 1)), "by_chance": float(chance / max(total, 1)), "rows": total}


# ------------------------------------------------------------------------------------------------------ interventions


def _policies_of(
    model: OpponentModelFit, params: Params, game: Any, points: Points
) -> Callable[[AgentTrajectories], Any]:
    """Predictor of actions [N, L, K, A] under each goal: every code, or every cluster's mean."""
    network = model.network(game)
    if model.space == "codes":
        return lambda group: jnp.exp(log_probabilities(network, params["network"], group))
    centres = [points.space[points.cluster == number].mean(0) for number in np.unique(points.cluster)]

    def under(group: AgentTrajectories) -> Any:
        def act(centre: Any) -> Any:
            goal = jnp.broadcast_to(centre, (*group.action.shape, len(centre)))
            return jax.nn.softmax(subgoals.apply(network, params["network"], "act", group.features, goal))

        return jnp.stack([act(jnp.asarray(centre)) for centre in centres], 2)

    return under


def _interventions(model: OpponentModelFit, params: Params, game: Any, points: Points) -> dict[str, Any]:
    """Effect of swapping the goal on the predicted actions.

    Mean total variation between the policy of the believed goal and that of another; 0 if goals do not matter.
    """
    groups = points.rows.trajectories
    policies = flatten(groups, [_policies_of(model, params, game, points)(group) for group in groups])
    index = np.random.default_rng(0).permutation(len(policies))[:SWAPS]
    place = {int(cluster): number for number, cluster in enumerate(np.unique(points.cluster))}
    goal = (
        points.cluster[index]
        if model.space == "codes"
        else np.array([place[int(cluster)] for cluster in points.cluster[index]])
    )
    policies = policies[index]
    distance = 0.5 * np.abs(policies - policies[np.arange(len(index)), goal][:, None]).sum(-1)
    other_goals = np.arange(policies.shape[1]) != goal[:, None]
    changed = policies.argmax(-1) != policies[np.arange(len(index)), goal].argmax(-1)[:, None]
    return {
        "rows": len(index),
        "total_variation": float(distance[other_goals].mean()),
        "likeliest_action_changes": float(changed[other_goals].mean()),
        "largest_total_variation": float(distance.max(-1).mean()),
    }


def _policies(model: OpponentModelFit, params: Params, game: Any, points: Points) -> Float[np.ndarray, "K A"]:
    """Predicted actions under each goal, in the initial state of a long trajectory where they differ most."""
    group = points.rows.trajectories[-1]
    first = jax.tree.map(lambda leaf: leaf[:256, :1] if leaf.ndim > 1 else leaf[:256], group)
    policies = np.asarray(_policies_of(model, params, game, points)(first))[:, 0]
    return policies[policies.std(1).sum(-1).argmax()]

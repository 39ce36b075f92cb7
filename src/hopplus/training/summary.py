"""Log lines of a compiled call, and the summary of a training."""

from typing import Any

import numpy as np

from hopplus.algorithms.base import Metrics, State
from hopplus.core.statistics import standard_error
from hopplus.training.experiment import Experiment
from hopplus.training.logging import Line
from hopplus.training.progress import Progress


def log_lines(experiment: Experiment, states: State, metrics: Metrics, active: np.ndarray, calls: int) -> list[Line]:
    """A line of metrics for every seed that still trains, after a number of compiled calls."""
    means = {}
    for name, mean in metrics.items():
        total, count = np.asarray(mean.total, np.float64), np.asarray(mean.count, np.float64)
        means[name] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        if name == "trained_on":
            means[name] = total
    steps = np.asarray(states.steps)
    return [
        {
            "seed": seed,
            "iteration": calls * experiment.training.iterations_per_call,
            "steps": int(steps[place]),
            **{name: values[place].tolist() for name, values in means.items()},
        }
        for place, seed in enumerate(experiment.seeds)
        if active[place]
    ]


def summarize(experiment: Experiment, states: State, returns: np.ndarray, progress: Progress) -> dict[str, Any]:
    """Summary kept as evaluation/final.json, from greedy returns [K, episodes, n].

    Errors are over seeds where there are several, else over episodes.
    """
    by_seed, episodes = returns.mean(1), returns.shape[1]
    error = standard_error(by_seed if len(by_seed) > 1 else returns[0])
    learners = list(experiment.learners)
    mean = float(by_seed.mean())
    ceiling = experiment.game.ceilings["mean"]
    return {
        "game": experiment.game.name,
        "cast": experiment.training.cast,
        "algorithm": experiment.algorithm.name,
        "seeds": list(experiment.seeds),
        "steps": np.asarray(states.steps).tolist(),
        "seconds": progress.seconds,
        "episodes": episodes,
        "greedy": True,
        "learners": learners,
        "mean_return": mean,
        "own_return": float(by_seed[:, learners].mean()),
        "share_of_ceiling": mean / ceiling if ceiling else 0.0,
        "ceiling": ceiling,
        "per_seat": [
            {"seat": seat, "mean": float(by_seed[:, seat].mean()), "standard_error": float(error[seat])}
            for seat in range(by_seed.shape[1])
        ],
        "per_seed": [
            {
                "seed": seed,
                "own_return": float(row[learners].mean()),
                "by_seat": row.tolist(),
                "reached": progress.reached.get(str(seed)),
            }
            for seed, row in zip(experiment.seeds, by_seed, strict=True)
        ],
    }

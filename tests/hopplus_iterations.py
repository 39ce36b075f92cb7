"""Training iterations of HOP+ in memory, with their intermediate results."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from hopplus.algorithms import HopPlus
from hopplus.algorithms.expert_iteration import PlannedTransitions
from hopplus.algorithms.hopplus import targets
from hopplus.beliefs.goal_space import labelled_goals
from hopplus.configs import TrainingConfig
from hopplus.models.agent_trajectories import from_rollout
from hopplus.networks.encoders import encode
from hopplus.training.experiment import prepare

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "hidden": (8,),
    "moa_hidden": (8,),
    "moa_batches": 2,
    "update_epochs": 1,
    "moa_refresh": 2,
}
GAME = "msh-4x4-4h1s"


def prepared(algorithm: HopPlus, cast: str = "self-play") -> tuple[Any, Any]:
    """Curriculum phase of a training, and its initial state."""
    experiment = prepare(TrainingConfig(game=GAME, cast=cast, steps=10_000), algorithm)
    phase = experiment.phases[0][1]
    return phase, jax.jit(lambda key: algorithm.init(key, phase, experiment.frozen_params()))(jax.random.key(0))


@contextlib.contextmanager
def recorded(*functions: tuple[Any, str]) -> Iterator[dict[str, tuple[Sequence[Any], Any]]]:
    """Context that records arguments and results of functions, by name, as last traced."""
    calls: dict[str, tuple[Sequence[Any], Any]] = {}

    def recording(name: str, method: Any) -> Any:
        def call(*args: Any) -> Any:
            result = method(*args)
            calls[name] = args, result
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in functions:
            patch.setattr(owner, name, recording(name, getattr(owner, name)))
        yield calls


@dataclasses.dataclass(frozen=True)
class Iterations:
    """Training iterations of an algorithm; all but the states as NumPy arrays."""

    algorithm: HopPlus
    phase: Any
    states: list[Any]
    trajectories: list[Any]
    metrics: list[Mapping[str, Any]]
    transitions: list[PlannedTransitions]
    """Transitions of the rollout [T, E, L]."""
    batches: list[PlannedTransitions]
    """Transitions that trained the policy [P, M], imagined transitions included."""
    shapes: dict[str, Any]
    """Arguments of `imagined_transitions`, as arrays of zeros."""


def iterations(algorithm: HopPlus, cast: str = "self-play", number: int = 2) -> Iterations:
    """Runs some iterations from the initial state."""
    phase, state = prepared(algorithm, cast)
    shapes: dict[str, Any] = {}

    @jax.jit
    def train_step(state: Any) -> tuple[Any, Any]:
        functions = ((HopPlus, "transitions"), (HopPlus, "update_policy"), (targets, "imagined_transitions"))
        with recorded(*functions) as calls:
            after, trajectory, metrics = algorithm.train_step(state, phase, {})
        if "imagined_transitions" in calls:
            imagined = calls["imagined_transitions"][0][-3:]
            shapes["imagined"] = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), imagined)
        return after, (trajectory, metrics, calls["transitions"][1], calls["update_policy"][0][-1])

    states, results = [state], []
    for _ in range(number):
        state, outputs = train_step(states[-1])
        states.append(state)
        results.append(jax.tree.map(np.asarray, outputs))
    trajectories, metrics, transitions, batches = (list(values) for values in zip(*results, strict=True))
    return Iterations(algorithm, phase, states, trajectories, metrics, transitions, batches, shapes)


@partial(jax.jit, static_argnames=("game", "prey"))
def agent_trajectories(trajectory: Any, game: Any, prey: bool = False) -> Any:
    """Trajectories by agent, and the features of all observations [T, E, n, F]."""
    seen = jax.vmap(jax.vmap(game.observe))(trajectory.state)
    return from_rollout(game, trajectory, goals=labelled_goals("prey") if prey else None), encode(seen, game.last_step)

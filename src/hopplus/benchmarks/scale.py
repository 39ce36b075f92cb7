"""Scaling of cost with players, board size, environments and simulations, changed one at a time."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hopplus.algorithms import PPO
from hopplus.algorithms.base import Algorithm, State
from hopplus.algorithms.hop import Hop
from hopplus.algorithms.hopplus import HopPlus
from hopplus.benchmarks.cost import FEWEST_ROWS, fit_each, left_out, operations_per_kernel
from hopplus.benchmarks.machine import best_seconds, copy_bandwidth, load_average, machine, matmul_flops
from hopplus.benchmarks.work import alive, count, kernels
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.settings import flatten, replace_settings
from hopplus.training.experiment import Experiment, prepare

WARM_UP_ITERATIONS = 3
"""Iterations before timing starts, so that episodes are at different steps."""
MINIBATCHES = 8
"""Minibatches per epoch of PPO, if all players are alive."""


@dataclass(frozen=True)
class Point:
    """Training whose iteration is timed."""

    vary: str
    """Setting that differs from the base case: players, board, environments or simulations; `base` for none; `corner`
    for several."""
    algorithm: str = "ppo"
    players: int = 4
    side: int = 4
    environments: int = 128
    simulations: int | None = None
    """Simulations of the search before every action of every seat; None without search."""

    @property
    def game(self) -> str:
        """Name of the game: as many hares as players, one stag, no blocks."""
        changed = {"height": (self.side, 4), "width": (self.side, 4), "players": (self.players, 4)}
        changed["hares"] = changed["players"]
        return ":".join(["msh-4x4-4h1s", *(f"{key}={now}" for key, (now, base) in changed.items() if now != base)])

    def settings(self) -> Algorithm:
        """Returns the algorithm."""
        if self.algorithm == "ppo":
            return PPO(num_envs=self.environments)
        if self.simulations is None:
            return HopPlus(num_envs=self.environments)
        return replace_settings(Hop(num_envs=self.environments), {"simulations": self.simulations})

    @property
    def steps(self) -> int:
        """Steps of all environments per iteration."""
        return self.environments * flatten(self.settings())["num_steps"]

    def experiment(self) -> Experiment:
        """Returns the experiment."""
        return prepare(TrainingConfig(game=self.game, steps=10**9), self.settings())


def _around(base: Point, **axes: Sequence[int]) -> tuple[Point, ...]:
    """Returns the base case, and variants with one setting changed at a time."""
    names = {"side": "board"}
    changed = [
        dataclasses.replace(base, vary=names.get(axis, axis), **{axis: value})
        for axis, values in axes.items()
        for value in values
        if value != getattr(base, axis)
    ]
    return (base, *changed)


PLAYERS, SIDES, ENVIRONMENTS, SIMULATIONS = (2, 4, 8), (4, 8, 16, 19), (16, 64, 256, 1024), (8, 16, 32, 64, 128)
POINTS = (
    *_around(Point("base"), players=PLAYERS, side=SIDES, environments=ENVIRONMENTS),
    *_around(Point("base", "hopplus"), players=PLAYERS, side=SIDES, environments=ENVIRONMENTS),
    *_around(
        Point("base", "hop", environments=32, simulations=32), simulations=SIMULATIONS, environments=(8,), side=(8,)
    ),
    *(Point("corner", algorithm, players=8, side=8, environments=256) for algorithm in ("ppo", "hopplus")),
)
"""Points that `hopplus bench scale` times. A corner, with several changes, tests whether costs combine as modelled."""
AHEAD = (
    *(Point("ahead", "ppo", environments=number) for number in (1024, 16384)),
    *(Point("ahead", "hopplus", side=8, environments=number) for number in (256, 4096)),
    *(Point("ahead", "hopplus", players=8, side=19, environments=number) for number in (128, 2048)),
    *(Point("ahead", "hop", environments=number, simulations=128) for number in (32, 1024)),
)
"""Points that are only traced, for predictions."""


def measure(
    points: Sequence[Point],
    ahead: Sequence[Point],
    rounds: int,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Times an iteration of every point in turn, `rounds` times, and takes the best time of each.

    Returns:
        `rows` (the point; parameters; living_share: share of valid rows; work of an iteration: steps, operations,
        kernels, flops, bytes, alive_bytes and state_bytes; measurements: memory_bytes, compile_seconds, seconds,
        seconds_per_step and ratio_to_base), `ahead` (points that are only traced, with all players alive), `cost`
        (fitted by algorithm), `left_out` (leave-one-out errors), and the machine and its peak performance.
    """
    if rounds < 1:
        raise InputError(f"bench scale needs at least one round, not {rounds}")
    for algorithm, number in Counter(point.algorithm for point in points).items():
        if number < FEWEST_ROWS:
            raise InputError(f"a cost model of {algorithm} needs at least {FEWEST_ROWS} points, not {number}")
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    load = load_average()
    total = len(points) + len(ahead) + rounds
    all_timed: list[_TimedPoint] = []
    for point in points:
        all_timed.append(_compile(point))
        progress(len(all_timed) / total)
    traced = []
    for point in ahead:
        traced.append(_traced(point))
        progress((len(all_timed) + len(traced)) / total)
    for number in range(rounds):
        for timed in all_timed:
            timed.time_once()
        progress((total - rounds + number + 1) / total)
    rows = [_row(timed, all_timed) for timed in all_timed]
    return {
        "rows": rows,
        "ahead": traced,
        "cost": {algorithm: dataclasses.asdict(cost) for algorithm, cost in fit_each(rows).items()},
        "left_out": left_out(rows),
        "operations_per_kernel": operations_per_kernel(rows),
        "matmul_flops": matmul_flops(),
        "copy_bandwidth": copy_bandwidth(),
        "load_at_start": load,
        "rounds": rounds,
        "machine": machine(),
    }


@dataclass
class _TimedPoint:
    """Compiled iteration, always from the same state, so that all rounds do the same work."""

    point: Point
    facts: dict[str, Any]
    run: Callable[[State], Any]
    state: State
    best_seconds: float = float("inf")

    def time_once(self) -> None:
        self.best_seconds = min(self.best_seconds, best_seconds(lambda: self.run(self.state), 1))


def _row(timed: _TimedPoint, all_timed: Sequence[_TimedPoint]) -> dict[str, Any]:
    same_algorithm = [other for other in all_timed if other.point.algorithm == timed.point.algorithm]
    base = next((other for other in same_algorithm if other.point.vary == "base"), None)

    def per_step(other: _TimedPoint) -> float:
        return other.best_seconds / other.facts["steps"]

    return {
        **dataclasses.asdict(timed.point),
        **timed.facts,
        "seconds": timed.best_seconds,
        "seconds_per_step": per_step(timed),
        "ratio_to_base": per_step(timed) / per_step(base) if base else None,
    }


def _trace(experiment: Experiment) -> Any:
    """Traces one seed's iteration."""
    phase, algorithm = experiment.phases[0][1], experiment.algorithm
    first = jax.eval_shape(lambda key: algorithm.init(key, phase, {}), jax.random.key(0))
    return jax.jit(lambda state: algorithm.iterate(state, phase, {})).trace(first)


def _facts(point: Point, traced: Any, experiment: Experiment, minibatches: float) -> dict[str, Any]:
    """Returns the properties of a point that are known without running it."""
    state, jaxpr = traced.out_info[0], traced.jaxpr.jaxpr
    before_and_after = [*traced.jaxpr.in_avals, *traced.jaxpr.out_avals]
    return {
        "game": point.game,
        "steps": point.steps,
        "parameters": sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(experiment.algorithm.params(state))),
        **dataclasses.asdict(count(jaxpr, minibatches)),
        "alive_bytes": alive(jaxpr),
        "state_bytes": sum(math.prod(array.shape) * array.dtype.itemsize for array in before_and_after),
    }


def _traced(point: Point) -> dict[str, Any]:
    experiment = point.experiment()
    return {**dataclasses.asdict(point), **_facts(point, _trace(experiment), experiment, MINIBATCHES)}


def _compile(point: Point) -> _TimedPoint:
    experiment = point.experiment()
    phase, algorithm = experiment.phases[0][1], experiment.algorithm
    started = time.perf_counter()
    traced = _trace(experiment)
    compiled = traced.lower().compile()
    compile_seconds = time.perf_counter() - started
    state = jax.jit(lambda key: algorithm.init(key, phase, {}))(jax.random.key(0))
    for _ in range(WARM_UP_ITERATIONS):
        state, _ = compiled(state)
    metrics = compiled(state)[1]
    living_share = float(np.asarray(metrics["trained_on"].total).sum()) / (point.steps * point.players)
    minibatches, memory = math.ceil(MINIBATCHES * living_share), compiled.memory_analysis()
    facts = {
        **_facts(point, traced, experiment, minibatches),
        "living_share": living_share,
        "kernels": kernels(compiled.as_text(), minibatches),
        "memory_bytes": memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes,
        "compile_seconds": compile_seconds,
    }
    return _TimedPoint(point, facts, compiled, state)

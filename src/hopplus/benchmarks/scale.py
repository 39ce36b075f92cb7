"""How cost grows with players, board, environments and simulations: one of them changed at a time."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from hopplus.benchmarks.cost import FEWEST_ROWS, fit_each, left_out, operations_per_kernel
from hopplus.benchmarks.machine import best_seconds, copy_bandwidth, load_average, machine, matmul_flops
from hopplus.benchmarks.work import alive, count, kernels
from hopplus.errors import InputError
from hopplus.training.recipe import State
from hopplus.training.recipes import PPO
from hopplus.training.recipes.hop import Hop
from hopplus.training.recipes.hopplus import HopPlus
from hopplus.training.trainer import Setup, Training, prepare

WARM_UP_ITERATIONS = 3
"""Played before anything is timed, so that not all episodes are equally old."""
MINIBATCHES = 8
"""Of an epoch of PPO, if all players are still there."""


@dataclass(frozen=True)
class Point:
    """A training of which one iteration is timed."""

    vary: str
    """What is other than in the base case: players, board, environments or simulations; `base`: nothing; `corner`:
    several of them."""
    recipe: str = "ppo"
    players: int = 4
    side: int = 4
    environments: int = 128
    simulations: int | None = None
    """Of the search before every action of every seat; None: there is no search."""

    @property
    def game(self) -> str:
        """As many hares as players and one stag, no blocks."""
        changed = {"height": (self.side, 4), "width": (self.side, 4), "players": (self.players, 4)}
        changed["hares"] = changed["players"]
        return ":".join(["msh-4x4-4h1s", *(f"{key}={now}" for key, (now, base) in changed.items() if now != base)])

    def settings(self) -> PPO:
        if self.recipe == "ppo":
            return PPO(environments=self.environments)
        if self.simulations is None:
            return HopPlus(environments=self.environments)
        return Hop(environments=self.environments, simulations=self.simulations)

    @property
    def steps(self) -> int:
        """Of all environments in an iteration."""
        return self.environments * self.settings().rollout_steps

    def setup(self) -> Setup:
        return prepare(Training(game=self.game, steps=10**9), self.settings())


def _around(base: Point, **axes: Sequence[int]) -> tuple[Point, ...]:
    """The base case, and it with one setting changed at a time."""
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
    *(Point("corner", recipe, players=8, side=8, environments=256) for recipe in ("ppo", "hopplus")),
)
"""What `hopplus bench scale` times. A corner, where all is changed, shows whether costs go together as the model has
it."""
AHEAD = (
    *(Point("ahead", "ppo", environments=number) for number in (1024, 16384)),
    *(Point("ahead", "hopplus", side=8, environments=number) for number in (256, 4096)),
    *(Point("ahead", "hopplus", players=8, side=19, environments=number) for number in (128, 2048)),
    *(Point("ahead", "hop", environments=number, simulations=128) for number in (32, 1024)),
)
"""What is only traced, for predictions."""


def measure(
    points: Sequence[Point],
    ahead: Sequence[Point],
    rounds: int,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Time an iteration of every point, all in turn, `rounds` times; the best time of each counts.

    Returns `rows` (the point; parameters; living_share, how many of the rows were of players still there; what an
    iteration is: steps, operations, kernels, flops, bytes, alive_bytes and state_bytes; what it took: memory_bytes,
    compile_seconds, seconds, seconds_per_step, and how many times the base case's that is), `ahead` (points that are
    only traced, everybody being there to the end), the `cost` fitted for each recipe, `left_out`: the errors with which
    each row is predicted from the recipe's others, and what the machine is and does at best.
    """
    if rounds < 1:
        raise InputError(f"bench scale needs at least one round, not {rounds}")
    for recipe, number in Counter(point.recipe for point in points).items():
        if number < FEWEST_ROWS:
            raise InputError(f"a model of the cost of {recipe} needs at least {FEWEST_ROWS} points, not {number}")
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    load = load_average()
    total = len(points) + len(ahead) + rounds
    entrants: list[_Entrant] = []
    for point in points:
        entrants.append(_compile(point))
        progress(len(entrants) / total)
    traced = []
    for point in ahead:
        traced.append(_traced(point))
        progress((len(entrants) + len(traced)) / total)
    for number in range(rounds):
        for entrant in entrants:
            entrant.time_once()
        progress((total - rounds + number + 1) / total)
    rows = [_row(entrant, entrants) for entrant in entrants]
    return {
        "rows": rows,
        "ahead": traced,
        "cost": {recipe: dataclasses.asdict(cost) for recipe, cost in fit_each(rows).items()},
        "left_out": left_out(rows),
        "operations_per_kernel": operations_per_kernel(rows),
        "matmul_flops": matmul_flops(),
        "copy_bandwidth": copy_bandwidth(),
        "load_at_start": load,
        "rounds": rounds,
        "machine": machine(),
    }


@dataclass
class _Entrant:
    """A compiled iteration, always from the same state, so that every round is the same work."""

    point: Point
    facts: dict[str, Any]
    run: Callable[[State], Any]
    state: State
    best_seconds: float = float("inf")

    def time_once(self) -> None:
        self.best_seconds = min(self.best_seconds, best_seconds(lambda: self.run(self.state), 1))


def _row(entrant: _Entrant, entrants: Sequence[_Entrant]) -> dict[str, Any]:
    alike = [one for one in entrants if one.point.recipe == entrant.point.recipe]
    base = next((one for one in alike if one.point.vary == "base"), None)

    def per_step(one: _Entrant) -> float:
        return one.best_seconds / one.facts["steps"]

    return {
        **dataclasses.asdict(entrant.point),
        **entrant.facts,
        "seconds": entrant.best_seconds,
        "seconds_per_step": per_step(entrant),
        "ratio_to_base": per_step(entrant) / per_step(base) if base else None,
    }


def _trace(setup: Setup) -> Any:
    """One seed's iteration, traced."""
    stage = setup.stages[0][1]
    first = jax.eval_shape(partial(setup.recipe.init, stage=stage, frozen={}), jax.random.key(0))
    return jax.jit(partial(setup.recipe.iterate, stage=stage, frozen={})).trace(first)


def _facts(point: Point, traced: Any, setup: Setup, minibatches: float) -> dict[str, Any]:
    """What is known of a point without running it."""
    state, jaxpr = traced.out_info[0], traced.jaxpr.jaxpr
    before_and_after = [*traced.jaxpr.in_avals, *traced.jaxpr.out_avals]
    return {
        "game": point.game,
        "steps": point.steps,
        "parameters": sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(setup.recipe.learnt(state))),
        **dataclasses.asdict(count(jaxpr, minibatches)),
        "alive_bytes": alive(jaxpr),
        "state_bytes": sum(math.prod(array.shape) * array.dtype.itemsize for array in before_and_after),
    }


def _traced(point: Point) -> dict[str, Any]:
    setup = point.setup()
    return {**dataclasses.asdict(point), **_facts(point, _trace(setup), setup, MINIBATCHES)}


def _compile(point: Point) -> _Entrant:
    setup = point.setup()
    stage, recipe = setup.stages[0][1], setup.recipe
    started = time.perf_counter()
    traced = _trace(setup)
    compiled = traced.lower().compile()
    compile_seconds = time.perf_counter() - started
    state = jax.jit(partial(recipe.init, stage=stage, frozen={}))(jax.random.key(0))
    for _ in range(WARM_UP_ITERATIONS):
        state, _ = compiled(state)
    told = compiled(state)[1]
    living = float(np.asarray(told["trained_on"].total).sum()) / (point.steps * point.players)
    minibatches, memory = math.ceil(MINIBATCHES * living), compiled.memory_analysis()
    facts = {
        **_facts(point, traced, setup, minibatches),
        "living_share": living,
        "kernels": kernels(compiled.as_text(), minibatches),
        "memory_bytes": memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes,
        "compile_seconds": compile_seconds,
    }
    return _Entrant(point, facts, compiled, state)

"""Speed of planning: decisions and simulated steps per second of each planner, beside plain mctx in the same run."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.benchmarks.all_seats import all_seats, all_seats_figures
from hopplus.benchmarks.machine import load_average, machine
from hopplus.benchmarks.mctx_search import mctx_search
from hopplus.benchmarks.planning_setup import Setup, make_setup
from hopplus.benchmarks.step_parts import shares_of_time, step_parts
from hopplus.benchmarks.timed import Timed
from hopplus.core.errors import InputError
from hopplus.planning.catalog import PlanningMethod
from hopplus.planning.rollouts import RolloutPlanner
from hopplus.planning.simulator import World
from hopplus.planning.tree_search import TreePlanner
from hopplus.players import Params

MCTX = "mctx"
NO_MCTX = "mctx is not installed, so there are no ratios to it: pip install 'hopplus[bench]'"
DECISIONS = 8
"""Fewest decisions that are timed: a batch of fewer is planned several times, from different states."""
PART_TIMINGS = 5
"""Timings of each part of a simulated step per round: they are short, and so easily disturbed."""


def measure(
    games: Sequence[str],
    planners: Sequence[str],
    batches: Sequence[int],
    rounds: int,
    policy: str = "hopplus",
    world: World = "rules",
    compare_notes: bool = True,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Times all planners in turn, `rounds` times, and takes the best time of each.

    Args:
        games: Games by name.
        planners: Planners by name, with settings in brackets if they differ from those of the policy.
        batches: Numbers of decisions planned at once.
        rounds: Timings of each program.
        policy: Name of a pretrained policy, policy file or run directory.
        world: Simulator: the game's rules, or a learned world model with random parameters.
        compare_notes: Also time environments in which all seats plan with the settings of the original notes.
        progress: Called with the share that is done.

    Returns:
        Figures by the keys that docs/commands.md explains.
    """
    if rounds < 1 or not games or not planners or not batches or min(batches) < 1:
        raise InputError(
            "bench planning needs a game, a planner, at least one round and batches of at least one decision"
        )
    load = load_average()
    setups = {name: make_setup(name, policy, world) for name in games}
    for setup in setups.values():  # mistakes are reported before anything is compiled
        for planner in (*planners, "tree"):
            setup.method(planner)
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    rows, played = _timed_rows(setups, planners, batches, rounds, compare_notes, progress)
    return {
        "rows": rows,
        "halving": [_halving(setups[name]) for name in games] if "rollouts" in planners else [],
        "all_seats": None if played is None else all_seats_figures(played),
        "policy": policy,
        "world": world,
        "settings": {name: _settings(setup) for name, setup in setups.items()},
        "rounds": rounds,
        "load_at_start": load,
        "machine": machine(),
        "note": "" if _has_mctx() else NO_MCTX,
    }


def _timed_rows(
    setups: Mapping[str, Setup],
    planners: Sequence[str],
    batches: Sequence[int],
    rounds: int,
    compare_notes: bool,
    progress: Callable[[float], None],
) -> tuple[list[dict[str, Any]], Timed | None]:
    """Returns a row for each game, batch and planner, and the timed environments of the notes."""
    competitors = (*planners, *([MCTX] if _has_mctx() else []))
    plans = [(name, planner, batch) for name in setups for batch in batches for planner in competitors]
    total, programs, parts = len(plans) + rounds, [], {}
    for name, planner, batch in plans:
        programs.append(_planning(setups[name], planner, batch))
        if planner != MCTX:
            parts[name, planner, batch] = step_parts(setups[name], planner, batch)
        progress(len(programs) / total)
    played = all_seats() if compare_notes else None
    short = [part for each in parts.values() for part in each.values()]
    for number in range(rounds):
        for timed in (*programs, *([] if played is None else [played]), *PART_TIMINGS * short):
            timed.time_once()
        progress((len(programs) + number + 1) / total)
    rows = [_row(timed, programs) for timed in programs]
    for row, plan in zip(rows, plans, strict=True):
        row["shares"] = shares_of_time(row["steps_per_second"], parts[plan]) if plan in parts else None
    return rows, played


def _has_mctx() -> bool:
    try:
        import mctx  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return bool(mctx)


def _settings(setup: Setup) -> dict[str, Any]:
    """Settings of planning that the policy was trained with."""
    rollouts, tree = setup.method("rollouts"), setup.method("tree")
    assert isinstance(rollouts, RolloutPlanner)
    assert isinstance(tree, TreePlanner)
    names = ("rollouts", "rounds", "candidates", "level", "horizon")
    return {
        "rollouts": {name: getattr(rollouts.config, name) for name in names},
        "tree": vars(tree.search).copy(),
        "base_plans": [plan.name for plan in rollouts.base_plans],
    }


# -- planners


def _planning(setup: Setup, planner: str, batch: int) -> Timed:
    """Compiles the planning of `batch` decisions at once."""
    params = jax.jit(setup.params)()
    method = setup.method("tree" if planner == MCTX else planner)
    if planner == MCTX:
        assert isinstance(method, TreePlanner)
        plan = mctx_search(method)
    else:
        plan = jax.vmap(lambda params, *decision: method.plan(decision[0], params, *decision[1:]), (None, 0, 0, 0))
    inputs = _batches(setup, "tree" if planner == MCTX else planner, params, batch)
    started = time.perf_counter()
    compiled = jax.jit(plan).lower(*inputs[0]).compile()
    seconds = time.perf_counter() - started
    results = [compiled(*arguments) for arguments in inputs]
    facts = {"game": setup.game.name, "planner": planner, "batch": batch}
    return Timed(facts, compiled, inputs, seconds, _simulated_steps(method, planner, results, batch))


def _batches(setup: Setup, planner: str, params: Params, batch: int) -> list[tuple[Any, ...]]:
    """Arguments of `plan` for batches with at least DECISIONS decisions in all."""
    number = -(-DECISIONS // batch)
    decisions = setup.decisions(planner, params, number * batch)
    arguments = decisions.key, decisions.beliefs, decisions.observation
    split = jax.tree.map(lambda leaf: leaf.reshape(number, batch, *leaf.shape[1:]), arguments)
    return [(params, *jax.tree.map(lambda leaf, index=index: leaf[index], split)) for index in range(number)]


def _simulated_steps(method: PlanningMethod, planner: str, results: Sequence[Any], batch: int) -> float | None:
    """Simulated steps of all batches; None if the planner does not count them."""
    if isinstance(method, TreePlanner):
        search = method.search
        known = planner == MCTX or search.leaf == "value"
        return float(len(results) * batch * search.belief_samples * search.simulations) if known else None
    choices = [result.choice for result in results]
    return None if None in choices else float(sum(choice.simulated_steps.sum() for choice in choices))


def _row(timed: Timed, programs: Sequence[Timed]) -> dict[str, Any]:
    """Figures of one program, with ratios to the tree and to mctx at the same game and batch."""

    def speed(other: Timed) -> float | None:
        return None if other.steps is None else other.steps / other.seconds

    def ratio(planner: str) -> float | None:
        facts = {**timed.facts, "planner": planner}
        other = next((speed(other) for other in programs if other.facts == facts), None)
        return None if other is None or own is None else own / other

    own, decisions = speed(timed), len(timed.inputs) * timed.facts["batch"]
    return {
        **timed.facts,
        "decisions": decisions,
        "milliseconds": 1e3 * timed.seconds / len(timed.inputs),
        "longest_milliseconds": 1e3 * max(timed.best_seconds),
        "decisions_per_second": decisions / timed.seconds,
        "steps_per_decision": None if timed.steps is None else timed.steps / decisions,
        "steps_per_second": own,
        "ratio_to_tree": ratio("tree"),
        "ratio_to_mctx": ratio(MCTX),
        "compile_seconds": timed.compile_seconds,
    }


# -- sequential halving


def _halving(setup: Setup) -> dict[str, Any]:
    """Simulated steps per decision of sequential halving, and of as many simulations of every candidate.

    Without halving (`rounds=1`), each candidate has as many simulations as halving spends on one that it never drops.
    """
    params, batch = jax.jit(setup.params)(), 4 * DECISIONS
    planner = setup.method("rollouts")
    assert isinstance(planner, RolloutPlanner)
    decisions = setup.decisions("rollouts", params, batch)
    own_actions = jnp.zeros(len(planner.base_plans), jnp.int32)
    one = jax.tree.map(lambda leaf: leaf[0], decisions.observation)
    candidates = len(planner._candidates(own_actions, one).action)
    each = simulations_of_the_best(candidates, planner.config.rollouts, planner.config.rounds)
    figures: dict[str, Any] = {"game": setup.game.name, "decisions": batch, "candidates": candidates}
    for name, spec in {"halving": "rollouts", "every": f"rollouts(rounds=1,rollouts={candidates * each})"}.items():
        method = setup.method(spec)
        plan = jax.jit(jax.vmap(method.plan, (0, None, 0, 0)))
        result = plan(decisions.key, params, decisions.beliefs, decisions.observation)
        assert result.choice is not None
        figures[name] = {
            "planner": spec,
            "screening_simulations": float(np.mean(result.visits.sum(-1))),
            "steps_per_decision": float(np.mean(result.choice.simulated_steps)),
        }
    return {**figures, "ratio": figures["every"]["steps_per_decision"] / figures["halving"]["steps_per_decision"]}


def simulations_of_the_best(candidates: int, rollouts: int, rounds: int) -> int:
    """Returns the simulations that sequential halving spends on a candidate that it never drops."""
    total, left = 0, candidates
    for _ in range(rounds):
        total += max(rollouts // left, 1)
        left = max((left + 1) // 2, 1)
    return total

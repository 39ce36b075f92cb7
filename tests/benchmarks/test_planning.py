"""Benchmark of planning: rows, ratios, shares of time, and the comparison of halving with every candidate."""

from typing import Any

import pytest

from hopplus.benchmarks.planning import _row, simulations_of_the_best
from hopplus.benchmarks.step_parts import PARTS, REST, shares_of_time
from hopplus.benchmarks.timed import Timed


def timed(planner: str, seconds: list[float], steps: float | None, batch: int = 1) -> Timed:
    """Returns a program with these times."""
    facts = {"game": "msh-4x4-4h1s", "planner": planner, "batch": batch}
    return Timed(facts, lambda: None, [()] * len(seconds), 1.0, steps, seconds)


def rows() -> dict[str, dict[str, Any]]:
    """Returns the rows of three planners, one of which does not count its steps, and of a batch of another size."""
    programs = [
        timed("rollouts", [0.1, 0.3], 800.0),
        timed("tree", [0.1, 0.1], 100.0),
        timed("mine", [0.1, 0.1], None),
        timed("tree", [0.1], 10.0, batch=8),
    ]
    return {f"{row['planner']} {row['batch']}": row for row in (_row(program, programs) for program in programs)}


def test_ratios_are_of_simulated_steps_at_the_same_batch() -> None:
    figures = rows()
    assert figures["rollouts 1"]["ratio_to_tree"] == pytest.approx(2000 / 500)
    assert figures["tree 8"]["ratio_to_tree"] == 1
    assert figures["mine 1"]["ratio_to_tree"] is None
    assert figures["rollouts 1"]["ratio_to_mctx"] is None


def test_times_are_of_one_batch() -> None:
    rollouts = rows()["rollouts 1"]
    assert rollouts["decisions"] == 2
    assert rollouts["milliseconds"] == pytest.approx(200)
    assert rollouts["longest_milliseconds"] == pytest.approx(300)
    assert rollouts["steps_per_decision"] == 400
    assert rows()["tree 8"]["decisions_per_second"] == pytest.approx(80)


def test_the_best_time_of_each_input_counts() -> None:
    program = Timed({}, lambda: None, [(), ()], 1.0, best_seconds=[0.0, 1e9])
    program.time_once()
    assert program.best_seconds[0] == 0
    assert program.best_seconds[1] < 1e9


def test_shares_are_of_the_time_of_one_simulated_step() -> None:
    parts = {name: timed(name, [0.01], 100.0) for name in PARTS}
    shares = shares_of_time(2000.0, parts)
    assert shares is not None
    assert shares["rules"] == pytest.approx(1e-4 * 2000)
    assert shares[REST] == pytest.approx(1 - len(PARTS) * 0.2)
    assert shares_of_time(None, parts) is None


def test_simulations_of_a_candidate_that_halving_never_drops() -> None:
    assert simulations_of_the_best(28, 64, 3) == 64 // 28 + 64 // 14 + 64 // 7
    assert simulations_of_the_best(100, 64, 1) == 1
    assert simulations_of_the_best(3, 8, 4) == 2 + 4 + 8 + 8

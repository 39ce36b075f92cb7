"""Beliefs against the sum over all that can have happened."""

import itertools
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopplus.planning import beliefs
from hopplus.planning.beliefs import with_slips

GOALS, STEPS = 3, 4
SWITCHES = (0.0, 0.02, 0.5)


@partial(jax.jit, static_argnames="switch")
def _compiled(prior: Any, likelihood: Any, alive: Any, switch: float, available: Any) -> tuple[beliefs.Filtered, Any]:
    filtered = beliefs.follow(prior, likelihood, alive, switch, available)
    return filtered, beliefs.smooth(filtered, likelihood, alive, prior, switch)


def follow(
    prior: Any, likelihood: Any, alive: Any = None, switch: float = 0.0, available: Any = None
) -> tuple[beliefs.Filtered, np.ndarray]:
    """Filtered and smoothed beliefs as NumPy arrays, from probabilities; one program for each shape and switch."""
    alive = np.ones(len(likelihood), bool) if alive is None else np.array(alive)
    return jax.tree.map(np.asarray, _compiled(np.log(prior), np.log(likelihood), alive, switch, available))


def by_enumeration(prior: np.ndarray, likelihood: np.ndarray, switch: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Filtered beliefs before each step, smoothed ones, and the evidence, by summing over all courses of the goal."""
    steps, goals = likelihood.shape
    filtered, smoothed = np.zeros((steps, goals)), np.zeros((steps, goals))
    total = 0.0
    for course in itertools.product(range(goals), repeat=steps):
        chance = prior[course[0]]
        for time in range(steps):
            if time:
                stays = (1 - switch) * (course[time] == course[time - 1])
                chance *= stays + switch * prior[course[time]]
            filtered[time, course[time]] += chance
            chance *= likelihood[time, course[time]]
        # What was added for later steps of this course was counted once for each of its ends: undone by normalising.
        smoothed[np.arange(steps), course] += chance
        total += chance
    return filtered / filtered.sum(-1, keepdims=True), smoothed / total, total


@pytest.mark.parametrize("switch", [0.0, 0.1])
def test_filter_smoother_and_evidence_are_exact(switch: float) -> None:
    generator = np.random.default_rng(3)
    prior = generator.dirichlet(np.ones(GOALS))
    likelihood = generator.uniform(0.05, 1, (STEPS, GOALS))
    expected, in_hindsight, evidence = by_enumeration(prior, likelihood, switch)
    found, smoothed = follow(prior, likelihood, switch=switch)
    np.testing.assert_allclose(np.exp(found.before), expected, rtol=1e-4)
    np.testing.assert_allclose(found.evidence.sum(), np.log(evidence), rtol=1e-4)
    np.testing.assert_allclose(np.exp(smoothed), in_hindsight, rtol=1e-4)


def test_by_hand() -> None:
    """Prior 1/2 each; an action that goal 0 takes always and goal 1 half the time: 2/3 to 1/3, evidence 3/4."""
    found, _ = follow([0.5, 0.5], [[1.0, 0.5]])
    np.testing.assert_allclose(np.exp(found.after), [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(np.exp(found.evidence), [0.75], rtol=1e-6)
    switched, _ = follow([0.5, 0.5], [[1.0, 0.5]], switch=0.1)
    np.testing.assert_allclose(np.exp(switched.after), [0.9 * 2 / 3 + 0.05, 0.9 / 3 + 0.05], rtol=1e-6)


def test_steps_of_one_who_has_left_say_nothing() -> None:
    prior, likelihood = [0.5, 0.5], [[0.9, 0.1], [0.01, 0.99], [0.01, 0.99]]
    found, smoothed = follow(prior, likelihood, [True, False, False], 0.05)
    alone, _ = follow(prior, likelihood[:1], switch=0.05)
    np.testing.assert_allclose(found.after, alone.after, rtol=1e-6)
    assert (found.evidence[1:] == 0).all()
    np.testing.assert_allclose(np.exp(smoothed[0]), [0.9, 0.1], rtol=1e-5)


def test_a_goal_that_is_gone_leaves_its_belief_to_the_others() -> None:
    there = np.array([[True, True, True], [True, False, True]])
    likelihood = [[0.1, 0.8, 0.1], [0.5, 0.5, 0.5]]
    found, _ = follow([0.2, 0.4, 0.4], likelihood, available=there)
    after_one = np.array([0.02, 0.32, 0.04]) / 0.38
    shared = np.array([after_one[0] + after_one[1] / 3, 0, after_one[2] + after_one[1] * 2 / 3])
    np.testing.assert_allclose(np.exp(found.before[1]), shared, atol=1e-6)


@jax.jit
def _before_each_step(priors: Any, likelihoods: Any) -> list[Any]:
    """The logarithms of the beliefs of several players, by chance that a goal changes."""
    alive: Any = np.ones(likelihoods.shape[1], bool)
    return [
        jax.vmap(lambda prior, likelihood, switch=switch: beliefs.follow(prior, likelihood, alive, switch).before)(
            priors, likelihoods
        )
        for switch in SWITCHES
    ]


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_beliefs_are_probabilities_and_commute_with_renaming(goals: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    prior, likelihood = generator.dirichlet(np.ones(goals)), generator.uniform(0.01, 1, (5, goals))
    order = generator.permutation(goals)
    both = np.stack([prior, prior[order]]), np.stack([likelihood, likelihood[:, order]])
    for found in _before_each_step(*map(np.log, both)):
        before, renamed = np.exp(np.asarray(found))
        np.testing.assert_allclose(before.sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(before[:, order], renamed, atol=1e-5)


def test_a_slip_keeps_bayes_from_locking_in() -> None:
    np.testing.assert_allclose(with_slips(np.array([0.0, 1.0]), np.array(4.0)), [0.005, 0.985], rtol=1e-5)  # pyright: ignore[reportArgumentType]

"""Beliefs against the sum over all that can have happened."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopplus.planning.beliefs import follow, smooth, with_slips

GOALS, STEPS = 3, 4


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
    alive = jnp.ones(STEPS, bool)
    found = follow(jnp.log(prior), jnp.log(likelihood), alive, switch)
    np.testing.assert_allclose(jnp.exp(found.before), expected, rtol=1e-4)
    np.testing.assert_allclose(found.evidence.sum(), np.log(evidence), rtol=1e-4)
    smoothed = smooth(found, jnp.log(likelihood), alive, jnp.log(prior), switch)
    np.testing.assert_allclose(jnp.exp(smoothed), in_hindsight, rtol=1e-4)


def test_by_hand() -> None:
    """Prior 1/2 each; an action that goal 0 takes always and goal 1 half the time: 2/3 to 1/3, evidence 3/4."""
    found = follow(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[1.0, 0.5]])), jnp.array([True]))
    np.testing.assert_allclose(jnp.exp(found.after), [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(found.evidence), [0.75], rtol=1e-6)
    switched = follow(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[1.0, 0.5]])), jnp.array([True]), 0.1)
    np.testing.assert_allclose(jnp.exp(switched.after), [0.9 * 2 / 3 + 0.05, 0.9 / 3 + 0.05], rtol=1e-6)


def test_steps_of_one_who_has_left_say_nothing() -> None:
    prior, likelihood = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.9, 0.1], [0.01, 0.99], [0.01, 0.99]]))
    found = follow(prior, likelihood, jnp.array([True, False, False]), 0.05)
    alone = follow(prior, likelihood[:1], jnp.array([True]), 0.05)
    np.testing.assert_allclose(found.after, alone.after, rtol=1e-6)
    assert (found.evidence[1:] == 0).all()
    smoothed = smooth(found, likelihood, jnp.array([True, False, False]), prior, 0.05)
    np.testing.assert_allclose(jnp.exp(smoothed[0]), jnp.array([0.9, 0.1]), rtol=1e-5)


def test_a_goal_that_is_gone_leaves_its_belief_to_the_others() -> None:
    prior = jnp.log(jnp.array([0.2, 0.4, 0.4]))
    there = jnp.array([[True, True, True], [True, False, True]])
    likelihood = jnp.log(jnp.array([[0.1, 0.8, 0.1], [0.5, 0.5, 0.5]]))
    found = follow(prior, likelihood, jnp.ones(2, bool), 0.0, there)
    after_one = np.array([0.02, 0.32, 0.04]) / 0.38
    shared = np.array([after_one[0] + after_one[1] / 3, 0, after_one[2] + after_one[1] * 2 / 3])
    np.testing.assert_allclose(jnp.exp(found.before[1]), shared, atol=1e-6)


@given(st.integers(2, 6), st.integers(0, 10_000), st.sampled_from([0.0, 0.02, 0.5]))
@settings(max_examples=20, deadline=None)
def test_beliefs_are_probabilities_and_commute_with_renaming(goals: int, seed: int, switch: float) -> None:
    generator = np.random.default_rng(seed)
    prior, likelihood = generator.dirichlet(np.ones(goals)), generator.uniform(0.01, 1, (5, goals))
    order = generator.permutation(goals)
    found = follow(jnp.log(prior), jnp.log(likelihood), jnp.ones(5, bool), switch)
    renamed = follow(jnp.log(prior[order]), jnp.log(likelihood[:, order]), jnp.ones(5, bool), switch)
    np.testing.assert_allclose(jnp.exp(found.before).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(found.before)[:, order], jnp.exp(renamed.before), atol=1e-5)


def test_a_slip_keeps_bayes_from_locking_in() -> None:
    np.testing.assert_allclose(with_slips(jnp.array(0.0), jnp.array(4.0)), 0.005, rtol=1e-5)
    np.testing.assert_allclose(with_slips(jnp.array(1.0), jnp.array(4.0)), 0.985, rtol=1e-5)

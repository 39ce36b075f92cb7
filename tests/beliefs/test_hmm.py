"""HMM filter and smoother against enumeration of all goal sequences."""

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopplus.beliefs import hmm

GOALS, STEPS = 3, 4
SWITCH_PROBABILITIES = (0.0, 0.02, 0.5)


@partial(jax.jit, static_argnames="switch")
def _compiled(prior: Any, likelihood: Any, alive: Any, switch: float, available: Any) -> tuple[hmm.Filtered, Any]:
    filtered = hmm.filter(prior, likelihood, alive, switch, available)
    return filtered, hmm.smooth(filtered, likelihood, alive, prior, switch)


def filter_and_smooth(
    prior: Any, likelihood: Any, alive: Any = None, switch: float = 0.0, available: Any = None
) -> tuple[hmm.Filtered, np.ndarray]:
    """Returns filtered and smoothed beliefs as NumPy arrays, from probabilities; one program per shape and switch."""
    alive = np.ones(len(likelihood), bool) if alive is None else np.array(alive)
    return jax.tree.map(np.asarray, _compiled(np.log(prior), np.log(likelihood), alive, switch, available))


def by_enumeration(prior: np.ndarray, likelihood: np.ndarray, switch: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns filtered beliefs before each step, smoothed beliefs and evidence, by a sum over all goal sequences."""
    steps, goals = likelihood.shape
    filtered, smoothed = np.zeros((steps, goals)), np.zeros((steps, goals))
    total = 0.0
    for sequence in itertools.product(range(goals), repeat=steps):
        probability = prior[sequence[0]]
        for time in range(steps):
            if time:
                stays = (1 - switch) * (sequence[time] == sequence[time - 1])
                probability *= stays + switch * prior[sequence[time]]
            filtered[time, sequence[time]] += probability
            probability *= likelihood[time, sequence[time]]
        # A prefix is added once per continuation, which normalisation undoes.
        smoothed[np.arange(steps), sequence] += probability
        total += probability
    return filtered / filtered.sum(-1, keepdims=True), smoothed / total, total


@pytest.mark.parametrize("switch", [0.0, 0.1])
def test_filter_smoother_and_evidence_are_exact(switch: float) -> None:
    generator = np.random.default_rng(3)
    prior = generator.dirichlet(np.ones(GOALS))
    likelihood = generator.uniform(0.05, 1, (STEPS, GOALS))
    expected, expected_smoothed, evidence = by_enumeration(prior, likelihood, switch)
    filtered, smoothed = filter_and_smooth(prior, likelihood, switch=switch)
    np.testing.assert_allclose(np.exp(filtered.before), expected, rtol=1e-4)
    np.testing.assert_allclose(filtered.evidence.sum(), np.log(evidence), rtol=1e-4)
    np.testing.assert_allclose(np.exp(smoothed), expected_smoothed, rtol=1e-4)


def test_by_hand() -> None:
    """Prior 1/2 each; an action that goal 0 takes always and goal 1 half the time: 2/3 to 1/3, evidence 3/4."""
    filtered, _ = filter_and_smooth([0.5, 0.5], [[1.0, 0.5]])
    np.testing.assert_allclose(np.exp(filtered.after), [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(np.exp(filtered.evidence), [0.75], rtol=1e-6)
    switched, _ = filter_and_smooth([0.5, 0.5], [[1.0, 0.5]], switch=0.1)
    np.testing.assert_allclose(np.exp(switched.after), [0.9 * 2 / 3 + 0.05, 0.9 / 3 + 0.05], rtol=1e-6)


def test_steps_after_leaving_have_no_evidence() -> None:
    prior, likelihood = [0.5, 0.5], [[0.9, 0.1], [0.01, 0.99], [0.01, 0.99]]
    filtered, smoothed = filter_and_smooth(prior, likelihood, [True, False, False], 0.05)
    alone, _ = filter_and_smooth(prior, likelihood[:1], switch=0.05)
    np.testing.assert_allclose(filtered.after, alone.after, rtol=1e-6)
    assert (filtered.evidence[1:] == 0).all()
    np.testing.assert_allclose(np.exp(smoothed[0]), [0.9, 0.1], rtol=1e-5)


def test_the_mass_of_an_unavailable_goal_is_redistributed() -> None:
    available = np.array([[True, True, True], [True, False, True]])
    likelihood = [[0.1, 0.8, 0.1], [0.5, 0.5, 0.5]]
    filtered, _ = filter_and_smooth([0.2, 0.4, 0.4], likelihood, available=available)
    posterior = np.array([0.02, 0.32, 0.04]) / 0.38
    expected = np.array([posterior[0] + posterior[1] / 3, 0, posterior[2] + posterior[1] * 2 / 3])
    np.testing.assert_allclose(np.exp(filtered.before[1]), expected, atol=1e-6)


@jax.jit
def _before_each_step(priors: Any, likelihoods: Any) -> list[Any]:
    """Returns the log-beliefs of several players, by switch probability."""
    alive: Any = np.ones(likelihoods.shape[1], bool)
    return [
        jax.vmap(lambda prior, likelihood, switch=switch: hmm.filter(prior, likelihood, alive, switch).before)(
            priors, likelihoods
        )
        for switch in SWITCH_PROBABILITIES
    ]


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_beliefs_are_probabilities_and_commute_with_renaming(goals: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    prior, likelihood = generator.dirichlet(np.ones(goals)), generator.uniform(0.01, 1, (5, goals))
    order = generator.permutation(goals)
    both = np.stack([prior, prior[order]]), np.stack([likelihood, likelihood[:, order]])
    for log_beliefs in _before_each_step(*map(np.log, both)):
        before, renamed = np.exp(np.asarray(log_beliefs))
        np.testing.assert_allclose(before.sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(before[:, order], renamed, atol=1e-5)


@pytest.mark.parametrize("switch_probability", [0.0, 0.02])
def test_updates_of_probabilities_equal_those_of_log_probabilities(switch_probability: float) -> None:
    random = np.random.default_rng(0)
    belief, prior, likelihood = random.dirichlet(np.ones(4), (3, 5)).astype(np.float32)
    belief[:, 2] = 0.0
    available = np.array([True, False, True, True])
    expected = hmm.update(np.log(belief + 1e-30), np.log(prior), np.log(likelihood), switch_probability)
    updated = hmm.update_probs(jnp.asarray(belief), jnp.asarray(prior), jnp.asarray(likelihood), switch_probability)
    np.testing.assert_allclose(updated, np.exp(expected), rtol=1e-5, atol=1e-7)
    restricted = hmm.restrict_probs(updated, jnp.asarray(prior), jnp.asarray(available))
    np.testing.assert_allclose(
        restricted, np.exp(hmm.restrict_to_available(expected, np.log(prior), jnp.asarray(available))), rtol=1e-5
    )
    np.testing.assert_allclose(restricted.sum(-1), updated.sum(-1), rtol=1e-5)

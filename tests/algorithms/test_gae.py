"""Generalised advantage estimates at episode ends, truncation, resets and leaving: by hand and by the definition."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopplus.algorithms.gae import gae

STEPS, ENVIRONMENTS, SEATS = 7, 2, 3
COMPILED: Any = jax.jit(gae)


def estimate(
    reward: list[float],
    value: list[float],
    last_value: float,
    ended: list[int],
    alive: list[int],
    gamma: float = 0.5,
    gae_lambda: float = 0.5,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns of one player in one environment."""
    advantages, returns = COMPILED(
        np.array(reward, np.float32)[:, None],
        np.array(value, np.float32)[:, None],
        np.array([last_value], np.float32),
        np.array(ended, bool)[:, None],
        np.array(alive, bool)[:, None],
        gamma,
        gae_lambda,
    )
    return np.asarray(advantages)[:, 0], np.asarray(returns)[:, 0]


def test_a_truncated_rollout_bootstraps_from_the_last_value() -> None:
    # gamma = lambda = 1/2. TD errors r + V'/2 - V, backwards:
    #   t=2: 3 + 8/2 - 2 = 5        A = 5
    #   t=1: 0 + 2/2 - 4 = -3       A = -3 + 5/4 = -1.75
    #   t=0: 1 + 4/2 - 1 = 2        A = 2 - 1.75/4 = 1.5625
    advantages, returns = estimate([1, 0, 3], [1, 4, 2], 8, [0, 0, 0], [1, 1, 1])
    assert advantages.tolist() == [1.5625, -1.75, 5]
    assert returns.tolist() == [2.5625, 2.25, 7]


def test_the_end_of_an_episode_does_not_bootstrap() -> None:
    # As above, but the episode ends in the last step:
    #   t=2: 3 - 2 = 1              A = 1
    #   t=1: 0 + 2/2 - 4 = -3       A = -3 + 1/4 = -2.75
    #   t=0: 1 + 4/2 - 1 = 2        A = 2 - 2.75/4 = 1.3125
    advantages, returns = estimate([1, 0, 3], [1, 4, 2], 8, [0, 0, 1], [1, 1, 1])
    assert advantages.tolist() == [1.3125, -2.75, 1]
    assert returns.tolist() == [2.3125, 1.25, 3]


def test_nothing_counts_after_a_player_has_left() -> None:
    # It leaves in step 1 with 2; the later rows do not count.
    #   t=1: 2 - 4 = -2             A = -2
    #   t=0: 1 + 4/2 - 1 = 2        A = 2 - 2/4 = 1.5
    advantages, returns = estimate([1, 2, 7, 7], [1, 4, 100, -50], 1000, [0, 1, 1, 1], [1, 1, 0, 0])
    assert advantages.tolist() == [1.5, -2, 0, 0]
    assert returns.tolist() == [2.5, 2, 0, 0]


def test_nothing_leaks_from_one_episode_into_the_one_before() -> None:
    # The first ends in step 1, the second is truncated.
    #   t=3: 1 + 4/2 - 2 = 1        A = 1
    #   t=2: 0 + 2/2 - 6 = -5       A = -5 + 1/4 = -4.75
    #   t=1: 5 - 3 = 2              A = 2
    #   t=0: 1 + 3/2 - 1 = 1.5      A = 1.5 + 2/4 = 2
    advantages, returns = estimate([1, 5, 0, 1], [1, 3, 6, 2], 4, [0, 1, 0, 0], [1, 1, 1, 1])
    assert advantages.tolist() == [2, 2, -4.75, 1]
    assert returns.tolist() == [3, 5, 1.25, 3]


def test_a_player_who_left_is_back_in_the_next_episode() -> None:
    # It leaves in step 0; the others end the game in step 1; a new one begins.
    #   t=2: 1 + 4/2 - 2 = 1        A = 1
    #   t=0: 1 - 1 = 0              A = 0
    advantages, returns = estimate([1, 0, 1], [1, 9, 2], 4, [1, 1, 0], [1, 0, 1])
    assert advantages.tolist() == [0, 0, 1]
    assert returns.tolist() == [1, 0, 3]


def test_lambda_0_is_the_one_step_td_error() -> None:
    advantages, _ = estimate([1, 0, 3], [1, 4, 2], 8, [0, 0, 0], [1, 1, 1], gamma=0.5, gae_lambda=0.0)
    assert advantages.tolist() == [1 + 2 - 1, 0 + 1 - 4, 3 + 4 - 2]


def test_lambda_1_is_the_monte_carlo_return() -> None:
    # Returns are discounted rewards, and the last value after truncation: 1 + 0/2 + 3/4 + 8/8 = 2.75 ...
    _, returns = estimate([1, 0, 3], [1, 4, 2], 8, [0, 0, 0], [1, 1, 1], gamma=0.5, gae_lambda=1.0)
    assert returns.tolist() == [2.75, 3.5, 7]
    _, returns = estimate([1, 0, 3], [1, 4, 2], 8, [0, 0, 1], [1, 1, 1], gamma=0.5, gae_lambda=1.0)
    assert returns.tolist() == [1.75, 1.5, 3]


def test_seats_are_independent_of_each_other() -> None:
    # One seat goes on, one leaves, one ends: the three cases above at once, as [T, E=1, 3 seats].
    reward = np.array([[[1, 1, 1]], [[0, 2, 0]], [[3, 7, 3]]], np.float32)
    value = np.array([[[1, 1, 1]], [[4, 4, 4]], [[2, 100, 2]]], np.float32)
    ended = np.array([[[0, 0, 0]], [[0, 1, 0]], [[0, 1, 1]]], bool)
    alive = np.array([[[1, 1, 1]], [[1, 1, 1]], [[1, 0, 1]]], bool)
    advantages, returns = COMPILED(reward, value, np.full((1, 3), 8, np.float32), ended, alive, 0.5, 0.5)
    expected = np.array([[1.5625, 1.5, 1.3125], [-1.75, -2, -2.75], [5, 0, 1]])
    np.testing.assert_array_equal(np.asarray(advantages)[:, 0], expected)
    np.testing.assert_array_equal(np.asarray(returns)[:, 0], np.where(alive[:, 0], expected + value[:, 0], 0))


def reference(
    reward: np.ndarray,
    value: np.ndarray,
    last_value: np.ndarray,
    ended: np.ndarray,
    alive: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """GAE forwards from its definition: the sum of (gamma * lambda)^k times the TD error k steps later, up to the
    player's last step in its episode."""
    advantages = np.zeros(reward.shape)
    for place in np.argwhere(alive):
        first, row, weight = place[0], tuple(place[1:]), 1.0
        for time in range(first, len(reward)):
            following = last_value[row] if time + 1 == len(reward) else value[(time + 1, *row)]
            expected = 0.0 if ended[(time, *row)] else gamma * following
            advantages[tuple(place)] += weight * (reward[(time, *row)] + expected - value[(time, *row)])
            weight *= gamma * gae_lambda
            if ended[(time, *row)]:
                break
    return advantages


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ending=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    dying=st.sampled_from([0.0, 0.3, 0.9]),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.7, 0.95, 1.0]),
)
def test_advantages_equal_the_definition(
    seed: int, ending: float, dying: float, gamma: float, gae_lambda: float
) -> None:
    generator = np.random.default_rng(seed)
    shape = (STEPS, ENVIRONMENTS, SEATS)
    reward, value = generator.normal(size=(2, *shape)).astype(np.float32)
    last_value = generator.normal(size=shape[1:]).astype(np.float32)
    ended = generator.random(shape) < ending
    # As in a rollout: a player is absent only after a step that ended, and absent steps have ended too.
    alive = np.ones(shape, bool)
    for time in range(1, STEPS):
        alive[time] = ~(ended[time - 1] & (generator.random(shape[1:]) < dying))
        ended[time] |= ~alive[time]
    advantages, returns = COMPILED(reward, value, last_value, ended, alive, gamma, gae_lambda)
    expected = reference(reward, value, last_value, ended, alive, gamma, gae_lambda)
    np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(returns, np.where(alive, np.asarray(advantages) + value, 0))


@pytest.mark.parametrize("garbage", [1e30, -7.0])
def test_steps_after_leaving_do_not_matter(garbage: float) -> None:
    alive = [1, 1, 0, 0, 1]
    clean, dirty = (
        estimate([1, 2, x, x, 1], [1, 4, x, x, 2], 4, [0, 1, 1, 1, 0], alive, gae_lambda=0.9) for x in (0.0, garbage)
    )
    np.testing.assert_array_equal(clean, dirty)

"""Rollouts: masks, lengths, returns, events, auto-reset, and random streams that are independent of batch size."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import observations
from hopplus import games, players, rollouts
from hopplus.games import Observation
from hopplus.players import Cast, Player

HUNT = games.make("msh-4x4-4h1s")
CAST = players.make_cast("ns,ns,nh,random", HUNT)


@pytest.fixture(scope="module")
def whole() -> rollouts.Trajectory:
    return jax.tree.map(np.asarray, rollouts.play_episodes(jax.random.key(0), HUNT, CAST, 64)[1])


@pytest.fixture(scope="module")
def streamed() -> rollouts.Trajectory:
    rollout_state = rollouts.init_rollout(jax.random.key(0), HUNT, CAST, 64)
    return jax.tree.map(np.asarray, rollouts.rollout(rollout_state, HUNT, CAST, 90)[1])


def test_rows_are_alive_until_the_player_leaves_or_the_game_ends(whole: rollouts.Trajectory) -> None:
    left_before = np.concatenate([np.zeros_like(whole.left[:1]), whole.left[:-1]])
    over_before = np.concatenate([np.zeros_like(whole.over[:1]), whole.over[:-1]])
    np.testing.assert_array_equal(whole.alive, ~left_before & ~over_before[..., None])
    assert whole.over[-1].all()
    assert (whole.actions[~whole.alive] == 4).all()
    assert (whole.reward[~whole.alive] == 0).all()
    assert (whole.took[~whole.alive] == 0).all()


def test_stored_actions_are_legal_where_they_count(whole: rollouts.Trajectory, streamed: rollouts.Trajectory) -> None:
    for trajectory in (whole, streamed):
        legal = np.asarray(observations(HUNT, trajectory).legal)[..., 0, :]
        chosen = np.take_along_axis(legal, np.asarray(trajectory.actions)[..., None], -1)[..., 0]
        assert chosen[trajectory.alive].all()


def test_illegal_actions_of_blind_hunters_are_stored_as_idle() -> None:
    game = games.make("msh-8x8-4h1s")
    cast = players.make_cast(",".join(["ns:paths=blind"] * 4), game)
    trajectory = rollouts.play_episodes(jax.random.key(0), game, cast, 32)[1]
    legal = np.asarray(observations(game, trajectory).legal)[..., 0, :]
    chosen = np.take_along_axis(legal, np.asarray(trajectory.actions)[..., None], -1)[..., 0]
    assert chosen[np.asarray(trajectory.alive)].all()


def test_returns_and_lengths_are_the_sums_of_their_rows(whole: rollouts.Trajectory) -> None:
    np.testing.assert_array_equal(whole.returns, whole.reward.sum(0))
    np.testing.assert_array_equal(whole.lengths, whole.alive.sum(0))
    assert set(np.unique(whole.returns[:, :2])) <= set(np.array([0, 0.5, 1, 2.5, 10 / 3, 5], np.float32))


@jax.jit
def replayed(states: Any, actions: jax.Array) -> tuple[Any, tuple[Any, jax.Array]]:
    """Replays actions [T, E, n] in HUNT; returns the last states, and states and rewards [T, E, ...]."""

    def step(states: Any, actions: jax.Array) -> tuple[Any, tuple[Any, jax.Array]]:
        after, outcome = jax.vmap(HUNT.step, in_axes=(None, 0, 0))(jax.random.key(0), states, actions)
        return after, (states, outcome.reward)

    return jax.lax.scan(step, states, actions)


def test_replaying_the_stored_actions_gives_the_stored_rewards_and_states(whole: rollouts.Trajectory) -> None:
    first = jax.tree.map(lambda leaf: leaf[0], whole.state)
    last_state, (states, rewards) = replayed(first, whole.actions)
    assert jax.tree.all(jax.tree.map(np.array_equal, states, whole.state))
    np.testing.assert_array_equal(rewards, whole.reward)
    assert jax.tree.all(jax.tree.map(np.array_equal, last_state, whole.last_state))


def test_events_list_items_players_times_and_rewards(whole: rollouts.Trajectory) -> None:
    events = list(rollouts.events(HUNT, whole))
    assert sum(len(event.players) for event in events) == (whole.took > 0).sum()
    for event in events:
        assert event.what in ("stag", "hare")
        assert len(event.players) >= (2 if event.what == "stag" else 1)
        assert sum(event.rewards) == pytest.approx(10 if event.what == "stag" else 1)
        row = (event.time - 1, event.environment)
        assert all(whole.took[row][player] > 0 and whole.cell[row][player] == event.cell for player in event.players)
    assert {event.what for event in events} == {"stag", "hare"}


def test_streamed_totals_belong_to_the_running_episode(streamed: rollouts.Trajectory) -> None:
    total, steps = np.zeros((64, 4)), np.zeros((64, 4))
    for time in range(len(streamed.over)):
        total, steps = total + streamed.reward[time], steps + streamed.alive[time]
        np.testing.assert_allclose(streamed.total_reward[time], total, rtol=1e-6)
        np.testing.assert_array_equal(streamed.total_steps[time], steps)
        ended = streamed.over[time][:, None]
        total, steps = np.where(ended, 0, total), np.where(ended, 0, steps)
    assert streamed.over.sum() > 64


def test_reset_states_are_fresh_and_never_repeated(streamed: rollouts.Trajectory) -> None:
    time, environment = np.nonzero(streamed.over[:-1])
    fresh = jax.tree.map(lambda leaf: leaf[time + 1, environment], streamed.state)
    assert (fresh.time == 0).all()
    assert (fresh.last_actions == 4).all()
    assert not np.asarray(jax.jit(jax.vmap(HUNT.left))(fresh)).any()
    layouts = np.concatenate([fresh.cells, fresh.items.reshape(len(time), -1)], axis=1)
    assert len(np.unique(layouts, axis=0)) == len(layouts)


@pytest.fixture(scope="module")
def two_in_a_row() -> tuple[rollouts.Trajectory, rollouts.Trajectory]:
    """`streamed` with fewer environments and in two halves."""
    rollout_state = rollouts.init_rollout(jax.random.key(0), HUNT, CAST, 5)
    rollout_state, first = rollouts.rollout(rollout_state, HUNT, CAST, 45)
    _, second = rollouts.rollout(rollout_state, HUNT, CAST, 45)
    return jax.tree.map(np.asarray, (first, second))


def test_an_environment_does_not_depend_on_the_number_of_environments(
    two_in_a_row: tuple[rollouts.Trajectory, rollouts.Trajectory], streamed: rollouts.Trajectory
) -> None:
    few = two_in_a_row[0]
    np.testing.assert_array_equal(few.actions, streamed.actions[:45, :5])
    np.testing.assert_array_equal(few.state.items, streamed.state.items[:45, :5])


def test_two_rollouts_in_a_row_are_one_longer_rollout(
    two_in_a_row: tuple[rollouts.Trajectory, rollouts.Trajectory], streamed: rollouts.Trajectory
) -> None:
    assert streamed.over[:45, :5].any(), "some environments are reset in the first half"
    assert streamed.over[45:, :5].any()
    for half, rows in zip(two_in_a_row, (slice(45), slice(45, None)), strict=True):
        np.testing.assert_array_equal(half.actions, streamed.actions[rows, :5])
        np.testing.assert_array_equal(half.total_reward, streamed.total_reward[rows, :5])


@dataclass(frozen=True)
class Drawer(Player):
    """Stays in its cell and returns its random bits as info."""

    name: str = "drawer"

    def act(self, key: jax.Array, params: Any, memory: Any, observation: Observation) -> Any:
        return jnp.int32(4), memory, jax.random.bits(key)


def test_seats_steps_and_environments_have_independent_keys() -> None:
    bits = np.asarray(rollouts.play_episodes(jax.random.key(0), HUNT, Cast((Drawer(),) * 4), 8)[1].info[0])
    assert bits.shape == (HUNT.last_step, 8, 4)
    assert len(np.unique(bits)) == bits.size


@dataclass(frozen=True)
class Counter(Player):
    """Counts the calls of its methods; its action is a parameter."""

    name: str = "counter"

    def init(self, key: jax.Array, params: Any) -> Any:
        return {name: jnp.int32(0) for name in ("episodes", "acted", "watched", "ended", "last_time")}

    def begin(self, memory: Any) -> Any:
        return memory | {"episodes": memory["episodes"] + 1}

    def act(self, key: jax.Array, params: Any, memory: Any, observation: Observation) -> Any:
        return params["action"], memory | {"acted": memory["acted"] + 1}, {"time": observation.time}

    def watch(self, params: Any, memory: Any, observation: Observation) -> Any:
        return memory | {"watched": memory["watched"] + 1, "last_time": observation.time}

    def end(self, memory: Any) -> Any:
        return memory | {"ended": memory["ended"] + 1}


TWO_COUNTERS = Cast((Counter(), players.make("nh", HUNT), Counter(), players.make("nh", HUNT)))


def test_players_begin_act_watch_and_end_in_order() -> None:
    params = ({"action": np.int32(0)}, (), {"action": np.int32(1)}, ())
    memories, trajectory = rollouts.play_episodes(jax.random.key(0), HUNT, TWO_COUNTERS, 64, params)
    memories, trajectory = rollouts.play_episodes(jax.random.key(1), HUNT, TWO_COUNTERS, 64, params, memories)
    counts = memories[0]
    for name, expected in {"episodes": 2, "acted": 70, "watched": 70, "ended": 2, "last_time": 35}.items():
        np.testing.assert_array_equal(counts[name], np.full((64, 2), expected), err_msg=name)
    np.testing.assert_array_equal(np.asarray(trajectory.info[0]["time"])[:, 0, 0], np.arange(35))
    moves = np.asarray(trajectory.actions)
    assert set(np.unique(moves[..., 0])) <= {0, 4}
    assert set(np.unique(moves[..., 2])) <= {1, 4}, "each seat plays with its own parameters"


def test_watching_goes_on_after_leaving_and_ends_with_the_last_observation() -> None:
    params = ({"action": np.int32(6)}, (), {"action": np.int32(6)}, ())
    memories, trajectory = rollouts.play_episodes(jax.random.key(0), HUNT, TWO_COUNTERS, 64, params)
    steps, left = np.asarray(trajectory.over).argmax(0) + 1, np.asarray(trajectory.left)[..., 0].argmax(0) + 1
    assert (left < steps).any()
    assert (steps < HUNT.last_step).any()
    np.testing.assert_array_equal(np.asarray(memories[0]["watched"])[:, 0], steps)
    np.testing.assert_array_equal(np.asarray(memories[0]["last_time"])[:, 0], steps)

"""Rollouts: masks, lengths, returns, events, auto-reset, and streams that depend on nothing beside them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games, play, players
from hopplus.games import Observation
from hopplus.players import Cast, Player

HUNT = games.make("msh-4x4-4h1s")
CAST = players.make_cast("ns,ns,nh,random", HUNT)


@pytest.fixture(scope="module")
def whole() -> play.Episode:
    return jax.tree.map(np.asarray, play.play_episodes(jax.random.key(0), HUNT, CAST, 64)[1])


@pytest.fixture(scope="module")
def streamed() -> play.Episode:
    table = play.start(jax.random.key(0), HUNT, CAST, 64)
    return jax.tree.map(np.asarray, play.rollout(table, HUNT, CAST, 90)[1])


def test_rows_are_alive_until_the_player_leaves_or_the_game_ends(whole: play.Episode) -> None:
    left_before = np.concatenate([np.zeros_like(whole.left[:1]), whole.left[:-1]])
    over_before = np.concatenate([np.zeros_like(whole.over[:1]), whole.over[:-1]])
    np.testing.assert_array_equal(whole.alive, ~left_before & ~over_before[..., None])
    assert whole.over[-1].all()
    assert (whole.actions[~whole.alive] == 4).all()
    assert (whole.reward[~whole.alive] == 0).all()
    assert (whole.took[~whole.alive] == 0).all()


def test_stored_actions_are_legal_where_they_count(whole: play.Episode, streamed: play.Episode) -> None:
    for episode in (whole, streamed):
        legal = np.asarray(play.observations(HUNT, episode).legal)[..., 0, :]
        chosen = np.take_along_axis(legal, np.asarray(episode.actions)[..., None], -1)[..., 0]
        assert chosen[episode.alive].all()


def test_blind_hunters_are_stored_as_staying_where_they_jam() -> None:
    game = games.make("msh-8x8-4h1s")
    cast = players.make_cast(",".join(["ns:paths=blind"] * 4), game)
    episode = play.play_episodes(jax.random.key(0), game, cast, 32)[1]
    legal = np.asarray(play.observations(game, episode).legal)[..., 0, :]
    chosen = np.take_along_axis(legal, np.asarray(episode.actions)[..., None], -1)[..., 0]
    assert chosen[np.asarray(episode.alive)].all()


def test_returns_and_lengths_are_the_sums_of_their_rows(whole: play.Episode) -> None:
    np.testing.assert_array_equal(whole.returns, whole.reward.sum(0))
    np.testing.assert_array_equal(whole.lengths, whole.alive.sum(0))
    assert set(np.unique(whole.returns[:, :2])) <= set(np.array([0, 0.5, 1, 2.5, 10 / 3, 5], np.float32))


def test_replaying_the_stored_actions_gives_the_stored_rewards_and_states(whole: play.Episode) -> None:
    first = jax.tree.map(lambda leaf: leaf[0], whole.state)
    states = first
    for time in range(len(whole.over)):
        assert jax.tree.all(jax.tree.map(lambda a, b, t=time: np.array_equal(a, b[t]), states, whole.state))
        states, outcome = jax.vmap(HUNT.step, in_axes=(None, 0, 0))(jax.random.key(0), states, whole.actions[time])
        np.testing.assert_array_equal(outcome.reward, whole.reward[time])
    assert jax.tree.all(jax.tree.map(np.array_equal, states, whole.last_state))


def test_events_tell_who_took_what_when_and_with_whom(whole: play.Episode) -> None:
    found = list(play.events(HUNT, whole))
    assert sum(len(event.players) for event in found) == (whole.took > 0).sum()
    for event in found:
        assert event.what in ("stag", "hare")
        assert len(event.players) >= (2 if event.what == "stag" else 1)
        assert sum(event.rewards) == pytest.approx(10 if event.what == "stag" else 1)
        row = (event.time - 1, event.environment)
        assert all(whole.took[row][player] > 0 and whole.cell[row][player] == event.cell for player in event.players)
    assert {event.what for event in found} == {"stag", "hare"}


def test_streamed_totals_belong_to_the_running_episode(streamed: play.Episode) -> None:
    total, steps = np.zeros((64, 4)), np.zeros((64, 4))
    for time in range(len(streamed.over)):
        total, steps = total + streamed.reward[time], steps + streamed.alive[time]
        np.testing.assert_allclose(streamed.total_reward[time], total, rtol=1e-6)
        np.testing.assert_array_equal(streamed.total_steps[time], steps)
        ended = streamed.over[time][:, None]
        total, steps = np.where(ended, 0, total), np.where(ended, 0, steps)
    assert streamed.over.sum() > 64


def test_reset_states_are_fresh_and_never_handed_out_twice(streamed: play.Episode) -> None:
    time, environment = np.nonzero(streamed.over[:-1])
    fresh = jax.tree.map(lambda leaf: leaf[time + 1, environment], streamed.state)
    assert (fresh.time == 0).all()
    assert (fresh.last_actions == 4).all()
    assert not np.asarray(jax.vmap(HUNT.left)(fresh)).any()
    layouts = np.concatenate([fresh.cells, fresh.items.reshape(len(time), -1)], axis=1)
    assert len(np.unique(layouts, axis=0)) == len(layouts)


def test_an_environment_plays_the_same_whatever_plays_beside_it(streamed: play.Episode) -> None:
    table = play.start(jax.random.key(0), HUNT, CAST, 5)
    _, few = play.rollout(table, HUNT, CAST, 90)
    np.testing.assert_array_equal(few.actions, streamed.actions[:, :5])
    np.testing.assert_array_equal(few.state.items, streamed.state.items[:, :5])


def test_two_rollouts_in_a_row_are_one_longer_rollout(streamed: play.Episode) -> None:
    table = play.start(jax.random.key(0), HUNT, CAST, 64)
    table, first = play.rollout(table, HUNT, CAST, 45)
    _, second = play.rollout(table, HUNT, CAST, 45)
    np.testing.assert_array_equal(np.concatenate([first.actions, second.actions]), streamed.actions)
    np.testing.assert_array_equal(np.concatenate([first.total_reward, second.total_reward]), streamed.total_reward)


@dataclass(frozen=True)
class Drawer(Player):
    """Stays where it is, and tells what it would have drawn."""

    name: str = "drawer"

    def act(self, key: jax.Array, params: Any, memory: Any, observation: Observation) -> Any:
        return jnp.int32(4), memory, jax.random.bits(key)


def test_seats_steps_and_environments_draw_by_themselves() -> None:
    words = np.asarray(play.play_episodes(jax.random.key(0), HUNT, Cast((Drawer(),) * 4), 8)[1].info[0])
    assert words.shape == (HUNT.last_step, 8, 4)
    assert len(np.unique(words)) == words.size


@dataclass(frozen=True)
class Diarist(Player):
    """Counts everything that happens to it, and plays with a parameter."""

    name: str = "diarist"

    def init(self, key: jax.Array, params: Any) -> Any:
        return {name: jnp.int32(0) for name in ("begun", "acted", "watched", "ended", "last_time")}

    def begin(self, memory: Any) -> Any:
        return memory | {"begun": memory["begun"] + 1}

    def act(self, key: jax.Array, params: Any, memory: Any, observation: Observation) -> Any:
        return params["action"], memory | {"acted": memory["acted"] + 1}, {"time": observation.time}

    def watch(self, params: Any, memory: Any, observation: Observation) -> Any:
        return memory | {"watched": memory["watched"] + 1, "last_time": observation.time}

    def end(self, memory: Any) -> Any:
        return memory | {"ended": memory["ended"] + 1}


def test_players_begin_act_watch_and_end_as_promised() -> None:
    game = games.make("msh-4x4-4h1s", T=10)
    cast = Cast((Diarist(), players.make("nh", game), Diarist(), players.make("stay", game)))
    params = ({"action": jnp.int32(0)}, (), {"action": jnp.int32(1)}, ())
    memories, episode = play.play_episodes(jax.random.key(0), game, cast, 8, params)
    memories, episode = play.play_episodes(jax.random.key(1), game, cast, 8, params, memories)
    diary = memories[0]
    for name, expected in {"begun": 2, "acted": 20, "watched": 20, "ended": 2, "last_time": 10}.items():
        np.testing.assert_array_equal(diary[name], np.full((8, 2), expected), err_msg=name)
    np.testing.assert_array_equal(np.asarray(episode.info[0]["time"])[:, 0, 0], np.arange(10))
    moves = np.asarray(episode.actions)
    assert set(np.unique(moves[..., 0])) <= {0, 4}
    assert set(np.unique(moves[..., 2])) <= {1, 4}, "each seat plays with its own parameters"


def test_watching_goes_on_after_leaving_and_ends_with_the_last_observation() -> None:
    cast = Cast((Diarist(), *(players.make("nh", HUNT) for _ in range(3))))
    state_params = ({"action": jnp.int32(6)}, (), (), ())
    memories, episode = play.play_episodes(jax.random.key(0), HUNT, cast, 32, state_params)
    steps = np.asarray(episode.over).argmax(0) + 1
    np.testing.assert_array_equal(np.asarray(memories[0]["watched"])[:, 0], steps)
    np.testing.assert_array_equal(np.asarray(memories[0]["last_time"])[:, 0], steps)

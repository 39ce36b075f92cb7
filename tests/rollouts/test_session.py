"""Play turn by turn: equal to a rollout with the same decisions."""

from typing import Any

import jax
import numpy as np
import pytest

from hopplus.games import Game, make
from hopplus.players import Cast
from hopplus.players.human import YOU, Human
from hopplus.rollouts import init_rollout, play_episodes, session
from hopplus.rollouts.session import (
    SessionPlayers,
    SessionState,
    Turn,
    begin_next_episode,
    begin_session,
    returns_of,
    take_turn,
    to_trajectory,
)
from hopplus.training.casting import SeatedCast, parse_cast, seat_cast

EPISODES = 3


def seated(text: str, game: Game[Any]) -> SeatedCast:
    return seat_cast(parse_cast(text), game, extra={YOU: lambda game: Human()})


def session_of(text: str, game: Game[Any]) -> SessionPlayers:
    cast = seated(text, game)
    return SessionPlayers(game, cast.cast.players, tuple(cast.params()), cast.cast.names.index(YOU))


def played(players: SessionPlayers, seed: int, choose: Any) -> list[tuple[list[Turn], SessionState]]:
    """A trial of several episodes, with the human's actions by `choose`."""
    key = jax.random.key(seed)
    state, episodes = begin_session(players, key), []
    for number in range(EPISODES):
        turns: list[Turn] = []
        while not state.over:
            turn, state = take_turn(players, state, choose(np.asarray(state.observation.legal[players.human_seat, 0])))
            turns.append(turn)
        episodes.append((turns, state))
        state = begin_next_episode(players, jax.random.fold_in(key, number + 1), state)
    return episodes


@pytest.mark.parametrize(
    ("name", "cast"),
    [("msh-4x4-4h1s", "ns,you,nh,random"), ("msg-4x4", "cleaner,exploiter,switching(cleaner,exploiter,every=1),you")],
)
def test_turn_by_turn_play_equals_a_rollout(name: str, cast: str) -> None:
    game, rng = make(name), np.random.default_rng(0)
    players = session_of(cast, game)
    episodes = played(players, 5, lambda legal: int(rng.choice(np.flatnonzero(legal))))
    key, memories = jax.random.key(5), None
    for number, (turns, last) in enumerate(episodes):
        actions = np.zeros(game.last_step, np.int32)
        actions[: len(turns)] = [turn.actions[players.human_seat] for turn in turns]
        params = tuple(actions if seat == players.human_seat else other for seat, other in enumerate(players.params))
        whole_cast = Cast(players.players)
        memories = init_rollout(key, game, whole_cast, 1, params).memories if memories is None else memories
        episode_key = jax.random.fold_in(key, number) if number else key
        memories, expected = play_episodes(episode_key, game, whole_cast, 1, params, memories)
        trajectory = to_trajectory(game, turns, last)
        for field in (
            "state",
            "actions",
            "alive",
            "reward",
            "left",
            "over",
            "took",
            "cell",
            "total_reward",
            "last_state",
        ):
            jax.tree.map(np.testing.assert_array_equal, getattr(trajectory, field), getattr(expected, field))
        assert returns_of(turns) == pytest.approx(np.asarray(expected.returns)[0])


def test_an_illegal_human_action_counts_as_idle() -> None:
    game = make("msh-4x4-2h1s")
    players = session_of("you,stay", game)
    state = begin_session(players, jax.random.key(1))
    illegal = int(np.flatnonzero(~np.asarray(state.observation.legal[0, 0]))[0])
    turn, _ = take_turn(players, state, illegal)
    assert turn.actions.tolist() == [game.idle_action] * 2


def test_nothing_new_is_compiled_for_another_mixture_of_the_same_players() -> None:
    programs: tuple[Any, ...] = (session._act, session._watch, session._meet)
    game = make("msh-4x4-2h1s")
    take_turn(players := session_of("you,nh", game), begin_session(players, jax.random.key(0)), 4)
    before = [program._cache_size() for program in programs]
    take_turn(players := session_of("nh,you", game), begin_session(players, jax.random.key(1)), 4)
    assert [program._cache_size() for program in programs] == before

"""Play turn by turn: the same as a rollout's, whoever decides."""

from typing import Any

import jax
import numpy as np
import pytest

from hopplus.games import Game, make
from hopplus.play import live, play_episodes, start
from hopplus.play.live import Company, Moment, Turn, episode_of, first_moment, next_moment, returns_of, take_turn
from hopplus.players import Cast
from hopplus.players.person import YOU, Person
from hopplus.training.seats import Seated, seat_cast

EPISODES = 3


def seated(text: str, game: Game[Any]) -> Seated:
    return seat_cast(text, game, extra={YOU: lambda game: Person()})


def company_of(text: str, game: Game[Any]) -> Company:
    found = seated(text, game)
    return Company(game, found.cast.players, tuple(found.params()), found.cast.names.index(YOU))


def played(company: Company, seed: int, choose: Any) -> list[tuple[list[Turn], Moment]]:
    """Some episodes in a row, of a person who chooses."""
    key = jax.random.key(seed)
    moment, series = first_moment(company, key), []
    for number in range(EPISODES):
        turns: list[Turn] = []
        while not moment.over:
            turn, moment = take_turn(company, moment, choose(np.asarray(moment.observation.legal[company.person, 0])))
            turns.append(turn)
        series.append((turns, moment))
        moment = next_moment(company, jax.random.fold_in(key, number + 1), moment)
    return series


@pytest.mark.parametrize(
    ("name", "cast"),
    [("msh-4x4-4h1s", "ns,you,nh,random"), ("msg-4x4", "cleaner,exploiter,switching(cleaner,exploiter,every=1),you")],
)
def test_turn_by_turn_is_what_a_rollout_plays(name: str, cast: str) -> None:
    game, luck = make(name), np.random.default_rng(0)
    company = company_of(cast, game)
    series = played(company, 5, lambda legal: int(luck.choice(np.flatnonzero(legal))))
    key, memories = jax.random.key(5), None
    for number, (turns, last) in enumerate(series):
        decided = np.zeros(game.last_step, np.int32)
        decided[: len(turns)] = [turn.actions[company.person] for turn in turns]
        params = tuple(decided if seat == company.person else own for seat, own in enumerate(company.params))
        whole = Cast(company.players)
        memories = start(key, game, whole, 1, params).memories if memories is None else memories
        own = jax.random.fold_in(key, number) if number else key
        memories, episode = play_episodes(own, game, whole, 1, params, memories)
        ours = episode_of(game, turns, last)
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
            jax.tree.map(np.testing.assert_array_equal, getattr(ours, field), getattr(episode, field))
        assert returns_of(turns) == pytest.approx(np.asarray(episode.returns)[0])


def test_what_a_person_may_not_do_counts_as_idling() -> None:
    game = make("msh-4x4-2h1s")
    company = company_of("you,stay", game)
    moment = first_moment(company, jax.random.key(1))
    illegal = int(np.flatnonzero(~np.asarray(moment.observation.legal[0, 0]))[0])
    turn, _ = take_turn(company, moment, illegal)
    assert turn.actions.tolist() == [game.idle_action] * 2


def test_nothing_new_is_compiled_for_another_mixture_of_the_same_players() -> None:
    programs: tuple[Any, ...] = (live._act, live._watch, live._meet)
    game = make("msh-4x4-2h1s")
    take_turn(company := company_of("you,nh", game), first_moment(company, jax.random.key(0)), 4)
    before = [program._cache_size() for program in programs]
    take_turn(company := company_of("nh,you", game), first_moment(company, jax.random.key(1)), 4)
    assert [program._cache_size() for program in programs] == before

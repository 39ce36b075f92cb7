"""Properties of the rules over arbitrary layouts and actions (hypothesis), and edge cases by hand."""

import functools
from typing import Any

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from common import legal, step
from hopplus import games
from hopplus.games import StagHunt

HUNT = games.make("msh-4x4-4h1s", stags=2, hares=4)
DRIFT = games.make("msg-4x4")
CELLS = st.tuples(st.integers(0, 3), st.integers(0, 3))
KEY = jax.random.key(0)


@st.composite
def hunts(draw: st.DrawFn) -> Any:
    """Layouts of the stag hunt, also with enclosed cells, missing prey, players who have left, and any time."""
    cells = draw(st.lists(CELLS, min_size=6, max_size=12, unique=True))
    stags, hares, blocks = cells[:2], cells[2:6], cells[6:]
    free = [(row, column) for row in range(4) for column in range(4) if (row, column) not in blocks]
    players = [draw(st.one_of(st.none(), st.sampled_from(free), st.sampled_from(cells[:6]))) for _ in range(4)]
    stags, hares = stags[draw(st.integers(0, 2)) :], hares[draw(st.integers(0, 4)) :]
    return HUNT.from_layout(players=players, stags=stags, hares=hares, blocks=blocks, time=draw(st.integers(0, 35)))


@st.composite
def drifts(draw: st.DrawFn) -> Any:
    """Layouts of the snowdrift game."""
    cells = draw(st.lists(CELLS, min_size=6, max_size=12, unique=True))
    free = [(row, column) for row in range(4) for column in range(4) if (row, column) not in cells[6:]]
    players = [draw(st.sampled_from(free)) for _ in range(4)]
    time = draw(st.integers(0, 15))
    return DRIFT.from_layout(players=players, drifts=cells[draw(st.integers(0, 6)) : 6], blocks=cells[6:], time=time)


ACTIONS = st.lists(st.integers(-2, 9), min_size=4, max_size=4)
PRESSES = st.lists(st.sampled_from([4, 5, 6]), min_size=4, max_size=4)


@functools.partial(jax.jit, static_argnames="game")
def facts(game: Any, state: Any, actions: jax.Array) -> dict[str, Any]:
    """All values that the properties of one step refer to, in one program per game."""
    after, outcome = game.step(KEY, state, actions)
    observation = game.observe(state)
    seats = [games.one_seat(observation, seat) for seat in range(game.num_players)]
    return {
        "legal": game.legal(state),
        "left": game.left(state),
        "over": game.over(state),
        "after": after,
        "outcome": outcome,
        "observations": seats,
        "restored": [games.one_seat(game.observe(game.restore(seat)), 0) for seat in seats],
    }


def equal(first: Any, second: Any) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, first, second))


def check_properties(game: Any, state: Any, actions: list[int]) -> None:
    state = jax.tree.map(np.asarray, state)
    fact = jax.tree.map(np.asarray, facts(game, state, np.array(actions)))
    legal_actions, left, after, outcome = fact["legal"], fact["left"], fact["after"], fact["outcome"]
    assert legal_actions[:, 4].all()
    assert not legal_actions[left][:, [0, 1, 2, 3, *range(5, game.num_actions)]].any()
    assert not outcome.reward[left].any()
    assert outcome.left[left].all()

    corrected = [a if 0 <= a < game.num_actions and legal_actions[i, a] else 4 for i, a in enumerate(actions)]
    assert equal(facts(game, state, np.array(corrected))["after"], after), "an illegal action has the effect of STAY"

    ceilings = game.ceilings
    assert np.mean(outcome.reward) <= ceilings["mean"] + 1e-6
    assert np.max(outcome.reward) <= ceilings["player"] + 1e-6
    if fact["over"]:
        assert equal(state, after), "a step after the end changes nothing"
        assert not outcome.reward.any()
        assert outcome.over
    else:
        assert after.time == state.time + 1
        present = ~left & ~outcome.left
        moved = np.abs(np.subtract(np.divmod(after.cells, 4), np.divmod(state.cells, 4))).sum(0)
        assert (moved[present] <= 1).all()
    assert equal(fact["observations"], fact["restored"])


@settings(max_examples=150, deadline=None)
@given(hunts(), st.one_of(ACTIONS, PRESSES))
def test_properties_of_the_stag_hunt(state: Any, actions: list[int]) -> None:
    check_properties(HUNT, state, actions)


@settings(max_examples=80, deadline=None)
@given(drifts(), st.one_of(ACTIONS, PRESSES))
def test_properties_of_the_snowdrift(state: Any, actions: list[int]) -> None:
    check_properties(DRIFT, state, actions)


def test_two_players_share_the_stag_and_one_alone_gets_nothing() -> None:
    game = games.make("msh-4x4-4h1s", stag_needs_company=False)
    state = game.from_layout(players=[(1, 1), (1, 1), (1, 1), (0, 0)], stags=[(1, 1)], hares=[(0, 0), (3, 3)])
    after, outcome = step(game, KEY, state, np.array([5, 5, 4, 6]))
    np.testing.assert_array_equal(outcome.reward, [5, 5, 0, 1])
    assert np.asarray(after.items).tolist() == [[0], [1 << 15]], "one hare remains, on the last cell"
    np.testing.assert_array_equal(outcome.left, [True, True, False, True])
    np.testing.assert_array_equal(outcome.took, [1, 1, 0, 2])
    after, outcome = step(game, KEY, state, np.array([5, 4, 4, 4]))
    assert not np.asarray(outcome.reward).any()
    assert not np.asarray(outcome.left).any()
    assert np.asarray(legal(game, after))[0, 5]


def test_an_illegal_action_has_the_effect_of_stay_and_a_step_after_the_end_has_none() -> None:
    for time, over in ((34, False), (35, True)):
        state = HUNT.from_layout(players=[(0, 0), (3, 3), (1, 1), None], hares=[(0, 0), (2, 2)], time=time)
        # A hare on the cell, a step off the board, no hare on the cell, a player who has left.
        after, outcome = step(HUNT, KEY, state, np.array([6, 1, 6, 6]))
        assert np.asarray(outcome.reward).tolist() == [0 if over else 1, 0, 0, 0]
        assert np.asarray(outcome.took).tolist() == [0 if over else 2, 0, 0, 0]
        assert np.asarray(after.cells).tolist() == [0 if over else -1, 15, 5, -1]
        assert int(after.time) == 35
        assert np.asarray(after.last_actions).tolist()[1:3] == [4, 4]


def test_a_player_who_arrives_in_the_step_of_a_catch_has_no_share() -> None:
    state = HUNT.from_layout(players=[(1, 1), (1, 1), (1, 0), None], stags=[(1, 1)])
    after, outcome = step(HUNT, KEY, state, np.array([5, 5, 3, 4]))
    np.testing.assert_array_equal(outcome.reward, [5, 5, 0, 0])
    assert np.asarray(after.cells)[2] == 5


def test_stag_is_legal_only_in_company_by_default() -> None:
    alone = HUNT.from_layout(players=[(1, 1), (0, 0), (0, 1), (3, 3)], stags=[(1, 1)])
    assert not np.asarray(legal(HUNT, alone))[0, 5]
    together = HUNT.from_layout(players=[(1, 1), (1, 1), (0, 1), (3, 3)], stags=[(1, 1)])
    assert np.asarray(legal(HUNT, together))[:2, 5].all()


def test_dynamic_end_is_five_steps_after_the_first_catch_and_is_observed() -> None:
    game = games.make("msh-4x4-4h1s", dynamic_end=True)
    state = game.from_layout(players=[(0, 0), (1, 1), (1, 2), (3, 3)], hares=[(0, 0), (3, 3)], time=7)
    state, outcome = step(game, KEY, state, np.array([6, 4, 4, 4]))
    assert int(state.time) == 8
    assert int(state.deadline) == 13
    assert np.asarray(jax.jit(game.observe)(state).deadline).tolist() == [13] * 4
    state, _ = step(game, KEY, state, np.array([4, 4, 4, 6]))
    assert int(state.deadline) == 13, "only the first catch sets the end"
    for _ in range(4):
        assert not bool(outcome.over)
        state, outcome = step(game, KEY, state, np.array([4, 4, 4, 4]))
    assert int(state.time) == 13
    assert bool(outcome.over)


def test_a_removed_drift_pays_all_players_and_its_removers_share_the_cost() -> None:
    state = DRIFT.from_layout(players=[(0, 0), (0, 0), (1, 1), (3, 3)], drifts=[(0, 0), (1, 1)])
    after, outcome = step(DRIFT, KEY, state, np.array([5, 5, 5, 4]))
    np.testing.assert_array_equal(outcome.reward, [12 - 2, 12 - 2, 12 - 4, 12])
    assert bool(outcome.over)
    assert not np.asarray(outcome.left).any()
    assert not np.asarray(after.items).any()


def test_ceilings_equal_those_of_the_specification() -> None:
    assert games.make("msh-4x4-4h1s").ceilings == {"mean": 3.0, "player": 5.0, "all_stag": 2.5, "all_hare": 1.0}
    assert games.make("msh-8x8-4h2s").ceilings["mean"] == 5.0
    assert games.make("msh-4x4-2h1s").ceilings["mean"] == 5.0
    assert games.make("msg-8x8").ceilings == {"mean": 30.0, "player": 36.0}
    # Eight players, three stags, one hare: three pairs and one hare hunter.
    assert StagHunt(players=8, stags=3, hares=1, height=8, width=8).ceilings["mean"] == 31 / 8
    # A strong player beside a weak one: 4/5 of the stag.
    assert games.make("msh-4x4-4h1s", strengths=(1, 4, 1, 1)).ceilings["player"] == 8.0
    # Two prosocial seats: the other two take the stag (5 each), the prosocial two receive the mean of 12.
    assert games.make("msh-4x4-4h1s", prosocial=(0, 1)).ceilings["mean"] == (5 + 5 + 3 + 3) / 4


def test_the_version_of_a_game_is_part_of_its_description() -> None:
    assert {name: games.make(name).version for name in games.names()} == dict.fromkeys(games.names(), "1")

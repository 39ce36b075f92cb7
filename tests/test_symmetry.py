"""Seats are symmetric, exactly and statistically."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from common import played_states
from hopplus import games, play, players
from hopplus.games import GridGame, Observation, Symmetry, one_seat
from hopplus.networks.encoding import encode, laid_anew

SETTINGS = [
    "msh-4x4-4h1s",
    "msh-8x8-4h2s",
    "msh-4x4-2h1s",
    "msh-4x4-4h1s:stag_needs_company=false:prosocial=(0,2)",
    "msh-6x6-4h1s:dynamic_end=true:strengths=(1,2,0,3)",
    "msg-6x6",
]
FALSE_ALARM_RATE = 1e-3


def orders_of(game: games.Game[Any]) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(game.num_players)))


def permuted_states(game: games.Game[Any], states: Any, orders: np.ndarray) -> Any:
    """States [orders, N, ...] with player order[i] in seat i."""
    return jax.jit(lambda: jax.vmap(lambda order: jax.vmap(lambda state: game.permute(state, order))(states))(orders))()


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_permutation_of_players_and_actions_permutes_the_step_exactly(setting: str) -> None:
    game = games.make(setting)
    states, actions = played_states(game)
    key = jax.random.key(1)

    def by_environment(one: games.Game[Any]) -> Any:
        return jax.vmap(lambda state, joint: (*one.step(key, state, joint), one.legal(state)))

    after, outcome, legal = jax.tree.map(np.asarray, jax.jit(by_environment(game))(states, actions))
    assert outcome.took.any(), "somebody takes something, or the law is not tried"
    by_game: dict[games.Game[Any], list[tuple[int, ...]]] = {}
    for order in orders_of(game):
        by_game.setdefault(game.reseat(order), []).append(order)
    assert sum(len(orders) for orders in by_game.values()) == math.factorial(game.num_players)
    for other, given in by_game.items():
        orders = np.array(given)
        joint = np.moveaxis(actions[:, orders], 1, 0)
        again = jax.jit(jax.vmap(by_environment(other)))(permuted_states(game, states, orders), joint)
        after_again, outcome_again, legal_again = jax.tree.map(np.asarray, again)
        expected = permuted_states(game, after, orders)
        for field in ("cells", "blocks", "items", "time", "deadline", "last_actions"):
            np.testing.assert_array_equal(getattr(after_again, field), getattr(expected, field), err_msg=field)
        for number, order in enumerate(given):
            for field in ("reward", "left", "took", "cell"):
                moved = getattr(outcome, field)[:, list(order)]
                np.testing.assert_array_equal(getattr(outcome_again, field)[number], moved, err_msg=field)
            np.testing.assert_array_equal(outcome_again.over[number], outcome.over)
            np.testing.assert_array_equal(legal_again[number], legal[:, list(order)])


@pytest.mark.parametrize("setting", SETTINGS)
def test_permuted_players_are_seen_where_they_now_sit(setting: str) -> None:
    """Seat i sees at place k the player who now sits in seat i + k, and everything else as before."""
    game = games.make(setting)
    n = game.num_players
    states, _ = played_states(game, environments=8)
    before = jax.tree.map(np.asarray, jax.jit(jax.vmap(game.observe))(states))
    orders = np.array(orders_of(game))
    seen_by_order = jax.jit(jax.vmap(jax.vmap(game.observe)))(permuted_states(game, states, orders))
    for number, order in enumerate(orders):
        seen = jax.tree.map(lambda values, number=number: np.asarray(values[number]), seen_by_order)
        for seat, place in itertools.product(range(n), range(n)):
            player = order[(seat + place) % n]
            np.testing.assert_array_equal(seen.grid[:, seat, ..., place], before.grid[:, 0, ..., player])
            np.testing.assert_array_equal(seen.legal[:, seat, place], before.legal[:, 0, player])
            np.testing.assert_array_equal(seen.last_actions[:, seat, place], before.last_actions[:, 0, player])
        np.testing.assert_array_equal(seen.grid[..., n:], before.grid[..., n:])


def test_a_cyclic_shift_moves_observations_between_seats_unchanged() -> None:
    game = games.make("msh-8x8-4h1s")
    states, _ = played_states(game, environments=8)
    before = jax.jit(jax.vmap(game.observe))(states)
    orders = np.array([np.roll(np.arange(4), -shift) for shift in range(4)])
    seen = jax.jit(jax.vmap(jax.vmap(game.observe)))(permuted_states(game, states, orders))
    for number, order in enumerate(orders):
        for field in ("grid", "time", "deadline", "legal", "last_actions"):
            moved = np.asarray(getattr(before, field))[:, order]
            np.testing.assert_array_equal(getattr(seen, field)[number], moved, err_msg=field)


@pytest.mark.parametrize("setting", [*games.names(), *SETTINGS])
def test_an_observation_restores_to_the_state_as_its_seat_sees_it(setting: str) -> None:
    game = games.make(setting)
    assert isinstance(game, GridGame)
    n = game.num_players
    states, _ = played_states(game, environments=8)

    @jax.jit
    def round_trip(states: Any) -> tuple[Observation, Any, Observation]:
        """What all seats see, the states restored from it, and what their seat 0 sees: [n, N, ...] each."""
        seen = jax.vmap(game.observe, out_axes=1)(states)
        restored = jax.vmap(jax.vmap(game.restore))(seen)
        return seen, restored, jax.vmap(jax.vmap(lambda state: games.one_seat(game.observe(state), 0)))(restored)

    seen, restored, again = round_trip(states)
    for field in ("grid", "time", "deadline", "legal", "last_actions"):
        np.testing.assert_array_equal(getattr(again, field), getattr(seen, field), err_msg=field)
    orders = np.array([np.roll(np.arange(n), -seat) for seat in range(n)])
    expected = permuted_states(game, states, orders)
    assert jax.tree.all(jax.tree.map(lambda a, b: jnp.array_equal(a, b), restored, expected))


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("msh-8x8-4h1s", "ns,ns,ns,ns"),
        (
            "msh-8x8-4h1s",
            ",".join(["noisy(ns:paths=blind,0.3)"] * 4),
        ),
        ("msg-4x4", "cleaner,cleaner,cleaner,cleaner"),
        ("msg-4x4", "exploiter,exploiter,exploiter,exploiter"),
        ("msh-4x4-4h1s", "random,random,random,random"),
    ],
)
def test_scripted_players_permute_exactly_with_their_keys(setting: str, text: str) -> None:
    game = games.make(setting)
    cast = players.make_cast(text, game)
    states, _ = played_states(game, environments=4)
    keys = jax.random.split(jax.random.key(7), (states.time.shape[0], 4))
    memories = cast.init(keys[0], jax.random.key(8), ((),))

    def act(keys: Any, state: Any) -> Any:
        return cast.act(keys, ((),), memories, game.observe(state))[0]

    actions = np.asarray(jax.jit(jax.vmap(act))(keys, states))
    orders = np.array(orders_of(game))
    permuted_keys = jnp.stack([keys[:, order] for order in orders])
    again = np.asarray(jax.jit(jax.vmap(jax.vmap(act)))(permuted_keys, permuted_states(game, states, orders)))
    for number, order in enumerate(orders):
        np.testing.assert_array_equal(again[number], actions[:, order])


@pytest.mark.parametrize("player", ["random", "ns"])
def test_four_equal_players_earn_the_same_at_every_seat(player: str) -> None:
    """Hotelling's test over 100,000 episodes that the four mean returns are equal; false-alarm rate 1e-3."""
    game = games.make("msh-4x4-4h1s")
    cast = players.make_cast(",".join([player] * 4), game)
    returns = np.concatenate(
        [
            np.asarray(play.play_episodes(jax.random.fold_in(jax.random.key(3), batch), game, cast, 5000)[1].returns)
            for batch in range(20)
        ]
    ).astype(np.float64)
    assert returns.shape == (100_000, 4)
    differences = returns[:, 1:] - returns[:, :1]
    mean, covariance = differences.mean(0), np.cov(differences.T)
    statistic = len(returns) * mean @ np.linalg.solve(covariance, mean)
    chance = stats.chi2.sf(statistic, df=3)
    errors = returns.std(0) / np.sqrt(len(returns))
    assert chance > FALSE_ALARM_RATE, f"means {returns.mean(0)} with errors {errors}: p = {chance:.1e}"


# -------------------------------------------------------------------------------------------------------------- boards


def observed_anew(symmetry: Symmetry, game: GridGame, seen: Observation) -> Observation:
    """What would be seen, were the board laid anew: made without the library's tables, cell by cell."""
    renamed = symmetry.actions(game.num_actions)
    grid = np.stack([[symmetry.board(board) for board in boards] for boards in np.asarray(seen.grid)])
    legal = np.zeros_like(seen.legal)
    legal[..., renamed] = seen.legal
    return replace(seen, grid=grid, legal=legal, last_actions=renamed[seen.last_actions])


@pytest.mark.parametrize(
    "setting",
    ["msh-4x4-4h1s", "msh-8x8-4h1s", "msh-4x4-4h1s:height=3:width=5", "msh-6x6-4h1s:dynamic_end=true", "msg-6x6"],
)
def test_the_rules_are_the_same_on_a_board_laid_anew(setting: str) -> None:
    """For every symmetry that a game claims: what is seen, legal, done, taken and earned; and the table by which
    features are turned gives the features of the turned board."""
    game = games.make(setting)
    assert isinstance(game, GridGame)
    assert len(set(game.symmetries)) == (8 if game.height == game.width else 4)
    assert game.symmetries[0] == (False, False, False)
    states, actions = played_states(game)
    actions = actions % game.num_actions
    observe, restore = jax.jit(jax.vmap(game.observe)), jax.jit(jax.vmap(lambda seen: game.restore(one_seat(seen, 0))))
    step = jax.jit(jax.vmap(lambda state, joint: game.step(jax.random.key(1), state, joint)))
    features = jax.jit(lambda seen: encode(seen, game.last_step))
    before = jax.tree.map(np.asarray, observe(states))
    following, outcome = step(states, actions)
    after = jax.tree.map(np.asarray, observe(following))
    assert np.asarray(outcome.took).any()
    there = before.grid[..., 0].any((-1, -2))
    for symmetry in game.symmetries:
        expected = observed_anew(symmetry, game, before)
        turned = restore(expected)
        for field in ("grid", "legal", "last_actions"):
            np.testing.assert_array_equal(getattr(observe(turned), field), getattr(expected, field), err_msg=field)
        by_table = np.asarray(features(before))[..., laid_anew(symmetry, game)]
        np.testing.assert_array_equal(np.asarray(features(expected))[there], by_table[there])
        further, same = step(turned, symmetry.actions(game.num_actions)[actions])
        np.testing.assert_array_equal(same.reward, outcome.reward)
        np.testing.assert_array_equal(same.took, outcome.took)
        np.testing.assert_array_equal(observe(further).grid, observed_anew(symmetry, game, after).grid)


@pytest.mark.parametrize("setting", ["msh-4x4-4h1s", "msg-4x4"])
def test_full_features_say_who_is_there_and_what_everybody_did_last(setting: str) -> None:
    game = games.make(setting)
    states, _ = played_states(game)
    seen = jax.tree.map(np.asarray, jax.jit(jax.vmap(game.observe))(states))
    gone = np.asarray(jax.vmap(game.left)(states))
    plain, full = (np.asarray(encode(seen, game.last_step, encoder)) for encoder in ("centred", "full"))
    n, actions = game.num_players, game.num_actions
    before = plain.shape[-1] - actions - 2
    end = before + n * actions + n - 1
    np.testing.assert_array_equal(np.delete(full, np.s_[before:end], -1), plain)
    done = full[..., before : before + n * actions].reshape(*full.shape[:-1], n, actions)
    np.testing.assert_array_equal(done.argmax(-1), seen.last_actions)
    np.testing.assert_array_equal(done.sum(-1), 1)
    there = full[..., before + n * actions : end] > 0
    for seat in range(n):
        others = (seat + np.arange(1, n)) % n
        np.testing.assert_array_equal(there[:, seat], ~gone[:, others])
    assert gone.any() or setting.startswith("msg")

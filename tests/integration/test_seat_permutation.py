"""Seats are symmetric, exactly and statistically."""

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from common import played_states
from hopplus import games, players, rollouts
from hopplus.games import GridGame, Observation, Outcome, Symmetry, one_seat
from hopplus.networks.encoders import apply_symmetry, encode

SETTINGS = [
    "msh-4x4-4h1s",
    "msh-8x8-4h2s",
    "msh-4x4-2h1s",
    "msh-4x4-4h1s:stag_needs_company=false:prosocial=(0,2)",
    "msh-6x6-4h1s:dynamic_end=true:strengths=(1,2,0,2)",
    "msg-6x6",
]
FALSE_ALARM_RATE = 1e-3


def orders_of(game: games.Game[Any]) -> list[tuple[int, ...]]:
    """All permutations of the seats, the identity first."""
    return list(itertools.permutations(range(game.num_players)))


@partial(jax.jit, static_argnames="game")
def _permuted(states: Any, orders: Any, game: games.Game[Any]) -> Any:
    return jax.vmap(lambda order: jax.vmap(lambda state: game.permute(state, order))(states))(orders)


def permuted_states(game: games.Game[Any], states: Any, orders: Any) -> Any:
    """States [orders, N, ...] with player order[i] in seat i; the first order is the identity."""
    permuted = jax.tree.map(np.asarray, _permuted(states, np.asarray(orders), game))
    assert jax.tree.all(
        jax.tree.map(lambda by_order, original: np.array_equal(by_order[0], original), permuted, states)
    )
    return permuted


@partial(jax.jit, static_argnames="game")
def _stepped(states: Any, actions: Any, game: games.Game[Any]) -> Any:
    """States, outcomes and legal actions after steps [orders, N]; one key for all of them."""
    key = jax.random.key(1)
    return jax.vmap(jax.vmap(lambda state, joint: (*game.step(key, state, joint), game.legal(state))))(states, actions)


@partial(jax.jit, static_argnames="game")
def _observed(states: Any, game: games.Game[Any]) -> Observation:
    """Observations of all seats in states [orders, N]."""
    return jax.vmap(jax.vmap(game.observe))(states)


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_permutation_of_players_and_actions_permutes_the_step_exactly(setting: str) -> None:
    game = games.make(setting)
    states, actions = played_states(game)
    orders = orders_of(game)
    assert len(orders) == math.factorial(game.num_players)
    permuted, joint = permuted_states(game, states, orders), np.moveaxis(actions[:, np.array(orders)], 1, 0)
    by_game: dict[games.Game[Any], list[int]] = {}
    for number, order in enumerate(orders):
        by_game.setdefault(game.reseat(order), []).append(number)
    results: dict[int, Any] = {}
    for reseated, numbers in by_game.items():
        some = jax.tree.map(lambda leaf, numbers=numbers: leaf[numbers], permuted)
        stepped = jax.tree.map(np.asarray, _stepped(some, joint[numbers], reseated))
        for place, number in enumerate(numbers):
            results[number] = jax.tree.map(lambda leaf, place=place: leaf[place], stepped)
    after, outcome, legal = results[0]
    assert outcome.took.any(), "no player takes anything, so the property is not tested"
    expected = permuted_states(game, after, orders)
    for number, order in enumerate(orders):
        after_again, outcome_again, legal_again = results[number]
        for field in ("cells", "blocks", "items", "time", "deadline", "last_actions"):
            moved = getattr(expected, field)[number]
            np.testing.assert_array_equal(getattr(after_again, field), moved, err_msg=field)
        for field in ("reward", "left", "took", "cell"):
            moved = getattr(outcome, field)[:, list(order)]
            np.testing.assert_array_equal(getattr(outcome_again, field), moved, err_msg=field)
        np.testing.assert_array_equal(outcome_again.over, outcome.over)
        np.testing.assert_array_equal(legal_again, legal[:, list(order)])


@pytest.mark.parametrize("setting", SETTINGS)
def test_permuted_players_are_observed_in_their_new_seats(setting: str) -> None:
    """Seat i observes at index k the player that is now in seat i + k, and everything else as before."""
    game = games.make(setting)
    n = game.num_players
    states, _ = played_states(game)
    orders = orders_of(game)
    by_order = jax.tree.map(np.asarray, _observed(permuted_states(game, states, orders), game))
    before = jax.tree.map(lambda values: values[0], by_order)
    for number, order in enumerate(orders):
        seen = jax.tree.map(lambda values, number=number: values[number], by_order)
        for seat, index in itertools.product(range(n), range(n)):
            player = order[(seat + index) % n]
            np.testing.assert_array_equal(seen.grid[:, seat, ..., index], before.grid[:, 0, ..., player])
            np.testing.assert_array_equal(seen.legal[:, seat, index], before.legal[:, 0, player])
            np.testing.assert_array_equal(seen.last_actions[:, seat, index], before.last_actions[:, 0, player])
        np.testing.assert_array_equal(seen.grid[..., n:], before.grid[..., n:])


def test_a_cyclic_shift_moves_observations_between_seats_unchanged() -> None:
    game = games.make("msh-8x8-4h2s")
    orders = orders_of(game)
    seen = jax.tree.map(np.asarray, _observed(permuted_states(game, played_states(game)[0], orders), game))
    for shift in range(4):
        order = tuple(np.roll(np.arange(4), -shift).tolist())
        for field in ("grid", "time", "deadline", "legal", "last_actions"):
            values = getattr(seen, field)
            np.testing.assert_array_equal(values[orders.index(order)], values[0][:, order], err_msg=field)


@pytest.mark.parametrize("setting", sorted({*games.names(), *SETTINGS}))
def test_an_observation_restores_to_the_state_permuted_to_its_seat(setting: str) -> None:
    game = games.make(setting)
    assert isinstance(game, GridGame)
    n = game.num_players
    states, _ = played_states(game)
    orders = np.array([np.roll(np.arange(n), -seat) for seat in range(n)])

    @jax.jit
    def round_trip(states: Any) -> tuple[Observation, Any, Any, Observation]:
        """Observations of all seats, states restored from them, states permuted to each seat, and observations of
        seat 0 of the restored states: [n, N, ...] each."""
        seen = jax.vmap(game.observe, out_axes=1)(states)
        restored = jax.vmap(jax.vmap(game.restore))(seen)
        by_seat = jax.vmap(lambda order: jax.vmap(lambda state: game.permute(state, order))(states))(orders)
        return seen, restored, by_seat, jax.vmap(jax.vmap(lambda state: one_seat(game.observe(state), 0)))(restored)

    seen, restored, expected, again = jax.tree.map(np.asarray, round_trip(states))
    for field in ("grid", "time", "deadline", "legal", "last_actions"):
        np.testing.assert_array_equal(getattr(again, field), getattr(seen, field), err_msg=field)
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, expected))


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
    states = jax.tree.map(lambda leaf: np.asarray(leaf)[::6], played_states(game)[0])
    orders = np.array(orders_of(game))

    @jax.jit
    def act(states: Any) -> Any:
        """Actions [orders, N, n] of players that move to other seats with their keys."""
        keys = jax.random.split(jax.random.key(7), (len(states.time), game.num_players))
        memories = cast.init(keys[0], jax.random.key(8), ((),))

        def act_permuted(order: Any, keys: Any, state: Any) -> Any:
            return cast.act(keys[order], ((),), memories, game.observe(game.permute(state, order)))[0]

        return jax.vmap(jax.vmap(act_permuted, (None, 0, 0)), (0, None, None))(orders, keys, states)

    actions = np.asarray(act(states))
    for number, order in enumerate(orders):
        np.testing.assert_array_equal(actions[number], actions[0][:, order])


@pytest.mark.parametrize("batches", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("player", ["random", "ns"])
def test_four_equal_players_have_the_same_return_at_every_seat(player: str, batches: int) -> None:
    """Hotelling's test over 10,000 or 100,000 episodes that the four mean returns are equal; false-alarm rate 1e-3."""
    game = games.make("msh-4x4-4h1s")
    cast = players.make_cast(",".join([player] * 4), game)
    returns = np.concatenate(
        [
            np.asarray(
                rollouts.play_episodes(jax.random.fold_in(jax.random.key(3), batch), game, cast, 5000)[1].returns
            )
            for batch in range(batches)
        ]
    ).astype(np.float64)
    assert returns.shape == (batches * 5000, 4)
    differences = returns[:, 1:] - returns[:, :1]
    mean, covariance = differences.mean(0), np.cov(differences.T)
    statistic = len(returns) * mean @ np.linalg.solve(covariance, mean)
    p_value = stats.chi2.sf(statistic, df=3)
    errors = returns.std(0) / np.sqrt(len(returns))
    assert p_value > FALSE_ALARM_RATE, f"means {returns.mean(0)} with errors {errors}: p = {p_value:.1e}"


# -------------------------------------------------------------------------------------------------------------- boards


def transformed_observation(symmetry: Symmetry, game: GridGame, seen: Observation) -> Observation:
    """Observation of the transformed board, computed cell by cell without the library's tables."""
    renamed = symmetry.actions(game.num_actions)
    grid = np.stack([[symmetry.board(board) for board in boards] for boards in np.asarray(seen.board)])
    legal = np.zeros_like(seen.legal)
    legal[..., renamed] = seen.legal
    return replace(seen, grid=grid, legal=legal, last_actions=renamed[seen.last_actions])


@pytest.mark.parametrize(
    "setting",
    ["msh-4x4-4h1s", "msh-8x8-4h1s", "msh-4x4-4h1s:height=3:width=5", "msh-6x6-4h1s:dynamic_end=true", "msg-6x6"],
)
def test_the_rules_are_the_same_on_a_transformed_board(setting: str) -> None:
    """For every symmetry of a game: observations, legal actions, prey taken and rewards are equivariant, and the table
    that permutes features gives the features of the transformed board."""
    game = games.make(setting)
    assert isinstance(game, GridGame)
    assert len(set(game.symmetries)) == (8 if game.height == game.width else 4)
    assert game.symmetries[0] == (False, False, False)
    states, actions = played_states(game)
    actions = actions % game.num_actions

    @jax.jit
    def play_on(seen: Observation, joint: Any) -> tuple[Any, Observation, Any, Outcome, Observation]:
        """The states of what seat 0 sees, what all see in them, its features, and a step on."""
        turned = jax.vmap(lambda one: game.restore(one_seat(one, 0)))(seen)
        stepped = jax.vmap(lambda state, actions: game.step(jax.random.key(1), state, actions))(turned, joint)
        features = encode(seen, game.last_step)
        return turned, jax.vmap(game.observe)(turned), features, stepped[1], jax.vmap(game.observe)(stepped[0])

    before: Any = jax.tree.map(np.asarray, jax.jit(jax.vmap(game.observe))(states))
    restored, _, features, outcome, after = jax.tree.map(np.asarray, play_on(before, actions))
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, states))
    assert outcome.took.any()
    present = before.grid[..., 0].any((-1, -2))
    for symmetry in game.symmetries:
        expected = transformed_observation(symmetry, game, before)
        renamed = symmetry.actions(game.num_actions)[actions]
        _, seen, turned, same, later = jax.tree.map(np.asarray, play_on(expected, renamed))
        for field in ("grid", "legal", "last_actions"):
            np.testing.assert_array_equal(getattr(seen, field), getattr(expected, field), err_msg=field)
        np.testing.assert_array_equal(turned[present], features[..., apply_symmetry(symmetry, game)][present])
        np.testing.assert_array_equal(same.reward, outcome.reward)
        np.testing.assert_array_equal(same.took, outcome.took)
        np.testing.assert_array_equal(later.grid, transformed_observation(symmetry, game, after).board)


@pytest.mark.parametrize("setting", ["msh-4x4-4h1s", "msg-4x4"])
def test_full_features_contain_presence_and_last_actions(setting: str) -> None:
    game = games.make(setting)
    states, _ = played_states(game)

    @jax.jit
    def observed(states: Any) -> tuple[Observation, Any, Any, Any]:
        seen = jax.vmap(game.observe)(states)
        plain, full = (encode(seen, game.last_step, encoder) for encoder in ("centred", "full"))
        return seen, jax.vmap(game.left)(states), plain, full

    seen, gone, plain, full = jax.tree.map(np.asarray, observed(states))
    n, actions = game.num_players, game.num_actions
    before = plain.shape[-1] - actions - 2
    end = before + n * actions + n - 1
    np.testing.assert_array_equal(np.delete(full, np.s_[before:end], -1), plain)
    done = full[..., before : before + n * actions].reshape(*full.shape[:-1], n, actions)
    np.testing.assert_array_equal(done.argmax(-1), seen.last_actions)
    np.testing.assert_array_equal(done.sum(-1), 1)
    present = full[..., before + n * actions : end] > 0
    for seat in range(n):
        co_players = (seat + np.arange(1, n)) % n
        np.testing.assert_array_equal(present[:, seat], ~gone[:, co_players])
    assert gone.any() or setting.startswith("msg")

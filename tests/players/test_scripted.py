"""Scripted players: action frequencies on hand-made boards, with random tie-breaking."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from common import legal, observations
from hopplus import games, players, rollouts
from hopplus.games import Game, one_seat
from hopplus.rollouts.rollout import first_memories

UP, DOWN, LEFT, RIGHT, STAY, STAG, HARE = range(7)
REMOVE = 5
HUNT = games.make("msh-4x4-4h1s")
DRIFT = games.make("msg-4x4")
CORNERS = [(0, 3), (3, 0), (3, 3)]
DRAWS = 4000


@functools.partial(jax.jit, static_argnames=("game", "player"))
def sampled_actions(game: Game[Any], player: players.Player, state: Any, seat: int) -> jax.Array:
    """Returns actions [DRAWS] of a player in a seat, with one program for all states and seats."""
    observation = one_seat(game.observe(state), seat)
    memory = player.init(jax.random.key(0), ())
    keys = jax.random.split(jax.random.key(5), DRAWS)
    return jax.vmap(lambda key: player.act(key, (), memory, observation)[0])(keys)


def frequencies(game: Game[Any], name: str, state: Any, seat: int = 0) -> np.ndarray:
    """Returns the frequencies of a player's actions in a state."""
    actions = sampled_actions(game, players.make(name, game), state, seat)
    assert actions.dtype == np.int32
    return np.bincount(np.asarray(actions), minlength=game.num_actions) / DRAWS


def assert_shares(measured: np.ndarray, expected: dict[int, float]) -> None:
    """Tests the expected shares by chi-square at a false-alarm rate of 1e-3; no other action may occur."""
    assert set(np.flatnonzero(measured)) <= set(expected), measured
    if len(expected) > 1:
        counts = [measured[action] * DRAWS for action in expected]
        assert stats.chisquare(counts, [share * DRAWS for share in expected.values()]).pvalue > 1e-3, measured
    else:
        assert measured[next(iter(expected))] == 1.0


@pytest.mark.parametrize(
    ("name", "player", "stags", "hares", "expected"),
    [
        ("ns", (0, 0), [(2, 1)], [(0, 1)], {DOWN: 0.5, RIGHT: 0.5}),
        ("ns", (0, 0), [(0, 2)], [(1, 0)], {RIGHT: 1.0}),
        ("ns", (1, 1), [(1, 1)], [(0, 1)], {STAY: 1.0}),
        ("nh", (1, 1), [(1, 1)], [(0, 1)], {UP: 1.0}),
        ("nh", (0, 1), [(1, 1)], [(0, 1)], {HARE: 1.0}),
        # Two hares equally near: a target is sampled first, then a move towards it.
        ("nh", (1, 1), [], [(0, 0), (1, 3)], {UP: 0.25, LEFT: 0.25, RIGHT: 0.5}),
        ("ns", (0, 0), [], [(2, 2)], {DOWN: 1 / 3, RIGHT: 1 / 3, STAY: 1 / 3}),
        ("ns:then=stay", (0, 0), [], [(2, 2)], {STAY: 1.0}),
        ("ns:then=hare", (0, 0), [], [(2, 0)], {DOWN: 1.0}),
        ("ns:then=hare", (2, 0), [], [(2, 0)], {HARE: 1.0}),
        ("ns:then=hare", (0, 0), [], [], {DOWN: 1 / 3, RIGHT: 1 / 3, STAY: 1 / 3}),
        ("nh:then=stag", (0, 0), [(0, 3)], [], {RIGHT: 1.0}),
        ("nh:then=stay", (0, 0), [(0, 3)], [], {STAY: 1.0}),
        ("stay", (0, 0), [(0, 3)], [], {STAY: 1.0}),
        ("random", (0, 1), [], [(0, 1)], {DOWN: 0.2, LEFT: 0.2, RIGHT: 0.2, STAY: 0.2, HARE: 0.2}),
        ("noisy(stay,0.5)", (0, 0), [], [(2, 2)], {DOWN: 1 / 6, RIGHT: 1 / 6, STAY: 4 / 6}),
        ("noisy(stay,0)", (0, 0), [], [(2, 2)], {STAY: 1.0}),
        ("noisy(stay,eps=1)", (0, 0), [], [(2, 2)], {DOWN: 1 / 3, RIGHT: 1 / 3, STAY: 1 / 3}),
    ],
)
def test_hunters(name: str, player: Any, stags: list[Any], hares: list[Any], expected: dict[int, float]) -> None:
    state = HUNT.from_layout(players=[player, *CORNERS], stags=stags, hares=hares)
    assert_shares(frequencies(HUNT, name, state), expected)


def test_a_stag_hunter_presses_stag_as_soon_as_it_is_legal() -> None:
    state = HUNT.from_layout(players=[(1, 1), (1, 1), *CORNERS[:2]], stags=[(1, 1)])
    assert_shares(frequencies(HUNT, "ns", state), {STAG: 1.0})
    lone = games.make("msh-4x4-4h1s", stag_needs_company=False)
    state = lone.from_layout(players=[(1, 1), *CORNERS], stags=[(1, 1)])
    assert_shares(frequencies(lone, "ns", state), {STAG: 1.0})


def test_a_player_acts_on_the_observation_of_its_seat() -> None:
    state = HUNT.from_layout(players=[(3, 3), (3, 0), (0, 0), (0, 3)], hares=[(0, 1), (2, 3)])
    assert_shares(frequencies(HUNT, "nh", state, seat=2), {RIGHT: 1.0})
    assert_shares(frequencies(HUNT, "nh", state, seat=0), {UP: 1.0})


def test_paths_lead_around_blocks_or_jam_against_them() -> None:
    blocks = [(0, 1), (1, 1), (2, 1)]
    state = HUNT.from_layout(players=[(1, 0), *CORNERS], stags=[(1, 2)], blocks=blocks)
    assert_shares(frequencies(HUNT, "ns", state), {DOWN: 1.0})
    assert_shares(frequencies(HUNT, "ns:paths=blind", state), {RIGHT: 1.0})
    assert not np.asarray(legal(HUNT, state))[0, RIGHT]
    # The hare at (3, 0) is nearer by walking distance, the hare at (0, 2) by Manhattan distance.
    state = HUNT.from_layout(players=[(0, 0), *CORNERS], hares=[(3, 0), (0, 2)], blocks=[(0, 1), (1, 1)])
    assert_shares(frequencies(HUNT, "nh", state), {DOWN: 1.0})
    assert_shares(frequencies(HUNT, "nh:paths=blind", state), {RIGHT: 1.0})


def test_the_nearest_target_is_nearest_by_walking_distance() -> None:
    # The walking distance to (2, 2), two cells away, is four, starting down; to (0, 1) it is three, starting up.
    state = HUNT.from_layout(players=[(2, 0), *CORNERS], hares=[(2, 2), (0, 1)], blocks=[(1, 1), (2, 1)])
    assert_shares(frequencies(HUNT, "nh", state), {UP: 1.0})
    assert_shares(frequencies(HUNT, "nh:paths=blind", state), {RIGHT: 1.0})


def test_a_walled_in_hunter_stays() -> None:
    state = HUNT.from_layout(players=[(0, 0), *CORNERS], stags=[(2, 2)], blocks=[(0, 1), (1, 0)])
    assert_shares(frequencies(HUNT, "ns", state), {STAY: 1.0})


def test_players_who_have_left_only_stay() -> None:
    state = HUNT.from_layout(players=[None, *CORNERS], stags=[(2, 2)], hares=[(1, 1)])
    for name in ("ns", "nh", "random", "noisy(ns,1)", "ns:paths=blind"):
        assert_shares(frequencies(HUNT, name, state), {STAY: 1.0})


def test_cleaners_and_exploiters() -> None:
    state = DRIFT.from_layout(players=[(0, 0), *CORNERS], drifts=[(0, 0), (1, 0)])
    assert_shares(frequencies(DRIFT, "cleaner", state), {REMOVE: 1.0})
    assert_shares(frequencies(DRIFT, "exploiter", state), {DOWN: 1 / 3, RIGHT: 1 / 3, STAY: 1 / 3})
    state = DRIFT.from_layout(players=[(0, 0), *CORNERS], drifts=[(1, 1)])
    assert_shares(frequencies(DRIFT, "cleaner", state), {DOWN: 0.5, RIGHT: 0.5})


def test_walking_distances_equal_breadth_first_search() -> None:
    """On real block maps, every move of a hunter brings it nearer by walking distance (breadth-first in NumPy)."""
    game = games.make("msh-8x8-4h1s")
    _, trajectory = rollouts.play_episodes(jax.random.key(0), game, players.make_cast("ns,ns,nh,nh", game), 40)
    grids = np.asarray(observations(game, trajectory).grid)
    actions, alive = np.asarray(trajectory.actions), np.asarray(trajectory.alive)
    checked = 0
    for time, environment, seat in np.argwhere(alive & (actions < STAY)):
        grid = grids[time, environment, seat]
        target = grid[..., 5 if seat < 2 else 6]
        if not target.any():
            continue
        distance = distances(target, grid[..., 4])
        row, column = np.argwhere(grid[..., 0])[0]
        move = [(-1, 0), (1, 0), (0, -1), (0, 1)][actions[time, environment, seat]]
        assert distance[row + move[0], column + move[1]] == distance[row, column] - 1
        checked += 1
    assert checked > 300


def distances(target: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Returns the walking distance of every cell to the nearest target."""
    before, distance = None, np.where(target > 0, 0, 10_000)
    while before is None or (before != distance).any():
        padded = np.pad(distance, 1, constant_values=10_000)
        nearest = np.minimum.reduce([padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]) + 1
        before, distance = distance, np.where(blocks > 0, 10_000, np.minimum(distance, nearest))
    return distance


def test_switching_changes_the_player_every_k_episodes() -> None:
    cast = players.make_cast("switching(nh,stay,every=2),stay,stay,stay", HUNT)
    keys = jax.random.split(jax.random.key(0), 6)
    init_memories = jax.jit(first_memories, static_argnames=("game", "cast", "params"))
    memories = init_memories(jax.random.split(keys[0], 16), HUNT, cast, None)
    took = []
    for key in keys:
        memories, trajectory = rollouts.play_episodes(key, HUNT, cast, 16, memories=memories)
        took.append(np.asarray(trajectory.took)[..., 0].any(0).mean())
    assert took == [1, 1, 0, 0, 1, 1]

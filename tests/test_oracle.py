"""The oracle: dynamic programming against plain recursion with the other implementation of the rules, and by hand."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from hopplus import games, players
from hopplus.errors import InputError
from hopplus.evaluation import exact
from hopplus.games import StagHunt
from hopplus.players.player import uniform


def stag_hunt(name: str) -> StagHunt:
    game = games.make(name)
    assert isinstance(game, StagHunt)
    return game


def values(game: StagHunt, names: tuple[str, ...], layouts: Any) -> np.ndarray:
    co_players = tuple(players.make(name, game) for name in names)
    return exact.best_response(game, co_players, np.array(layouts))


def recursion(game: StagHunt, names: tuple[str, ...], layout: list[int]) -> dict[tuple[int, ...], float]:
    """The value of every first position by plain recursion over the NumPy game, joint action by joint action."""
    twin = reference.StagHunt(
        height=game.height,
        width=game.width,
        players=game.players,
        blocks=0,
        T=game.T,
        stags=game.stags,
        hares=game.hares,
        stag_needs_company=game.stag_needs_company,
    )
    co_players = [players.make(name, game) for name in names]

    @jax.jit
    def laws_in(state: Any) -> list[jax.Array]:
        seen = game.observe(state)
        return [
            player.probabilities((), (), jax.tree.map(lambda leaf, seat=seat: leaf[seat], seen))
            for seat, player in enumerate(co_players, start=1)
        ]

    @functools.cache
    def laws(where: tuple[Any, ...], things: tuple[Any, ...]) -> list[np.ndarray]:
        state = game.from_layout(list(where), stags=sorted(things[0]), hares=sorted(things[1]))
        return [np.asarray(law, float) for law in laws_in(state)]

    @functools.cache
    def value(state: reference.State) -> float:
        if twin.over(state) or state.players[0] is None:
            return 0.0
        mask, law = twin.legal(state), laws(state.players, state.things)
        likely = [
            [action for action in range(7) if state.players[seat] is not None and law[seat - 1][action] > 0] or [4]
            for seat in range(1, game.players)
        ]
        best = -np.inf
        for own in [action for action in range(7) if mask[0][action]]:
            total = 0.0
            for joint in itertools.product(*likely):
                chance = 1.0
                for seat, action in enumerate(joint, start=1):
                    chance *= law[seat - 1][action] if state.players[seat] is not None else 1.0
                after, outcome = twin.step(state, [own, *joint])
                total += chance * (outcome.reward[0] + value(after._replace(last_actions=(4,) * game.players)))
            best = max(best, total)
        return float(best)

    cells = [divmod(cell, game.width) for cell in layout]
    things = (frozenset(cells[: game.stags]), frozenset(cells[game.stags :]))
    found = {}
    for where in itertools.product(range(game.num_cells), repeat=game.players):
        seats = tuple(divmod(cell, game.width) for cell in where)
        found[where] = value(reference.State(frozenset(), seats, things, 0, (4,) * game.players))
    return found


@pytest.mark.parametrize(
    ("setting", "names", "layout"),
    [
        ("msh-4x4-2h1s:height=2:width=3:hares=2:T=5", ("random",), [1, 3, 5]),
        ("msh-4x4-2h1s:height=2:width=3:hares=1:T=5", ("noisy(ns,0.3)",), [0, 5]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=2:players=3", ("nh", "ns"), [0, 3]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=3:players=3", ("random", "ns"), [2, 1]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=4:stag_needs_company=false", ("random",), [0, 3]),
    ],
)
def test_dynamic_programming_against_plain_recursion(setting: str, names: tuple[str, ...], layout: list[int]) -> None:
    game = stag_hunt(setting)
    found, expected = values(game, names, [layout])[0], recursion(game, names, layout)
    assert found.shape == (game.num_cells,) * game.players
    for where, value in expected.items():
        assert found[where] == pytest.approx(value, abs=1e-5), where
    assert len({round(value, 4) for value in expected.values()}) > 2, "the positions differ, or little is tried"


def test_answers_known_by_hand() -> None:
    """With time enough: a stag is shared with NS; NH leaves a hare; who stays put is no help with a stag."""
    game = stag_hunt("msh-4x4-2h1s")
    layouts = exact.all_layouts(game)
    assert len(layouts) == 16 * 15 * 14 // 2
    some = layouts[::240]
    assert values(game, ("ns",), some) == pytest.approx(5.0)
    assert values(game, ("nh",), some) == pytest.approx(1.0)
    assert values(game, ("stay",), some) == pytest.approx(1.0)
    hurried = stag_hunt("msh-4x4-2h1s:T=2")
    value = values(hurried, ("stay",), [[0, 5, 10]])[0]
    assert value[5, 0] == pytest.approx(1.0), "on a hare already"
    assert value[6, 0] == pytest.approx(1.0), "one step, one hunt"
    assert value[7, 0] == pytest.approx(0.0), "too far"


def test_whoever_goes_by_more_is_refused() -> None:
    game = stag_hunt("msh-4x4-2h1s")

    class Follower(players.Player):
        name = "follower"

        def probabilities(self, params: Any, memory: Any, observation: games.Observation) -> jax.Array:
            here = observation.grid[..., 1].any()
            return jnp.where(here, uniform(observation.legal[0]), jax.nn.one_hot(4, 7))

    with pytest.raises(InputError, match="goes by more"):
        exact.best_response(game, (Follower(),), exact.all_layouts(game)[:1])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("msg-4x4", "stag hunt only"),
        ("msh-8x8-4h1s", "without blocks"),
        ("msh-8x8-4h1s:blocks=0", "positions"),
        ("msh-4x4-4h1s:dynamic_end=true", "without blocks"),
        ("msh-4x4-2h1s:stags=2", "one stag"),
    ],
)
def test_games_without_exact_values(setting: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        exact.check_exact(games.make(setting))

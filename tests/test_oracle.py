"""The oracle: dynamic programming against plain recursion with the other implementation of the rules, and by hand."""

import dataclasses
import functools
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from hopplus import games, players
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.evaluation import exact
from hopplus.evaluation import oracle as oracles
from hopplus.evaluation.oracle import Company, Effort, Oracle, known, mean_of, oracle, phases, seat_shares, share
from hopplus.evaluation.sets import BLIND, CoPlayers, sets_of
from hopplus.games import StagHunt
from hopplus.players.lookahead import Lookahead
from hopplus.players.player import uniform
from hopplus.training.policies import Policy, save_policy
from hopplus.training.recipe import initial_params
from hopplus.training.recipes import PPO


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

    remembers = players.make("pool(ns,nh)", game)
    for player in (Follower(), remembers):
        with pytest.raises(InputError, match="goes by more"):
            exact.best_response(game, (player,), exact.all_layouts(game)[:1])


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


# ------------------------------------------------------------------------------------------------------- lower bounds

SMALL = "msh-4x4-2h1s:height=3:width=3:hares=1:T=10"
"""All 72 layouts of it are computed in a moment."""


def test_search_against_dynamic_programming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both apply, the best that search finds is as good as the best there is, and not better."""
    game = games.make(SMALL)
    monkeypatch.setattr(oracles, "names", lambda: ["stay", "ns"])
    monkeypatch.setattr(oracles, "WITH_OPTIONS", ())
    company = Company.of(game, ["noisy(ns,0.3)"])
    best, _, is_exact, _, layouts = oracles._exactly(stag_hunt(SMALL), company.players, Effort(), lambda done: None)
    assert is_exact
    assert layouts == 72
    effort = Effort(steps=0, episodes=128)
    found, error, is_exact, method, _ = oracles._at_least(game, SMALL, company, effort, (), lambda done: None)
    assert not is_exact
    assert "ns" in method
    assert 0.96 * best < found < best + 4 * error


def test_search_tries_every_script_of_the_game() -> None:
    scripts = {"random", "stay", "ns", "nh", "ns:then=hare", "nh:then=stag"}
    assert {one.name for one in oracles._scripts(games.make(SMALL))} == scripts


def test_who_looks_ahead_sees_what_its_base_does_not() -> None:
    """Beside a hare with two steps left, one who would stay goes there, and on it hunts it."""
    game = stag_hunt("msh-4x4-2h1s")
    stay = players.make("stay", game)
    ahead = Lookahead(game, stay, (stay,))

    @jax.jit
    def act(state: Any) -> jax.Array:
        seen = games.one_seat(game.observe(state), 0)
        return ahead.act(jax.random.key(0), ahead.default_params(), (), seen)[0]

    def action(cell: tuple[int, int]) -> int:
        return int(act(game.from_layout([cell, (3, 3)], stags=[(0, 3)], hares=[(1, 1), (2, 0)], time=0)))

    assert action((1, 1)) == game.action_names.index("HARE")
    assert action((0, 0)) == game.action_names.index("STAY"), "nothing to be had in one step: the base's own choice"


# ---------------------------------------------------------------------------------------------- kept, shared, compared


def made_up(value: float, against: tuple[str, ...] = ("ns",), error: float = 0.0, is_exact: bool = True) -> Oracle:
    return Oracle("msh", "1", against, value, error, is_exact, "by hand", 1, Effort(), 0.0)


def test_whoever_is_better_than_the_oracle_is_an_error() -> None:
    assert share(made_up(2.0), 1.0, 0.1) == 0.5
    assert share(made_up(2.0), 2.3, 0.1) == pytest.approx(1.15), "within four standard errors"
    with pytest.raises(InputError, match=r"a return of 2\.500 beats the oracle's 2\.000 against ns .* is wrong"):
        share(made_up(2.0), 2.5, 0.1)
    with pytest.raises(InputError, match="is too weak: hopplus oracle --candidates RUN"):
        share(made_up(2.0, is_exact=False), 2.5, 0.1)
    assert share(made_up(2.0, error=0.2), 2.5, 0.1) == 1.25, "the oracle has an error too"


def test_the_oracle_of_those_who_switch() -> None:
    others = CoPlayers("others", ("switching(ns,nh,every=2)", "switching(stay,random,every=1)"), "own")
    tables = phases(others)
    assert tables == [("ns", "stay"), ("ns", "random"), ("nh", "stay"), ("nh", "random")] or len(tables) == 4
    found = mean_of([made_up(1.0, ("a",), 0.3), made_up(3.0, ("b",), 0.4)])
    assert (found.value, found.standard_error) == (2.0, 0.25)
    weighted = mean_of([made_up(1.0, ("a",)), made_up(3.0, ("b",), is_exact=False)], [3, 1])
    assert (weighted.value, weighted.exact) == (1.5, False)
    assert mean_of([made_up(1.0, ("a",)), made_up(3.0, ("b",), is_exact=False)], [1, 0]) == made_up(1.0, ("a",))


def test_what_was_computed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.make(SMALL)
    assert known(game, ["nh"]) is None
    first = oracle(game, SMALL, ["nh"])
    assert first.exact
    assert first.units == 72

    def never(*arguments: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(exact, "best_response", never)
    assert oracle(game, SMALL, ["nh"]) == known(game, ["nh"]) == first
    assert known(game, ["nh:then=stay"]) is None
    assert known(games.make(f"{SMALL}:T=11"), ["nh"]) is None, "another game"
    monkeypatch.setattr(type(game), "version", "another")
    assert known(game, ["nh"]) is None, "another version of the game"
    monkeypatch.undo()


def test_it_is_computed_anew_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    game, calls = games.make(SMALL), []
    solve = exact.best_response
    monkeypatch.setattr(exact, "best_response", lambda *given: calls.append(1) or solve(*given))
    oracle(game, SMALL, ["stay"])
    before = len(calls)
    oracle(game, SMALL, ["stay"], again=True)
    oracle(game, SMALL, ["stay"], Effort(layouts=7))
    assert len(calls) == 3 * before


def test_a_damaged_oracle_is_noticed() -> None:
    game = games.make(SMALL)
    key = Company.of(game, ["nh"]).key(game)
    file = oracles._cache() / f"{key}.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(InputError, match=r"is damaged .*: delete it"):
        known(game, ["nh"])


def test_the_oracles_of_the_package() -> None:
    """Every one can be found by who it is against, in the game as it is now; those of all held-out sets are there, but
    for the blind originals' on boards with blocks."""
    found = [oracles._from_dict(saved) for saved in json.loads(oracles.SHIPPED.read_text(encoding="utf-8"))]
    assert len(oracles._shipped()) == len(found)
    for one in found:
        game = games.make(one.game)
        assert known(game, one.against) == one
        assert one.version == game.version
        assert 0 < one.value <= game.ceilings["player"]
    for name in ("msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4", "msg-8x8"):
        game = games.make(name)
        for one in sets_of(game).values():
            if one.split == "held-out" and one.name not in BLIND:
                assert all(known(game, table) is not None for table in phases(one)), (name, one.name)
    hunt = known(games.make("msh-4x4-4h1s"), ["nh", "nh", "nh"])
    assert hunt is not None
    assert hunt.exact
    assert hunt.value == pytest.approx(1.0), "three take three of four hares at most"


def test_shares_by_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.make("msh-4x4-4h1s")
    values = {("nh", "ns", "ns"): 4.0, ("ns", "ns", "ns"): 2.0}
    monkeypatch.setattr(
        oracles, "known", lambda game, against: made_up(values[against], against) if against in values else None
    )
    shares = seat_shares(game, "ns,ns,ns,nh", [1.0, 2.0, 4.0, 1.0], [0.1] * 4)
    assert shares == [0.25, 0.5, 1.0, 0.5]
    assert seat_shares(game, "ns,ns,ns,random", [1.0] * 4, [0.1] * 4) == [None, None, None, 0.5]
    assert seat_shares(game, "self,ns,ns,ns", [1.0] * 4, [0.1] * 4, own=(0,)) == [0.5, None, None, None]
    assert seat_shares(game, "self,self,ns,ns", [1.0] * 4, [0.1] * 4, own=(0, 1)) == [None] * 4
    turncoats = "stay,switching(ns,nh,1),ns,ns"
    assert seat_shares(game, turncoats, [1.0] * 4, [0.1] * 4)[0] == 0.5, "alone together for one episode"
    assert seat_shares(game, turncoats, [1.0] * 4, [0.1] * 4, episodes=2)[0] == pytest.approx(1 / 3)


def test_those_who_have_learnt_are_known_by_their_weights(tmp_path: Path) -> None:
    game = games.make("msh-4x4-4h1s")
    network = PPO(hidden=(4,)).network(game)
    params = jax.device_get(jax.jit(lambda key: initial_params(network, game, key))(jax.random.key(0)))
    for name, added in (("a", 0), ("c", 1)):
        weights = jax.tree.map(lambda leaf, added=added: leaf + added, params)
        policy = Policy("ppo", {"hidden": (4,)}, game.name, seed=0, seat=0, params=weights)
        save_policy(tmp_path / f"{name}.safetensors", policy)
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    against = [[str(tmp_path / f"{name}.safetensors"), "ns", "ns"] for name in "abc"]
    keys = [Company.of(game, names).key(game) for names in against]
    assert keys[0] == keys[1] != keys[2]
    assert Company.of(game, against[0]).has_learnt


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--against ns,ns", "has 2 players, and msh-4x4-4h1s has 3 seats"),
        ("--against cleaner,ns,ns", "needs a game with the action REMOVE"),
        ("--against cooperatrs", "did you mean 'cooperators'"),
        ("--against cooperators --layouts 0", "layouts must be at least 1, not 0"),
        ("--against cooperators --game chess", "there is no game"),
        ("", "needs --against"),
    ],
)
def test_bad_input(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", "--game", SMALL, "--against", "nh", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    found = known(games.make(SMALL), ["nh"])
    assert found is not None
    assert row["value"] == found.value
    assert row["share_of_ceiling"] == pytest.approx(found.value / 5)
    assert dataclasses.asdict(found)["exact"] is row["exact"] is True
    assert main(["oracle", "--game", SMALL, "--against", "switching(nh,stay,3)"]) == 0
    assert "mean of those against" in capsys.readouterr().out

"""Oracles: dynamic programming against plain recursion on the NumPy game, answers by hand, storage and shares."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from hopplus import games, players
from hopplus.cli.main import main
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, parse
from hopplus.evaluation import exact_best_response, oracle_value
from hopplus.evaluation import oracle as oracles
from hopplus.evaluation.co_player_sets import CoPlayers, make_sets
from hopplus.evaluation.match import match
from hopplus.evaluation.oracle import (
    UNSEEN_EVENTS,
    Oracle,
    lookup,
    mean_of,
    oracle,
    phases,
    seat_shares,
    share,
    unseen_loss,
)
from hopplus.evaluation.oracle_opponents import OracleOpponents
from hopplus.evaluation.oracle_value import Effort, exact_value, lower_bound
from hopplus.games import GridGame, Snowdrift, StagHunt
from hopplus.games.board import STAY
from hopplus.players.lookahead import Lookahead
from hopplus.players.player import uniform
from hopplus.training.casting import parse_cast
from toy_games import Medley


def stag_hunt(name: str) -> StagHunt:
    game = games.make(name)
    assert isinstance(game, StagHunt)
    return game


def snowdrift(name: str) -> Snowdrift:
    game = games.make(name)
    assert isinstance(game, Snowdrift)
    return game


def values(game: GridGame, names: tuple[str, ...], layouts: Any) -> np.ndarray:
    co_players = tuple(players.make(name, game) for name in names)
    return exact_best_response.best_response(game, co_players, np.array(layouts))


def reference_of(game: GridGame) -> reference.Reference:
    """Returns the NumPy game of the same settings."""
    settings = {name: getattr(game, name) for name in ("height", "width", "players", "T")}
    if isinstance(game, Snowdrift):
        return reference.Snowdrift(**settings, drifts=game.drifts, benefit=game.benefit, cost=game.cost)
    assert isinstance(game, StagHunt)
    prey = {name: getattr(game, name) for name in ("stags", "hares", "stag_needs_company")}
    return reference.StagHunt(**settings, **prey, blocks=0)


def layout_of(game: GridGame, items: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the cells of items by the names of `from_layout`."""
    return {f"{kind}s": sorted(cells) for kind, cells in zip(game.item_names, items, strict=True)}


def recursion(game: StagHunt | Snowdrift, names: tuple[str, ...], layout: list[int]) -> dict[tuple[int, ...], float]:
    """Returns the value of every first position by plain recursion over joint actions of the NumPy game."""
    numpy_game = reference_of(game)
    co_players, actions = [players.make(name, game) for name in names], range(game.num_actions)

    @jax.jit
    def probabilities_in(state: Any) -> list[jax.Array]:
        seen = game.observe(state)
        return [
            player.probabilities((), (), jax.tree.map(lambda leaf, seat=seat: leaf[seat], seen))
            for seat, player in enumerate(co_players, start=1)
        ]

    @functools.cache
    def action_probabilities(cells: tuple[Any, ...], prey: tuple[Any, ...]) -> list[np.ndarray]:
        state = game.from_layout(list(cells), **layout_of(game, prey))
        return [np.asarray(probabilities, float) for probabilities in probabilities_in(state)]

    @functools.cache
    def value(state: reference.State) -> float:
        if numpy_game.over(state) or state.players[0] is None:
            return 0.0
        mask, probabilities = numpy_game.legal(state), action_probabilities(state.players, state.items)
        likely = [
            [action for action in actions if state.players[seat] is not None and probabilities[seat - 1][action] > 0]
            or [4]
            for seat in range(1, game.players)
        ]
        best = -np.inf
        for ego_action in [action for action in actions if mask[0][action]]:
            total = 0.0
            for joint in itertools.product(*likely):
                chance = 1.0
                for seat, action in enumerate(joint, start=1):
                    chance *= probabilities[seat - 1][action] if state.players[seat] is not None else 1.0
                after, outcome = numpy_game.step(state, [ego_action, *joint])
                after = after._replace(items=tuple(map(frozenset, after.items)), last_actions=(4,) * game.players)
                total += chance * (outcome.reward[0] + value(after))
            best = max(best, total)
        return float(best)

    cells = [divmod(cell, game.width) for cell in layout]
    ends = np.cumsum(game.item_counts)
    prey = tuple(frozenset(cells[end - count : end]) for count, end in zip(game.item_counts, ends, strict=True))
    first_values = {}
    for first_cells in itertools.product(range(game.num_cells), repeat=game.players):
        seats = tuple(divmod(cell, game.width) for cell in first_cells)
        first_values[first_cells] = value(reference.State(frozenset(), seats, prey, 0, (4,) * game.players))
    return first_values


@pytest.mark.parametrize(
    ("setting", "names", "layout"),
    [
        ("msh-4x4-2h1s:height=2:width=3:hares=2:T=5", ("random",), [1, 3, 5]),
        ("msh-4x4-2h1s:height=2:width=3:hares=1:T=5", ("noisy(ns,0.3)",), [0, 5]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=2:players=3", ("nh", "ns"), [0, 3]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=3:players=3", ("random", "ns"), [2, 1]),
        ("msh-4x4-2h1s:height=2:width=2:hares=1:T=4:stag_needs_company=false", ("random",), [0, 3]),
        ("msg-4x4:height=2:width=3:drifts=2:T=5:players=2", ("noisy(cleaner,0.3)",), [0, 5]),
        ("msg-4x4:height=2:width=2:drifts=2:T=4:players=3", ("random", "cleaner"), [0, 3]),
        ("msg-4x4:height=2:width=2:drifts=3:T=3:players=3", ("exploiter", "noisy(exploiter,0.5)"), [0, 1, 3]),
        ("msg-4x4:height=2:width=3:drifts=3:T=4:players=2:cost=8", ("noisy(cleaner,0.3)",), [0, 2, 4]),
    ],
)
def test_dynamic_programming_against_plain_recursion(setting: str, names: tuple[str, ...], layout: list[int]) -> None:
    game = games.make(setting)
    assert isinstance(game, StagHunt | Snowdrift)
    computed, expected = values(game, names, [layout])[0], recursion(game, names, layout)
    assert computed.shape == (game.num_cells,) * game.players
    for cells, value in expected.items():
        assert computed[cells] == pytest.approx(value, abs=1e-5), cells
    assert len({round(value, 4) for value in expected.values()}) > 2, "the positions must differ to test anything"


def test_answers_of_the_snowdrift_game_known_by_hand() -> None:
    """Beside exploiters the ego removes drifts, unless that costs more than it brings; beside cleaners it rests."""
    setting = "msg-4x4:drifts=2:players=2:height=3:width=3"
    patient = snowdrift(f"{setting}:T=12")
    assert values(patient, ("exploiter",), [[0, 8], [1, 2]]) == pytest.approx(4.0)
    assert values(patient, ("cleaner",), [[0, 8]]) == pytest.approx(12.0)
    assert values(snowdrift(f"{setting}:T=12:cost=7"), ("exploiter",), [[0, 8]]) == pytest.approx(0.0)
    hurried = values(snowdrift(f"{setting}:T=2"), ("exploiter",), [[0, 8]])[0]
    assert hurried[0] == pytest.approx(2.0), "on a drift: one removal, then no time"
    assert hurried[4] == pytest.approx(0.0), "two steps away"


def test_answers_known_by_hand() -> None:
    """With enough time, NS shares a stag, NH leaves a hare, and an idle player does not help with a stag."""
    game = stag_hunt("msh-4x4-2h1s")
    layouts = exact_best_response.all_layouts(game)
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


def test_co_players_that_use_more_than_their_own_place_are_rejected() -> None:
    game = stag_hunt("msh-4x4-2h1s")

    class Follower(players.Player):
        name = "follower"

        def probabilities(self, params: Any, memory: Any, observation: games.Observation) -> jax.Array:
            here = observation.board[0, 0, 1] > 0
            legal = observation.legal[0]
            return jnp.where(here, uniform(legal), jax.nn.one_hot(STAY, len(legal)))

    remembers = players.make("pool(ns,nh)", game)
    for player in (Follower(), remembers):
        with pytest.raises(InputError, match="depends on more"):
            exact_best_response.best_response(game, (player,), exact_best_response.all_layouts(game)[:1])
    other = snowdrift("msg-4x4:players=2")
    for player in (Follower(), players.make("pool(cleaner,exploiter)", other)):
        with pytest.raises(InputError, match="depends on more"):
            exact_best_response.best_response(other, (player,), exact_best_response.all_layouts(other)[:1])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("msg-8x8", "positions"),
        ("msg-4x4:blocks=1", "without blocks"),
        ("msh-8x8-4h1s", "without blocks"),
        ("msh-8x8-4h1s:blocks=0", "positions"),
        ("msh-4x4-4h1s:dynamic_end=true", "without blocks"),
        ("msh-4x4-2h1s:stags=2", "one stag"),
    ],
)
def test_games_without_exact_values(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact_best_response.check_exact(games.make(setting))


def test_other_games_have_no_exact_values() -> None:
    with pytest.raises(InputError, match="only in the stag hunt and the snowdrift game, not in test-medley"):
        exact_best_response.check_exact(Medley())


# ------------------------------------------------------------------------------------------------------- lower bounds

SMALL = "msh-4x4-2h1s:height=3:width=3:hares=1:T=10"
"""Small game: all 72 layouts are computed in a moment."""


def test_search_against_dynamic_programming(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower bound by search is close to the exact value and does not exceed it."""
    game = games.make(SMALL)
    monkeypatch.setattr(oracle_value, "names", lambda: ["stay", "ns"])
    monkeypatch.setattr(oracle_value, "WITH_OPTIONS", ())
    opponents = OracleOpponents.of(game, [parse("noisy(ns,0.3)")])
    best = exact_value(stag_hunt(SMALL), opponents.players, Effort(), lambda done: None)
    assert best.exact
    assert best.units == 72
    effort = Effort(steps=0, episodes=128)
    bound = lower_bound(game, SMALL, opponents, effort, (), lambda done: None)
    assert not bound.exact
    assert "ns" in bound.method
    assert 0.96 * best.value < bound.value < best.value + 4 * bound.standard_error


def test_a_lower_bound_without_lookahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("looked ahead")

    monkeypatch.setattr(oracle_value, "with_lookahead", never)
    game = games.make(SMALL)
    opponents = OracleOpponents.of(game, [parse("noisy(ns,0.3)")])
    effort = Effort(steps=0, episodes=16, lookahead=False)
    bound = lower_bound(game, SMALL, opponents, effort, (), lambda done: None)
    assert bound.method in {candidate.name for candidate in oracle_value.scripts(game)}
    assert bound.units == oracle_value.CHEAPER * effort.episodes


def test_search_tries_every_script_of_the_game() -> None:
    scripts = {"random", "stay", "ns", "nh", "ns:then=hare", "nh:then=stag", "ns with a hare in time"}
    assert {candidate.name for candidate in oracle_value.scripts(games.make(SMALL))} == scripts
    scripts = {"random", "stay", "cleaner", "exploiter"}
    assert {candidate.name for candidate in oracle_value.scripts(games.make("msg-4x4"))} == scripts


@functools.cache
def compiled(ahead: Lookahead) -> Any:
    return jax.jit(ahead.act)


def chosen_by(ahead: Lookahead, cell: tuple[int, int], time: int, base: int = 0) -> tuple[str, int]:
    """Returns the action in a position beside a stag, and the base policy that is followed from then on."""
    game = ahead.game
    assert isinstance(game, StagHunt)
    state = game.from_layout([cell, (3, 3)], stags=[(0, 3)], hares=[(1, 1), (2, 0)], time=time)
    seen = games.one_seat(game.observe(state), 0)
    params = ahead.default_params()
    action, memory, _ = compiled(ahead)(jax.random.key(0), params, jnp.int32(base), seen)
    return game.action_names[int(action)], int(memory)


def test_lookahead_improves_on_its_base_policy() -> None:
    """With look-ahead, an idle player hunts the hare on its cell."""
    game = stag_hunt("msh-4x4-2h1s")
    stay = players.make("stay", game)
    ahead = Lookahead(game, (stay,), (stay,))
    assert chosen_by(ahead, (1, 1), 0) == ("HARE", 0)
    assert chosen_by(ahead, (0, 0), 0) == ("STAY", 0), "no reward within one step: the action of the base policy"


def test_lookahead_chooses_between_base_policies() -> None:
    """Beside an idle player it follows the base policy that hunts hares, whichever it followed before."""
    game = stag_hunt("msh-4x4-2h1s")
    stay, stag, hare = (players.make(name, game) for name in ("stay", "ns", "nh"))
    ahead = Lookahead(game, (stag, hare), (stay,))
    assert chosen_by(ahead, (1, 2), 0)[1] == 1, "no stag is hunted alone"
    assert chosen_by(ahead, (1, 2), 0, base=1)[1] == 1
    assert chosen_by(ahead, (0, 3), 34)[1] == 0, "too late for a hare: nothing is better than the current policy"
    beside_a_hunter = Lookahead(game, (hare, stag), (stag,))
    assert chosen_by(beside_a_hunter, (0, 3), 0)[1] == 1, "a hunter of stags is on its way"
    assert chosen_by(beside_a_hunter, (0, 3), 34)[1] == 0


def test_the_current_plan_is_kept_on_equal_terms() -> None:
    game = stag_hunt("msh-4x4-2h1s")
    stay, hare = players.make("stay", game), players.make("nh", game)
    ahead = Lookahead(game, (hare, hare), (stay,))
    assert [chosen_by(ahead, (1, 1), 0, base)[1] for base in range(2)] == [0, 1]
    memory = ahead.init(jax.random.key(0), ())
    assert int(memory) == int(ahead.begin(jnp.int32(1))) == 0, "every episode begins with the first base policy"


def test_a_hunter_of_stags_takes_a_hare_in_time() -> None:
    """It waits for company as long as it can afford, where a plain one waits in vain."""
    game = stag_hunt("msh-4x4-2h1s")
    patient, plain = (
        next(candidate for candidate in oracle_value.scripts(game) if candidate.name == name)
        for name in ("ns with a hare in time", "ns:then=hare")
    )
    idle, hunter = (OracleOpponents.of(game, [parse(name)]) for name in ("stay", "ns"))
    assert plain.mean_return(game, idle, 64, seed=0)[0] < 0.5
    assert patient.mean_return(game, idle, 64, seed=0) == (1.0, 0.0)
    assert patient.mean_return(game, hunter, 64, seed=0) == (5.0, 0.0)
    cast = players.Cast((patient.player, *idle.players))
    lengths = match(game, cast, 64, 0).per_seat[0].length
    assert game.last_step - 2 < lengths <= game.last_step


# ------------------------------------------------------------------------------------------------ storage and shares


def made_up(value: float, against: tuple[str, ...] = ("ns",), error: float = 0.0, is_exact: bool = True) -> Oracle:
    return Oracle("msh", "1", against, value, error, is_exact, "by hand", 1, Effort(), 0.0)


def test_a_return_above_the_oracle_is_an_error() -> None:
    assert share(made_up(2.0), 1.0, 0.1, 0.0) == 0.5
    assert share(made_up(2.0), 2.3, 0.1, 0.0) == pytest.approx(1.15), "within four standard errors"
    with pytest.raises(InputError, match=r"a return of 2\.500 beats the oracle's 2\.000 against ns .* is wrong"):
        share(made_up(2.0), 2.5, 0.1, 0.0)
    with pytest.raises(InputError, match="is too weak: hopplus oracle --candidates RUN"):
        share(made_up(2.0, is_exact=False), 2.5, 0.1, 0.0)
    assert share(made_up(2.0, error=0.2), 2.5, 0.1, 0.0) == 1.25, "the oracle has an error too"


def test_equal_returns_in_few_episodes_do_not_disprove_the_oracle() -> None:
    """A player that always gets 5 but fails in one episode of a hundred rarely fails in 40 episodes."""
    game, best = games.make("msh-4x4-4h1s"), made_up(4.95, error=0.0004)
    assert share(best, 5.0, 0.0, unseen_loss(game, 40)) == pytest.approx(5.0 / 4.95)
    with pytest.raises(InputError, match="beats the oracle's"):
        share(best, 5.0, 0.0, unseen_loss(game, 4_000))
    assert np.exp(-UNSEEN_EVENTS) == pytest.approx(3.17e-5, rel=0.01), "the probability beyond four standard errors"


def test_the_oracle_of_switching_co_players() -> None:
    others = CoPlayers.of("others", ("switching(ns,nh,every=2)", "switching(stay,random,every=1)"), "own")
    by_episode = phases(others)
    names = [{player.text() for player in co_players} for co_players in by_episode]
    assert names == [{"ns", "stay"}, {"ns", "random"}, {"nh", "stay"}, {"nh", "random"}]
    mean = mean_of([made_up(1.0, ("a",), 0.3), made_up(3.0, ("b",), 0.4)])
    assert (mean.value, mean.standard_error) == (2.0, 0.25)
    weighted = mean_of([made_up(1.0, ("a",)), made_up(3.0, ("b",), is_exact=False)], [3, 1])
    assert (weighted.value, weighted.exact) == (1.5, False)
    assert mean_of([made_up(1.0, ("a",)), made_up(3.0, ("b",), is_exact=False)], [1, 0]) == made_up(1.0, ("a",))


def test_computed_oracles_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.make(SMALL)
    assert lookup(game, [parse("nh")]) is None
    first = oracle(game, SMALL, [parse("nh")])
    assert first.exact
    assert first.units == 72

    def never(*arguments: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(exact_best_response, "best_response", never)
    assert oracle(game, SMALL, [parse("nh")]) == lookup(game, [parse("nh")]) == first
    assert lookup(game, [parse("nh:then=stay")]) is None
    assert lookup(games.make(f"{SMALL}:T=11"), [parse("nh")]) is None, "another game"
    monkeypatch.setattr(type(game), "version", "another")
    assert lookup(game, [parse("nh")]) is None, "another version of the game"
    monkeypatch.undo()


def test_oracles_are_recomputed_on_request_and_for_another_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    game, calls = games.make(SMALL), []
    solve = exact_best_response.best_response
    monkeypatch.setattr(exact_best_response, "best_response", lambda *arguments: calls.append(1) or solve(*arguments))
    oracle(game, SMALL, [parse("stay")])
    before = len(calls)
    oracle(game, SMALL, [parse("stay")], again=True)
    oracle(game, SMALL, [parse("stay")], Effort(layouts=7))
    assert len(calls) == 3 * before


def test_a_damaged_oracle_is_reported() -> None:
    game = games.make(SMALL)
    key = OracleOpponents.of(game, [parse("nh")]).key(game)
    file = oracles._cache() / f"{key}.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(InputError, match=r"is damaged .*: delete it"):
        lookup(game, [parse("nh")])


def packaged() -> list[Oracle]:
    return [oracles._from_dict(saved) for saved in json.loads(oracles.PACKAGED.read_text(encoding="utf-8"))]


def test_packaged_oracles_are_found() -> None:
    """Every packaged oracle is found by its co-players in the current version of the game."""
    assert len(oracles._packaged()) == len(packaged())
    for best in packaged():
        game = games.make(best.game)
        assert lookup(game, list(map(parse, best.against))) == best
        assert best.version == game.version
        assert 0 < best.value <= game.ceilings["player"]
    hunt = lookup(games.make("msh-4x4-4h1s"), [parse("nh")] * 3)
    assert hunt is not None
    assert hunt.exact
    assert hunt.value == pytest.approx(1.0), "three take three of four hares at most"


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("msh-4x4-4h1s", "held-out validation"),
        ("msh-8x8-4h1s", "held-out validation"),
        ("msg-4x4", "held-out validation"),
        ("msg-8x8", "held-out"),
        ("msh-4x4-4h1s:hares=3", "defectors noisy-defectors"),
    ],
)
def test_named_sets_have_packaged_oracles(name: str, sets: str) -> None:
    game = games.make(name)
    for co_players in (co_players for text in sets.split() for co_players in make_sets(text, game)):
        assert all(lookup(game, against) is not None for against in phases(co_players)), co_players.name


@pytest.mark.parametrize("name", ["msh-4x4-4h1s", "msh-4x4-4h1s:hares=3", "msg-4x4"])
def test_packaged_oracles_of_small_boards_are_exact(name: str) -> None:
    assert all(best.exact for best in packaged() if best.game == name)


def check_scripts(best: Oracle, names: Sequence[str] | None = None, episodes: int = 512) -> None:
    """Checks that no script has a higher mean return than a packaged oracle, beyond four standard errors."""
    game = games.make(best.game)
    opponents = OracleOpponents.of(game, list(map(parse, best.against)))
    for script in oracle_value.scripts(game):
        if names is None or script.name in names:
            mean, error = script.mean_return(game, opponents, episodes, seed=7)
            assert mean <= best.value + 4 * np.hypot(error, best.standard_error) + 1e-6, (best.against, script.name)


def test_a_lower_bound_is_not_below_a_hunter_that_takes_a_hare_in_time() -> None:
    (best,) = (best for best in packaged() if (best.game, set(best.against)) == ("msh-8x8-4h1s", {"random"}))
    assert not best.exact
    check_scripts(best, ["nh", "ns with a hare in time"])
    with pytest.raises(AssertionError, match="ns with a hare in time"):
        check_scripts(dataclasses.replace(best, value=1.0), ["ns with a hare in time"])


@pytest.mark.slow
@pytest.mark.parametrize("best", packaged(), ids=lambda best: f"{best.game} {','.join(best.against)}")
def test_no_packaged_oracle_is_below_a_script(best: Oracle) -> None:
    check_scripts(best)


def test_shares_by_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.make("msh-4x4-4h1s")
    values: dict[tuple[str, ...], float] = {("nh", "ns", "ns"): 4.0, ("ns", "ns", "ns"): 2.0}

    def lookup_made_up(game: Any, against: tuple[Spec, ...]) -> Oracle | None:
        names = tuple(player.text() for player in against)
        return made_up(values[names], names) if names in values else None

    monkeypatch.setattr(oracles, "lookup", lookup_made_up)

    def shares_of(cast: str, means: list[float], **more: Any) -> list[float | None]:
        return seat_shares(game, parse_cast(cast), means, [0.1] * 4, 10**6, **more)

    assert shares_of("ns,ns,ns,nh", [1.0, 2.0, 4.0, 1.0]) == [0.25, 0.5, 1.0, 0.5]
    assert shares_of("ns,ns,ns,random", [1.0] * 4) == [None, None, None, 0.5]
    assert shares_of("self,ns,ns,ns", [1.0] * 4, own=(0,)) == [0.5, None, None, None]
    assert shares_of("self,self,ns,ns", [1.0] * 4, own=(0, 1)) == [None] * 4
    switching = "stay,switching(ns,nh,1),ns,ns"
    assert shares_of(switching, [1.0] * 4)[0] == 0.5, "a trial of one episode"
    assert shares_of(switching, [1.0] * 4, trial_episodes=2)[0] == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="beats the oracle's"):
        shares_of("ns,ns,ns,nh", [1.0, 2.0, 4.0, 3.0])
    few = seat_shares(game, parse_cast("ns,ns,ns,nh"), [1.0, 2.0, 4.0, 3.0], [0.1] * 4, 10)
    assert few[3] == 1.5, "few trials prove little"


# ------------------------------------------------------------------------------------------------------------ command


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--against ns,ns", "has 2 players, and msh-4x4-4h1s has 3 seats"),
        ("--against cleaner,ns,ns", "needs a game with the action REMOVE"),
        ("--against cooperatrs", "did you mean 'cooperators'"),
        ("--against cooperators --layouts 0", "layouts must be at least 1, not 0"),
        ("--against cooperators --game chess", "there is no game"),
        ("", "needs --against"),
    ],
)
def test_bad_input(argv: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", *argv.split()]) == 2
    assert message in capsys.readouterr().err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle", "--game", SMALL, "--against", "nh", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    known = lookup(games.make(SMALL), [parse("nh")])
    assert known is not None
    assert row["value"] == known.value
    assert row["share_of_ceiling"] == pytest.approx(known.value / 5)
    assert dataclasses.asdict(known)["exact"] is row["exact"] is True
    assert main(["oracle", "--game", SMALL, "--against", "switching(nh,stay,3)"]) == 0
    assert "mean of those against" in capsys.readouterr().out

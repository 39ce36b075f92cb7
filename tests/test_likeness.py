"""A player made of recorded games: it does what was done, sees only what a seat sees, and sits wherever runs may."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.common import played_states, train
from tests.test_adaptation import run_with
from tests.test_datasets import Capture, collected, recorded_games, refused
from tests.test_probabilities import assert_same_law, drawn_and_stated

from hopplus import games
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.evaluation.sets import CoPlayers, make_sets, regime
from hopplus.games import one_seat
from hopplus.games.check import permuted_observation
from hopplus.play.dataset import Dataset, to_arrays, write_dataset
from hopplus.players.likeness import NEIGHBOURS, Likeness, situation, way_to_nearest
from hopplus.training import likeness as likenesses
from hopplus.training.likeness import load_likeness
from hopplus.training.policies import load_policies, save_policies
from hopplus.training.recipes import PPO
from hopplus.training.seats import seat_cast
from hopplus.training.trainer import Training, prepare

GAME = "msh-4x4-4h1s"
HUNT: Any = games.make(GAME)
HARE = 6


@pytest.fixture(scope="module")
def hunters(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Games of a defector among cooperators."""
    return collected(tmp_path_factory.mktemp("data") / "hunters", ("nh,ns,random,ns",), 1500)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Games of two."""
    return collected(tmp_path_factory.mktemp("data") / "pair", ("nh,ns",), 60, "msh-4x4-2h1s")


OBSERVE = jax.jit(lambda state: one_seat(HUNT.observe(state), 0))
SITUATION = jax.jit(lambda observation: situation(HUNT, observation))
LAW = jax.jit(lambda params, observation: Likeness(HUNT, "test").probabilities(params, (), observation))


OBSERVE_ALL = jax.jit(jax.vmap(HUNT.observe))


def observed_states(number: int) -> Any:
    """Observations [number, n, ...] of states of play."""
    states, _ = played_states(HUNT, environments=16)
    observed = jax.device_get(OBSERVE_ALL(states))
    chosen = np.random.default_rng(1).choice(len(observed.time), number, replace=False)
    return jax.tree.map(lambda leaf: leaf[chosen], observed)


def seen(**layout: Any) -> games.Observation:
    return OBSERVE(HUNT.from_layout(**layout))


def law(rows: list[tuple[games.Observation, int]], now: games.Observation) -> np.ndarray:
    """What somebody of whom so much is known may do."""
    params = {
        "features": np.stack([SITUATION(observation) for observation, _ in rows]),
        "actions": np.array([action for _, action in rows]),
    }
    return np.asarray(LAW(params, now))


# --------------------------------------------------------------------------------------------------- what it goes by


def test_the_way_to_the_nearest_by_hand() -> None:
    def way(me: tuple[int, int], *places: tuple[int, int]) -> list[float]:
        boards = np.zeros((2, 4, 4), bool)
        boards[(0, *me)] = True
        for place in places:
            boards[(1, *place)] = True
        return np.asarray(find(*boards.reshape(2, -1))).tolist()

    find = jax.jit(lambda me, places: way_to_nearest(HUNT, me, places))

    assert way((1, 1)) == [0, 0, 0]
    assert way((1, 1), (1, 1), (1, 2)) == [0, 0, 1]
    assert way((1, 1), (3, 1), (3, 3)) == pytest.approx([2 / 3, 0, 1])
    assert way((2, 2), (0, 0)) == pytest.approx([-2 / 5, -2 / 5, 1])
    assert way((1, 1), (0, 1), (1, 2)) == pytest.approx([-1 / 4, 1 / 4, 1]), "the mean of two that are equally near"


def test_a_situation_tells_company_and_work_from_their_absence() -> None:
    alone = seen(players=[(1, 1), (3, 3), (3, 3), None], stags=[(1, 1)])
    together = seen(players=[(1, 1), (1, 1), (3, 3), None], stags=[(1, 1)])
    assert np.asarray(SITUATION(alone))[-3:].tolist() == [0, 0, 0], "no company, and no stag without it"
    assert np.asarray(SITUATION(together))[-3:] == pytest.approx([1 / 3, 1, 0])


def test_a_seat_counts_for_nothing() -> None:
    """Re-seated players are in the same situations, whoever sits beside whom."""
    situations = jax.jit(jax.vmap(jax.vmap(SITUATION)))
    permuted = jax.jit(jax.vmap(permuted_observation, in_axes=(0, None)))
    before = observed_states(70)
    for order in (np.array([1, 2, 3, 0]), np.array([2, 0, 3, 1])):
        after = permuted(before, order)
        np.testing.assert_allclose(situations(after), np.asarray(situations(before))[:, order], atol=1e-6)


# ------------------------------------------------------------------------------------------------------ what it does


def test_it_does_what_was_done_in_the_like() -> None:
    above = seen(players=[(2, 1), None, None, None], hares=[(0, 1)])
    right = seen(players=[(1, 0), None, None, None], hares=[(1, 2)])
    rows = [(above, 0)] * NEIGHBOURS + [(right, 3)] * NEIGHBOURS
    assert law(rows, above) == pytest.approx([1, 0, 0, 0, 0, 0, 0])
    assert law(rows, right) == pytest.approx([0, 0, 0, 1, 0, 0, 0])
    farther = seen(players=[(3, 1), None, None, None], hares=[(0, 1)])
    assert law(rows, farther) == pytest.approx([1, 0, 0, 0, 0, 0, 0])


def test_of_few_situations_all_count_by_their_distance() -> None:
    above = seen(players=[(2, 1), None, None, None], hares=[(1, 1)])
    right = seen(players=[(2, 1), None, None, None], hares=[(2, 2)])
    distance = float(np.linalg.norm(SITUATION(above) - SITUATION(right)))
    expected = 1 / (1 + 1 / (1 + distance))
    assert law([(above, 0), (right, 3)], above) == pytest.approx([expected, 0, 0, 1 - expected, 0, 0, 0])


def test_what_is_as_near_as_the_last_that_counts_counts_too() -> None:
    """Whatever was recorded first."""
    above = seen(players=[(2, 1), None, None, None], hares=[(1, 1)])
    rows = [(above, 0)] * NEIGHBOURS + [(above, 2)] * NEIGHBOURS
    assert law(rows, above) == pytest.approx([0.5, 0, 0.5, 0, 0, 0, 0])


def test_where_nothing_that_was_done_is_legal_anything_legal_is_equally_likely() -> None:
    here = seen(players=[(1, 1), None, None, None], hares=[(1, 1)])
    gone = seen(players=[(0, 0), None, None, None], hares=[(3, 3)])
    assert law([(here, HARE)], gone) == pytest.approx([0, 1 / 3, 0, 1 / 3, 1 / 3, 0, 0])
    left = seen(players=[None, (0, 0), None, None], hares=[(3, 3)])
    assert law([(here, HARE)], left).tolist() == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("wrapped", ["{}", "noisy({},0.3)", "pool({},random)"])
def test_it_draws_from_the_law_that_it_states(wrapped: str, hunters: Dataset) -> None:
    name = wrapped.format(f"likeness({hunters.path},kind=random)")
    seated = seat_cast(f"{name},stay,stay,stay", HUNT)
    drawn, stated = drawn_and_stated(HUNT, seated.cast.players[0], seated.params()[0])
    assert_same_law(drawn, stated)


def test_it_never_does_what_is_not_legal_and_no_side_of_the_board_is_another(hunters: Dataset) -> None:
    observed = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), observed_states(140))
    laws = jax.jit(jax.vmap(LAW, in_axes=(None, 0)))
    params = load_likeness(str(hunters.path), "nh").params
    before = np.asarray(laws(params, observed))
    np.testing.assert_allclose(before.sum(-1), 1, atol=1e-5)
    assert not before[~observed.legal[:, 0]].any()
    for side in HUNT.symmetries[1:]:
        grid = np.stack([side.board(grid) for grid in observed.grid])
        legal = np.zeros_like(observed.legal)
        legal[..., side.actions(HUNT.num_actions)] = observed.legal
        after = np.asarray(laws(params, replace(observed, grid=grid, legal=legal)))
        np.testing.assert_allclose(after[:, side.actions(HUNT.num_actions)], before, atol=1e-4)


def test_the_likeness_of_one_who_takes_hares_takes_hares(hunters: Dataset, capsys: Capture) -> None:
    """In seats in which nobody of its kind was seen, and several of them at once."""
    name = f"likeness({hunters.path},kind=nh)"
    cast = seat_cast(f"random,{name},stay,{name}", HUNT)
    assert len(cast.cast.groups) == 3, "both are computed together"
    assert main(["match", GAME, "--cast", f"random,{name},stay,{name}", "--episodes", "300", "--json"]) == 0
    random, likeness, _, other = (row["taken"]["hare"] for row in json.loads(capsys.readouterr().out)["per_seat"])
    assert min(likeness, other) > 0.9, (random, likeness, other)
    assert random < 0.75, random


# ------------------------------------------------------------------------------------------------------ from a dataset


def test_it_is_made_of_all_that_its_kind_did_and_of_nothing_else(hunters: Dataset) -> None:
    recorded = hunters.load()
    policy = load_likeness(str(hunters.path), "ns")
    rows = to_arrays(recorded)
    chosen = np.isin(rows["row.seat"], (1, 3))
    assert policy.seat == 1
    assert policy.params["features"].shape == (8 * chosen.sum(), 3 * 3 + 1 + 2), "from eight sides"
    by_side = policy.params["actions"].reshape(8, -1)
    assert np.bincount(by_side[0]).tolist() == np.bincount(rows["row.action"][chosen]).tolist()


def test_of_very_many_steps_some_are_kept(hunters: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likenesses, "MOST", 50)
    policy = load_likeness(str(hunters.path), "nh")
    assert policy.params["actions"].shape == (8 * 50,)
    assert len(np.unique(policy.params["features"][:50], axis=0)) > 20


def test_a_person_is_who_one_is_the_likeness_of(hunters: Dataset, tmp_path: Path) -> None:
    found = recorded_games(tmp_path / "games", hunters.load().select(np.arange(3)))
    seated = seat_cast(f"likeness({found.path}),ns,ns,ns", HUNT)
    ((source, policy),) = seated.policies.items()
    assert source == f"likeness({found.path},kind=you)"
    assert policy.settings == {"kind": "you"}


def test_a_kind_with_options_can_be_named_wherever_a_player_is(hunters: Dataset, pair: Dataset, tmp_path: Path) -> None:
    path = recorded_games(tmp_path / "games", hunters.load().select(np.arange(3)), "nh:then=stay,ns,ns,ns").path
    name = f"likeness({path},kind=nh:then=stay)"
    (one,) = make_sets(f"{name},ns,noisy({name},0.2)", HUNT)
    assert one.at_episode(3) == (name, "ns", f"noisy({name},0.2)")
    person = write_dataset(tmp_path / "pair", pair.game, [pair.load()], ("you,ns",), ("you", "ns"), 0)
    alone = f"likeness({person.path})"
    assert make_sets(alone, pair.game) == [CoPlayers(alone, (alone,), "own")]


def test_a_run_that_was_trained_beside_somebody_has_met_it(hunters: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever way one comes to its games."""
    monkeypatch.chdir(hunters.path.parent)
    beside = run_with(training={"cast": f"learner,likeness({hunters.path.name},kind=nh),ns,ns"})
    others = CoPlayers("others", (f"likeness({hunters.path},kind=nh)", "random", "random"), "own")
    assert regime(beside, others) == ("pool", (str(hunters.path.resolve()),))


def test_bad_likenesses_are_one_sentence(hunters: Dataset, tmp_path: Path, capsys: Capture) -> None:
    def said(player: str, game: str = GAME) -> str:
        return refused(capsys, "match", game, "--cast", f"{player},random,random,random", "--episodes", "1")

    assert f"{tmp_path} is not a dataset" in said(f"likeness({tmp_path})")
    assert "'you'" in said(f"likeness({hunters.path})")
    assert "names one of nh, ns, random" in said(f"likeness({hunters.path},kind=nobody)")
    assert "cannot play msh-8x8-4h1s" in said(f"likeness({hunters.path},kind=nh)", "msh-8x8-4h1s")
    assert "written 'likeness(path,kind=...)'" in said("likeness")
    assert "no option 'knd'" in said(f"likeness({hunters.path},knd=nh)")


# --------------------------------------------------------------------------------------------------- beside a learner


def test_it_sits_beside_a_learner_and_is_kept_when_the_games_go_away(pair: Dataset, tmp_path: Path) -> None:
    source = Path(shutil.copytree(pair.path, tmp_path / "games"))
    cast = f"learner,noisy(likeness({source},kind=nh),0.1)"
    training, recipe = Training(pair.game.name, cast, steps=1, chunk=1), PPO(environments=8, hidden=(8,))
    setup = prepare(training, recipe)
    save_policies(tmp_path / "co_players", setup.frozen)
    shutil.rmtree(source)
    with pytest.raises(InputError, match="games is not a dataset"):
        prepare(training, recipe)
    again = prepare(training, recipe, load_policies(tmp_path / "co_players"))
    jax.tree.map(np.testing.assert_array_equal, again.frozen_params(), setup.frozen_params())
    assert again.judged == setup.judged
    (line,) = train(again).lines
    assert line["return"][1] > 0.3, "it takes hares"

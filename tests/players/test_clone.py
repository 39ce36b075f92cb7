"""Behaviour clones: policy, features, datasets, and use in casts and training."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from common import played_states, train
from evaluation.test_sets import run_with
from hopplus import games
from hopplus.algorithms import PPO
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.evaluation.co_player_sets import CoPlayers, make_sets, regime
from hopplus.games import one_seat
from hopplus.games.check import permuted_observation
from hopplus.players.clone import NEIGHBOURS, BehaviorClone, clone_features, way_to_nearest
from hopplus.rollouts.cast_distribution import CastDistribution
from hopplus.rollouts.dataset import Dataset, write_dataset
from hopplus.rollouts.dataset_files import to_arrays
from hopplus.training import cloning
from hopplus.training.casting import parse_cast, seat_cast
from hopplus.training.cloning import load_clone
from hopplus.training.experiment import prepare
from hopplus.training.policies import load_policies, save_policies
from players.test_action_probabilities import assert_same_distribution, sampled_and_stated
from rollouts.test_dataset import Capture, collected, recorded_games, refused

GAME = "msh-4x4-4h1s"
HUNT: Any = games.make(GAME)
HARE = 6


@pytest.fixture(scope="module")
def hunters(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Recorded games of a defector among cooperators."""
    return collected(tmp_path_factory.mktemp("data") / "hunters", ("nh,ns,random,ns",), 1500)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Recorded games of two players."""
    return collected(tmp_path_factory.mktemp("data") / "pair", ("nh,ns",), 60, "msh-4x4-2h1s")


OBSERVE = jax.jit(lambda state: one_seat(HUNT.observe(state), 0))
FEATURES = jax.jit(lambda observation: clone_features(HUNT, observation))
PROBABILITIES = jax.jit(lambda params, observation: BehaviorClone(HUNT, "test").probabilities(params, (), observation))
OBSERVE_ALL = jax.jit(jax.vmap(HUNT.observe))


def observed_states(number: int) -> Any:
    """Returns observations [number, n, ...] of states of play."""
    states, _ = played_states(HUNT, environments=16)
    observations = jax.device_get(OBSERVE_ALL(states))
    chosen = np.random.default_rng(1).choice(len(observations.time), number, replace=False)
    return jax.tree.map(lambda leaf: leaf[chosen], observations)


def observed(**layout: Any) -> games.Observation:
    """Returns seat 0's observation of a layout."""
    return OBSERVE(HUNT.from_layout(**layout))


def policy(rows: list[tuple[games.Observation, int]], observation: games.Observation) -> np.ndarray:
    """Returns the action probabilities of a clone of these recorded decisions."""
    params = {
        "features": np.stack([FEATURES(recorded) for recorded, _ in rows]),
        "actions": np.array([action for _, action in rows]),
    }
    return np.asarray(PROBABILITIES(params, observation))


# ---------------------------------------------------------------------------------------------------------- features


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


def test_features_include_co_players_on_the_same_cell_and_legal_work() -> None:
    alone = observed(players=[(1, 1), (3, 3), (3, 3), None], stags=[(1, 1)])
    together = observed(players=[(1, 1), (1, 1), (3, 3), None], stags=[(1, 1)])
    assert np.asarray(FEATURES(alone))[-3:].tolist() == [0, 0, 0], "no co-player on the cell, and so no legal stag hunt"
    assert np.asarray(FEATURES(together))[-3:] == pytest.approx([1 / 3, 1, 0])


def test_features_do_not_depend_on_seats() -> None:
    """Players have the same features after a permutation of seats."""
    features = jax.jit(jax.vmap(jax.vmap(FEATURES)))
    permuted = jax.jit(jax.vmap(permuted_observation, in_axes=(0, None)))
    before = observed_states(70)
    for order in (np.array([1, 2, 3, 0]), np.array([2, 0, 3, 1])):
        after = permuted(before, order)
        np.testing.assert_allclose(features(after), np.asarray(features(before))[:, order], atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ policy


def test_a_clone_repeats_recorded_actions() -> None:
    above = observed(players=[(2, 1), None, None, None], hares=[(0, 1)])
    right = observed(players=[(1, 0), None, None, None], hares=[(1, 2)])
    rows = [(above, 0)] * NEIGHBOURS + [(right, 3)] * NEIGHBOURS
    assert policy(rows, above) == pytest.approx([1, 0, 0, 0, 0, 0, 0])
    assert policy(rows, right) == pytest.approx([0, 0, 0, 1, 0, 0, 0])
    farther = observed(players=[(3, 1), None, None, None], hares=[(0, 1)])
    assert policy(rows, farther) == pytest.approx([1, 0, 0, 0, 0, 0, 0])


def test_few_recorded_states_are_all_weighted_by_distance() -> None:
    above = observed(players=[(2, 1), None, None, None], hares=[(1, 1)])
    right = observed(players=[(2, 1), None, None, None], hares=[(2, 2)])
    distance = float(np.linalg.norm(FEATURES(above) - FEATURES(right)))
    expected = 1 / (1 + 1 / (1 + distance))
    assert policy([(above, 0), (right, 3)], above) == pytest.approx([expected, 0, 0, 1 - expected, 0, 0, 0])


def test_states_tied_with_the_last_neighbour_count() -> None:
    """The order of recording does not matter."""
    above = observed(players=[(2, 1), None, None, None], hares=[(1, 1)])
    rows = [(above, 0)] * NEIGHBOURS + [(above, 2)] * NEIGHBOURS
    assert policy(rows, above) == pytest.approx([0.5, 0, 0.5, 0, 0, 0, 0])


def test_a_clone_is_uniform_if_no_recorded_action_is_legal() -> None:
    here = observed(players=[(1, 1), None, None, None], hares=[(1, 1)])
    gone = observed(players=[(0, 0), None, None, None], hares=[(3, 3)])
    assert policy([(here, HARE)], gone) == pytest.approx([0, 1 / 3, 0, 1 / 3, 1 / 3, 0, 0])
    left = observed(players=[None, (0, 0), None, None], hares=[(3, 3)])
    assert policy([(here, HARE)], left).tolist() == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("wrapped", ["{}", "noisy({},0.3)", "pool({},random)"])
def test_stated_and_sampled_agree(wrapped: str, hunters: Dataset) -> None:
    name = wrapped.format(f"clone({hunters.path},kind=random)")
    seated = seat_cast(parse_cast(f"{name},stay,stay,stay"), HUNT)
    assert_same_distribution(*sampled_and_stated(HUNT, seated.cast.players[0], seated.params()[0]))


def test_a_clone_is_legal_and_symmetric(hunters: Dataset) -> None:
    """Illegal actions have probability 0, and board symmetries permute the actions."""
    observations = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), observed_states(140))
    policies = jax.jit(jax.vmap(PROBABILITIES, in_axes=(None, 0)))
    params = load_clone(str(hunters.path), "nh").params
    before = np.asarray(policies(params, observations))
    np.testing.assert_allclose(before.sum(-1), 1, atol=1e-5)
    assert not before[~observations.legal[:, 0]].any()
    for symmetry in HUNT.symmetries[1:]:
        grid = np.stack([symmetry.board(grid) for grid in observations.grid])
        legal = np.zeros_like(observations.legal)
        legal[..., symmetry.actions(HUNT.num_actions)] = observations.legal
        after = np.asarray(policies(params, replace(observations, grid=grid, legal=legal)))
        np.testing.assert_allclose(after[:, symmetry.actions(HUNT.num_actions)], before, atol=1e-4)


def test_the_clone_of_a_hare_hunter_takes_hares(hunters: Dataset, capsys: Capture) -> None:
    """Clones also work in seats where the agent type was not recorded, and in several seats at once."""
    name = f"clone({hunters.path},kind=nh)"
    cast = seat_cast(parse_cast(f"random,{name},stay,{name}"), HUNT)
    assert len(cast.cast.groups) == 3, "both clones are computed together"
    assert main(["match", GAME, "--cast", f"random,{name},stay,{name}", "--episodes", "300", "--json"]) == 0
    random, clone, _, other_clone = (row["taken"]["hare"] for row in json.loads(capsys.readouterr().out)["per_seat"])
    assert min(clone, other_clone) > 0.9, (random, clone, other_clone)
    assert random < 0.75, random


# ------------------------------------------------------------------------------------------------------ from a dataset


def test_a_clone_uses_all_decisions_of_its_agent_type_only(hunters: Dataset) -> None:
    recorded = hunters.load()
    policy = load_clone(str(hunters.path), "ns")
    rows = to_arrays(recorded)
    chosen = np.isin(rows["row.seat"], (1, 3))
    assert policy.seat == 1
    assert policy.params["features"].shape == (8 * chosen.sum(), 3 * 3 + 1 + 2), "eight symmetries"
    by_symmetry = policy.params["actions"].reshape(8, -1)
    assert np.bincount(by_symmetry[0]).tolist() == np.bincount(rows["row.action"][chosen]).tolist()


def test_large_datasets_are_subsampled(hunters: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloning, "MAX_ROWS", 50)
    policy = load_clone(str(hunters.path), "nh")
    assert policy.params["actions"].shape == (8 * 50,)
    assert len(np.unique(policy.params["features"][:50], axis=0)) > 20


def test_the_human_is_cloned_by_default(hunters: Dataset, tmp_path: Path) -> None:
    dataset = recorded_games(tmp_path / "games", hunters.load().select(np.arange(3)))
    seated = seat_cast(parse_cast(f"clone({dataset.path}),ns,ns,ns"), HUNT)
    ((source, policy),) = seated.policies.items()
    assert source == f"clone({dataset.path},kind=you)"
    assert policy.settings == {"kind": "you"}


def test_clones_of_players_with_options_can_be_named_in_casts(hunters: Dataset, pair: Dataset, tmp_path: Path) -> None:
    path = recorded_games(tmp_path / "games", hunters.load().select(np.arange(3)), "nh:then=stay,ns,ns,ns").path
    name = f"clone({path},kind=nh:then=stay)"
    (co_players,) = make_sets(f"{name},ns,noisy({name},0.2)", HUNT)
    assert [player.text() for player in co_players.at_episode(3)] == [name, "ns", f"noisy({name},0.2)"]
    human = write_dataset(tmp_path / "pair", pair.game, [pair.load()], CastDistribution.of_cast(("you", "ns")), 0)
    clone = f"clone({human.path})"
    assert make_sets(clone, pair.game) == [CoPlayers.of(clone, (clone,), "own")]


def test_a_clone_in_the_training_cast_is_a_known_co_player(hunters: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative and absolute paths name the same dataset."""
    monkeypatch.chdir(hunters.path.parent)
    run = run_with(training={"cast": f"learner,clone({hunters.path.name},kind=nh),ns,ns"})
    co_players = CoPlayers.of("others", (f"clone({hunters.path},kind=nh)", "random", "random"), "own")
    assert regime(run, co_players) == ("pool", (str(hunters.path.resolve()),))


def test_errors_of_clones_are_one_sentence(hunters: Dataset, tmp_path: Path, capsys: Capture) -> None:
    def error(player: str, game: str = GAME) -> str:
        return refused(capsys, "match", game, "--cast", f"{player},random,random,random", "--episodes", "1")

    assert f"{tmp_path} is not a dataset" in error(f"clone({tmp_path})")
    assert "'you'" in error(f"clone({hunters.path})")
    assert "takes one of nh, ns, random" in error(f"clone({hunters.path},kind=nobody)")
    assert "cannot play msh-8x8-4h1s" in error(f"clone({hunters.path},kind=nh)", "msh-8x8-4h1s")
    assert "written 'clone(path,kind=...)'" in error("clone")
    assert "no option 'knd'" in error(f"clone({hunters.path},knd=nh)")


# ---------------------------------------------------------------------------------------------------------- training


def test_a_clone_trains_with_a_learner_and_is_saved_with_the_run(pair: Dataset, tmp_path: Path) -> None:
    source = Path(shutil.copytree(pair.path, tmp_path / "games"))
    cast = f"learner,noisy(clone({source},kind=nh),0.1)"
    config = TrainingConfig(pair.game.name, cast, steps=1, iterations_per_call=1)
    algorithm = PPO(num_envs=8, hidden=(8,))
    experiment = prepare(config, algorithm)
    save_policies(tmp_path / "co_players", experiment.frozen)
    shutil.rmtree(source)
    with pytest.raises(InputError, match="games is not a dataset"):
        prepare(config, algorithm)
    restored = prepare(config, algorithm, load_policies(tmp_path / "co_players"))
    jax.tree.map(np.testing.assert_array_equal, restored.frozen_params(), experiment.frozen_params())
    assert restored.eval_seats == experiment.eval_seats
    (line,) = train(restored).lines
    assert line["return"][1] > 0.3, "the clone takes hares"

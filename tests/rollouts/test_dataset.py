"""Datasets: whole episodes on disk, without rows of players who have left; exact predictions of recorded players."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games, players
from hopplus.algorithms import PPO
from hopplus.algorithms.base import initial_params
from hopplus.cli.main import main
from hopplus.core.errors import InputError
from hopplus.fitting.loop import split
from hopplus.games import Observation
from hopplus.rollouts import dataset, dataset_files
from hopplus.rollouts.cast_distribution import CastDistribution, parse_casts
from hopplus.rollouts.dataset import Dataset, collect, join_datasets, open_dataset, write_dataset
from hopplus.rollouts.dataset_files import from_arrays, to_arrays
from hopplus.rollouts.exact_predictions import exact_predictions
from hopplus.rollouts.population import Recorded, play_casts
from hopplus.rollouts.trajectory import Trajectory
from hopplus.training.policies import Policy, save_policy
from hopplus.training.population import make_population

GAME = "msh-4x4-4h1s"
TINY = "msh-4x4-2h1s:height=2:width=3:hares=1:T=8"
Capture = pytest.CaptureFixture[str]


def collected(path: Path, casts: tuple[str, ...] = ("all:ns,nh",), steps: int = 3000, game: str = GAME) -> Dataset:
    the_game = games.make(game)
    cast_distribution = parse_casts(casts, the_game.num_players)
    population = make_population(the_game, cast_distribution.agent_types)
    return collect(path, the_game, population, cast_distribution, steps, seed=0)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(tmp_path_factory.mktemp("data") / "mixed")


@pytest.fixture(scope="module")
def drifts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Another game, with a cast by name."""
    casts = ("cleaner,exploiter,random,noisy(cleaner,0.2)",)
    return collected(tmp_path_factory.mktemp("data") / "drifts", casts, 300, "msg-4x4")


def recorded_games(path: Path, recorded: Recorded, cast: str = "you,ns,nh,random", **options: Any) -> Dataset:
    """A dataset of recorded episodes, with other agent types: a human among others."""
    cast_distribution = CastDistribution.of_cast(cast.split(","))
    relabelled = Recorded(recorded.trajectory, np.broadcast_to(cast_distribution.casts, recorded.agent_types.shape))
    return write_dataset(path, games.make(GAME), [relabelled], cast_distribution, 7, **options)


@pytest.fixture
def copied(mixed: Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mixed.path, tmp_path / "copy"))


# ------------------------------------------------------------------------------------------------------------- casts


def test_every_mixture_is_equally_likely_and_seats_are_shuffled() -> None:
    cast_distribution = parse_casts(["all:ns,nh"], 4)
    assert cast_distribution.agent_types == ("ns", "nh")
    assert len(cast_distribution.casts) == 16
    number = (cast_distribution.casts == 0).sum(-1)
    np.testing.assert_allclose([cast_distribution.probabilities[number == m].sum() for m in range(5)], 0.2)
    np.testing.assert_allclose(cast_distribution.probabilities[number == 2], 0.2 / 6)
    three = parse_casts(["all:ns,nh,random"], 2)
    np.testing.assert_allclose(three.probabilities.sum(), 1)
    pairs = {tuple(cast): chance for cast, chance in zip(three.casts.tolist(), three.probabilities, strict=True)}
    assert pairs[(0, 0)] == pytest.approx(1 / 6)
    assert pairs[(0, 1)] == pytest.approx(1 / 12)


def test_casts_of_a_list_are_equally_likely_and_sit_as_written() -> None:
    cast_distribution = parse_casts(["ns,nh,nh,nh", "random,ns,ns,ns"], 4)
    assert cast_distribution.agent_types == ("ns", "nh", "random")
    assert cast_distribution.casts.tolist() == [[0, 1, 1, 1], [2, 0, 0, 0]]
    assert cast_distribution.probabilities.tolist() == [0.5, 0.5]


def test_agent_types_are_drawn_from_the_cast_distribution(mixed: Dataset) -> None:
    numbers = np.bincount((mixed.load().agent_types == 0).sum(-1), minlength=5)
    expected = numbers.sum() / 5
    assert (np.abs(numbers - expected) < 5 * np.sqrt(expected)).all(), numbers


def test_every_episode_is_in_exactly_one_part_of_a_split() -> None:
    rows: dict[str, Any] = {field.name: np.zeros((2, 25, 1)) for field in dataclasses.fields(Trajectory)}
    trajectory = Trajectory(
        **{**rows, "info": (), "last_state": np.arange(25), "reward": np.tile(np.arange(25), (2, 1))}
    )
    parts = vars(split(Recorded(trajectory, np.arange(25)[:, None])))
    numbers = {name: part.agent_types[:, 0].tolist() for name, part in parts.items()}
    assert sorted(itertools.chain(*numbers.values())) == list(range(25))
    assert all(numbers.values())
    assert len(numbers["train"]) >= 20
    for name, part in parts.items():
        assert part.trajectory.last_state.tolist() == part.trajectory.reward[1].tolist() == numbers[name]


# ----------------------------------------------------------------------------------------------------- written files


def test_no_row_of_a_player_who_has_left(mixed: Dataset) -> None:
    """Fault 2: rows after a player had left taught the MOA to predict STAY."""
    game = mixed.game
    for arrays in mixed.shards():
        starts, step = np.asarray(arrays["starts"]), np.asarray(arrays["row.step"])
        episode = np.searchsorted(starts, step, side="right") - 1
        cells = np.asarray(arrays["state.cells"])[step + episode, arrays["row.seat"]]
        assert (cells >= 0).all(), "every player with a row is on the board"
        present = np.asarray(arrays["state.cells"]) >= 0
        last = starts[1:] + np.arange(len(starts) - 1)
        played = np.ones(len(present), bool)
        played[last] = False
        assert present[played].sum() == len(step), "every player on the board has a row"
        assert game.num_players == present.shape[1]


def test_the_check_detects_rows_of_players_who_have_left(mixed: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault, an episode has more rows than steps of players still in the game."""
    recorded = mixed.load()
    correct = len(to_arrays(recorded)["row.step"])
    all_alive = np.repeat(recorded.played[..., None], 4, -1)
    faulty = Recorded(
        type(recorded.trajectory)(**{**vars(recorded.trajectory), "alive": all_alive}), recorded.agent_types
    )
    arrays = to_arrays(faulty)
    assert len(arrays["row.step"]) > correct
    monkeypatch.setattr(Dataset, "shards", lambda self: [arrays])
    with pytest.raises(AssertionError, match="on the board"):
        test_no_row_of_a_player_who_has_left(mixed)


def test_written_episodes_equal_played_episodes(mixed: Dataset) -> None:
    game, recorded = mixed.game, mixed.load()
    again = from_arrays(game, to_arrays(recorded))
    for before, after in zip(jax.tree.leaves(recorded.trajectory), jax.tree.leaves(again.trajectory), strict=True):
        np.testing.assert_array_equal(before, after)
    key = jax.random.fold_in(jax.random.key(0), 0)
    population = make_population(game, mixed.agent_types)
    played = play_casts(key, game, population, mixed.cast_distribution, dataset.BATCH)
    first = played.select(np.arange(len(recorded.agent_types)))
    np.testing.assert_array_equal(first.agent_types, recorded.agent_types)
    for name in ("actions", "alive", "reward", "left", "took", "cell", "over"):
        stored, live = getattr(recorded.trajectory, name), getattr(first.trajectory, name)
        mask = first.played if name == "over" else first.trajectory.alive
        np.testing.assert_array_equal(np.asarray(stored)[mask], np.asarray(live)[mask], err_msg=name)


def test_counts_and_steps(mixed: Dataset) -> None:
    header, recorded = mixed.header, mixed.load()
    lengths = recorded.played.sum(0)
    assert header["steps"] == lengths.sum() >= 3000
    assert header["steps"] - lengths[-1] < 3000, "the last episode is the one that reaches the number of steps"
    assert header["rows"] == recorded.trajectory.alive.sum()
    assert header["episodes"] == len(recorded.agent_types)


def test_files_can_be_mapped(mixed: Dataset) -> None:
    arrays = mixed.shards()[0]
    assert all(isinstance(array, np.memmap) for array in arrays.values())


def test_the_same_seed_gives_the_same_bytes(mixed: Dataset, tmp_path: Path) -> None:
    again = collected(tmp_path / "again")
    assert again.header["shards"] == mixed.header["shards"]


def test_other_games_and_named_casts(drifts: Dataset) -> None:
    assert drifts.load().agent_types.tolist()[0] == [0, 1, 2, 3]


def test_saved_policies_play_and_have_exact_predictions(tmp_path: Path) -> None:
    game, algorithm = games.make(TINY), PPO(hidden=(8,))
    params = jax.jit(lambda key: initial_params(algorithm.network(game), game, key))(jax.random.key(1))
    policy = Policy("ppo", {"hidden": (8,)}, TINY, seed=0, seat=0, params=params)
    save_policy(tmp_path / "policy.safetensors", policy)
    data = collected(tmp_path / "data", (f"{tmp_path / 'policy.safetensors'},ns",), 200, TINY)
    recorded = data.load()
    exact = exact_predictions(game, make_population(game, data.agent_types), data.cast_distribution, recorded)
    probabilities = exact.given_type(recorded.agent_types)
    chosen = np.take_along_axis(probabilities, np.asarray(recorded.trajectory.actions)[..., None], -1)[..., 0]
    assert (chosen[np.asarray(recorded.trajectory.alive)] > 0).all()


# -------------------------------------------------------------------------------------------- recorded human games


def same_episodes(first: Recorded, second: Recorded) -> None:
    for before, after in zip(jax.tree.leaves(first.trajectory), jax.tree.leaves(second.trajectory), strict=True):
        np.testing.assert_array_equal(before, after)


def test_recorded_episodes_are_written_unchanged(mixed: Dataset, tmp_path: Path, capsys: Capture) -> None:
    recorded = mixed.load().select(np.arange(5))
    written = recorded_games(tmp_path / "games", recorded, notes={"by": "a human"})
    same_episodes(open_dataset(written.path).load(), recorded)
    assert written.agent_types == ("you", "ns", "nh", "random")
    assert written.load().agent_types.tolist() == [[0, 1, 2, 3]] * 5
    assert (written.header["seed"], written.header["episodes"], written.header["by"]) == (7, 5, "a human")
    assert main(["dataset", str(written.path)]) == 0
    assert "you, return" in capsys.readouterr().out


def test_names_with_brackets_and_paths_are_agent_types(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load().select(np.arange(2))
    agent_types = ("run(runs/hopplus,planner=tree)", "you", "noisy(ns,0.2)", "runs/ppo")
    relabelled = Recorded(recorded.trajectory, np.array([[0, 1, 2, 3]] * 2))
    cast_distribution = CastDistribution.of_cast(agent_types)
    written = write_dataset(tmp_path / "games", mixed.game, [relabelled], cast_distribution, 0)
    assert written.agent_types == written.cast_distribution.agent_types == agent_types


def test_a_dataset_can_replace_another(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load()
    recorded_games(tmp_path / "games", recorded.select(np.arange(2)))
    with pytest.raises(InputError, match="already exists"):
        recorded_games(tmp_path / "games", recorded.select(np.arange(3)))
    assert recorded_games(tmp_path / "games", recorded.select(np.arange(3)), replace=True).header["episodes"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["games"], "nothing is left of the previous dataset"
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(InputError, match="is not a dataset"):
        recorded_games(tmp_path / "letters", recorded.select(np.arange(3)), replace=True)
    assert (tmp_path / "letters" / "dear.txt").read_text() == "dear"


@pytest.mark.parametrize("renames", [0, 1])
def test_a_failed_replacement_leaves_the_old_dataset(
    renames: int, mixed: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = mixed.load()
    before = recorded_games(tmp_path / "games", recorded.select(np.arange(2)))
    rename, calls = dataset_files.os.replace, []

    def fail(old: Path, new: Path) -> None:
        calls.append(old)
        if len(calls) == renames + 1:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(dataset_files.os, "replace", fail)
    with pytest.raises(InputError, match="No space left"):
        recorded_games(tmp_path / "games", recorded.select(np.arange(3)), replace=True)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["games"]
    assert open_dataset(tmp_path / "games").header == before.header


def test_episodes_must_match_their_casts(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load().select(np.arange(2))
    relabelled = Recorded(recorded.trajectory, np.array([[0, 1, 2, 2]] * 2))
    cast_distribution = CastDistribution.of_cast(("you", "ns", "nh", "random"))
    for episodes, message in (
        ([relabelled], "played by you,ns,nh,nh, which is none of the casts"),
        ([], "the episodes have no rows"),
    ):
        with pytest.raises(InputError, match=message):
            write_dataset(tmp_path / "games", mixed.game, episodes, cast_distribution, 0)
    assert not list(tmp_path.iterdir())


def test_joined_datasets_hold_all_episodes_and_agent_types(mixed: Dataset, tmp_path: Path, capsys: Capture) -> None:
    recorded = mixed.load()
    monday = recorded_games(tmp_path / "monday", recorded.select(np.arange(3)))
    tuesday = recorded_games(tmp_path / "tuesday", recorded.select(np.arange(3, 5)), "nh,ns,you,nh")
    argv = [*(str(part.path) for part in (monday, tuesday, mixed)), "--join", str(tmp_path / "all")]
    assert main(["dataset", *argv, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["episodes"] == 5 + mixed.header["episodes"]
    assert figures["casts"] == ["you,ns,nh,random", "nh,ns,you,nh", "all:ns,nh"]
    joined = open_dataset(tmp_path / "all")
    assert joined.agent_types == ("you", "ns", "nh", "random")
    episodes = joined.load()
    same_episodes(episodes.select(np.arange(5)), recorded.select(np.arange(5)))
    same_episodes(episodes.select(np.arange(5, figures["episodes"])), recorded)
    assert episodes.agent_types[:5].tolist() == [[0, 1, 2, 3]] * 3 + [[2, 1, 0, 2]] * 2
    np.testing.assert_array_equal(episodes.agent_types[5:], recorded.agent_types + 1)
    assert main(["dataset", str(joined.path)]) == 0
    assert "seed" not in capsys.readouterr().out, "the parts have no common seed"


def test_casts_of_joined_datasets_are_as_likely_as_they_were(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load()
    parts = [
        recorded_games(tmp_path / name, recorded.select(np.arange(number))) for name, number in (("a", 1), ("b", 2))
    ]
    parts.append(recorded_games(tmp_path / "c", recorded.select(np.arange(9)), "ns,ns,ns,ns"))
    joined = join_datasets(tmp_path / "all", [part.path for part in parts])
    assert joined.header["casts"] == ["you,ns,nh,random", "ns,ns,ns,ns"]
    np.testing.assert_allclose(joined.cast_distribution.probabilities, [0.25, 0.75])
    again = join_datasets(
        tmp_path / "again", [joined.path, recorded_games(tmp_path / "d", recorded.select(np.arange(1))).path]
    )
    np.testing.assert_allclose(again.cast_distribution.probabilities, [4 / 13, 9 / 13])


def test_invalid_joins_are_refused(
    mixed: Dataset, drifts: Dataset, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    first, other, out = str(copied), str(drifts.path), str(tmp_path / "out")
    assert "join several into a new one with --join" in refused(capsys, "dataset", first, other)
    assert f"{other} was played on msg-4x4, not on {GAME}" in refused(capsys, "dataset", first, other, "--join", out)
    assert "named twice" in refused(capsys, "dataset", first, f"{first}/.", "--join", out)
    assert "is not a dataset" in refused(capsys, "dataset", first, out, "--join", out)
    assert "already exists" in refused(capsys, "dataset", first, "--join", str(mixed.path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_models_are_fitted_to_recorded_games_without_exact_ceilings(
    mixed: Dataset, tmp_path: Path, capsys: Capture
) -> None:
    path = recorded_games(tmp_path / "games", mixed.load().select(np.arange(20))).path
    argv = ["--goals", "none", "--hidden", "8", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["fit", "moa", str(path), *argv]) == 0
    (line,) = json.loads((tmp_path / "run" / "evaluation" / "final.json").read_text())["per_seed"]
    assert 0 < line["top1"] <= 1
    assert not [name for name in line if "ceiling" in name]
    capsys.readouterr()
    assert main(["diagnose", "moa", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ceilings"] == {}
    few = recorded_games(tmp_path / "few", mixed.load().select(np.arange(3))).path
    assert "3 episodes, too few" in refused(capsys, "fit", "moa", str(few))


# ---------------------------------------------------------------------------------------------- exact predictions


def test_posteriors_follow_bayes_rule(mixed: Dataset) -> None:
    """Against the product of likelihoods, written out for each cast."""
    game, cast_distribution = mixed.game, mixed.cast_distribution
    recorded = mixed.load().select(np.arange(20))
    exact = exact_predictions(game, make_population(game, mixed.agent_types), cast_distribution, recorded)
    actions, alive = recorded.trajectory.actions, recorded.trajectory.alive
    for episode in range(20):
        weights = cast_distribution.probabilities.copy()
        for time in range(6):
            marginal = np.array(
                [
                    [weights[cast_distribution.casts[:, seat] == agent_type].sum() for agent_type in (0, 1)]
                    for seat in range(4)
                ]
            )
            expected = marginal / weights.sum()
            np.testing.assert_allclose(exact.posterior[time, episode], expected, atol=1e-6)
            predicted = np.einsum("nk,nka->na", expected, exact.action_probabilities[time, episode])
            np.testing.assert_allclose(exact.given_history()[time, episode], predicted, atol=1e-6)
            for seat in np.flatnonzero(alive[time, episode]):
                likelihood = exact.action_probabilities[time, episode, seat, :, actions[time, episode, seat]]
                weights = weights * likelihood[cast_distribution.casts[:, seat]]


def test_the_posterior_alone_ignores_the_other_players(mixed: Dataset) -> None:
    recorded = mixed.load().select(np.arange(20))
    exact = exact_predictions(
        mixed.game, make_population(mixed.game, mixed.agent_types), mixed.cast_distribution, recorded
    )
    np.testing.assert_allclose(exact.alone[0], 0.5)
    likelihood = np.take_along_axis(
        exact.action_probabilities[0], np.asarray(recorded.trajectory.actions)[0][..., None, None], -1
    )[..., 0]
    np.testing.assert_allclose(exact.alone[1], likelihood / likelihood.sum(-1, keepdims=True), atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Pacer(players.Player):
    """Counts its own steps and those that it watched, and moves up and down in turn where that is legal."""

    name: str = "pacer"

    def init(self, key: Any, params: Any) -> Any:
        return jnp.zeros(2, jnp.int32)

    def probabilities(self, params: Any, memory: Any, observation: Observation) -> Any:
        wanted = (memory[0] + memory[1]) // 2 % 2
        return jax.nn.one_hot(jnp.where(observation.legal[0, wanted], wanted, 4), 7)

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> Any:
        action = jnp.argmax(self.probabilities(params, memory, observation)).astype(jnp.int32)
        return action, memory.at[0].add(1), ()

    def watch(self, params: Any, memory: Any, observation: Observation) -> Any:
        return memory.at[1].add(1)


def test_exact_predictions_of_a_player_with_memory_follow_its_memory(tmp_path: Path) -> None:
    players.register("pacer", lambda game: Pacer())
    data = collected(tmp_path / "pacers", ("pacer,random",), 200, TINY)
    recorded = data.load()
    probabilities = exact_predictions(
        data.game, make_population(data.game, data.agent_types), data.cast_distribution, recorded
    ).given_type(recorded.agent_types)
    chosen = np.take_along_axis(probabilities, np.asarray(recorded.trajectory.actions)[..., None], -1)[..., 0]
    alive = np.asarray(recorded.trajectory.alive)
    np.testing.assert_array_equal(chosen[..., ::2][alive[..., ::2]], 1)
    assert {0, 1} <= set(np.asarray(recorded.trajectory.actions)[..., 0][alive[..., 0]])


def test_a_pool_is_not_an_agent_type(mixed: Dataset, tmp_path: Path) -> None:
    relabelled = Recorded(mixed.load().select(np.arange(20)).trajectory, np.array([[0, 1, 1, 1]] * 20))
    casts = parse_casts(["pool(ns,nh),ns,ns,ns"], 4)
    data = write_dataset(tmp_path / "pool", mixed.game, [relabelled], casts, 0)
    with pytest.raises(InputError, match="name its members as casts"):
        exact_predictions(data.game, make_population(data.game, data.agent_types), data.cast_distribution, data.load())


# ----------------------------------------------------------------------------------------------------- invalid input


def refused(capsys: Capture, *argv: str) -> str:
    """The error message of a command that is refused."""
    assert main(list(argv)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize(
    ("casts", "message"),
    [
        (["ns,nh"], "4 seats"),
        (["all:ns,ns"], "twice"),
        (["all:ns,wolf"], "no player 'wolf'"),
        (["ns,,nh,nh"], "without a player"),
        (["all:a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t"], "too many"),
    ],
)
def test_invalid_casts_are_refused(casts: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    assert message in refused(capsys, "collect", str(tmp_path / "new"), "--casts", *casts)
    assert not list(tmp_path.iterdir())


def test_no_steps_and_an_existing_directory_are_refused(copied: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "at least one step" in refused(capsys, "collect", str(tmp_path / "new"), "--steps", "0")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "already exists" in refused(capsys, "collect", str(copied), "--steps", "10")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_damaged_shard(copied: Path, capsys: Capture) -> None:
    file = copied / "00000" / "row.action.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert "row.action.npy is damaged" in refused(capsys, "dataset", str(copied))
    file.unlink()
    assert "cannot be read" in refused(capsys, "dataset", str(copied))


def with_header(path: Path, **changes: Any) -> None:
    header = json.loads((path / "header.json").read_text())
    (path / "header.json").write_text(json.dumps({**header, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0"}, "version 0"),
        ({"game": "msh-9x9-nobody"}, "no game"),
        ({"format": 99}, "does not describe a dataset"),
        ({"rows": 0}, "is empty"),
    ],
)
def test_invalid_headers(changes: dict[str, Any], message: str, copied: Path, capsys: Capture) -> None:
    with_header(copied, **changes)
    assert message in refused(capsys, "dataset", str(copied))


def test_other_directories_are_not_datasets(tmp_path: Path, capsys: Capture) -> None:
    assert "is not a dataset" in refused(capsys, "dataset", str(tmp_path))
    (tmp_path / "header.json").write_text("{")
    assert "cannot be read" in refused(capsys, "dataset", str(tmp_path))


def test_an_action_that_was_not_legal(copied: Path, capsys: Capture) -> None:
    """Fault 13: illegal actions must never reach a loss."""
    import hashlib

    file = copied / "00000" / "row.action.npy"
    actions = np.load(file)
    actions[0] = 6 if actions[0] != 6 else 5
    np.save(file, actions)
    header = json.loads((copied / "header.json").read_text())
    header["shards"][0]["sha256"]["row.action"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (copied / "header.json").write_text(json.dumps(header))
    assert "illegal actions" in refused(capsys, "dataset", str(copied))


def test_a_dataset_of_another_game_is_refused(mixed: Dataset) -> None:
    with pytest.raises(InputError, match="not on msg-4x4"):
        open_dataset(mixed.path, games.make("msg-4x4"))


def test_an_interrupted_collection_leaves_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(dataset, "write_shard", fail)
    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path / "never")
    assert not list(tmp_path.iterdir())


def test_the_dataset_command_describes_a_dataset(mixed: Dataset, capsys: Capture) -> None:
    assert main(["dataset", str(mixed.path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    shares = [row["share"] for row in figures["actions"].values()]
    assert figures["rows"] == sum(row["count"] for row in figures["actions"].values())
    assert sum(shares) == pytest.approx(1)
    assert set(figures["agent_types"]) == {"ns", "nh"}
    assert main(["dataset", str(mixed.path)]) == 0
    assert "rows" in capsys.readouterr().out

"""Datasets: whole episodes on disk, as they were played, and nothing of one who has left."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games, players
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.games import Observation
from hopplus.play import dataset as datasets
from hopplus.play.casting import parse_casts
from hopplus.play.dataset import (
    Dataset,
    Recorded,
    collect,
    from_arrays,
    join_datasets,
    open_dataset,
    to_arrays,
    write_dataset,
)
from hopplus.play.episode import Episode
from hopplus.play.laws import know
from hopplus.training.fit import split
from hopplus.training.policies import Policy, save_policy
from hopplus.training.recipe import initial_params
from hopplus.training.recipes import PPO
from hopplus.training.troupe import make_troupe

GAME = "msh-4x4-4h1s"
TINY = "msh-4x4-2h1s:height=2:width=3:hares=1:T=8"
Capture = pytest.CaptureFixture[str]


def collected(path: Path, casts: tuple[str, ...] = ("all:ns,nh",), steps: int = 3000, game: str = GAME) -> Dataset:
    the_game = games.make(game)
    troupe = make_troupe(the_game, parse_casts(casts, the_game.num_players).kinds)
    return collect(path, the_game, troupe, casts, steps, seed=0)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(tmp_path_factory.mktemp("data") / "mixed")


@pytest.fixture(scope="module")
def drifts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Another game, and casts by name."""
    casts = ("cleaner,exploiter,random,noisy(cleaner,0.2)",)
    return collected(tmp_path_factory.mktemp("data") / "drifts", casts, 300, "msg-4x4")


def recorded_games(path: Path, recorded: Recorded, cast: str = "you,ns,nh,random", **how: Any) -> Dataset:
    """Episodes as if they had been played by a person among others."""
    kinds = tuple(dict.fromkeys(cast.split(",")))
    sat = np.array([kinds.index(name) for name in cast.split(",")])
    again = Recorded(recorded.episode, np.broadcast_to(sat, recorded.kinds.shape))
    return write_dataset(path, games.make(GAME), [again], (cast,), kinds, 7, **how)


@pytest.fixture
def copied(mixed: Dataset, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(mixed.path, tmp_path / "copy"))


# ------------------------------------------------------------------------------------------------------------- casts


def test_every_mixture_is_equally_likely_and_seats_are_shuffled() -> None:
    casting = parse_casts(["all:ns,nh"], 4)
    assert casting.kinds == ("ns", "nh")
    assert len(casting.casts) == 16
    number = (casting.casts == 0).sum(-1)
    np.testing.assert_allclose([casting.probabilities[number == m].sum() for m in range(5)], 0.2)
    np.testing.assert_allclose(casting.probabilities[number == 2], 0.2 / 6)
    three = parse_casts(["all:ns,nh,random"], 2)
    np.testing.assert_allclose(three.probabilities.sum(), 1)
    pairs = {tuple(cast): chance for cast, chance in zip(three.casts.tolist(), three.probabilities, strict=True)}
    assert pairs[(0, 0)] == pytest.approx(1 / 6)
    assert pairs[(0, 1)] == pytest.approx(1 / 12)


def test_casts_of_a_list_are_equally_likely_and_sit_as_written() -> None:
    casting = parse_casts(["ns,nh,nh,nh", "random,ns,ns,ns"], 4)
    assert casting.kinds == ("ns", "nh", "random")
    assert casting.casts.tolist() == [[0, 1, 1, 1], [2, 0, 0, 0]]
    assert casting.probabilities.tolist() == [0.5, 0.5]


def test_who_played_is_drawn_as_said(mixed: Dataset) -> None:
    numbers = np.bincount((mixed.load().kinds == 0).sum(-1), minlength=5)
    expected = numbers.sum() / 5
    assert (np.abs(numbers - expected) < 5 * np.sqrt(expected)).all(), numbers


def test_every_episode_is_in_exactly_one_part_of_a_split() -> None:
    rows: dict[str, Any] = {field.name: np.zeros((2, 25, 1)) for field in dataclasses.fields(Episode)}
    episode = Episode(**{**rows, "info": (), "last_state": np.arange(25), "reward": np.tile(np.arange(25), (2, 1))})
    parts = vars(split(Recorded(episode, np.arange(25)[:, None])))
    numbers = {name: part.kinds[:, 0].tolist() for name, part in parts.items()}
    assert sorted(itertools.chain(*numbers.values())) == list(range(25))
    assert all(numbers.values())
    assert len(numbers["learnt"]) >= 20
    for name, part in parts.items():
        assert part.episode.last_state.tolist() == part.episode.reward[1].tolist() == numbers[name]


# ----------------------------------------------------------------------------------------------------- what is written


def test_no_row_of_a_player_who_has_left(mixed: Dataset) -> None:
    """Fault 2: rows after a player had left taught the MOA to predict STAY."""
    game = mixed.game
    for arrays in mixed.shards():
        starts, step = np.asarray(arrays["starts"]), np.asarray(arrays["row.step"])
        episode = np.searchsorted(starts, step, side="right") - 1
        cells = np.asarray(arrays["state.cells"])[step + episode, arrays["row.seat"]]
        assert (cells >= 0).all(), "everybody who has a row stands somewhere"
        present = np.asarray(arrays["state.cells"]) >= 0
        last = starts[1:] + np.arange(len(starts) - 1)
        played = np.ones(len(present), bool)
        played[last] = False
        assert present[played].sum() == len(step), "everybody who stands somewhere has a row"
        assert game.num_players == present.shape[1]


def test_the_check_would_notice_rows_of_those_who_left(mixed: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault put back, an episode has more rows than steps of living players."""
    recorded = mixed.load()
    honest = len(to_arrays(recorded)["row.step"])
    everybody = np.repeat(recorded.played[..., None], 4, -1)
    faulty = datasets.Recorded(type(recorded.episode)(**{**vars(recorded.episode), "alive": everybody}), recorded.kinds)
    arrays = to_arrays(faulty)
    assert len(arrays["row.step"]) > honest
    monkeypatch.setattr(Dataset, "shards", lambda self: [arrays])
    with pytest.raises(AssertionError, match="stands somewhere"):
        test_no_row_of_a_player_who_has_left(mixed)


def test_what_is_written_is_what_was_played(mixed: Dataset) -> None:
    game, recorded = mixed.game, mixed.load()
    again = from_arrays(game, to_arrays(recorded))
    for before, after in zip(jax.tree.leaves(recorded.episode), jax.tree.leaves(again.episode), strict=True):
        np.testing.assert_array_equal(before, after)
    key = jax.random.fold_in(jax.random.key(0), 0)
    troupe = make_troupe(game, mixed.kinds)
    played = datasets.play_casts(key, game, troupe, mixed.casting, datasets.BATCH)
    first = played.select(np.arange(len(recorded.kinds)))
    np.testing.assert_array_equal(first.kinds, recorded.kinds)
    for name in ("actions", "alive", "reward", "left", "took", "cell", "over"):
        kept, live = getattr(recorded.episode, name), getattr(first.episode, name)
        there = first.played if name == "over" else first.episode.alive
        np.testing.assert_array_equal(np.asarray(kept)[there], np.asarray(live)[there], err_msg=name)


def test_counts_and_steps(mixed: Dataset) -> None:
    header, recorded = mixed.header, mixed.load()
    lengths = recorded.played.sum(0)
    assert header["steps"] == lengths.sum() >= 3000
    assert header["steps"] - lengths[-1] < 3000, "the last episode is the one that makes it full"
    assert header["rows"] == recorded.episode.alive.sum()
    assert header["episodes"] == len(recorded.kinds)


def test_files_can_be_mapped(mixed: Dataset) -> None:
    arrays = mixed.shards()[0]
    assert all(isinstance(array, np.memmap) for array in arrays.values())


def test_the_same_seed_gives_the_same_bytes(mixed: Dataset, tmp_path: Path) -> None:
    again = collected(tmp_path / "again")
    assert again.header["shards"] == mixed.header["shards"]


def test_other_games_and_named_casts(drifts: Dataset) -> None:
    assert drifts.load().kinds.tolist()[0] == [0, 1, 2, 3]


def test_saved_policies_play_and_their_laws_are_known(tmp_path: Path) -> None:
    game, recipe = games.make(TINY), PPO(hidden=(8,))
    params = jax.jit(lambda key: initial_params(recipe.network(game), game, key))(jax.random.key(1))
    policy = Policy("ppo", {"hidden": (8,)}, TINY, seed=0, seat=0, params=params)
    save_policy(tmp_path / "policy.safetensors", policy)
    found = collected(tmp_path / "data", (f"{tmp_path / 'policy.safetensors'},ns",), 200, TINY)
    recorded = found.load()
    known = know(game, make_troupe(game, found.kinds), found.casting, recorded)
    law = known.knowing_kind(recorded.kinds)
    chosen = np.take_along_axis(law, np.asarray(recorded.episode.actions)[..., None], -1)[..., 0]
    assert (chosen[np.asarray(recorded.episode.alive)] > 0).all()


# -------------------------------------------------------------------------------------------- recorded games of people


def same_episodes(first: Recorded, second: Recorded) -> None:
    for before, after in zip(jax.tree.leaves(first.episode), jax.tree.leaves(second.episode), strict=True):
        np.testing.assert_array_equal(before, after)


def test_given_episodes_are_written_as_they_are(mixed: Dataset, tmp_path: Path, capsys: Capture) -> None:
    given = mixed.load().select(np.arange(5))
    found = recorded_games(tmp_path / "games", given, notes={"who": "a person"})
    same_episodes(open_dataset(found.path).load(), given)
    assert found.kinds == ("you", "ns", "nh", "random")
    assert found.load().kinds.tolist() == [[0, 1, 2, 3]] * 5
    assert (found.header["seed"], found.header["episodes"], found.header["who"]) == (7, 5, "a person")
    assert main(["dataset", str(found.path)]) == 0
    assert "you, return" in capsys.readouterr().out


def test_names_with_brackets_and_paths_are_kinds(mixed: Dataset, tmp_path: Path) -> None:
    given = mixed.load().select(np.arange(2))
    kinds = ("run(runs/hopplus,search=on)", "you", "noisy(ns,0.2)", "runs/ppo")
    again = Recorded(given.episode, np.array([[0, 1, 2, 3]] * 2))
    found = write_dataset(tmp_path / "games", mixed.game, [again], (",".join(kinds),), kinds, 0)
    assert found.kinds == found.casting.kinds == kinds


def test_a_dataset_takes_the_place_of_another(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load()
    recorded_games(tmp_path / "games", recorded.select(np.arange(2)))
    with pytest.raises(InputError, match="is there already"):
        recorded_games(tmp_path / "games", recorded.select(np.arange(3)))
    assert recorded_games(tmp_path / "games", recorded.select(np.arange(3)), replace=True).header["episodes"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["games"], "nothing is left of the one before"
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(InputError, match="is not a dataset"):
        recorded_games(tmp_path / "letters", recorded.select(np.arange(3)), replace=True)
    assert (tmp_path / "letters" / "dear.txt").read_text() == "dear"


@pytest.mark.parametrize("renames", [0, 1])
def test_a_dataset_that_cannot_take_the_place_of_another_leaves_it(
    renames: int, mixed: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = mixed.load()
    before = recorded_games(tmp_path / "games", recorded.select(np.arange(2)))
    rename, calls = datasets.os.replace, []

    def fail(old: Path, new: Path) -> None:
        calls.append(old)
        if len(calls) == renames + 1:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(datasets.os, "replace", fail)
    with pytest.raises(InputError, match="No space left"):
        recorded_games(tmp_path / "games", recorded.select(np.arange(3)), replace=True)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["games"]
    assert open_dataset(tmp_path / "games").header == before.header


def test_what_is_written_must_fit_what_is_said_of_it(mixed: Dataset, tmp_path: Path) -> None:
    given = mixed.load().select(np.arange(2))
    again = Recorded(given.episode, np.array([[0, 1, 2, 2]] * 2))
    cast, kinds = "you,ns,nh,random", ("you", "ns", "nh", "random")
    for episodes, said, names in (
        ([again], "played by you,ns,nh,nh, which is none of the casts", kinds),
        ([], "nobody did anything", kinds),
        ([again], "are you, ns, nh, random, not ns, you, nh, random", ("ns", "you", "nh", "random")),
    ):
        with pytest.raises(InputError, match=said):
            write_dataset(tmp_path / "games", mixed.game, episodes, (cast,), names, 0)
    assert not list(tmp_path.iterdir())


def test_joined_datasets_hold_all_episodes_and_who_played_them(mixed: Dataset, tmp_path: Path, capsys: Capture) -> None:
    recorded = mixed.load()
    monday = recorded_games(tmp_path / "monday", recorded.select(np.arange(3)))
    tuesday = recorded_games(tmp_path / "tuesday", recorded.select(np.arange(3, 5)), "nh,ns,you,nh")
    words = [*(str(one.path) for one in (monday, tuesday, mixed)), "--join", str(tmp_path / "all")]
    assert main(["dataset", *words, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["episodes"] == 5 + mixed.header["episodes"]
    assert figures["casts"] == ["you,ns,nh,random", "nh,ns,you,nh", "all:ns,nh"]
    found = open_dataset(tmp_path / "all")
    assert found.kinds == ("you", "ns", "nh", "random")
    everybody = found.load()
    same_episodes(everybody.select(np.arange(5)), recorded.select(np.arange(5)))
    same_episodes(everybody.select(np.arange(5, figures["episodes"])), recorded)
    assert everybody.kinds[:5].tolist() == [[0, 1, 2, 3]] * 3 + [[2, 1, 0, 2]] * 2
    np.testing.assert_array_equal(everybody.kinds[5:], recorded.kinds + 1)
    assert main(["dataset", str(found.path)]) == 0
    assert "seed" not in capsys.readouterr().out, "they have no seed in common"


def test_casts_of_joined_datasets_are_as_likely_as_they_were(mixed: Dataset, tmp_path: Path) -> None:
    recorded = mixed.load()
    parts = [
        recorded_games(tmp_path / name, recorded.select(np.arange(number))) for name, number in (("a", 1), ("b", 2))
    ]
    parts.append(recorded_games(tmp_path / "c", recorded.select(np.arange(9)), "ns,ns,ns,ns"))
    found = join_datasets(tmp_path / "all", [part.path for part in parts])
    assert found.header["casts"] == ["you,ns,nh,random", "ns,ns,ns,ns"]
    np.testing.assert_allclose(found.casting.probabilities, [0.25, 0.75])
    again = join_datasets(
        tmp_path / "again", [found.path, recorded_games(tmp_path / "d", recorded.select(np.arange(1))).path]
    )
    np.testing.assert_allclose(again.casting.probabilities, [4 / 13, 9 / 13])


def test_what_cannot_be_joined(mixed: Dataset, drifts: Dataset, copied: Path, tmp_path: Path, capsys: Capture) -> None:
    first, other, out = str(copied), str(drifts.path), str(tmp_path / "out")
    assert "joined into a new one by --join" in refused(capsys, "dataset", first, other)
    assert f"{other} was played on msg-4x4, not on {GAME}" in refused(capsys, "dataset", first, other, "--join", out)
    assert "named twice" in refused(capsys, "dataset", first, f"{first}/.", "--join", out)
    assert "is not a dataset" in refused(capsys, "dataset", first, out, "--join", out)
    assert "is there already" in refused(capsys, "dataset", first, "--join", str(mixed.path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_models_are_fitted_to_games_of_a_person_without_the_ceilings_that_nobody_knows(
    mixed: Dataset, tmp_path: Path, capsys: Capture
) -> None:
    path = recorded_games(tmp_path / "games", mixed.load().select(np.arange(20))).path
    words = ["--goals", "none", "--hidden", "8", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["fit", "moa", str(path), *words]) == 0
    (line,) = json.loads((tmp_path / "run" / "evaluation" / "final.json").read_text())["per_seed"]
    assert 0 < line["top1"] <= 1
    assert not [name for name in line if "ceiling" in name]
    capsys.readouterr()
    assert main(["diagnose", "moa", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ceilings"] == {}
    few = recorded_games(tmp_path / "few", mixed.load().select(np.arange(3))).path
    assert "3 episodes, too few" in refused(capsys, "fit", "moa", str(few))


# ---------------------------------------------------------------------------------------------- what could be known


def test_posteriors_are_those_of_bayes(mixed: Dataset) -> None:
    """Against the product of likelihoods, cast by cast, written out."""
    game, casting = mixed.game, mixed.casting
    recorded = mixed.load().select(np.arange(20))
    known = know(game, make_troupe(game, mixed.kinds), casting, recorded)
    actions, alive = recorded.episode.actions, recorded.episode.alive
    for episode in range(20):
        weights = casting.probabilities.copy()
        for time in range(6):
            marginal = np.array(
                [[weights[casting.casts[:, seat] == kind].sum() for kind in (0, 1)] for seat in range(4)]
            )
            expected = marginal / weights.sum()
            np.testing.assert_allclose(known.posterior[time, episode], expected, atol=1e-6)
            predicted = np.einsum("nk,nka->na", expected, known.laws[time, episode])
            np.testing.assert_allclose(known.knowing_history()[time, episode], predicted, atol=1e-6)
            for seat in np.flatnonzero(alive[time, episode]):
                law = known.laws[time, episode, seat, :, actions[time, episode, seat]]
                weights = weights * law[casting.casts[:, seat]]


def test_alone_means_without_the_others(mixed: Dataset) -> None:
    recorded = mixed.load().select(np.arange(20))
    known = know(mixed.game, make_troupe(mixed.game, mixed.kinds), mixed.casting, recorded)
    np.testing.assert_allclose(known.alone[0], 0.5)
    law = np.take_along_axis(known.laws[0], np.asarray(recorded.episode.actions)[0][..., None, None], -1)[..., 0]
    np.testing.assert_allclose(known.alone[1], law / law.sum(-1, keepdims=True), atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Pacer(players.Player):
    """Counts its own steps and those of everybody that it watched, and goes up or down by turns as far as it may."""

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


def test_the_law_of_one_who_remembers_is_that_of_its_memory_at_each_step(tmp_path: Path) -> None:
    players.register("pacer", lambda game: Pacer())
    found = collected(tmp_path / "pacers", ("pacer,random",), 200, TINY)
    recorded = found.load()
    law = know(found.game, make_troupe(found.game, found.kinds), found.casting, recorded).knowing_kind(recorded.kinds)
    chosen = np.take_along_axis(law, np.asarray(recorded.episode.actions)[..., None], -1)[..., 0]
    alive = np.asarray(recorded.episode.alive)
    np.testing.assert_array_equal(chosen[..., ::2][alive[..., ::2]], 1)
    assert {0, 1} <= set(np.asarray(recorded.episode.actions)[..., 0][alive[..., 0]])


def test_a_pool_is_no_kind(mixed: Dataset, tmp_path: Path) -> None:
    again = Recorded(mixed.load().select(np.arange(20)).episode, np.array([[0, 1, 1, 1]] * 20))
    casts, kinds = ("pool(ns,nh),ns,ns,ns",), ("pool(ns,nh)", "ns")
    found = write_dataset(tmp_path / "pool", mixed.game, [again], casts, kinds, 0)
    with pytest.raises(InputError, match="name them as casts"):
        know(found.game, make_troupe(found.game, found.kinds), found.casting, found.load())


# --------------------------------------------------------------------------------------------------------- bad input


def refused(capsys: Capture, *words: str) -> str:
    """The one sentence with which a command ends."""
    assert main(list(words)) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    return said[0]


@pytest.mark.parametrize(
    ("casts", "said"),
    [
        (["ns,nh"], "4 seats"),
        (["all:ns,ns"], "twice"),
        (["all:ns,wolf"], "no player 'wolf'"),
        (["ns,,nh,nh"], "without a player"),
        (["all:a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t"], "too many"),
    ],
)
def test_bad_casts(casts: list[str], said: str, tmp_path: Path, capsys: Capture) -> None:
    assert said in refused(capsys, "collect", str(tmp_path / "new"), "--casts", *casts)
    assert not list(tmp_path.iterdir())


def test_no_steps_and_a_directory_that_is_there(copied: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "at least one step" in refused(capsys, "collect", str(tmp_path / "new"), "--steps", "0")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "is there already" in refused(capsys, "collect", str(copied), "--steps", "10")
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
    ("changes", "said"),
    [
        ({"version": "0"}, "version 0"),
        ({"game": "msh-9x9-nobody"}, "no game"),
        ({"format": 99}, "does not describe a dataset"),
        ({"rows": 0}, "is empty"),
    ],
)
def test_headers_of_other_things(changes: dict[str, Any], said: str, copied: Path, capsys: Capture) -> None:
    with_header(copied, **changes)
    assert said in refused(capsys, "dataset", str(copied))


def test_what_is_no_dataset(tmp_path: Path, capsys: Capture) -> None:
    assert "is not a dataset" in refused(capsys, "dataset", str(tmp_path))
    (tmp_path / "header.json").write_text("{")
    assert "cannot be read" in refused(capsys, "dataset", str(tmp_path))


def test_an_action_that_was_not_legal(copied: Path, capsys: Capture) -> None:
    """Fault 13: what the mask forbids must never reach a loss."""
    import hashlib

    file = copied / "00000" / "row.action.npy"
    actions = np.load(file)
    actions[0] = 6 if actions[0] != 6 else 5
    np.save(file, actions)
    header = json.loads((copied / "header.json").read_text())
    header["shards"][0]["sha256"]["row.action"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (copied / "header.json").write_text(json.dumps(header))
    assert "not legal" in refused(capsys, "dataset", str(copied))


def test_of_another_game_than_asked(mixed: Dataset) -> None:
    with pytest.raises(InputError, match="not on msg-4x4"):
        open_dataset(mixed.path, games.make("msg-4x4"))


def test_killed_it_leaves_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "_write_shard", fail)
    with pytest.raises(KeyboardInterrupt):
        collected(tmp_path / "never")
    assert not list(tmp_path.iterdir())


def test_described(mixed: Dataset, capsys: Capture) -> None:
    assert main(["dataset", str(mixed.path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    shares = [row["share"] for row in figures["actions"].values()]
    assert figures["rows"] == sum(row["count"] for row in figures["actions"].values())
    assert sum(shares) == pytest.approx(1)
    assert set(figures["kinds"]) == {"ns", "nh"}
    assert main(["dataset", str(mixed.path)]) == 0
    assert "rows" in capsys.readouterr().out

"""Few-shot adaptation: scripted adapters whose scores are known, memories, frozen weights, seats, leaks, bad input."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games, play, players
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.evaluation import oracle as oracles
from hopplus.evaluation import tables
from hopplus.evaluation.adaptation import _joined, adapt
from hopplus.evaluation.sets import CoPlayers, kinds, make_sets, regime, sets_of
from hopplus.evaluation.tables import HOP, Focal, Played, Protocol, Told, few_shot, places, play_frozen, tell
from hopplus.games import Observation
from hopplus.players import Cast, Player
from hopplus.players.movable import Movable
from hopplus.players.player import as_action
from hopplus.players.scripted import Idle
from hopplus.struct import struct
from hopplus.training.policies import checksum
from hopplus.training.run import CONFIG, Run

GAME = games.make("msh-4x4-4h1s")
STATUES = CoPlayers("statues", ("stay",) * 3, "own")
SMALL = {"steps": "600", "environments": "4", "rollout-steps": "8", "hidden": "8", "chunk": "1", "seeds": "0-2"}
TINY = ["train", "ppo", *(word for name, value in SMALL.items() for word in (f"--{name}", value))]


@dataclasses.dataclass(frozen=True)
class Adapter(Player):
    """Does nothing in its first episodes with a table, then hunts the nearest hare. How long it waits is a parameter,
    so that all of them are one program."""

    hunter: Player
    waits: int = dataclasses.field(compare=False)
    name: str = "adapter"

    def default_params(self) -> Any:
        return np.int32(self.waits)

    def init(self, key: Any, params: Any) -> Any:
        return jnp.int32(0)

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> Any:
        hunts, _, _ = self.hunter.act(key, (), (), observation)
        return jnp.where(memory < params, as_action(4), hunts), memory, ()

    def end(self, memory: Any) -> Any:
        return memory + 1


@struct
class Thoughts:
    goals: Any


@dataclasses.dataclass(frozen=True)
class Believer(Player):
    """Idle, and thinks that the next two are after stags, and the one before it after hares."""

    name: str = "believer"

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> Any:
        stag, hare = jnp.array([0.7, 0.3]), jnp.array([0.1, 0.9])
        return as_action(4), memory, Thoughts(jnp.stack([stag, stag, stag, hare]))


@pytest.fixture(autouse=True)
def known_players() -> None:
    def adapter(game: games.Game[Any], *, waits: int) -> Player:
        return Adapter(players.make("nh", game), waits)

    players.register("adapter", adapter)
    players.register("believer", lambda game: Believer())


def figures_of(name: str, against: CoPlayers = STATUES, seating: Any = "one", **more: Any) -> dict[str, Any]:
    return adapt(Focal.of(name), GAME, against, seating, more.pop("protocol", few_shot(15)), tables=8, **more)


# ------------------------------------------------------------------------------------------------------ known scores


@pytest.mark.parametrize(
    ("waits", "blocks"), [(0, [1.0, 1.0, 1.0]), (2, [0.6, 1.0, 1.0]), (7, [0.0, 0.6, 1.0]), (15, [0.0, 0.0, 0.0])]
)
def test_an_adapter_gets_exactly_what_it_must(waits: int, blocks: list[float]) -> None:
    """Among statues whoever hunts a hare gets 1, in every episode."""
    found = figures_of(f"adapter:waits={waits}")
    assert [row["mean"] for row in found["curve"]] == [0.0] * min(waits, 15) + [1.0] * (15 - min(waits, 15))
    np.testing.assert_allclose([row["mean"] for row in found["blocks"]], blocks, atol=1e-12)
    assert found["score"] == found["blocks"][1]
    assert (found["score"]["first"], found["score"]["last"]) == (6, 10)
    assert found["score"]["share_of_ceiling"] == pytest.approx(blocks[1] / GAME.ceilings["player"])
    assert "32 tables" in found["score"]["interval"]


def test_memories_last_as_long_as_a_table_and_are_everybodys_own() -> None:
    """Were they not reset between tables, later seats would begin where the first one ended; were they lost between
    episodes, nobody would ever hunt."""
    focal = Focal.of("adapter:waits=3")
    for where in places(STATUES, "one", 4):
        played, _ = play_frozen(jax.random.key(1), GAME, focal, [], where, 8, few_shot(10))
        told = tell(played, where.seats[:1], few_shot(10))
        assert (told.returns[:, :3] == 0).all()
        assert (told.returns[:, 3:] == 1).all()


def test_three_of_them_sit_with_one_other() -> None:
    found = figures_of("adapter:waits=2", seating="three")
    assert [row["mean"] for row in found["curve"][:2]] == [0.0, 0.0]
    assert all(0.5 < row["mean"] <= 1 for row in found["curve"][2:])
    assert found["tables"] == 8 * 4
    mixed = places(sets_of(GAME)["mixed"], "three", 4)
    assert len(mixed) == 4 * 3, "one table for each of ns, nh and random, in every seat"


def test_the_focal_player_is_at_every_seat_in_turn() -> None:
    wheres = places(sets_of(GAME)["mixed"], "one", 4)
    assert [where.seats for where in wheres] == [(0, 1, 2, 3), (1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 1, 2)]
    wheres = places(sets_of(GAME)["two-and-one"], "three", 4)
    assert [(where.others, where.seats[-1]) for where in wheres] == [
        ((other,), seat) for other in ("ns", "random") for seat in range(4)
    ]
    assert all(sorted(where.seats) == [0, 1, 2, 3] for where in wheres)


def test_a_movable_cast_plays_as_the_same_players_in_those_seats() -> None:
    """In an order that is not its own inverse: the seat of each player is told from the player of each seat."""
    seats = (2, 0, 3, 1)
    walkers = [Idle(move, f"walker {move}") for move in (0, 1, 2, 3)]
    by_seat = Cast(tuple(walkers[seats.index(seat)] for seat in range(4)))
    movable = Movable(tuple(walkers))
    expected = play.rollout(play.start(jax.random.key(3), GAME, by_seat, 5), GAME, by_seat, 40)[1]
    table = play.start(jax.random.key(3), GAME, movable, 5)
    table = dataclasses.replace(table, memories=(np.tile(np.array(seats, np.int32), (5, 1)), table.memories[1]))
    found = play.rollout(table, GAME, movable, 40)[1]
    np.testing.assert_array_equal(found.actions, expected.actions)
    np.testing.assert_array_equal(found.state.cells, expected.state.cells)


# ------------------------------------------------------------------------------------------- what is told of the play


def test_episodes_and_steps_by_hand() -> None:
    """Two tables and two seats: episodes end after 2, 5 and 6 steps, and after 3 and 6."""
    over = np.zeros((7, 2), bool)
    over[[1, 4, 5], 0] = over[[2, 5], 1] = True
    total = np.zeros((7, 2, 2))
    total[[1, 4, 5], 0, 1] = [1, 2, 4]
    total[[2, 5], 1, 1] = [8, 16]
    nothing = np.zeros((7, 2, 2), int)
    played = Played(over, total, nothing, nothing > 0, ())  # pyright: ignore[reportArgumentType]
    told = tell(played, [1], Protocol("by episodes", episodes=2))
    np.testing.assert_array_equal(told.returns, [[1, 2], [8, 16]])
    np.testing.assert_array_equal(told.ended_at, [[2, 5], [3, 6]])
    told = tell(played, [0, 1], Protocol("by steps", steps=5, block=5))
    np.testing.assert_array_equal(told.returns, [[0.5, 1], [4, np.nan]])


def test_tables_with_more_episodes_than_others_lose_none() -> None:
    """The score of a number of steps is over all episodes that ended in them, wherever they were many."""
    few, many = (Told(*[np.full((1, count), float(count))] * 4) for count in (2, 3))
    joined = _joined([few, many])
    np.testing.assert_array_equal(joined.returns, [[2, 2, np.nan], [3, 3, 3]])


def test_hops_protocol_scores_the_last_600_of_2400_steps() -> None:
    found = figures_of("adapter:waits=100", protocol=HOP)
    places_of_blocks = [(row["first"], row["last"], row["unit"]) for row in found["blocks"]]
    assert places_of_blocks == [(first, first + 599, "steps") for first in (1, 601, 1201, 1801)]
    # With statues an episode in which it waits has 35 steps, so that 68 of them end: it never hunts.
    assert [row["mean"] for row in found["blocks"]] == [0.0] * 4
    assert len(found["curve"]) == 2400 // 35
    found = figures_of("adapter:waits=30", protocol=HOP)
    means = [row["mean"] for row in found["blocks"]]
    assert means[0] == 0, "17 episodes of 35 steps"
    assert 0 < means[1] < 1, "from step 1,050 on it hunts"
    assert means[2:] == [1, 1]
    assert found["score"] == found["blocks"][-1]


def test_beliefs_are_judged_by_what_the_others_take_at_last() -> None:
    found = figures_of("believer", CoPlayers("hares", ("nh",) * 3, "own"), protocol=few_shot(10))
    for row in found["curve"]:
        assert 0.2 < row["goal_accuracy"] < 0.5, "right about one of three"
        assert 0.3 < row["goal_belief"] < 0.7
    assert figures_of("adapter:waits=0", protocol=few_shot(10))["curve"][0]["goal_accuracy"] is None


def test_beliefs_by_hand() -> None:
    """One table of three seats: seat 1 takes a hare (2) in its second step, seat 2 nothing; then a new episode."""
    took = np.zeros((5, 1, 3), int)
    took[1, 0, 1] = 2
    took[4, 0, 2] = 1
    alive = np.ones((5, 1, 3), bool)
    alive[2, 0, 1] = False
    over = np.array([0, 0, 1, 0, 1], bool)[:, None]
    goals = np.zeros((5, 1, 1, 3, 2))
    goals[..., 1, :] = [0.4, 0.6]
    goals[3:, ..., 2, :] = [0.8, 0.2]
    goals[4, ..., 2, :] = [0.3, 0.7]
    played = Played(over, np.zeros((5, 1, 3)), took, alive, goals)  # pyright: ignore[reportArgumentType]
    told = tell(played, [0], few_shot(2))
    np.testing.assert_allclose(told.goal_hits, [[1.0, 0.5]])
    np.testing.assert_allclose(told.goal_belief, [[0.6, 0.55]])


def test_shares_of_the_oracle_go_by_who_the_others_are_then(monkeypatch: pytest.MonkeyPatch) -> None:
    base = oracles.Oracle("g", "v", ("x",), 2.0, 0.0, True, "by hand", 1, oracles.Effort(), 0.0)
    values = {"stay": 4.0, "random": 2.0}
    monkeypatch.setattr(
        "hopplus.evaluation.adaptation.known",
        lambda game, against: dataclasses.replace(base, against=tuple(against), value=values[against[0]]),
    )
    others = CoPlayers("turncoats", ("switching(random,stay,every=5)",) * 3, "own")
    found = figures_of("adapter:waits=15", others)
    assert [row["oracle"] for row in found["blocks"]] == [2.0, 4.0, 2.0]
    assert [row["oracle"] for row in found["curve"][3:7]] == [2.0, 2.0, 4.0, 4.0]
    assert found["score"]["share_of_oracle"] == 0.0
    monkeypatch.setitem(values, "stay", 0.5)
    with pytest.raises(InputError, match=r"1\.000 beats the oracle's 0\.500 against stay,stay,stay"):
        figures_of("adapter:waits=0", others)


# ---------------------------------------------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adapt") / "run"
    assert main([*TINY, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has met scripts, by its config; its weights come from the program that `run` was trained by."""
    path = tmp_path_factory.mktemp("pooled") / "run"
    assert main([*TINY, "--seeds", "3-5", "--out", str(path)]) == 0
    config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    config["training"]["cast"] = "learner,noisy(ns,0.2),pool(nh,random),stay"
    (path / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    return path


def test_frozen_weights_do_not_change_and_updated_ones_do(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["adapt", str(run), "--against", "cooperators", "--episodes", "10", "--tables", "2", "--seeds", "0-1"]
    checkpoints = {file: file.read_bytes() for file in sorted((run / "checkpoints").rglob("*")) if file.is_file()}
    assert main([*words, "--seating", "one", "--json", str(tmp_path / "frozen.json")]) == 0
    (frozen,) = json.loads((tmp_path / "frozen.json").read_text())["rows"]
    assert frozen["seeds"] == [0, 1]
    own = {checksum((Focal.of(str(run)).policies(seed)[0].params,)) for seed in (0, 1)}
    assert {one["before"] for one in frozen["weights"]} == {one["after"] for one in frozen["weights"]} == own
    # Where the odd one sits is another program for those who learn.
    monkeypatch.setattr("hopplus.evaluation.adaptation.places", lambda *given: places(*given)[-1:])
    assert main([*words, "--seating", "three", "--update-weights", "--json", str(tmp_path / "updated.json")]) == 0
    (updated,) = json.loads((tmp_path / "updated.json").read_text())["rows"]
    assert len(updated["weights"]) == 2
    assert all(one["before"] != one["after"] for one in updated["weights"])
    assert {file: file.read_bytes() for file in checkpoints} == checkpoints, "the run itself stays as it was"
    assert (run / "evaluation" / "adapt-cooperators.json").exists()
    assert (run / "figures" / "adapt-cooperators.png").stat().st_size > 1000


def test_two_runs_are_compared(run: Path, pooled: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--against", "ns,nh,random", "--episodes", "10", "--tables", "2", "--seating", "one"]
    assert main(["adapt", str(run), str(pooled), *words, "--json", str(tmp_path / "both.json")]) == 0
    (comparison,) = json.loads((tmp_path / "both.json").read_text())["comparisons"]
    assert comparison["difference"]["seeds"] == 3
    assert comparison["difference"]["low"] < comparison["difference"]["value"] < comparison["difference"]["high"]
    said = capsys.readouterr().out
    assert ("within the noise" in said) != ("outside the noise" in said)
    assert "95% interval over 3 training seeds" in said


def test_a_leak_is_caught_and_named(pooled: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--against", "cooperators", "--episodes", "10", "--tables", "2", "--seating", "one"]
    assert main(["adapt", str(pooled), *words, "--seeds", "3"]) == 0
    said = capsys.readouterr().out
    assert f"cooperators is not held out for {pooled}: it has met ns in training" in said
    assert f"{pooled} keeps nothing between episodes" in said
    assert main(["adapt", str(run), *words, "--seeds", "0"]) == 0
    assert "is not held out" not in capsys.readouterr().out


def run_with(**config: Any) -> Run:
    training = {"game": "msh-4x4-4h1s", "cast": "self-play", "guest": None}
    return Run(Path("somewhere"), {"training": {**training, **config.pop("training", {})}, "seeds": [0], **config})


@pytest.mark.parametrize(
    ("config", "kind", "met"),
    [
        ({}, "self", ()),
        ({"training": {"guest": "optimist"}}, "self", ()),  # made of the run's own model of others
        ({"training": {"cast": "learner,ns,ns,ns"}}, "pool", ("ns",)),
        ({"training": {"guest": "ns:then=hare"}}, "pool", ("ns",)),
        (
            {"training": {"cast": "learner,pool(learner,nh),switching(noisy(ns,0.1),stay,5),random"}},
            "pool",
            ("nh", "ns"),
        ),
        ({"training": {"cast": "learner,stay,stay,stay"}}, "pool", ()),
        ({"data": {"casts": ["all:nh,random"]}}, "pool", ("nh",)),
    ],
)
def test_whom_a_run_has_met(config: dict[str, Any], kind: str, met: tuple[str, ...]) -> None:
    others = CoPlayers("others", ("noisy(ns,0.3)", "nh:then=stay", "switching(ns,nh,every=5)"), "own")
    assert regime(run_with(**config), others) == (kind, met)


def test_a_run_has_met_itself(run: Path) -> None:
    against = make_sets(f"learned({run})", GAME)[0]
    assert against.players == (str(run),) * 3
    assert Focal.of(str(run)).regime(against) == ("self", (str(run.resolve()),))


# ---------------------------------------------------------------------------------------------------------------- sets


def test_all_sets_can_be_played() -> None:
    for game in (GAME, games.make("msh-8x8-4h1s"), games.make("msg-4x4")):
        for one in sets_of(game).values():
            assert len(one.players) == 3
            for name in one.players:
                players.make(name, game)
    assert {one.name for one in make_sets("held-out", games.make("msg-8x8"))} == {"cleaners", "exploiters", "mixed"}
    assert "cooperators-blind" in sets_of(games.make("msh-8x8-4h1s"))
    assert "cooperators-blind" not in sets_of(GAME)


def test_who_they_are_then() -> None:
    others = CoPlayers("others", ("switching(ns,nh,3)", "noisy(switching(stay,random,every=2),0.5)", "ns"), "own")
    assert others.period == 12
    assert others.at_episode(0) == ("ns", "noisy(stay,0.5)", "ns")
    assert others.at_episode(2) == ("ns", "noisy(random,0.5)", "ns")
    assert others.at_episode(5) == ("nh", "noisy(stay,0.5)", "ns")
    assert sets_of(GAME)["cooperators"].period == 1


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.fixture
def unfinished(run: Path, tmp_path: Path) -> Path:
    path = Path(shutil.copytree(run, tmp_path / "unfinished"))
    (path / "evaluation" / "final.json").unlink()
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("RUN --against cleaners", "has no set of co-players 'cleaners'"),
        ("RUN --against cooperatos", "did you mean 'cooperators'"),
        ("RUN --against ns,ns", "the set 'ns,ns' has 2 players, and msh-4x4-4h1s has 3 seats"),
        ("RUN --against cleaner,cleaner,cleaner", "player 'cleaner' needs a game with the action REMOVE"),
        ("RUN --game msg-4x4 --against cleaners", "a policy trained on msh-4x4-4h1s cannot play msg-4x4"),
        ("RUN --game msh-8x8-4h1s --against cooperators", "cannot play msh-8x8-4h1s: boards or actions differ"),
        ("RUN --against learned(nowhere)", "there is no player 'nowhere'"),
        ("RUN --episodes 9", "episodes must be at least 10, not 9"),
        ("RUN --tables 0", "tables must be at least 1"),
        ("RUN --seeds 7", "has no seed 7: its seeds are 0, 1, 2"),
        ("RUN --seeds x", "seeds are written"),
        ("RUN RUN", "and must not be counted twice"),
        ("RUN COPY", "copy is the same as seed 0 of"),
        ("", "hopplus adapt needs RUNS as its first word"),
        ("RUN --greedy --update-weights", "exclude each other"),
        ("UNFINISHED", "is unfinished: go on with it first"),
        ("nowhere", "say which one with --game"),
        ("nowhere --game msh-4x4-4h1s", "there is no player 'nowhere'"),
        ("ns --game msh-4x4-4h1s --update-weights", "'ns' has no weights to update"),
        ("ns --game msh-4x4-4h1s --seeds 0", "only runs have training seeds"),
        ("ns --game msh-4x4-4h1s:T=700 --protocol hop --against defectors", "may last longer than the 600 steps"),
        ("ns --game msh-4x4-2h1s --against cooperators", "the set 'cooperators' has 3 players, and msh-4x4-2h1s has 1"),
        ("stay --game msg-4x4 --against validation", "msg-4x4 has no validation sets"),
    ],
)
def test_bad_input(words: str, said: str, run: Path, unfinished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run.rglob("*"))
    names = {"RUN": str(run), "UNFINISHED": str(unfinished), "COPY": str(unfinished.parent / "copy")}
    if "COPY" in words:
        shutil.copytree(run, names["COPY"])
    given = [names.get(word, word) for word in words.split()]
    assert main(["adapt", *given]) == 2
    answer = capsys.readouterr().err
    assert said in answer
    assert answer.count("\n") == 1
    assert sorted(run.rglob("*")) == before, "nothing half-written"


def test_tables_of_several_sets_are_one_program_and_still_have_their_own_players() -> None:
    """One who hunts stags gets 5 beside one such player, wherever that sits, and nothing beside those who stay."""
    switching = "switching(ns:then=stay,stay,every=2)"
    sets = [
        CoPlayers("one hunter", ("stay", "ns:then=stay", "stay"), "own"),
        STATUES,
        CoPlayers("one who switches", ("stay", "stay", switching), "own"),
    ]
    among = kinds(sets)
    assert among == ("stay", "ns:then=stay", switching)
    assert kinds(sets[:1]) == ()
    program: Any = tables._play_on
    focal, before = Focal.of("ns:then=stay"), program._cache_size()
    found = [adapt(focal, GAME, one, "one", few_shot(10), tables=2, among=among) for one in sets]
    assert program._cache_size() == before + 1
    curves = [[point["mean"] for point in row["curve"]] for row in found]
    assert curves == [[5.0] * 10, [0.0] * 10, [5.0, 5.0, 0.0, 0.0] * 2 + [5.0, 5.0]]
    where = places(sets[0], "one", 4)[2]
    played, _ = play_frozen(jax.random.key(0), GAME, focal, [], where, 2, few_shot(10), among=among)
    took = np.asarray(played.took).max((0, 1))
    assert took.tolist() == [0, 1, 1, 0]  # the hunter is the second of the others, and the focal player sits in seat 2

"""Few-shot adaptation: scripted players of known scores, memories, frozen weights, seats, training overlap."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games, players, rollouts
from hopplus.cli.main import main
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec
from hopplus.core.struct import struct
from hopplus.evaluation import oracle as oracles
from hopplus.evaluation import trials
from hopplus.evaluation.adaptation import _joined, adapt
from hopplus.evaluation.co_player_sets import CoPlayers, distinct_players, make_sets, sets_of
from hopplus.evaluation.oracle_value import Effort
from hopplus.evaluation.protocol import HOP, Focal, Protocol, few_shot, seatings
from hopplus.evaluation.trial_returns import TrialReturns, TrialTrajectory, summarize
from hopplus.evaluation.trials import play_frozen
from hopplus.games import Observation
from hopplus.players import Cast, Player
from hopplus.players.player import as_action
from hopplus.players.reseating import ReseatableCast
from hopplus.players.scripted import Idle
from hopplus.training.policies import checksum
from hopplus.training.run import CONFIG

GAME = games.make("msh-4x4-4h1s")
IDLE = CoPlayers.of("idle", ("stay",) * 3, "own")
SMALL = {"steps": "600", "num-envs": "4", "num-steps": "8", "hidden": "8", "iterations-per-call": "1", "seeds": "0-2"}
TINY = ["train", "ppo", *(argument for name, value in SMALL.items() for argument in (f"--{name}", value))]


@dataclasses.dataclass(frozen=True)
class Adapter(Player):
    """Idles in the first episodes of a trial, then hunts the nearest hare.

    The number of idle episodes is a parameter, so that all adapters share one compiled program.
    """

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
class BeliefInfo:
    goals: Any


@dataclasses.dataclass(frozen=True)
class Believer(Player):
    """Idle player that believes the next two players hunt stags, and the one before it hares."""

    name: str = "believer"

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> Any:
        stag, hare = jnp.array([0.7, 0.3]), jnp.array([0.1, 0.9])
        return as_action(4), memory, BeliefInfo(jnp.stack([stag, stag, stag, hare]))


@pytest.fixture(autouse=True)
def known_players() -> None:
    def adapter(game: games.Game[Any], *, waits: int) -> Player:
        return Adapter(players.make("nh", game), waits)

    players.register("adapter", adapter)
    players.register("believer", lambda game: Believer())


def figures_of(name: str, against: CoPlayers = IDLE, seating: Any = "one", **options: Any) -> dict[str, Any]:
    return adapt(Focal.of(name), GAME, against, seating, options.pop("protocol", few_shot(15)), trials=8, **options)


# ------------------------------------------------------------------------------------------------------ known scores


@pytest.mark.parametrize(
    ("waits", "blocks"), [(0, [1.0, 1.0, 1.0]), (2, [0.6, 1.0, 1.0]), (7, [0.0, 0.6, 1.0]), (15, [0.0, 0.0, 0.0])]
)
def test_scores_of_scripted_adapters_are_exact(waits: int, blocks: list[float]) -> None:
    """With idle co-players, a hare hunter gets 1 in every episode."""
    figures = figures_of(f"adapter:waits={waits}")
    assert [row["mean"] for row in figures["curve"]] == [0.0] * min(waits, 15) + [1.0] * (15 - min(waits, 15))
    np.testing.assert_allclose([row["mean"] for row in figures["blocks"]], blocks, atol=1e-12)
    assert figures["score"] == figures["blocks"][1]
    assert (figures["score"]["first"], figures["score"]["last"]) == (6, 10)
    assert figures["score"]["share_of_ceiling"] == pytest.approx(blocks[1] / GAME.ceilings["player"])
    assert "32 trials" in figures["score"]["interval"]


def test_memories_persist_for_one_trial() -> None:
    """Without a reset between trials, later seats would hunt at once; without persistence, no player would hunt."""
    focal, all_seatings = Focal.of("adapter:waits=3"), seatings(IDLE, "one", 4)
    by_seating, _ = play_frozen(jax.random.key(1), GAME, focal, [], all_seatings, 8, few_shot(10))
    for played, seating in zip(by_seating, all_seatings, strict=True):
        results = summarize(played, seating.seats[:1], few_shot(10))
        assert results.returns.shape == (8, 10)
        assert (results.returns[:, :3] == 0).all()
        assert (results.returns[:, 3:] == 1).all()


def test_three_focal_players_with_one_co_player() -> None:
    figures = figures_of("adapter:waits=2", seating="three")
    assert [row["mean"] for row in figures["curve"][:2]] == [0.0, 0.0]
    assert all(0.5 < row["mean"] <= 1 for row in figures["curve"][2:])
    assert figures["trials"] == 8 * 4
    mixed = seatings(sets_of(GAME)["mixed"], "three", 4)
    assert len(mixed) == 4 * 3, "one seating for each of ns, nh and random, in every seat"


def test_the_focal_player_is_at_every_seat_in_turn() -> None:
    all_seatings = seatings(sets_of(GAME)["mixed"], "one", 4)
    assert [seating.seats for seating in all_seatings] == [(0, 1, 2, 3), (1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 1, 2)]
    all_seatings = seatings(sets_of(GAME)["two-and-one"], "three", 4)
    assert [(seating.others, seating.seats[-1]) for seating in all_seatings] == [
        ((Spec(other),), seat) for other in ("ns", "random") for seat in range(4)
    ]
    assert all(sorted(seating.seats) == [0, 1, 2, 3] for seating in all_seatings)


def test_a_reseatable_cast_plays_as_the_same_players_in_those_seats() -> None:
    """The order is not its own inverse, which tells seats by player from players by seat."""
    seats = (2, 0, 3, 1)
    walkers = [Idle(move, f"walker {move}") for move in (0, 1, 2, 3)]
    by_seat = Cast(tuple(walkers[seats.index(seat)] for seat in range(4)))
    reseatable = ReseatableCast(tuple(walkers))
    expected = rollouts.rollout(rollouts.init_rollout(jax.random.key(3), GAME, by_seat, 5), GAME, by_seat, 40)[1]
    state = rollouts.init_rollout(jax.random.key(3), GAME, reseatable, 5)
    state = dataclasses.replace(state, memories=(np.tile(np.array(seats, np.int32), (5, 1)), state.memories[1]))
    trajectory = rollouts.rollout(state, GAME, reseatable, 40)[1]
    np.testing.assert_array_equal(trajectory.actions, expected.actions)
    np.testing.assert_array_equal(trajectory.state.cells, expected.state.cells)


# ------------------------------------------------------------------------------------------------- returns by episode


def test_episodes_and_steps_by_hand() -> None:
    """Two trials and two seats: episodes end after 2, 5 and 6 steps, and after 3 and 6."""
    over = np.zeros((7, 2), bool)
    over[[1, 4, 5], 0] = over[[2, 5], 1] = True
    total = np.zeros((7, 2, 2))
    total[[1, 4, 5], 0, 1] = [1, 2, 4]
    total[[2, 5], 1, 1] = [8, 16]
    nothing = np.zeros((7, 2, 2), int)
    played = TrialTrajectory(over, total, nothing, nothing > 0, None)  # pyright: ignore[reportArgumentType]
    results = summarize(played, [1], Protocol("by episodes", episodes=2))
    np.testing.assert_array_equal(results.returns, [[1, 2], [8, 16]])
    np.testing.assert_array_equal(results.ended_at, [[2, 5], [3, 6]])
    results = summarize(played, [0, 1], Protocol("by steps", steps=5, block=5))
    np.testing.assert_array_equal(results.returns, [[0.5, 1], [4, np.nan]])


def test_trials_with_different_numbers_of_episodes_are_padded() -> None:
    """The score of a number of steps is over all episodes that end in them."""
    few, many = (TrialReturns(*[np.full((1, count), float(count))] * 4) for count in (2, 3))
    joined = _joined([few, many])
    np.testing.assert_array_equal(joined.returns, [[2, 2, np.nan], [3, 3, 3]])


def test_hops_protocol_scores_the_last_600_of_2400_steps() -> None:
    figures = figures_of("adapter:waits=100", protocol=HOP)
    places_of_blocks = [(row["first"], row["last"], row["unit"]) for row in figures["blocks"]]
    assert places_of_blocks == [(first, first + 599, "steps") for first in (1, 601, 1201, 1801)]
    # With idle co-players, an idle episode has 35 steps, so that 68 of them end: it never hunts.
    assert [row["mean"] for row in figures["blocks"]] == [0.0] * 4
    assert len(figures["curve"]) == 2400 // 35
    figures = figures_of("adapter:waits=30", protocol=HOP)
    means = [row["mean"] for row in figures["blocks"]]
    assert means[0] == 0, "17 episodes of 35 steps"
    assert 0 < means[1] < 1, "from step 1,050 on it hunts"
    assert means[2:] == [1, 1]
    assert figures["score"] == figures["blocks"][-1]


def test_beliefs_are_compared_with_what_co_players_finally_take() -> None:
    figures = figures_of("believer", CoPlayers.of("hares", ("nh",) * 3, "own"), protocol=few_shot(10))
    for row in figures["curve"]:
        assert 0.2 < row["goal_accuracy"] < 0.5, "right about one of three"
        assert 0.3 < row["goal_belief"] < 0.7
    assert figures_of("adapter:waits=0", protocol=few_shot(10))["curve"][0]["goal_accuracy"] is None


def test_beliefs_by_hand() -> None:
    """One trial of three seats: seat 1 takes a hare (2) in its second step, seat 2 nothing; then a new episode."""
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
    played = TrialTrajectory(over, np.zeros((5, 1, 3)), took, alive, goals)  # pyright: ignore[reportArgumentType]
    results = summarize(played, [0], few_shot(2))
    np.testing.assert_allclose(results.goal_hits, [[1.0, 0.5]])
    np.testing.assert_allclose(results.goal_belief, [[0.6, 0.55]])


def test_shares_of_the_oracle_follow_switching_co_players(monkeypatch: pytest.MonkeyPatch) -> None:
    base = oracles.Oracle("g", "v", ("x",), 2.0, 0.0, True, "by hand", 1, Effort(), 0.0)
    values = {"stay": 4.0, "random": 2.0}

    def lookup(game: Any, against: tuple[Spec, ...]) -> oracles.Oracle:
        names = tuple(player.text() for player in against)
        return dataclasses.replace(base, against=names, value=values[names[0]])

    monkeypatch.setattr("hopplus.evaluation.adaptation.lookup", lookup)
    units: list[int] = []
    monkeypatch.setattr("hopplus.evaluation.adaptation.unseen_loss", lambda game, n: units.append(n) or 0.0)
    others = CoPlayers.of("switching", ("switching(random,stay,every=5)",) * 3, "own")
    figures = figures_of("adapter:waits=15", others)
    assert set(units) == {8 * 4}, "trials are the independent units"
    assert [row["oracle"] for row in figures["blocks"]] == [2.0, 4.0, 2.0]
    assert [row["oracle"] for row in figures["curve"][3:7]] == [2.0, 2.0, 4.0, 4.0]
    assert figures["score"]["share_of_oracle"] == 0.0
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
    """A run whose config names scripted co-players; its weights come from the program that trained `run`."""
    path = tmp_path_factory.mktemp("pooled") / "run"
    assert main([*TINY, "--seeds", "3-5", "--out", str(path)]) == 0
    config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    config["training"]["cast"] = "learner,noisy(ns,0.2),pool(nh,random),stay"
    (path / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    return path


def test_frozen_weights_do_not_change_and_updated_ones_do(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["adapt", str(run), "--against", "cooperators", "--episodes", "10", "--trials", "2", "--seeds", "0-1"]
    checkpoints = {file: file.read_bytes() for file in sorted((run / "checkpoints").rglob("*")) if file.is_file()}
    assert main([*argv, "--seating", "one", "--json", str(tmp_path / "frozen.json")]) == 0
    (frozen,) = json.loads((tmp_path / "frozen.json").read_text())["rows"]
    assert frozen["seeds"] == [0, 1]
    expected = {checksum((Focal.of(str(run)).policies(seed)[0].params,)) for seed in (0, 1)}
    assert (
        {checksums["before"] for checksums in frozen["weights"]}
        == {checksums["after"] for checksums in frozen["weights"]}
        == expected
    )
    # With weight updates every seating is another program: play only one.
    monkeypatch.setattr("hopplus.evaluation.adaptation.seatings", lambda *arguments: seatings(*arguments)[-1:])
    assert main([*argv, "--seating", "three", "--update-weights", "--json", str(tmp_path / "updated.json")]) == 0
    (updated,) = json.loads((tmp_path / "updated.json").read_text())["rows"]
    assert len(updated["weights"]) == 2
    assert all(checksums["before"] != checksums["after"] for checksums in updated["weights"])
    assert {file: file.read_bytes() for file in checkpoints} == checkpoints, "the run itself stays as it was"
    assert (run / "evaluation" / "adapt-cooperators.json").exists()
    assert (run / "figures" / "adapt-cooperators.png").stat().st_size > 1000


def test_two_runs_are_compared(run: Path, pooled: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ["--against", "ns,nh,random", "--episodes", "10", "--trials", "2", "--seating", "one"]
    assert main(["adapt", str(run), str(pooled), *argv, "--json", str(tmp_path / "both.json")]) == 0
    (comparison,) = json.loads((tmp_path / "both.json").read_text())["comparisons"]
    assert comparison["difference"]["seeds"] == 3
    assert comparison["difference"]["low"] < comparison["difference"]["value"] < comparison["difference"]["high"]
    output = capsys.readouterr().out
    assert ("within the noise" in output) != ("outside the noise" in output)
    assert "95% interval over 3 training seeds" in output


def test_co_players_met_in_training_are_reported(pooled: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--against", "cooperators", "--episodes", "10", "--trials", "2", "--seating", "one"]
    assert main(["adapt", str(pooled), *argv, "--seeds", "3"]) == 0
    output = capsys.readouterr().out
    assert f"cooperators is not held out for {pooled}: trained with ns" in output
    assert f"{pooled} has no memory between episodes" in output
    assert main(["adapt", str(run), *argv, "--seeds", "0"]) == 0
    assert "is not held out" not in capsys.readouterr().out


def test_a_run_has_met_itself_in_training(run: Path) -> None:
    against = make_sets(f"learned({run})", GAME)[0]
    assert against.players == (Spec(str(run)),) * 3
    assert Focal.of(str(run)).regime(against) == ("self", (str(run.resolve()),))


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.fixture
def unfinished(run: Path, tmp_path: Path) -> Path:
    path = Path(shutil.copytree(run, tmp_path / "unfinished"))
    (path / "evaluation" / "final.json").unlink()
    return path


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("RUN --against cleaners", "has no set of co-players 'cleaners'"),
        ("RUN --against cooperatos", "did you mean 'cooperators'"),
        ("RUN --against ns,ns", "the set 'ns,ns' has 2 players, and msh-4x4-4h1s has 3 seats"),
        ("RUN --against cleaner,cleaner,cleaner", "player 'cleaner' needs a game with the action REMOVE"),
        ("RUN --game msg-4x4 --against cleaners", "a policy trained on msh-4x4-4h1s cannot play msg-4x4"),
        ("RUN --game msh-8x8-4h1s --against cooperators", "cannot play msh-8x8-4h1s: boards or actions differ"),
        ("RUN --against learned(nowhere)", "there is no player 'nowhere'"),
        ("RUN --episodes 9", "episodes must be at least 10, not 9"),
        ("RUN --trials 0", "trials must be at least 1"),
        ("RUN --seeds 7", "has no seed 7: its seeds are 0, 1, 2"),
        ("RUN --seeds x", "seeds are written"),
        ("RUN RUN", "and must not be counted twice"),
        ("RUN COPY", "copy is the same as seed 0 of"),
        ("", "hopplus adapt needs RUNS as its first argument"),
        ("RUN --greedy --update-weights", "exclude each other"),
        ("UNFINISHED", "is unfinished: resume it first"),
        ("nowhere", "choose one with --game"),
        ("nowhere --game msh-4x4-4h1s", "there is no player 'nowhere'"),
        ("ns --game msh-4x4-4h1s --update-weights", "'ns' has no weights to update"),
        ("ns --game msh-4x4-4h1s --seeds 0", "only runs have training seeds"),
        ("ns --game msh-4x4-4h1s:T=700 --protocol hop --against defectors", "may last longer than the 600 steps"),
        ("ns --game msh-4x4-2h1s --against cooperators", "the set 'cooperators' has 3 players, and msh-4x4-2h1s has 1"),
    ],
)
def test_bad_input(argv: str, message: str, run: Path, unfinished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run.rglob("*"))
    names = {"RUN": str(run), "UNFINISHED": str(unfinished), "COPY": str(unfinished.parent / "copy")}
    if "COPY" in argv:
        shutil.copytree(run, names["COPY"])
    arguments = [names.get(word, word) for word in argv.split()]
    assert main(["adapt", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert sorted(run.rglob("*")) == before, "nothing half-written"


def test_trials_of_several_sets_share_one_program_and_keep_their_players() -> None:
    """A stag hunter gets 5 with one other stag hunter in any seat, and nothing with idle co-players."""
    switching = "switching(ns:then=stay,stay,every=2)"
    sets = [
        CoPlayers.of("one hunter", ("stay", "ns:then=stay", "stay"), "own"),
        IDLE,
        CoPlayers.of("one who switches", ("stay", "stay", switching), "own"),
    ]
    among = distinct_players(sets)
    assert [player.text() for player in among] == ["stay", "ns:then=stay", switching]
    assert distinct_players(sets[:1]) == ()
    program: Any = trials._play_on
    focal, before = Focal.of("ns:then=stay"), program._cache_size()
    figures = [adapt(focal, GAME, against, "one", few_shot(10), trials=2, among=among) for against in sets]
    assert program._cache_size() == before + 1
    curves = [[point["mean"] for point in row["curve"]] for row in figures]
    assert curves == [[5.0] * 10, [0.0] * 10, [5.0, 5.0, 0.0, 0.0] * 2 + [5.0, 5.0]]
    all_seatings = seatings(sets[0], "one", 4)
    by_seating, _ = play_frozen(jax.random.key(0), GAME, focal, [], all_seatings, 2, few_shot(10), among=among)
    took = [np.asarray(played.took).max((0, 1)).tolist() for played in by_seating]
    assert took[2] == [0, 1, 1, 0]  # the hunter is the second co-player, and the focal player is in seat 2
    assert took == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]]

"""Cross-play: mean returns of runs with each other's policies, at every seat."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from hopplus import games
from hopplus.cli.main import main
from hopplus.evaluation.crossplay import OTHER_SEEDS, _players_of, crossplay, paired
from hopplus.evaluation.protocol import Focal
from hopplus.training.policies import Policy
from hopplus.training.run import CONFIG

HUNT = "msh-4x4-2h1s"
SIZES = ("--steps", "300", "--num-envs", "4", "--num-steps", "8", "--hidden", "8", "--evaluations", "0")
PLAY = ("--episodes", "40")


def trained(path: Path, *options: str) -> Path:
    assert main(["train", "ppo", "--game", HUNT, *SIZES, *options, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "first", "--seeds", "0-2")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Independent parameters, in two seeds."""
    return trained(tmp_path_factory.mktemp("runs") / "second", "--seeds", "0-1", "--parameters", "independent")


def test_a_run_with_itself_is_its_self_play(first: Path, second: Path, tmp_path: Path) -> None:
    assert main(["crossplay", str(first), str(second), "--with", "nh", *PLAY, "--json", str(tmp_path / "c.json")]) == 0
    figures = json.loads((tmp_path / "c.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in figures["cells"]}
    assert figures["rows"] == [str(first), str(second)]
    assert figures["columns"] == [str(first), str(second), "nh", OTHER_SEEDS]
    assert set(cells) == {(row, column) for row in figures["rows"] for column in figures["columns"]}
    for run in (first, second):
        assert main(["evaluate", str(run), "--cast", "self,self", *PLAY, "--json", str(tmp_path / "e")]) == 0
        evaluated, cell = json.loads((tmp_path / "e").read_text()), cells[str(run), str(run)]
        np.testing.assert_allclose(cell["per_seat"], [row["mean"] for row in evaluated["per_seat"]], rtol=1e-12)
        np.testing.assert_allclose(cell["per_seed"], [row["own_return"] for row in evaluated["per_seed"]], rtol=1e-12)
        assert cell["others_mean"] == pytest.approx(cell["mean"])
    # Pairs of seeds, and intervals only where there are enough of them.
    assert cells[str(first), str(second)]["seeds"] == [[0, 0], [1, 1]]
    assert cells[str(first), str(second)]["low"] is None
    assert "needs 3" in cells[str(first), str(second)]["interval"]
    assert cells[str(first), OTHER_SEEDS]["seeds"] == [[0, 1], [1, 2], [2, 0]]
    assert cells[str(first), OTHER_SEEDS]["per_seed"] != cells[str(first), str(first)]["per_seed"]
    assert cells[str(first), "nh"]["low"] <= cells[str(first), "nh"]["mean"] <= cells[str(first), "nh"]["high"]
    # The same figures as CSV and as a chart.
    (table,) = (first / "evaluation").glob("crossplay-*.csv")
    lines = list(csv.DictReader(table.open()))
    assert len(lines) == 8 * 3, "by seat, and both together"
    whole = next(line for line in lines if (line["row"], line["column"], line["seat"]) == (str(first), "nh", "all"))
    assert float(whole["mean"]) == pytest.approx(cells[str(first), "nh"]["mean"])
    (picture,) = (first / "figures").glob("crossplay-*.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_players_are_evaluated_at_every_seat() -> None:
    game, names = games.make(HUNT), ("nh", "stay")
    focals = [Focal.of(name) for name in names]
    figures = crossplay(focals, focals, game, episodes=50)
    cells = {(cell["row"], cell["column"]): cell for cell in figures["cells"]}
    # With an idle co-player, a hare hunter takes a hare in every seat; the idle player takes nothing.
    assert cells["nh", "stay"]["per_seat"] == [1.0] * 2
    assert cells["stay", "nh"]["per_seat"] == [0.0] * 2
    assert cells["stay", "nh"]["others_mean"] > 0.7
    assert OTHER_SEEDS not in figures["columns"]


def test_seats_have_the_parameters_that_were_trained_there(second: Path) -> None:
    focal, game = Focal.of(str(second)), games.make(HUNT)
    policies = focal.policies(1)
    assert len(policies) == 2
    players, params = _players_of(focal, 1, (1, 0), "row", game, False)
    for seat, seat_params in zip((1, 0), params, strict=True):
        assert jax.tree.all(jax.tree.map(np.array_equal, seat_params, policies[seat].params))
    assert players[0] != players[1], "equal players would share one parameter set"


def test_seeds_are_paired_in_order() -> None:
    many, few, script = (Focal("", object() if seeds else None, seeds or (0,)) for seeds in ((3, 5, 7), (1, 2), ()))  # pyright: ignore[reportArgumentType]
    assert paired(many, few) == [(3, 1), (5, 2)]
    assert paired(many, many, shift=1) == [(3, 5), (5, 7), (7, 3)]
    assert paired(many, script) == [(3, 0), (5, 0), (7, 0)]
    assert paired(script, few) == [(0, 1), (0, 2)]


def test_runs_that_do_not_fit_one_matrix_are_rejected(
    first: Path, second: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((second / CONFIG).read_text())
    smaller, older = tmp_path / "smaller", tmp_path / "older"
    other_game = {**config["training"], "game": "msh-4x4-2h1s:hares=1"}
    for path, changed in ((smaller, {"training": other_game}), (older, {"game_version": "0"})):
        path.mkdir()
        for part in ("evaluation", "checkpoints"):
            (path / part).symlink_to(second / part)
        (path / CONFIG).write_text(json.dumps({**config, **changed}))
    before = sorted(first.rglob("*"))
    for argv, message in (
        ((str(first), str(smaller)), "one matrix is of one game"),
        ((str(first), str(older)), "on version"),
        ((str(first), str(first)), "must not be counted twice"),
        ((str(first), "--with", "nobody"), "nobody"),
        ((str(first), "--with", "ns,nh,ns"), "must not be counted twice"),
        ((str(first), "--with", str(smaller)), "one matrix is of one game"),
        ((str(first), "--seeds", "0,7"), "no seed 7"),
        ((str(first), "--episodes", "10", "--trial-episodes", "3"), "multiple of trial_episodes"),
        (("ns", "nh"), "not a run"),
        ((), "needs RUNS"),
    ):
        capsys.readouterr()
        assert main(["crossplay", *argv]) == 2
        error = capsys.readouterr().err.strip()
        assert message in error
        assert "\n" not in error
    assert sorted(first.rglob("*")) == before, "something was left behind"


@pytest.fixture
def at_rest(second: Path) -> Focal:
    """A run with policy weights replaced such that it never moves."""
    focal = Focal.of(str(second))

    class NeverMoves(Focal):
        def policies(self, seed: int) -> list[Policy]:
            policies = super().policies(seed)
            bias = np.zeros(7, np.float32)
            bias[4] = 1e6
            head = {"kernel": np.zeros_like(policies[0].params["policy"]["kernel"]), "bias": bias}
            return [replace(policy, params={**policy.params, "policy": head}) for policy in policies]

    return NeverMoves(focal.name, focal.run, focal.seeds)


def test_rows_and_columns_have_their_own_weights(first: Path, at_rest: Focal) -> None:
    mover = Focal.of(str(first), (0, 1))
    figures = crossplay([mover], [at_rest], games.make(HUNT), episodes=40, greedy=False)
    (cell,) = (cell for cell in figures["cells"] if cell["column"] == at_rest.name)
    assert cell["mean"] > 0.2
    assert cell["others_mean"] == 0

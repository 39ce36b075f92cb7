"""The commands, as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from hopplus.cli.main import main, with_json_target

ROOT = Path(__file__).parent.parent.parent
PLUGIN = """
from dataclasses import dataclass, replace

import jax.numpy as jnp

from hopplus import games, players
from hopplus.games import StagHunt


@dataclass(frozen=True)
class Upward(players.Player):
    name: str = "upward"

    def act(self, key, params, memory, observation):
        return jnp.int32(0), memory, ()


players.register("upward", lambda game: Upward())
games.register("tiny-hunt", lambda: replace(StagHunt(), name="tiny-hunt", T=4))
"""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code or 0
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def printed_json(capsys: pytest.CaptureFixture[str], *argv: str) -> object:
    """JSON figures of a command that succeeds."""
    capsys.readouterr()
    assert main(argv) == 0
    return json.loads(capsys.readouterr().out)


def test_help_version_and_no_arguments(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for argv in ([], ["--help"], ["match", "--help"], ["watch", "--help"], ["bench", "--help"], ["demo", "--help"]):
        assert "usage: hopplus" in printed(capsys, *argv)
    assert printed(capsys, "--version").startswith("hopplus 0.")
    monkeypatch.setattr(sys, "argv", ["hopplus", "--version"])
    assert main() == 0


def test_output_and_exit_code_of_a_process() -> None:
    """In a process of its own: output of a command, and exit code of a mistake."""
    command = [sys.executable, "-m", "hopplus.cli.main"]
    answer = subprocess.run([*command, "games"], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "msg-8x8" in answer.stdout
    answer = subprocess.run([*command, "mtch"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "hopplus: there is no command 'mtch' (did you mean 'match'?)\n"


def test_games_lists_every_game_with_its_ceilings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = printed_json(capsys, "games", "--json")
    assert isinstance(rows, list)
    by_name = {row["name"]: row for row in rows}
    assert by_name["msh-4x4-4h1s"] == {
        "name": "msh-4x4-4h1s",
        "version": "1",
        "players": 4,
        "actions": ["UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE"],
        "last_step": 35,
        "ceilings": {"mean": 3.0, "player": 5.0, "all_stag": 2.5, "all_hare": 1.0},
    }
    assert len(by_name) == 8
    assert main(["games", "--json", str(tmp_path / "games.json")]) == 0
    assert json.loads((tmp_path / "games.json").read_text()) == rows
    assert "msg-8x8" in capsys.readouterr().out


def test_match_reports_every_seat_and_is_reproducible(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("match", "msh-4x4-4h1s", "--cast", "ns,ns,nh,random", "--episodes", "300", "--seed", "4", "--json")
    first = printed_json(capsys, *argv)
    assert isinstance(first, dict)
    assert first == printed_json(capsys, *argv)
    assert [row["player"] for row in first["per_seat"]] == ["ns", "ns", "nh", "random"]
    assert 4.5 < first["per_seat"][0]["mean"] <= 5
    assert first["per_seat"][2]["taken"]["hare"] > 0.9
    assert first["mean_return"] == pytest.approx(sum(row["mean"] for row in first["per_seat"]) / 4)
    assert first["share_of_ceiling"] == pytest.approx(first["mean_return"] / 3)
    assert 0 < first["per_seat"][3]["standard_error"] < 0.1
    assert first["episodes"] == 300
    assert first != printed_json(capsys, *argv[:-2], "5", "--json")


def test_match_plays_trials_of_several_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    """A player that hunts hares every other episode takes half a hare per episode of a trial."""
    argv = ("match", "msh-4x4-4h1s", "--cast", "switching(nh,stay,every=1),stay,stay,stay", "--episodes", "40")
    result = printed_json(capsys, *argv, "--trial-episodes", "4", "--json")
    assert isinstance(result, dict)
    assert result["per_seat"][0]["taken"]["hare"] == 0.5
    assert result["per_seat"][0]["standard_error"] == 0


def test_watch_shows_the_board_and_writes_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cast = ("--cast", "ns,ns,nh,random")
    assert "STAG" in printed(capsys, "watch", "msh-4x4-4h1s", *cast, "--seed", "1")
    files = {suffix: tmp_path / f"hunt.{suffix}" for suffix in ("gif", "svg", "png")}
    argv = [arg for suffix, path in files.items() for arg in (f"--{suffix}", str(path))]
    output = printed(capsys, "watch", "msh-4x4-4h1s", *cast, "--at", "2", *argv)
    assert output.split() == [str(path) for path in files.values()]
    with Image.open(files["gif"]) as animation:
        assert getattr(animation, "n_frames", 1) > 3
    with Image.open(files["png"]) as picture:
        assert min(picture.size) > 200
    assert ElementTree.parse(files["svg"]).getroot().tag.endswith("svg")


def test_a_plugin_registers_games_and_players(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    argv = ("match", "tiny-hunt", "--cast", "upward,stay,stay,stay", "--episodes", "10", "--plugin", str(plugin))
    for _ in range(2):
        result = printed_json(capsys, *argv, "--json")
        assert isinstance(result, dict)
        assert result["episode_length"] == 4


def test_bench_games_has_the_documented_rows(capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_json(
        capsys, "bench", "games", "--games", "msh-4x4-2h1s", "--batches", "16", "--rounds", "1", "--json"
    )
    assert isinstance(figures, dict)
    row = next(row for row in figures["rows"] if row["name"] == "msh-4x4-2h1s")
    assert row["batch"] == 16
    assert row["steps_per_second"] > 0
    assert "ratio_to_coin_game" in row


def test_json_alone_means_standard_output() -> None:
    assert with_json_target([]) == []
    assert with_json_target(["games", "--json"]) == ["games", "--json", "-"]
    assert with_json_target(["games", "--json", "--plugin", "x"]) == ["games", "--json", "-", "--plugin", "x"]
    assert with_json_target(["games", "--json", "f.json"]) == ["games", "--json", "f.json"]


@pytest.mark.slow
def test_bench_ppo_has_the_documented_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = printed_json(capsys, "bench", "ppo", "--game", "msh-4x4-2h1s", "--rounds", "1", "--no-peer", "--json")
    assert isinstance(figures, dict)
    assert figures["steps_per_second"] > 0
    assert figures["play_share"] + figures["learn_share"] == pytest.approx(1)
    for name in ("learn_gflops", "matmul_gflops", "compile_seconds", "eight_seeds_ratio", "machine"):
        assert figures[name]


@pytest.mark.slow
def test_bench_planning_has_the_documented_figures(capsys: pytest.CaptureFixture[str]) -> None:
    planners = ["rollouts(rollouts=8,rounds=1)", "tree(simulations=4,leaf=rollout)"]
    argv = ["bench", "planning", "--games", "msg-4x4", "--planners", *planners, "--batches", "8", "--rounds", "1"]
    figures = printed_json(capsys, *argv, "--json")
    assert isinstance(figures, dict)
    rows = {row["planner"]: row for row in figures["rows"]}
    assert list(rows) == [*planners, "mctx"]
    rollouts = rows[planners[0]]
    for name in ("milliseconds", "decisions_per_second", "steps_per_second", "ratio_to_mctx", "compile_seconds"):
        assert rollouts[name] > 0
    assert rollouts["ratio_to_tree"] is None
    assert sum(rollouts["shares"].values()) == pytest.approx(1)
    assert rows[planners[1]]["steps_per_second"] is None
    assert figures["all_seats"]["ratio_to_notes"] > 0


@pytest.mark.parametrize("argv", [["train", "-h"], ["train", "--help"], ["fit"], ["fit", "--help"]])
def test_algorithms_and_models_are_listed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    output = capsys.readouterr().out
    assert ("ppo" if argv[0] == "train" else "world-model") in output
    assert "--resume RUN" in output

"""`hopplus play`: keys, games in the terminal, and the page that it opens."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.keyboard import QUIT, keys_of, parse_key
from hopplus.cli.main import main
from hopplus.games import make
from sessions import GAME

Capture = pytest.CaptureFixture[str]


def test_every_action_has_a_key_of_its_own() -> None:
    for name in (GAME, "msg-4x4"):
        game = make(name)
        keys = keys_of(game.action_names, game.action_names[game.idle_action])
        assert len(set(keys.values())) == game.num_actions
        assert QUIT not in keys.values()
        for action, key in keys.items():
            assert parse_key(key, keys) == parse_key(action.lower(), keys) == action
    assert parse_key("x", keys) is None
    assert parse_key("Q", keys) == QUIT


def test_a_game_in_the_terminal(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["play", GAME, "--cast", "you,nh,nh,nh", "--episodes", "1", "--seed", "0", "--terminal"]
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\n" + "STAY\n" * 40))
    assert main([*argv, "--record", str(tmp_path / "game")]) == 0
    output = capsys.readouterr().out
    assert "there is no action 'nonsense'" in output
    assert "episode 1 is over" in output
    assert "of your 35 decisions" in output
    assert "hopplus dataset" in output
    assert main(["dataset", str(tmp_path / "game" / "episodes"), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["actions"]["STAY"]["count"] >= 35
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["play", "--record", str(tmp_path / "game"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["decisions"] == 35


def test_an_interrupted_game_in_the_terminal_is_resumed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [
        "play",
        GAME,
        "--cast",
        "you,nh,nh,nh",
        "--episodes",
        "2",
        "--seed",
        "0",
        "--record",
        str(tmp_path / "game"),
    ]

    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("hopplus.cli.play.read_key", interrupted)
    assert main(argv) == 130
    monkeypatch.undo()
    record = ["--record", str(tmp_path / "game")]
    for changed, recorded in (
        ("msg-4x4", f"GAME is {GAME}"),
        ("--cast you,ns,nh,nh", "--cast is you,nh,nh,nh"),
        ("--episodes 5", "--episodes is 2"),
        ("--hidden", "--hidden is False"),
        ("--seed 1", "--seed is 0"),
    ):
        capsys.readouterr()
        assert main(["play", *changed.split(), *record]) == 2
        assert f"whose settings cannot change: {recorded} there, not " in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(argv) == 0
    assert "no episode was completed" in capsys.readouterr().out


def test_with_a_browser_the_page_is_opened_with_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr("hopplus.cli.play.has_browser", lambda: True)
    monkeypatch.setattr("hopplus.cli.play.serve_page", lambda *arguments: opened.append(arguments))
    assert main(["play", GAME, "--cast", "nh,you,nh,nh", "--episodes", "3", "--hidden"]) == 0
    assert main(["play", "--seed", "0"]) == 0
    (_, host, _, page), (*_, second) = opened
    assert host == "127.0.0.1"
    assert page == f"/play?game={GAME}&cast=nh%2Cyou%2Cnh%2Cnh&episodes=3&hidden=yes"
    assert second == f"/play?game={GAME}&cast=&episodes=5&hidden=&seed=0"


def test_mistakes_are_one_sentence(capsys: Capture) -> None:
    for argv, message in (
        (["play", GAME, "--cast", "ns,ns,nh,nh", "--terminal"], "one seat of the cast must be 'you'"),
        (["play", "msh-4x4", "--terminal"], "there is no game"),
        (["play", GAME, "--episodes", "0", "--terminal"], "1 to 100 episodes"),
        (["match", GAME, "--cast", "you,ns,nh,nh"], "there is no player 'you'"),
    ):
        assert main(argv) == 2
        assert message in capsys.readouterr().err

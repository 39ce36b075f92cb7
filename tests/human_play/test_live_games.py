"""Games on the server: turns, hidden names, recordings, restarts, concurrent games."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hopplus.core.errors import InputError
from hopplus.human_play import Session, SessionSetup, games, open_record, session_players
from hopplus.rollouts.dataset import open_dataset
from serving import GAME, SETTINGS, Site, finish, hunter, serving


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


def test_a_turn_is_taken_once_and_an_illegal_one_not_at_all(site: Site) -> None:
    _, view = site.ask("/api/games", SETTINGS)
    turn = f"/api/games/{view['name']}/turn"
    illegal = next(action for action in view["actions"] if action not in view["legal"])
    code, answer = site.ask(turn, {"turn": 0, "action": illegal})
    assert code == 409
    assert answer["error"].startswith(f"{illegal} is not legal here")
    assert answer["view"] == view
    body = {"turn": 0, "action": view["legal"][0]}
    first, repeated = site.ask(turn, body), site.ask(turn, body)
    assert first == repeated
    assert first[1]["turn"] == 1
    code, answer = site.ask(turn, {"turn": 0, "action": view["legal"][1]})
    assert code == 409, "another window is one turn behind"
    assert answer["view"]["turn"] == 1
    for wrong in ({}, {"turn": "1", "action": "STAY"}, {"turn": 1, "action": 4}, {"turn": True, "action": "STAY"}):
        assert site.ask(turn, wrong)[0] == 400
    assert site.ask(turn, {"turn": 99, "action": "STAY"})[0] == 409


def test_hidden_names_are_shown_only_at_the_end(site: Site) -> None:
    _, view = site.ask("/api/games", {**SETTINGS, "cast": ["any", "you"], "hidden": True})
    assert [player["name"] for player in view["players"]] == ["player 0", "you"]
    assert "cast" not in view
    assert site.ask(f"/api/games/{view['name']}/review")[0] == 409
    view = finish(site, view["name"], hunter)
    available = {player["word"] for player in site.ask(f"/api/options?game={GAME}")[1]["players"]}
    assert view["players"][0]["name"] in available
    code, review = site.ask(f"/api/games/{view['name']}/review")
    assert code == 200
    assert review["setup"]["cast"][1] == "you"
    assert [len(returns) for returns in review["returns"]] == [2, 2]


def test_after_a_restart_a_recorded_game_is_resumed_and_an_unrecorded_one_is_not_found(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**SETTINGS, "record": True})
        _, lost = site.ask("/api/games", SETTINGS)
        for _ in range(5):
            _, view = site.ask(f"/api/games/{view['name']}/turn", {"turn": view["turn"], "action": hunter(view)})
    with serving(tmp_path) as site:
        code, resumed = site.ask(f"/api/games/{view['name']}")
        assert code == 200
        assert {**resumed, "ended": None} == {**view, "ended": None}
        code, answer = site.ask(f"/api/games/{lost['name']}")
        assert code == 404
        assert "not recorded" in answer["error"]
        view = finish(site, view["name"], hunter)
        (row,) = site.ask("/api/games")[1]
        assert (row["name"], row["finished"], row["played"]) == (view["name"], True, 2)
    dataset = open_dataset(tmp_path / "games" / view["name"] / "episodes")
    assert dataset.header["episodes"] == 2
    assert dataset.load().trajectory.returns.tolist() == view["returns"]


def test_a_game_whose_replay_differs_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**SETTINGS, "record": True})
        site.ask(f"/api/games/{view['name']}/turn", {"turn": 0, "action": view["legal"][0]})
    file = tmp_path / "games" / view["name"] / "game.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    for changed, message in (
        ({**record, "digests": ["0" * 12]}, "comes out differently at turn 1"),
        ({**record, "version": "v0"}, "which has changed"),
        ({**record, "setup": {**record["setup"], "cast": ["you", "runs/gone"]}}, "there is no player"),
        ({"format": 1}, "does not describe a recorded game"),
    ):
        file.write_text(json.dumps(changed), encoding="utf-8")
        with serving(tmp_path) as site:
            code, answer = site.ask(f"/api/games/{view['name']}")
            assert code == 400
            assert message in answer["error"]


def test_two_servers_never_write_into_one_game(tmp_path: Path) -> None:
    with serving(tmp_path) as site, serving(tmp_path) as other:
        _, view = site.ask("/api/games", {**SETTINGS, "record": True})
        code, answer = other.ask(f"/api/games/{view['name']}")
        assert code == 400
        assert "has this game open" in answer["error"]
        assert site.ask(f"/api/games/{view['name']}/turn", {"turn": 0, "action": "STAY"})[0] == 200


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid"), reason="needs POSIX files")
def test_a_turn_that_cannot_be_recorded_is_played_with_a_warning(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = site.ask("/api/games", {**SETTINGS, "record": True})

    def full(*_: Any) -> None:
        raise InputError("cannot write game.json: No space left on device")

    turn = f"/api/games/{view['name']}/turn"
    with monkeypatch.context() as patch:
        patch.setattr("hopplus.human_play.recording.write_text", full)
        code, view = site.ask(turn, {"turn": 0, "action": "STAY"})
        assert code == 200
        assert "could not be recorded" in view["warning"]
    code, view = site.ask(turn, {"turn": 1, "action": "STAY"})
    assert (code, view["warning"], view["turn"]) == (200, None, 2)
    site.ask(f"/api/games/{view['name']}/stop", {})
    record = json.loads((site.directory / "games" / view["name"] / "game.json").read_text(encoding="utf-8"))
    assert record["actions"] == ["STAY", "STAY"]


@pytest.mark.parametrize("number", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_concurrent_games_are_independent(number: int, site: Site) -> None:
    started = [site.ask("/api/games", {**SETTINGS, "seed": seed})[1]["name"] for seed in range(number)]
    assert len(set(started)) == number
    with ThreadPoolExecutor(number) as pool:
        ended = list(pool.map(lambda name: finish(site, name, hunter), started))
    for seed, view in enumerate(ended):
        setup = SessionSetup(GAME, ("you", "nh"), 2, seed)
        session = Session(setup, session_players(setup, site.directory))
        while not session.finished:
            session.act(hunter({"legal": list(session.legal), "turn": len(session.actions)}))
        assert view["returns"] == session.returns


def test_a_finished_or_recorded_game_makes_room_for_another(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "MOST_OPEN", 1)
    with serving(site.directory) as small:
        _, view = small.ask("/api/games", SETTINGS)
        code, answer = small.ask("/api/games", SETTINGS)
        assert code == 503
        assert "finish one of them first" in answer["error"]
        assert small.ask(f"/api/games/{view['name']}/stop", {})[0] == 200
        code, recorded = small.ask("/api/games", {**SETTINGS, "record": True})
        assert code == 201
        small.ask(f"/api/games/{recorded['name']}/turn", {"turn": 0, "action": "STAY"})
        code, view = small.ask("/api/games", SETTINGS)
        assert code == 201, "one that is recorded makes room"
        small.ask(f"/api/games/{view['name']}/stop", {})
        assert small.ask(f"/api/games/{recorded['name']}")[1]["turn"] == 1, "and is opened again"


def test_the_server_releases_recorded_games_when_it_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**SETTINGS, "record": True})
    record = open_record(tmp_path / "games" / view["name"], tmp_path)
    assert record.session.actions == []
    record.close()

"""The local page's server: what it shows, what it refuses, and games that are never mixed up or lost."""

import http.client
import json
import os
import shutil
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common import TINY_GAME
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.play.dataset import open_dataset
from hopplus.server import Server, games, make_app, open_port
from hopplus.server.guard import LARGEST_BODY, is_own_host
from hopplus.sitting import Setup, Table, company_of, open_record

GAME = TINY_GAME
ASKED = {"game": GAME, "cast": ["you", "nh"], "episodes": 2, "seed": 7}
Headers = dict[str, str]


@dataclass(frozen=True)
class Site:
    """A server that is running."""

    port: int
    directory: Path

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """What a GET, or with a body a POST, is answered with."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        code, answer, _ = self.raw("GET" if data is None else "POST", path, data, headers)
        return code, answer

    def raw(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> tuple[int, Any, Headers]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, {**kind, **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text, dict(response.getheaders())


@contextmanager
def serving(directory: Path) -> Iterator[Site]:
    """A server in a thread of this process."""
    opened, ready = open_port("127.0.0.1", 0), threading.Event()
    server = Server(make_app(directory), opened, ready.set)
    thread = threading.Thread(target=server.serve_on)
    thread.start()
    try:
        assert ready.wait(30)
        yield Site(opened.getsockname()[1], directory)
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def runs(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small run in it."""
    directory = tmp_path_factory.mktemp("served")
    shutil.copytree(tiny_run, directory / "runs" / "small")
    return directory


@pytest.fixture(scope="module")
def site(runs: Path) -> Iterator[Site]:
    with serving(runs) as found:
        yield found


def files_below(directory: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in directory.rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_mtime_ns, status.st_size if path.is_file() else 0)
    return found


def finish(site: Site, name: str, choose: Any) -> dict[str, Any]:
    """Play a game to its end."""
    _, view = site.ask(f"/api/games/{name}")
    while not view["finished"]:
        code, view = site.ask(f"/api/games/{name}/turn", {"turn": view["turn"], "action": choose(view)})
        assert code == 200, view
    return view


def hunter(view: dict[str, Any]) -> str:
    """Takes a hare where it stands on one, else walks about, the same way in the same situation."""
    return "HARE" if "HARE" in view["legal"] else view["legal"][(7 * view["turn"]) % len(view["legal"])]


# ------------------------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_and_shown_with_their_curves(site: Site) -> None:
    code, rows = site.ask("/api/runs")
    assert code == 200
    (row,) = [row for row in rows if row["run"] == "runs/small"]
    assert (row["recipe"], row["game"], row["state"]) == ("ppo", GAME, "finished")
    code, run = site.ask("/api/run?run=runs/small")
    assert code == 200
    assert run["state"].startswith("Finished after")
    charts = {chart["title"]: chart["figure"]["data"] for chart in run["charts"]}
    assert len(charts["Return in training"][0]["y"]) > 1
    assert site.ask(f"/api/charts?run=runs/small&stamp={run['stamp']}") == (200, {"stamp": run["stamp"]})
    code, page = site.ask("/report?run=runs/small")
    assert code == 200
    assert "<title>small</title>" in page
    assert page.count("<script") > 2


def test_a_curve_grows_while_a_run_trains(site: Site, tmp_path: Path) -> None:
    run = site.directory / "runs" / "small"
    _, before = site.ask("/api/run?run=runs/small")
    metrics = run / "metrics.jsonl"
    kept = metrics.read_bytes()
    seeds = json.loads((run / "config.json").read_text(encoding="utf-8"))["seeds"]
    lines = [{**json.loads(line), "steps": 10_000} for line in kept.splitlines()[-len(seeds) :]]
    try:
        more = "".join(json.dumps(line) + "\n" for line in lines)
        metrics.write_bytes(kept + more.encode() + b'{"seed": 0, "unfini')
        _, after = site.ask(f"/api/charts?run=runs/small&stamp={before['stamp']}")
    finally:
        metrics.write_bytes(kept)

    def last(found: dict[str, Any]) -> float:
        (chart,) = [chart for chart in found["charts"] if chart["title"] == "Return in training"]
        return max(steps for line in chart["figure"]["data"] for steps in line["x"])

    assert last(after) == 10_000 > last(before)
    assert after["row"]["state"] == "unfinished"


def test_the_report_has_no_access_to_the_server(site: Site) -> None:
    _, _, headers = site.raw("GET", "/report?run=runs/small")
    assert "sandbox allow-scripts" in headers["content-security-policy"]
    assert "connect-src" not in headers["content-security-policy"]
    _, _, headers = site.raw("GET", "/")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_looking_and_playing_change_nothing_on_the_disk(site: Site) -> None:
    before = files_below(site.directory)
    for path in ("/", "/api/runs", "/api/run?run=runs/small", "/report?run=runs/small", "/api/games", "/play"):
        assert site.ask(path)[0] == 200
    code, view = site.ask("/api/games", ASKED)
    assert code == 201
    finish(site, view["name"], hunter)
    assert site.ask(f"/api/games/{view['name']}/review")[0] == 200
    assert files_below(site.directory) == before


# ---------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../outside",
        "runs/../../outside",
        "/etc",
        "runs/small/../../..",
        "\\\\x",
        "C:\\x",
        "runs\0",
        "",
        ".",
        "link",
    ],
)
def test_nothing_outside_the_directory_is_served(site: Site, name: str, caplog: pytest.LogCaptureFixture) -> None:
    outside = site.directory.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "config.json").write_text('{"seeds": [0]}', encoding="utf-8")
    link = site.directory / "link"
    if not link.is_symlink():
        link.symlink_to(outside)
    for path in ("/api/run", "/api/charts", "/api/replays", "/report"):
        code, answer = site.ask(f"{path}?run={urllib.parse.quote(name, safe='')}")
        assert code == 404, (path, answer)
        assert set(answer) == {"error"}
    assert "refused (404)" in caplog.text
    assert all(row["run"] == "runs/small" for row in site.ask("/api/runs")[1])


@pytest.mark.parametrize(
    "path",
    [
        "/assets/..%2f..%2fapp.py", "/assets/%2e%2e/app.py", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd", "/assets/index.html", "/games/../../x", "/api/games/..%2f..%2fx", "/nothing", "/api/games/UP",
    ],
)  # fmt: skip
def test_odd_addresses_have_nothing(site: Site, path: str) -> None:
    code, answer = site.ask(path)
    assert code == 404
    assert set(answer) == {"error"}


def test_a_run_with_a_link_that_leads_out_is_not_shown(site: Site, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"own_return": 42}', encoding="utf-8")
    link = site.directory / "runs" / "small" / "evaluation" / "secret.json"
    link.symlink_to(tmp_path / "secret.json")
    try:
        code, answer = site.ask("/api/run?run=runs/small")
        (row,) = site.ask("/api/runs")[1]
        refused, _ = site.ask("/api/games", {**ASKED, "cast": ["you", "runs/small"]})
    finally:
        link.unlink()
    assert code == refused == 404
    assert "leads out" in answer["error"]
    assert "leads out" in row["state"]
    assert site.ask("/api/games", {**ASKED, "cast": ["you", "runs/small"]})[0] == 201


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_other_sites_are_refused(site: Site, headers: Headers, code: int, caplog: pytest.LogCaptureFixture) -> None:
    found, answer, _ = site.raw("POST", "/api/games", json.dumps(ASKED), headers)
    assert found == code
    assert set(answer) == {"error"}
    assert f"refused ({code})" in caplog.text
    if code == 403:
        assert site.raw("GET", "/api/runs", None, headers)[0] == 403
    assert site.ask("/api/runs", Host=f"localhost:{site.port}", Origin=f"http://localhost:{site.port}")[0] == 200


def test_beyond_this_machine_a_server_goes_by_its_address_and_its_own_name() -> None:
    assert is_own_host("192.168.3.4:8477", "0.0.0.0")
    assert is_own_host(f"{socket.gethostname()}:8477", "0.0.0.0")
    assert is_own_host("[fe80::1]:8477", "::")
    assert not is_own_host("evil.example", "0.0.0.0")
    assert not is_own_host("192.168.3.4:8477", "127.0.0.1")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 400),
        (b"", 400),
        (b"[1, 2]", 400),
        (b'"x"', 400),
        (b"\xff\xfe", 400),
        (b"[" * 8000, 400),
        (b"{" + b" " * LARGEST_BODY + b"}", 413),
        (json.dumps({**ASKED, "cast": ["you", "/etc/passwd"]}).encode(), 400),
        (json.dumps({**ASKED, "cast": ["you", "run(/etc,search=on)"]}).encode(), 400),
        (json.dumps({**ASKED, "cast": ["nh", "nh"]}).encode(), 400),
        (json.dumps({**ASKED, "cast": ["you", "you"]}).encode(), 400),
        (json.dumps({**ASKED, "cast": ["you"]}).encode(), 400),
        (json.dumps({**ASKED, "cast": [["you"], "nh"]}).encode(), 400),
        (json.dumps({**ASKED, "episodes": 10**9}).encode(), 400),
        (json.dumps({**ASKED, "episodes": "2"}).encode(), 400),
        (json.dumps({**ASKED, "seed": -1}).encode(), 400),
        (json.dumps({**ASKED, "game": "msh-4x4-2h1s:T=100000"}).encode(), 400),
        (json.dumps({**ASKED, "game": ["x"]}).encode(), 400),
        (json.dumps({**ASKED, "record": "yes"}).encode(), 400),
        (json.dumps({**ASKED, "more": 1}).encode(), 400),
    ],
)
def test_what_cannot_be_understood_is_one_sentence(site: Site, body: bytes, code: int) -> None:
    found, answer = site.ask("/api/games", body)
    assert found == code
    assert set(answer) == {"error"}
    assert site.ask("/api/runs")[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"DELETE /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/games HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n" + b"4000\r\n" + b"x" * 0x4000,
    ],
)
def test_malformed_and_endless_requests_leave_the_server_unharmed(site: Site, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall(sent)
        answer = connection.recv(200)
    assert answer.split()[1] in (b"400", b"405", b"413", b"414", b"431"), answer
    assert site.ask("/api/runs")[0] == 200


# ------------------------------------------------------------------------------------------------------------ games


def test_a_turn_is_taken_once_and_an_illegal_one_not_at_all(site: Site) -> None:
    _, view = site.ask("/api/games", ASKED)
    turn = f"/api/games/{view['name']}/turn"
    illegal = next(action for action in view["actions"] if action not in view["legal"])
    code, answer = site.ask(turn, {"turn": 0, "action": illegal})
    assert code == 409
    assert answer["error"].startswith(f"{illegal} is not legal here")
    assert answer["view"] == view
    asked = {"turn": 0, "action": view["legal"][0]}
    first, again = site.ask(turn, asked), site.ask(turn, asked)
    assert first == again
    assert first[1]["turn"] == 1
    code, answer = site.ask(turn, {"turn": 0, "action": view["legal"][1]})
    assert code == 409, "another window is one turn behind"
    assert answer["view"]["turn"] == 1
    for wrong in ({}, {"turn": "1", "action": "STAY"}, {"turn": 1, "action": 4}, {"turn": True, "action": "STAY"}):
        assert site.ask(turn, wrong)[0] == 400
    assert site.ask(turn, {"turn": 99, "action": "STAY"})[0] == 409


def test_who_is_who_is_hidden_until_the_end(site: Site) -> None:
    _, view = site.ask("/api/games", {**ASKED, "cast": ["any", "you"], "hidden": True})
    assert [player["name"] for player in view["players"]] == ["player 0", "you"]
    assert "cast" not in view
    assert site.ask(f"/api/games/{view['name']}/review")[0] == 409
    view = finish(site, view["name"], hunter)
    offered = {guest["word"] for guest in site.ask(f"/api/offered?game={GAME}")[1]["guests"]}
    assert view["players"][0]["name"] in offered
    code, review = site.ask(f"/api/games/{view['name']}/review")
    assert code == 200
    assert review["setup"]["cast"][1] == "you"
    assert [len(own) for own in review["returns"]] == [2, 2]


def test_a_recorded_game_goes_on_after_a_restart_and_one_that_is_not_says_why_not(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**ASKED, "record": True})
        _, lost = site.ask("/api/games", ASKED)
        for _ in range(5):
            _, view = site.ask(f"/api/games/{view['name']}/turn", {"turn": view["turn"], "action": hunter(view)})
    with serving(tmp_path) as site:
        code, again = site.ask(f"/api/games/{view['name']}")
        assert code == 200
        assert {**again, "ended": None} == {**view, "ended": None}
        code, answer = site.ask(f"/api/games/{lost['name']}")
        assert code == 404
        assert "not recorded" in answer["error"]
        view = finish(site, view["name"], hunter)
        (row,) = site.ask("/api/games")[1]
        assert (row["name"], row["finished"], row["played"]) == (view["name"], True, 2)
    dataset = open_dataset(tmp_path / "games" / view["name"] / "episodes")
    assert dataset.header["episodes"] == 2
    assert dataset.load().episode.returns.tolist() == view["returns"]


def test_a_game_that_would_come_out_differently_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**ASKED, "record": True})
        site.ask(f"/api/games/{view['name']}/turn", {"turn": 0, "action": view["legal"][0]})
    file = tmp_path / "games" / view["name"] / "game.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    for changed, said in (
        ({**kept, "digests": ["0" * 12]}, "comes out differently at turn 1"),
        ({**kept, "version": "v0"}, "which has changed"),
        ({**kept, "setup": {**kept["setup"], "cast": ["you", "runs/gone"]}}, "there is no player"),
        ({"format": 1}, "does not describe a recorded game"),
    ):
        file.write_text(json.dumps(changed), encoding="utf-8")
        with serving(tmp_path) as site:
            code, answer = site.ask(f"/api/games/{view['name']}")
            assert code == 400
            assert said in answer["error"]


def test_two_servers_never_write_into_one_game(tmp_path: Path) -> None:
    with serving(tmp_path) as site, serving(tmp_path) as other:
        _, view = site.ask("/api/games", {**ASKED, "record": True})
        code, answer = other.ask(f"/api/games/{view['name']}")
        assert code == 400
        assert "has this game open" in answer["error"]
        assert site.ask(f"/api/games/{view['name']}/turn", {"turn": 0, "action": "STAY"})[0] == 200


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid"), reason="needs POSIX files")
def test_a_turn_that_cannot_be_recorded_is_played_and_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = site.ask("/api/games", {**ASKED, "record": True})

    def full(*_: Any) -> None:
        raise InputError("cannot write game.json: No space left on device")

    turn = f"/api/games/{view['name']}/turn"
    with monkeypatch.context() as patch:
        patch.setattr("hopplus.sitting.record.write_text", full)
        code, view = site.ask(turn, {"turn": 0, "action": "STAY"})
        assert code == 200
        assert "could not be recorded" in view["warning"]
    code, view = site.ask(turn, {"turn": 1, "action": "STAY"})
    assert (code, view["warning"], view["turn"]) == (200, None, 2)
    site.ask(f"/api/games/{view['name']}/stop", {})
    kept = json.loads((site.directory / "games" / view["name"] / "game.json").read_text(encoding="utf-8"))
    assert kept["actions"] == ["STAY", "STAY"]


@pytest.mark.parametrize("number", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_games_at_once_are_not_mixed_up(number: int, site: Site) -> None:
    started = [site.ask("/api/games", {**ASKED, "seed": seed})[1]["name"] for seed in range(number)]
    assert len(set(started)) == number
    with ThreadPoolExecutor(number) as pool:
        ended = list(pool.map(lambda name: finish(site, name, hunter), started))
    for seed, view in enumerate(ended):
        setup = Setup(GAME, ("you", "nh"), 2, seed)
        table = Table(setup, company_of(setup, site.directory))
        while not table.finished:
            table.act(hunter({"legal": list(table.legal), "turn": len(table.actions)}))
        assert view["returns"] == table.returns


def test_there_is_room_for_another_game_where_one_is_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "MOST_OPEN", 1)
    with serving(site.directory) as small:
        _, view = small.ask("/api/games", ASKED)
        code, answer = small.ask("/api/games", ASKED)
        assert code == 503
        assert "finish one of them first" in answer["error"]
        assert small.ask(f"/api/games/{view['name']}/stop", {})[0] == 200
        code, kept = small.ask("/api/games", {**ASKED, "record": True})
        assert code == 201
        small.ask(f"/api/games/{kept['name']}/turn", {"turn": 0, "action": "STAY"})
        code, view = small.ask("/api/games", ASKED)
        assert code == 201, "one that is recorded makes room"
        small.ask(f"/api/games/{view['name']}/stop", {})
        assert small.ask(f"/api/games/{kept['name']}")[1]["turn"] == 1, "and is opened again"


def test_a_recorded_game_is_let_go_of_when_the_server_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        _, view = site.ask("/api/games", {**ASKED, "record": True})
    record = open_record(tmp_path / "games" / view["name"], tmp_path)
    assert record.table.actions == []
    record.close()


def test_a_port_that_is_taken_and_a_directory_that_is_not_there_are_one_sentence(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(site.directory), "--port", str(site.port), "--no-browser"]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["serve", str(site.directory), "--port", "99999", "--no-browser"]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["serve", str(site.directory / "nowhere"), "--no-browser"]) == 2
    assert "there is no directory" in capsys.readouterr().err

"""Web server: runs, charts and reports, refused requests, and invalid options."""

import json
import shutil
import socket
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.main import main
from hopplus.human_play.guard import LARGEST_BODY, is_own_host
from serving import GAME, SETTINGS, Headers, Site, finish, hunter, serving


@pytest.fixture(scope="module")
def runs(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a directory with a small run."""
    directory = tmp_path_factory.mktemp("served")
    shutil.copytree(tiny_run, directory / "runs" / "small")
    return directory


@pytest.fixture(scope="module")
def site(runs: Path) -> Iterator[Site]:
    with serving(runs) as running:
        yield running


def files_below(directory: Path) -> dict[str, tuple[int, int]]:
    """Returns modification time and size of all files and directories."""
    files = {}
    for path in directory.rglob("*"):
        status = path.lstat()
        files[str(path)] = (status.st_mtime_ns, status.st_size if path.is_file() else 0)
    return files


# ------------------------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_and_shown_with_their_curves(site: Site) -> None:
    code, rows = site.ask("/api/runs")
    assert code == 200
    (row,) = [row for row in rows if row["run"] == "runs/small"]
    assert (row["algorithm"], row["game"], row["state"]) == ("ppo", GAME, "finished")
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
    original = metrics.read_bytes()
    seeds = json.loads((run / "config.json").read_text(encoding="utf-8"))["seeds"]
    lines = [{**json.loads(line), "steps": 10_000} for line in original.splitlines()[-len(seeds) :]]
    try:
        more = "".join(json.dumps(line) + "\n" for line in lines)
        metrics.write_bytes(original + more.encode() + b'{"seed": 0, "unfini')
        _, after = site.ask(f"/api/charts?run=runs/small&stamp={before['stamp']}")
    finally:
        metrics.write_bytes(original)

    def last_step(run: dict[str, Any]) -> float:
        (chart,) = [chart for chart in run["charts"] if chart["title"] == "Return in training"]
        return max(steps for line in chart["figure"]["data"] for steps in line["x"])

    assert last_step(after) == 10_000 > last_step(before)
    assert after["row"]["state"] == "unfinished"


def test_the_report_has_no_access_to_the_server(site: Site) -> None:
    _, _, headers = site.raw("GET", "/report?run=runs/small")
    assert "sandbox allow-scripts" in headers["content-security-policy"]
    assert "connect-src" not in headers["content-security-policy"]
    _, _, headers = site.raw("GET", "/")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_views_and_unrecorded_games_change_nothing_on_the_disk(site: Site) -> None:
    before = files_below(site.directory)
    for path in ("/", "/api/runs", "/api/run?run=runs/small", "/report?run=runs/small", "/api/games", "/play"):
        assert site.ask(path)[0] == 200
    code, view = site.ask("/api/games", SETTINGS)
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
def test_malformed_addresses_are_not_found(site: Site, path: str) -> None:
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
        refused, _ = site.ask("/api/games", {**SETTINGS, "cast": ["you", "runs/small"]})
    finally:
        link.unlink()
    assert code == refused == 404
    assert "leads out" in answer["error"]
    assert "leads out" in row["state"]
    assert site.ask("/api/games", {**SETTINGS, "cast": ["you", "runs/small"]})[0] == 201


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
def test_requests_of_other_sites_are_refused(
    site: Site, headers: Headers, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer, _ = site.raw("POST", "/api/games", json.dumps(SETTINGS), headers)
    assert status == code
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
        (json.dumps({**SETTINGS, "cast": ["you", "/etc/passwd"]}).encode(), 400),
        (json.dumps({**SETTINGS, "cast": ["you", "run(/etc,planner=tree)"]}).encode(), 400),
        (json.dumps({**SETTINGS, "cast": ["nh", "nh"]}).encode(), 400),
        (json.dumps({**SETTINGS, "cast": ["you", "you"]}).encode(), 400),
        (json.dumps({**SETTINGS, "cast": ["you"]}).encode(), 400),
        (json.dumps({**SETTINGS, "cast": [["you"], "nh"]}).encode(), 400),
        (json.dumps({**SETTINGS, "episodes": 10**9}).encode(), 400),
        (json.dumps({**SETTINGS, "episodes": "2"}).encode(), 400),
        (json.dumps({**SETTINGS, "seed": -1}).encode(), 400),
        (json.dumps({**SETTINGS, "game": "msh-4x4-2h1s:T=100000"}).encode(), 400),
        (json.dumps({**SETTINGS, "game": ["x"]}).encode(), 400),
        (json.dumps({**SETTINGS, "record": "yes"}).encode(), 400),
        (json.dumps({**SETTINGS, "more": 1}).encode(), 400),
    ],
)
def test_an_invalid_request_is_one_sentence(site: Site, body: bytes, code: int) -> None:
    status, answer = site.ask("/api/games", body)
    assert status == code
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


def test_a_port_in_use_and_a_missing_directory_are_one_sentence(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(site.directory), "--port", str(site.port), "--no-browser"]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["serve", str(site.directory), "--port", "99999", "--no-browser"]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["serve", str(site.directory / "nowhere"), "--no-browser"]) == 2
    assert "there is no directory" in capsys.readouterr().err

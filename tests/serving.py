"""Server of human play in a thread, and games of a simulated person through it."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import TINY_GAME
from hopplus.human_play.app import Server, make_app, open_port

GAME = TINY_GAME
SETTINGS = {"game": GAME, "cast": ["you", "nh"], "episodes": 2, "seed": 7}
"""Settings of a new game."""
Headers = dict[str, str]


@dataclass(frozen=True)
class Site:
    """Running server."""

    port: int
    directory: Path

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Returns status and answer of a GET request, or of a POST request if there is a body."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        code, answer, _ = self.raw("GET" if data is None else "POST", path, data, headers)
        return code, answer

    def raw(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> tuple[int, Any, Headers]:
        """Returns status, answer and headers of any request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content_type = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, {**content_type, **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text, dict(response.getheaders())


@contextmanager
def serving(directory: Path) -> Iterator[Site]:
    """Runs a server in a thread of this process."""
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


def finish(site: Site, name: str, choose: Any) -> dict[str, Any]:
    """Plays a game to its end and returns the last view."""
    _, view = site.ask(f"/api/games/{name}")
    while not view["finished"]:
        code, view = site.ask(f"/api/games/{name}/turn", {"turn": view["turn"], "action": choose(view)})
        assert code == 200, view
    return view


def hunter(view: dict[str, Any]) -> str:
    """Returns HARE where it is legal, else a legal action that depends only on the turn."""
    return "HARE" if "HARE" in view["legal"] else view["legal"][(7 * view["turn"]) % len(view["legal"])]

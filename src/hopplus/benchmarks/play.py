"""How long a person waits: sitting down, a turn, and a turn while many others play too, through the server."""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.benchmarks.machine import machine
from hopplus.games import make
from hopplus.sitting import guests_of

GAMES = ("msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4")
SCRIPTS = "random"
WAIT_SECONDS = 300


@contextmanager
def server(directory: Path, port: int = 0) -> Iterator[str]:
    """`hopplus serve` in a process of its own: its address."""
    command = [sys.executable, "-m", "hopplus.cli.main", "serve", str(directory), "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)


class Client:
    """A person's browser, as far as the server can tell."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS)

    def ask(self, path: str, body: Any = None) -> dict[str, Any]:
        """What the server answers; whoever is refused cannot go on."""
        kind = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request("GET" if body is None else "POST", path, json.dumps(body) if body else None, kind)
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise RuntimeError(answer["error"])
        return answer

    def sit_down(self, game: str, guest: str, episodes: int, seed: int) -> dict[str, Any]:
        """A game in which the same guest sits in all other seats."""
        cast = ["you", *[guest] * (make(game).num_players - 1)]
        return self.ask("/api/games", {"game": game, "cast": cast, "episodes": episodes, "seed": seed})

    def play(self, view: dict[str, Any], turns: int) -> list[float]:
        """Take so many turns, standing still: how long each answer took, in seconds. Every answer is to be about this
        game and this turn."""
        name, seconds = view["name"], []
        for _ in range(turns):
            began = time.perf_counter()
            after = self.ask(f"/api/games/{name}/turn", {"turn": view["turn"], "action": "STAY"})
            seconds.append(time.perf_counter() - began)
            if (after["name"], after["turn"]) != (name, view["turn"] + 1):
                raise RuntimeError(f"an answer of another game: {after['name']}, turn {after['turn']}")
            view = after
        return seconds


def measure(turns: int, at_once: int, progress: Callable[[float], None]) -> dict[str, Any]:
    """The figures of `hopplus bench play`."""
    places = [(game, guest.word) for game in GAMES for guest in guests_of(make(game), None) if _is_timed(guest)]
    rows = []
    with tempfile.TemporaryDirectory() as directory, server(Path(directory)) as address:
        for number, (game, guest) in enumerate(places):
            rows.append({"game": game, "guest": guest, **_alone(address, game, guest, turns)})
            progress((number + 1) / (len(places) + 1))
        many = _together(address, *places[0], turns, at_once)
    progress(1.0)
    return {"rows": rows, "together": many, "turns": turns, "machine": machine()}


def _is_timed(guest: Any) -> bool:
    return guest.kind == "shipped" or guest.word == SCRIPTS


def _alone(address: str, game: str, guest: str, turns: int) -> dict[str, Any]:
    """One game by itself. Keys: `first_seconds`, `again_seconds` until one sits at a table, for the first time and
    after that; and those of `_told`."""
    client, waited, views = Client(address), [], []
    for seed in range(2):
        began = time.perf_counter()
        views.append(client.sit_down(game, guest, 1 + turns // 2, seed))
        waited.append(time.perf_counter() - began)
    return {"first_seconds": waited[0], "again_seconds": waited[1], **_told(client.play(views[-1], turns))}


def _together(address: str, game: str, guest: str, turns: int, at_once: int) -> dict[str, Any]:
    """Many games at once, each by a client of its own, who takes a turn as soon as the one before was answered."""
    clients = [Client(address) for _ in range(at_once)]
    views = [client.sit_down(game, guest, 1 + turns // 2, seed) for seed, client in enumerate(clients)]
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        waited = list(pool.map(lambda pair: pair[0].play(pair[1], turns), zip(clients, views, strict=True)))
    taken = time.perf_counter() - began
    seconds = [second for own in waited for second in own]
    told = {"game": game, "guest": guest, "games": at_once, "turns_per_second": len(seconds) / taken}
    return {**told, **_told(seconds)}


def _told(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds of an answer: `median_ms`, `p95_ms`, `most_ms`."""
    median, high, most = np.quantile(np.array(seconds) * 1e3, (0.5, 0.95, 1.0))
    return {"median_ms": float(median), "p95_ms": float(high), "most_ms": float(most)}

"""Latency of human play through the server: start of a game, single turns, and turns of many games at once."""

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
from hopplus.human_play import available_players

GAMES = ("msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4")
SCRIPTS = "random"
WAIT_SECONDS = 300


@contextmanager
def server(directory: Path, port: int = 0) -> Iterator[str]:
    """Starts `hopplus serve` in its own process, and yields its address."""
    command = [sys.executable, "-m", "hopplus.cli.main", "serve", str(directory), "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)


class Client:
    """Client of the server, in place of a browser."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS)

    def ask(self, path: str, body: Any = None) -> dict[str, Any]:
        """Returns the server's answer. Raises RuntimeError for an error."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request("GET" if body is None else "POST", path, json.dumps(body) if body else None, headers)
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise RuntimeError(answer["error"])
        return answer

    def start_game(self, game: str, guest: str, episodes: int, seed: int) -> dict[str, Any]:
        """Starts a game with the same co-player in all other seats."""
        cast = ["you", *[guest] * (make(game).num_players - 1)]
        return self.ask("/api/games", {"game": game, "cast": cast, "episodes": episodes, "seed": seed})

    def play(self, view: dict[str, Any], turns: int) -> list[float]:
        """Takes a number of idle turns, and returns the latency of each in seconds.

        Raises RuntimeError if an answer is of another game or turn.
        """
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
    """Returns the figures of `hopplus bench play`."""
    pairs = [(game, guest.word) for game in GAMES for guest in available_players(make(game), None) if _is_timed(guest)]
    rows = []
    with tempfile.TemporaryDirectory() as directory, server(Path(directory)) as address:
        for number, (game, guest) in enumerate(pairs):
            rows.append({"game": game, "guest": guest, **_alone(address, game, guest, turns)})
            progress((number + 1) / (len(pairs) + 1))
        together = _together(address, *pairs[0], turns, at_once)
    progress(1.0)
    return {"rows": rows, "together": together, "turns": turns, "machine": machine()}


def _is_timed(guest: Any) -> bool:
    return guest.kind == "pretrained" or guest.word == SCRIPTS


def _alone(address: str, game: str, guest: str, turns: int) -> dict[str, Any]:
    """Times a single game.

    Returns:
        `first_seconds` and `again_seconds` (start of the first and of a second game), and the keys of `_latencies`.
    """
    client, waited, views = Client(address), [], []
    for seed in range(2):
        began = time.perf_counter()
        views.append(client.start_game(game, guest, 1 + turns // 2, seed))
        waited.append(time.perf_counter() - began)
    return {"first_seconds": waited[0], "again_seconds": waited[1], **_latencies(client.play(views[-1], turns))}


def _together(address: str, game: str, guest: str, turns: int, at_once: int) -> dict[str, Any]:
    """Times many games at once, each by its own client, which takes its next turn after every answer."""
    clients = [Client(address) for _ in range(at_once)]
    views = [client.start_game(game, guest, 1 + turns // 2, seed) for seed, client in enumerate(clients)]
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        waited = list(pool.map(lambda pair: pair[0].play(pair[1], turns), zip(clients, views, strict=True)))
    elapsed = time.perf_counter() - began
    seconds = [second for by_client in waited for second in by_client]
    figures = {"game": game, "guest": guest, "games": at_once, "turns_per_second": len(seconds) / elapsed}
    return {**figures, **_latencies(seconds)}


def _latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Returns the latency in milliseconds: `median_ms`, `p95_ms`, `most_ms`."""
    median, high, most = np.quantile(np.array(seconds) * 1e3, (0.5, 0.95, 1.0))
    return {"median_ms": float(median), "p95_ms": float(high), "most_ms": float(most)}

"""The application: which address answers with what."""

import json
import os
import socket
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from hopplus.errors import InputError
from hopplus.server.games import Busy, Conflict, Games, view
from hopplus.server.guard import Guard, logger
from hopplus.server.shelf import NotFound, Shelf
from hopplus.training.run import as_json

SHELL = "index.html"
PAGES = ("/", "/run", "/play", "/games/{name}")
"""Addresses of the page; what each shows, its script decides."""
ASSETS = {
    "app.js": ("hopplus.server", "text/javascript"),
    "app.css": ("hopplus.server", "text/css"),
    "page.js": ("hopplus.report", "text/javascript"),
    "page.css": ("hopplus.report", "text/css"),
}
"""Files that are sent, and the packages in which they lie."""
PLOTLY = "plotly.js"
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"
)
"""A report has its scripts in itself; it may do nothing but show itself, and has no access to this server."""
FIRST_GAME = "msh-4x4-4h1s"
CODES: dict[type[InputError], int] = {NotFound: 404, Conflict: 409, Busy: 503}
GRACE_SECONDS = 3
"""So long may answers take that are under way when the server is asked to end."""
AT_ONCE = 4
"""Answers that are computed at once: more would only get in each other's way. What takes seconds, such as a report, is
made one at a time beside them, so that nobody's turn has to wait for it."""


class Site:
    """What the addresses answer with, for the runs and games below a directory."""

    def __init__(self, directory: Path) -> None:
        self.shelf, self.games = Shelf(directory), Games(directory)
        self.at_once, self.one_by_one = CapacityLimiter(AT_ONCE), CapacityLimiter(1)

    async def quick(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await to_thread.run_sync(function, *arguments, limiter=self.at_once)

    async def slow(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await to_thread.run_sync(function, *arguments, limiter=self.one_by_one)

    # -- runs

    async def runs(self, request: Request) -> Response:
        return Json(await self.quick(self.shelf.rows))

    async def run(self, request: Request) -> Response:
        return Json(await self.quick(self.shelf.shown, _word(request, "run")))

    async def charts(self, request: Request) -> Response:
        return Json(await self.quick(self.shelf.charts, _word(request, "run"), _word(request, "stamp")))

    async def replays(self, request: Request) -> Response:
        return Json(await self.slow(self.shelf.replays, _word(request, "run")))

    async def report(self, request: Request) -> Response:
        page = await self.slow(self.shelf.page, request.query_params.getlist("run"))
        return HTMLResponse(page, headers={"content-security-policy": REPORT_POLICY})

    # -- games

    async def offered(self, request: Request) -> Response:
        return Json(await self.quick(self.games.offered, _word(request, "game") or FIRST_GAME))

    async def all_games(self, request: Request) -> Response:
        return Json(await self.quick(self.games.rows))

    async def start(self, request: Request) -> Response:
        return Json(await self.slow(self._started, await _posted(request)), 201)

    async def game(self, request: Request) -> Response:
        return Json(await self.quick(self._viewed, request.path_params["name"]))

    async def turn(self, request: Request) -> Response:
        said = await _posted(request)
        name = request.path_params["name"]
        try:
            return Json(await self.quick(self.games.turn, name, said.get("turn"), said.get("action")))
        except Conflict as error:
            return Json({"error": str(error), "view": await self.quick(self._viewed, name)}, CODES[Conflict])

    async def stop(self, request: Request) -> Response:
        await _posted(request)
        return Json(await self.quick(self.games.stop, request.path_params["name"]))

    async def review(self, request: Request) -> Response:
        return Json(await self.slow(self.games.review, request.path_params["name"]))

    def _started(self, asked: dict[str, Any]) -> dict[str, Any]:
        return view(self.games.start(asked))

    def _viewed(self, name: str) -> dict[str, Any]:
        with self.games.at(name) as game:
            return view(game)


class Json(JSONResponse):
    """JSON in which a figure that is not a number is null."""

    def render(self, content: Any) -> bytes:
        return as_json(content).encode()


def make_app(directory: Path, host: str = "127.0.0.1") -> Guard:
    """The application for the runs and games below a directory, of a server that is bound to a host."""
    site = Site(directory)
    routes = [
        *(Route(path, _shell) for path in PAGES),
        Route("/assets/{name}", _asset),
        Route("/report", site.report),
        Route("/api/runs", site.runs),
        Route("/api/run", site.run),
        Route("/api/charts", site.charts),
        Route("/api/replays", site.replays),
        Route("/api/offered", site.offered),
        Route("/api/games", site.all_games, methods=["GET"]),
        Route("/api/games", site.start, methods=["POST"]),
        Route("/api/games/{name}", site.game),
        Route("/api/games/{name}/turn", site.turn, methods=["POST"]),
        Route("/api/games/{name}/stop", site.stop, methods=["POST"]),
        Route("/api/games/{name}/review", site.review),
    ]
    handlers: dict[Any, Any] = {InputError: _told, 404: _unknown, 405: _unknown, Exception: _broken}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host, site.games.close)


def open_port(host: str, port: int) -> socket.socket:
    """A port that is listened at; 0: any that is free. InputError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two servers have one port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        opened.close()
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot listen at {host}, port {port}: {said}; choose another --port") from None
    return opened


class Server(uvicorn.Server):
    """Serves an application at an open port, in whatever thread it is run, until it is asked to end."""

    def __init__(self, app: Guard, opened: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        quiet = {"log_level": "warning", "access_log": False, "server_header": False}
        plain = {"http": "h11", "ws": "none", "lifespan": "off", "timeout_graceful_shutdown": GRACE_SECONDS}
        super().__init__(uvicorn.Config(app, **quiet, **plain))
        self.app, self.opened, self.ready = app, opened, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    def serve_on(self) -> None:
        """Serve until the end."""
        try:
            self.run(sockets=[self.opened])
        finally:
            self.app.close()


# ---------------------------------------------------------------------------------------------- single answers


async def _shell(request: Request) -> Response:
    return HTMLResponse(_text("hopplus.server", SHELL))


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name == PLOTLY:
        return Response(_plotly(), media_type="text/javascript", headers={"cache-control": "max-age=86400"})
    if name not in ASSETS:
        return await _unknown(request)
    package, kind = ASSETS[name]
    return Response(_text(package, name), media_type=kind)


def _text(package: str, name: str) -> str:
    return (resources.files(package) / "assets" / name).read_text("utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _word(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


async def _posted(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InputError("what was sent is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("what is sent here is a JSON object")
    return found


async def _told(request: Request, error: Exception) -> Response:
    """A user's mistake, in one sentence."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 400)
    logger.warning("refused (%d): %s %r: %s", code, request.method, request.scope["raw_path"][:200], error)
    return Json({"error": str(error)}, code)


async def _unknown(request: Request, error: Exception | None = None) -> Response:
    return await _told(request, NotFound("there is nothing at this address"))


async def _broken(request: Request, error: Exception) -> Response:
    """A mistake of ours: the server goes on, and its log has the rest."""
    logger.exception("failed: %s %r", request.method, request.scope["raw_path"][:200], exc_info=error)
    return Json({"error": "something went wrong here: the server's output says what"}, 500)

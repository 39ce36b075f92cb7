"""Web application of `hopplus serve`: routes, request handlers and the server process."""

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

from hopplus.core.errors import InputError
from hopplus.human_play.games import BusyError, ConflictError, LiveGames, view
from hopplus.human_play.guard import Guard, logger
from hopplus.human_play.run_index import NotFoundError, RunIndex
from hopplus.training.run import as_json

SHELL = "index.html"
PAGES = ("/", "/run", "/play", "/games/{name}")
"""Paths that return the page shell; app.js selects the view by path."""
ASSETS = {
    **{
        f"{name}.js": ("hopplus.human_play", "text/javascript")
        for name in ("common", "runs", "session", "review", "app")
    },
    "app.css": ("hopplus.human_play", "text/css"),
    "page.js": ("hopplus.visualization", "text/javascript"),
    "page.css": ("hopplus.visualization", "text/css"),
}
"""Static files with their package and media type."""
PLOTLY = "plotly.js"
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"
)
"""Content security policy of a report: inline scripts only, no access to this server."""
FIRST_GAME = "msh-4x4-4h1s"
CODES: dict[type[InputError], int] = {NotFoundError: 404, ConflictError: 409, BusyError: 503}
GRACE_SECONDS = 3
"""Time that pending responses get when the server shuts down."""
AT_ONCE = 4
"""Concurrent quick requests; more would only compete for the processor. Slow requests, such as reports, run one at a
time in their own queue, so that no turn waits for them."""


class Site:
    """Request handlers for the runs and games below a directory."""

    def __init__(self, directory: Path) -> None:
        self.run_index, self.games = RunIndex(directory), LiveGames(directory)
        self.quick_limiter, self.slow_limiter = CapacityLimiter(AT_ONCE), CapacityLimiter(1)

    async def quick(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a function in a thread, at most `AT_ONCE` at a time."""
        return await to_thread.run_sync(function, *arguments, limiter=self.quick_limiter)

    async def slow(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a function that may take seconds in a thread, one at a time."""
        return await to_thread.run_sync(function, *arguments, limiter=self.slow_limiter)

    # -- runs

    async def runs(self, request: Request) -> Response:
        """Returns all runs."""
        return Json(await self.quick(self.run_index.rows))

    async def run(self, request: Request) -> Response:
        """Returns one run with its tables, charts and pictures."""
        return Json(await self.quick(self.run_index.details, _query(request, "run")))

    async def charts(self, request: Request) -> Response:
        """Returns the charts of a run if they have changed since `stamp`."""
        return Json(await self.quick(self.run_index.charts, _query(request, "run"), _query(request, "stamp")))

    async def replays(self, request: Request) -> Response:
        """Plays episodes with the policies of a run and returns them for the replay viewer."""
        return Json(await self.slow(self.run_index.replays, _query(request, "run")))

    async def report(self, request: Request) -> Response:
        """Returns the report page of one or several runs."""
        page = await self.slow(self.run_index.page, request.query_params.getlist("run"))
        return HTMLResponse(page, headers={"content-security-policy": REPORT_POLICY})

    # -- games

    async def options(self, request: Request) -> Response:
        """Returns the games and co-players to choose from."""
        return Json(await self.quick(self.games.options, _query(request, "game") or FIRST_GAME))

    async def all_games(self, request: Request) -> Response:
        """Returns the recorded games."""
        return Json(await self.quick(self.games.rows))

    async def start(self, request: Request) -> Response:
        """Starts a game."""
        return Json(await self.slow(self._start, await _read_json(request)), 201)

    async def game(self, request: Request) -> Response:
        """Returns the current view of a game."""
        return Json(await self.quick(self._view, request.path_params["name"]))

    async def turn(self, request: Request) -> Response:
        """Takes one turn of a game; a conflict returns the current view with the error."""
        body = await _read_json(request)
        name = request.path_params["name"]
        try:
            return Json(await self.quick(self.games.turn, name, body.get("turn"), body.get("action")))
        except ConflictError as error:
            return Json({"error": str(error), "view": await self.quick(self._view, name)}, CODES[ConflictError])

    async def stop(self, request: Request) -> Response:
        """Ends a session early."""
        await _read_json(request)
        return Json(await self.quick(self.games.stop, request.path_params["name"]))

    async def review(self, request: Request) -> Response:
        """Returns the review of a finished session."""
        return Json(await self.slow(self.games.review, request.path_params["name"]))

    def _start(self, settings: dict[str, Any]) -> dict[str, Any]:
        return view(self.games.start(settings))

    def _view(self, name: str) -> dict[str, Any]:
        with self.games.at(name) as game:
            return view(game)


class Json(JSONResponse):
    """JSON response that writes NaN and infinity as null."""

    def render(self, content: Any) -> bytes:
        return as_json(content).encode()


def make_app(directory: Path, host: str = "127.0.0.1") -> Guard:
    """Returns the application for the runs and games below a directory; `host` is the address the server binds to."""
    site = Site(directory)
    routes = [
        *(Route(path, _shell) for path in PAGES),
        Route("/assets/{name}", _asset),
        Route("/report", site.report),
        Route("/api/runs", site.runs),
        Route("/api/run", site.run),
        Route("/api/charts", site.charts),
        Route("/api/replays", site.replays),
        Route("/api/options", site.options),
        Route("/api/games", site.all_games, methods=["GET"]),
        Route("/api/games", site.start, methods=["POST"]),
        Route("/api/games/{name}", site.game),
        Route("/api/games/{name}/turn", site.turn, methods=["POST"]),
        Route("/api/games/{name}/stop", site.stop, methods=["POST"]),
        Route("/api/games/{name}/review", site.review),
    ]
    handlers: dict[Any, Any] = {InputError: _user_error, 404: _not_found, 405: _not_found, Exception: _internal_error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host, site.games.close)


def open_port(host: str, port: int) -> socket.socket:
    """Returns a socket bound to a port, or to any free port for 0. Raises InputError if the port is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on other systems the option lets two servers share one port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot listen at {host}, port {port}: {reason}; choose another --port") from None
    return opened


class Server(uvicorn.Server):
    """Serves an application on an open socket, in the thread that calls `serve_on`, until `should_exit` is set."""

    def __init__(self, app: Guard, opened: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        quiet = {"log_level": "warning", "access_log": False, "server_header": False}
        plain = {"http": "h11", "ws": "none", "lifespan": "off", "timeout_graceful_shutdown": GRACE_SECONDS}
        super().__init__(uvicorn.Config(app, **quiet, **plain))
        self.app, self.opened, self.ready = app, opened, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    def serve_on(self) -> None:
        """Serves until shutdown, then closes the application."""
        try:
            self.run(sockets=[self.opened])
        finally:
            self.app.close()


# ---------------------------------------------------------------------------------------------- single responses


async def _shell(request: Request) -> Response:
    return HTMLResponse(_text("hopplus.human_play", SHELL))


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name == PLOTLY:
        return Response(_plotly(), media_type="text/javascript", headers={"cache-control": "max-age=86400"})
    if name not in ASSETS:
        return await _not_found(request)
    package, media_type = ASSETS[name]
    return Response(_text(package, name), media_type=media_type)


def _text(package: str, name: str) -> str:
    return (resources.files(package) / "assets" / name).read_text("utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _query(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


async def _read_json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InputError("the request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise InputError("the request body must be a JSON object")
    return body


async def _user_error(request: Request, error: Exception) -> Response:
    """Returns a user's mistake as one sentence."""
    code = next((code for error_type, code in CODES.items() if isinstance(error, error_type)), 400)
    logger.warning("refused (%d): %s %r: %s", code, request.method, request.scope["raw_path"][:200], error)
    return Json({"error": str(error)}, code)


async def _not_found(request: Request, error: Exception | None = None) -> Response:
    return await _user_error(request, NotFoundError("there is no page at this address"))


async def _internal_error(request: Request, error: Exception) -> Response:
    """Logs an unexpected exception; the server keeps running."""
    logger.exception("failed: %s %r", request.method, request.scope["raw_path"][:200], exc_info=error)
    return Json({"error": "internal error: see the output of the server"}, 500)

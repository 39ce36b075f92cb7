"""The runs below a directory: which there are, how they stand, and what is to be seen of each. Nothing is written."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hopplus.errors import InputError
from hopplus.report.page import learning_charts, page_of, part_of, read_told
from hopplus.report.replay import SETS, replays
from hopplus.sitting.guests import run_directories
from hopplus.training.overview import describe, unreadable
from hopplus.training.run import CONFIG, EVALUATION, METRICS, Run, check_training, is_locked, read_run

MOST_KEPT = 8
"""Pages and replays that are kept until their run changes: making them takes seconds."""
Stamp = tuple[Any, ...]


class NotFound(InputError):
    """There is nothing of that name here."""


class Shelf:
    """The runs below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows: dict[Path, tuple[Stamp, dict[str, Any]]] = {}
        self._made: dict[tuple[str, ...], tuple[Stamp, Any]] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """All runs, with the keys of `hopplus runs --json`, `run` being where each lies below the directory."""
        return [self._row(path) for path in run_directories(self.directory)]

    def run(self, name: str) -> Run:
        """A run by where it lies below the directory; NotFound for anything else, or if a link in it leads out."""
        path = inside(self.directory, name)
        if not (path / CONFIG).is_file():
            raise NotFound(f"there is no run {name!r} here")
        check_links(self.directory, path)
        return read_run(path)

    def stamp(self, run: Run) -> str:
        """Another one as soon as something has changed that is shown of a run."""
        return hashlib.sha256(repr(_stamp(run.path)).encode()).hexdigest()[:16]

    def shown(self, name: str) -> dict[str, Any]:
        """A run for the page. Keys: `run`, `stamp`, `row` as in `rows`, `state`, `remarks`, `tables` (with `caption`,
        `head`, `rows`), `settings`, `charts` as `charts` has them, `pictures` (with `title`, `data`)."""
        run = self.run(name)
        part = part_of(read_told(run, name), None)
        return {
            "run": name,
            "stamp": self.stamp(run),
            "row": self._row(run.path),
            "state": part.state,
            "remarks": part.remarks,
            "tables": [vars(table) for table in part.tables],
            "settings": vars(part.settings),
            "charts": [_chart(chart) for chart in part.charts],
            "pictures": [vars(picture) for picture in part.pictures],
            "is_training": "fit" not in run.config,
        }

    def charts(self, name: str, stamp: str) -> dict[str, Any]:
        """A run's curves while it trains: `stamp`, and unless it is the one given, `row` and `charts`, each with
        `title`, `alternative` and `figure` (plotly's data and layout)."""
        run = self.run(name)
        found: dict[str, Any] = {"stamp": self.stamp(run)}
        if found["stamp"] != stamp:
            found["row"] = self._row(run.path)
            found["charts"] = [_chart(chart) for chart in learning_charts(run, run.metrics())]
        return found

    def replays(self, name: str) -> list[dict[str, Any]]:
        """Episodes played anew by what a run has learnt."""
        run = check_training(self.run(name))
        return self._kept(("replays", name), [run], lambda: replays(run, SETS))

    def page(self, names: Sequence[str]) -> str:
        """The report of one or several runs, made anew: no page that lies on the disk is ever sent."""
        runs = [self.run(name) for name in names]
        if not runs:
            raise NotFound("name at least one run, as in /report?run=NAME")
        return self._kept(("page", *names), runs, lambda: page_of(runs))

    def _row(self, path: Path) -> dict[str, Any]:
        stamp = _stamp(path)
        kept = self._rows.get(path)
        if kept is None or kept[0] != stamp:
            name = path.relative_to(self.directory).as_posix()
            try:
                check_links(self.directory, path)
                row = describe(path)
            except NotFound as error:
                row = unreadable(path, error)
            row |= {"run": name, "changed": max((part[0] for part in stamp[1:] if part), default=0)}
            self._rows[path] = kept = (stamp, row)
        return kept[1]

    def _kept(self, name: tuple[str, ...], runs: Sequence[Run], make: Callable[[], Any]) -> Any:
        """What was made already of runs that are as they were, or else is made now; the oldest makes room."""
        stamp = tuple(_stamp(run.path) for run in runs)
        with self._lock:
            found = self._made.pop(name, None)
            if found is None or found[0] != stamp:
                found = (stamp, make())
            self._made[name] = found
            while len(self._made) > MOST_KEPT:
                self._made.pop(next(iter(self._made)))
        return found[1]


def inside(directory: Path, name: str) -> Path:
    """A path below a directory; NotFound where a name leads out of it, by dots, as a whole path, or through a link."""
    parts = PurePosixPath(name)
    odd = not name or parts.is_absolute() or ".." in parts.parts or any(sign in name for sign in ("\\", "\0", ":"))
    if odd or not (directory / parts).resolve().is_relative_to(directory.resolve()):
        raise NotFound(f"there is nothing called {name[:100]!r} here")
    return directory / parts


def check_links(directory: Path, run: Path) -> None:
    """NotFound where a link in a run leads out of the directory: what lies there is not to be seen."""
    root = directory.resolve()
    for file in run.rglob("*"):
        if file.is_symlink() and not file.resolve().is_relative_to(root):
            raise NotFound(f"the run {run.name!r} has a link that leads out of the directory that is served")


def _stamp(path: Path) -> Stamp:
    """Whether somebody trains there, and when its files were changed."""
    found: list[tuple[int, int] | None] = []
    for file in (CONFIG, METRICS, EVALUATION, f"{EVALUATION}/final.json"):
        try:
            status = (path / file).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return (is_locked(path), *found)


def _chart(chart: Any) -> dict[str, Any]:
    return {"title": chart.title, "alternative": chart.alternative, "figure": json.loads(chart.figure.to_json())}

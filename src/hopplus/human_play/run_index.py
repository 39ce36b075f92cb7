"""Read-only index of the runs below a directory: list, details, charts, replays and reports."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hopplus.core.errors import InputError
from hopplus.human_play.available_players import run_directories
from hopplus.training.run import CONFIG, EVALUATION, METRICS, Run, check_training, is_locked, read_run
from hopplus.training.run_list import describe, unreadable
from hopplus.visualization.replay import SETS, replays
from hopplus.visualization.report import page_of
from hopplus.visualization.report_charts import learning_charts
from hopplus.visualization.report_sections import read_figures, section_of

CACHE_SIZE = 8
"""Cached reports and replays. They take seconds to compute and stay valid until their run changes."""
Stamp = tuple[Any, ...]


class NotFoundError(InputError):
    """Requested item does not exist."""


class RunIndex:
    """Runs below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows: dict[Path, tuple[Stamp, dict[str, Any]]] = {}
        self._cache: dict[tuple[str, ...], tuple[Stamp, Any]] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Returns all runs with the keys of `hopplus runs --json`; `run` is the path relative to the directory."""
        return [self._row(path) for path in run_directories(self.directory)]

    def run(self, name: str) -> Run:
        """Returns a run by its relative path. Raises NotFoundError if there is none, or if a link in it leads out."""
        path = inside(self.directory, name)
        if not (path / CONFIG).is_file():
            raise NotFoundError(f"there is no run {name!r} here")
        check_links(self.directory, path)
        return read_run(path)

    def stamp(self, run: Run) -> str:
        """Returns a hash that changes with the displayed files of a run."""
        return hashlib.sha256(repr(_stamp(run.path)).encode()).hexdigest()[:16]

    def details(self, name: str) -> dict[str, Any]:
        """Returns a run for the page.

        Returns:
            `run`, `stamp`, `row` (see `rows`), `state`, `remarks`, `tables` (`caption`, `head`, `rows`), `settings`,
            `charts` (see `charts`), `pictures` (`title`, `data`) and `is_training`.
        """
        run = self.run(name)
        section = section_of(read_figures(run, name), None)
        return {
            "run": name,
            "stamp": self.stamp(run),
            "row": self._row(run.path),
            "state": section.state,
            "remarks": section.remarks,
            "tables": [vars(table) for table in section.tables],
            "settings": vars(section.settings),
            "charts": [_chart(chart) for chart in section.charts],
            "pictures": [vars(picture) for picture in section.pictures],
            "is_training": "fit" not in run.config,
        }

    def charts(self, name: str, stamp: str) -> dict[str, Any]:
        """Returns the charts of a run if it has changed.

        Returns:
            `stamp`; if it differs from the argument also `row` and `charts`, each with `title`, `alternative` and
            `figure` (plotly's data and layout).
        """
        run = self.run(name)
        answer: dict[str, Any] = {"stamp": self.stamp(run)}
        if answer["stamp"] != stamp:
            answer["row"] = self._row(run.path)
            answer["charts"] = [_chart(chart) for chart in learning_charts(run, run.metrics())]
        return answer

    def replays(self, name: str) -> list[dict[str, Any]]:
        """Plays episodes with the policies of a run and returns them for the replay viewer."""
        run = check_training(self.run(name))
        return self._cached(("replays", name), [run], lambda: replays(run, SETS))

    def page(self, names: Sequence[str]) -> str:
        """Renders the report of one or several runs from their files; report files on disk are never served."""
        runs = [self.run(name) for name in names]
        if not runs:
            raise NotFoundError("name at least one run, as in /report?run=NAME")
        return self._cached(("page", *names), runs, lambda: page_of(runs))

    def _row(self, path: Path) -> dict[str, Any]:
        stamp = _stamp(path)
        entry = self._rows.get(path)
        if entry is None or entry[0] != stamp:
            name = path.relative_to(self.directory).as_posix()
            try:
                check_links(self.directory, path)
                row = describe(path)
            except NotFoundError as error:
                row = unreadable(path, error)
            row |= {"run": name, "changed": max((file[0] for file in stamp[1:] if file), default=0)}
            self._rows[path] = entry = (stamp, row)
        return entry[1]

    def _cached(self, key: tuple[str, ...], runs: Sequence[Run], make: Callable[[], Any]) -> Any:
        """Returns the cached value if the runs are unchanged, else computes it; evicts the least recently used."""
        stamp = tuple(_stamp(run.path) for run in runs)
        with self._lock:
            entry = self._cache.pop(key, None)
            if entry is None or entry[0] != stamp:
                entry = (stamp, make())
            self._cache[key] = entry
            while len(self._cache) > CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)))
        return entry[1]


def inside(directory: Path, name: str) -> Path:
    """Returns a path below a directory.

    Raises NotFoundError if the name leads out of it: by dots, as an absolute path, or through a link.
    """
    parts = PurePosixPath(name)
    odd = not name or parts.is_absolute() or ".." in parts.parts or any(char in name for char in ("\\", "\0", ":"))
    if odd or not (directory / parts).resolve().is_relative_to(directory.resolve()):
        raise NotFoundError(f"there is no {name[:100]!r} in the served directory")
    return directory / parts


def check_links(directory: Path, run: Path) -> None:
    """Raises NotFoundError if a link in a run leads out of the directory, whose outside must stay hidden."""
    root = directory.resolve()
    for file in run.rglob("*"):
        if file.is_symlink() and not file.resolve().is_relative_to(root):
            raise NotFoundError(f"the run {run.name!r} has a link that leads out of the served directory")


def _stamp(path: Path) -> Stamp:
    """Returns whether the run is locked by a training, and the time and size of its files."""
    files: list[tuple[int, int] | None] = []
    for file in (CONFIG, METRICS, EVALUATION, f"{EVALUATION}/final.json"):
        try:
            status = (path / file).stat()
            files.append((status.st_mtime_ns, status.st_size))
        except OSError:
            files.append(None)
    return (is_locked(path), *files)


def _chart(chart: Any) -> dict[str, Any]:
    return {"title": chart.title, "alternative": chart.alternative, "figure": json.loads(chart.figure.to_json())}

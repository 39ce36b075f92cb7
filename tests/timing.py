"""Time profile of the tests: `pytest --times FILE` writes it as JSON and prints it (`make test-times`).

`python tests/timing.py FILE` prints the tables of a saved file.

A test's wall time is divided into phases. `compile` is JAX's own measure of tracing, lowering, compiling and reading
compiled programs from its cache, `processes` the wait for child processes, `run` the rest.
"""

import json
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

COMPILE_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
BACKEND = COMPILE_EVENTS[-1]
CACHE_HIT = "/jax/compilation_cache/cache_hits"
PHASES = ("compile", "processes", "run")
SLOWEST = 30


class Meter:
    """Counter of compile seconds, programs and seconds of waiting for child processes, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.totals: dict[str, float] = defaultdict(float)

    def add(self, name: str, amount: float) -> None:
        """Add to a total."""
        with self._lock:
            self.totals[name] += amount

    def install(self) -> None:
        """Listen to JAX's events and wrap the waits of `subprocess.Popen`."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        waits, communicate = subprocess.Popen.wait, subprocess.Popen.communicate
        depth = threading.local()

        def timed(original: Any) -> Any:
            def waiting(*args: Any, **kwargs: Any) -> Any:
                if getattr(depth, "inside", False):  # communicate() calls wait()
                    return original(*args, **kwargs)
                depth.inside, started = True, time.perf_counter()
                try:
                    return original(*args, **kwargs)
                finally:
                    depth.inside = False
                    self.add("processes", time.perf_counter() - started)

            return waiting

        subprocess.Popen.wait, subprocess.Popen.communicate = timed(waits), timed(communicate)

    def _on_duration(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        if event in COMPILE_EVENTS:
            self._add_compile(threading.get_ident(), time.perf_counter(), duration_secs)
        if event == BACKEND:
            self.add("programs", 1)

    def _add_compile(self, thread: int, end: float, seconds: float) -> None:
        """Add an interval; intervals inside it (a function traced within another) were reported before, and count
        once."""
        with self._lock:
            intervals = self._intervals[thread]
            while intervals and intervals[-1][0] >= end - seconds:
                self.totals["compile"] -= intervals.pop()[1]
            intervals.append((end - seconds, seconds))
            self.totals["compile"] += seconds

    def _on_event(self, event: str, **_: Any) -> None:
        if event == CACHE_HIT:
            self.add("cache_hits", 1)


class Recorder:
    """Plugin of a process that runs tests: attaches the phases of each test to its last report."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._meter.install()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._before = dict(self._meter.totals)
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        if call.when == "teardown":
            now = self._meter.totals
            spent = {name: now[name] - self._before.get(name, 0.0) for name in now}
            unit = 1 if sys.platform == "darwin" else 1024
            spent["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
            item.user_properties.append(("times", spent))
        yield


class Summary:
    """Plugin of the main process: sums the phases, writes the file and prints the tables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.perf_counter()
        self._tests: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._peaks: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests[report.nodeid]
        test["seconds"] += report.duration
        if report.when != "teardown":
            return
        spent = dict(report.user_properties).get("times")
        if isinstance(spent, dict):
            worker = getattr(report, "worker_id", "main")
            self._peaks[worker] = max(self._peaks[worker], spent.pop("peak_bytes"))
            test.update(spent)
        waited = min(test["processes"], test["seconds"])
        compiling = min(test["compile"], test["seconds"] - waited)
        test.update(processes=waited, compile=compiling, run=test["seconds"] - waited - compiling)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, test in self._tests.items():
            for key, amount in {**test, "tests": 1}.items():
                files[name.partition("::")[0]][key] += amount
                files["all"][key] += amount
        total = {
            "wall_seconds": time.perf_counter() - self._started,
            "peak_gigabytes": sum(self._peaks.values()) / 1e9,
            "files": {name: rounded(files[name]) for name in by_seconds(files)},
            "dearest": {name: rounded(self._tests[name]) for name in by_seconds(self._tests)[:SLOWEST]},
        }
        self._path.write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")
        for line in tables(total):
            terminalreporter.write_line(line)


def by_seconds(rows: dict[str, dict[str, float]]) -> list[str]:
    """Names of the rows, the slowest first."""
    return sorted(rows, key=lambda name: -rows[name]["seconds"])


def rounded(row: dict[str, float]) -> dict[str, float]:
    """Row with rounded amounts, sorted by name."""
    return {name: round(amount, 1) for name, amount in sorted(row.items())}


def tables(total: dict[str, Any]) -> list[str]:
    """Tables of files and of the slowest tests, as lines of Markdown."""
    columns = ("seconds", *PHASES, "programs", "cache_hits", "tests")
    lines = [
        "",
        f"{total['wall_seconds']:.0f} s of wall time; peak memory of all workers {total['peak_gigabytes']:.1f} GB",
        "",
        f"| file | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    lines += [
        f"| {Path(name).stem} | {' | '.join(f'{row.get(column, 0):.0f}' for column in columns)} |"
        for name, row in total["files"].items()
    ]
    lines += ["", f"| test | {' | '.join(columns[:-1])} |", "|---" * len(columns) + "|"]
    lines += [
        f"| {name.removeprefix('tests/')} | {' | '.join(f'{row.get(column, 0):.1f}' for column in columns[:-1])} |"
        for name, row in total["dearest"].items()
    ]
    return lines


if __name__ == "__main__":
    print("\n".join(tables(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))

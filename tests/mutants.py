"""Mutation check: injects small errors into a copy of the package, one at a time; the test named for each must fail.

    python tests/mutants.py [--only ID ...] [--jobs N] [--json FILE]
    python tests/mutants.py --table docs/mutants.md

`mutants.toml` holds the table. Every mutant has a process of its own, which imports the package from a copy in a
temporary directory; the sources in the working tree are never changed. A mutant is killed only if its test ran and
failed. The exit code is 0 if all are killed, 1 if one survives or cannot be judged, 2 if the table itself is wrong.
"""

import argparse
import ast
import compileall
import dataclasses
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
TIMEOUT = 900
"""Seconds after which a process is ended: some errors make an endless loop."""
PASSED, FAILED, WRONG_COPY = 0, 1, 97
"""Exit codes of pytest, and of a process that imported the package from another directory."""
TAIL = 15
"""Lines of output shown for a mutant that was not killed."""
LAUNCH = f"""
import importlib, pathlib, sys
found = pathlib.Path(importlib.import_module(sys.argv[1]).__file__).resolve()
if not found.is_relative_to(pathlib.Path(sys.argv[2]).resolve()):
    print("imported from", found)
    sys.exit({WRONG_COPY})
import pytest
sys.exit(pytest.main(sys.argv[3:]))
"""
"""Program that runs pytest on the package in a directory: `python -c LAUNCH PACKAGE DIRECTORY ARGUMENTS...`."""

Verdict = Literal["killed", "survived", "error"]


class TableError(Exception):
    """Error in the table: it does not match the sources or the tests."""


@dataclass(frozen=True)
class Mutant:
    """Row of the table: one error, and the test that must detect it."""

    id: str
    what: str
    """Short description of the error."""
    module: str
    """Path of the module below the package."""
    old: str
    """Snippet that occurs exactly once in the module."""
    new: str
    test: str
    """Node id of the test that must fail."""


@dataclass(frozen=True)
class Project:
    """Locations of a package and its tests: `root/src/package` and `root/tests`."""

    root: Path = ROOT
    package: str = "hopplus"

    @property
    def source(self) -> Path:
        """Source directory."""
        return self.root / "src"


@dataclass(frozen=True)
class Outcome:
    """Result of a run of pytest."""

    code: int
    """Exit code; -1 after a timeout."""
    failed: int
    """Tests that ran and failed; errors while setting up are not counted."""
    skipped: int
    output: str

    @property
    def verdict(self) -> Verdict:
        """Verdict on the mutant whose test this was."""
        if self.code == FAILED and self.failed:
            return "killed"
        return "survived" if self.code == PASSED and not self.skipped else "error"


@dataclass(frozen=True)
class Judged:
    """Mutant and its verdict."""

    mutant: Mutant
    verdict: Verdict
    seconds: float
    output: str

    @property
    def why(self) -> str:
        """First line of pytest's explanation of a failure; empty if there is none."""
        return next((line[1:].strip() for line in self.output.splitlines() if line.startswith("E ")), "")

    def line(self) -> str:
        """Line of the output."""
        return f"{self.mutant.id:<30} {self.verdict:<9} {self.seconds:6.1f} s  {self.mutant.test}"


# ---------------------------------------------------------------------------------------------------------- the table


def read_table(path: Path) -> list[Mutant]:
    """Read all rows of a table; TableError for an incomplete row or a repeated id."""
    fields = {field.name for field in dataclasses.fields(Mutant)}
    mutants: list[Mutant] = []
    for number, row in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["mutant"], start=1):
        complete = set(row) == fields and all(isinstance(text, str) for text in row.values())
        if not complete or not all(text or name == "new" for name, text in row.items()):
            raise TableError(f"row {number} of {path.name} must have exactly {', '.join(sorted(fields))}, all as text")
        mutants.append(Mutant(**row))
    for mutant in mutants:
        if sum(other.id == mutant.id for other in mutants) > 1:
            raise TableError(f"the id {mutant.id} occurs twice in {path.name}")
    return mutants


def mutated(mutant: Mutant, project: Project) -> str:
    """Source of the module with the error; TableError if the snippet does not occur exactly once."""
    path = project.source / project.package / mutant.module
    if not path.is_file():
        raise TableError(f"{mutant.id}: there is no module {mutant.module}")
    source = path.read_text(encoding="utf-8")
    if (count := source.count(mutant.old)) != 1:
        raise TableError(f"{mutant.id}: the snippet occurs {count} times in {mutant.module}, not once")
    if mutant.new.split() == mutant.old.split():
        raise TableError(f"{mutant.id}: the new snippet is the old one")
    changed = source.replace(mutant.old, mutant.new)
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise TableError(f"{mutant.id}: {mutant.module} would not be Python any more ({error.msg})") from None
    return changed


def check_test(mutant: Mutant, project: Project) -> None:
    """Raise TableError if the test does not exist; parameters in brackets are ignored."""
    file, _, name = mutant.test.partition("::")
    path = project.root / file
    if not path.is_file():
        raise TableError(f"{mutant.id}: there is no test file {file}")
    if name.partition("[")[0] not in functions_of(path):
        raise TableError(f"{mutant.id}: there is no test {mutant.test}")


@functools.cache
def functions_of(path: Path) -> set[str]:
    """Names of the functions of a file."""
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def check_table(mutants: Sequence[Mutant], project: Project) -> None:
    """Raise TableError if a row does not match the sources or the tests. Starts no process."""
    for mutant in mutants:
        mutated(mutant, project)
        check_test(mutant, project)


def page(mutants: Sequence[Mutant]) -> str:
    """Table as a page of the documentation."""
    lines = [
        "# Errors that the tests notice",
        "",
        "`make mutants` puts each of these errors into a copy of the package, one at a time, and runs the test that is",
        "named for it, which must fail. The table is `tests/mutants.toml`; this page is written by",
        "`python tests/mutants.py --table docs/mutants.md`.",
        "",
        "| What is broken | Module | Test that fails |",
        "|---|---|---|",
        *(f"| {mutant.what} | `{mutant.module}` | `{mutant.test.removeprefix('tests/')}` |" for mutant in mutants),
    ]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------------------ running


def clean_copy(project: Project, directory: Path) -> Path:
    """Copy the sources and compile them to bytecode, once for all further copies."""
    copy = shutil.copytree(project.source, directory / "src", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(copy, quiet=2)
    return copy


def broken_copy(mutant: Mutant, project: Project, clean: Path, directory: Path) -> Path:
    """Copy the clean copy and inject the error. Unchanged files keep their times, so their bytecode stays valid."""
    copy = shutil.copytree(clean, directory / mutant.id)
    path = copy / project.package / mutant.module
    path.write_text(mutated(mutant, project), encoding="utf-8")
    Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
    return copy


def run_tests(tests: Sequence[str], project: Project, source: Path, report: Path) -> Outcome:
    """Run tests on the package in a source directory."""
    cache = str(project.root / ".pytest_cache" / "jax")
    environment = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        **os.environ,
        "PYTHONPATH": str(source),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(report.with_suffix(".hypothesis")),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}", f"--rootdir={project.root}"]
    command = [sys.executable, "-c", LAUNCH, project.package, str(source), *options, *tests]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"}
    try:
        done = subprocess.run(command, cwd=project.root, env=environment, timeout=TIMEOUT, **output)
    except subprocess.TimeoutExpired:
        return Outcome(-1, 0, 0, f"timeout after {TIMEOUT} seconds")
    cases = list(ElementTree.parse(report).getroot().iter("testcase")) if report.is_file() else []
    failed, skipped = (sum(case.find(tag) is not None for case in cases) for tag in ("failure", "skipped"))
    return Outcome(done.returncode, failed, skipped, done.stdout)


def judge(mutant: Mutant, project: Project, clean: Path, directory: Path) -> Judged:
    """Run the test of one mutant."""
    started = time.perf_counter()
    copy = broken_copy(mutant, project, clean, directory)
    outcome = run_tests([mutant.test], project, copy, directory / f"{mutant.id}.xml")
    shutil.rmtree(copy)
    return Judged(mutant, outcome.verdict, time.perf_counter() - started, outcome.output)


def shares_of(tests: Sequence[str], number: int) -> list[list[str]]:
    """Tests split into a number of shares, those of one file together, so that fixtures are made once."""
    by_file: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        by_file.setdefault(test.partition("::")[0], []).append(test)
    shares: list[list[str]] = [[] for _ in range(number)]
    for of_file in sorted(by_file.values(), key=len, reverse=True):
        min(shares, key=len).extend(of_file)
    return [share for share in shares if share]


def check_clean(mutants: Sequence[Mutant], project: Project, clean: Path, directory: Path, jobs: int) -> str | None:
    """Run the tests on the unchanged package; returns an explanation if one fails, else None."""
    shares = shares_of([mutant.test for mutant in mutants], jobs)
    with ThreadPoolExecutor(jobs) as pool:
        reports = [directory / f"clean-{number}.xml" for number in range(len(shares))]
        outcomes = list(pool.map(lambda share, report: run_tests(share, project, clean, report), shares, reports))
    for outcome in outcomes:
        if outcome.code == WRONG_COPY:
            return f"{project.package} was not imported from the copy: {tail(outcome.output)}"
        if outcome.verdict != "survived":
            return f"the tests do not all pass on the unchanged package:\n{tail(outcome.output)}"
    return None


def tail(text: str) -> str:
    """Last lines of an output."""
    return "\n".join(text.rstrip().splitlines()[-TAIL:])


def run(mutants: Sequence[Mutant], project: Project, jobs: int) -> list[Judged] | None:
    """Judge all mutants and print a line for each; None if a test fails on the unchanged package."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        directory = Path(name)
        clean, started = clean_copy(project, directory), time.perf_counter()
        failure = check_clean(mutants, project, clean, directory, jobs)
        if failure is not None:
            print(failure, file=sys.stderr)
            return None
        print(f"all named tests pass on the unchanged package ({time.perf_counter() - started:.1f} s)", flush=True)
        judged: list[Judged] = []
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(judge, mutant, project, clean, directory) for mutant in mutants]
            for future in as_completed(futures):
                judged.append(future.result())
                print(judged[-1].line(), flush=True)
        return judged


def summary(judged: Sequence[Judged]) -> str:
    """`N passed, N failed`: numbers of mutants killed and not killed."""
    killed = sum(result.verdict == "killed" for result in judged)
    return f"{killed} passed, {len(judged) - killed} failed"


def select(mutants: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Mutants with the given ids, or all; TableError for an unknown id."""
    unknown = set(only) - {mutant.id for mutant in mutants}
    if unknown:
        raise TableError(f"there is no mutant {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not only or mutant.id in only]


def main(argv: Sequence[str] | None = None, project: Project | None = None, table: Path = TABLE) -> int:
    """Run the mutation check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Check that the tests detect errors.")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="parallel processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts as JSON")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table as a page, and run nothing")
    options, project = parser.parse_args(argv), project or Project()
    try:
        mutants = read_table(table)
        check_table(mutants, project)
        selected = select(mutants, options.only)
    except TableError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if options.table:
        options.table.write_text(page(mutants), encoding="utf-8")
        return 0
    started = time.perf_counter()
    judged = run(selected, project, max(1, options.jobs))
    if judged is None:
        return 1
    for result in judged:
        if result.verdict != "killed":
            mutant = result.mutant
            print(f"\n{mutant.id} ({mutant.what}): {result.verdict}\n{tail(result.output)}", file=sys.stderr)
    if options.json:
        rows = [
            {**dataclasses.asdict(result.mutant), "verdict": result.verdict, "seconds": result.seconds}
            | {"why": result.why}
            for result in judged
        ]
        figures = {"seconds": time.perf_counter() - started, "jobs": options.jobs, "mutants": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(summary(judged))
    return int(any(result.verdict != "killed" for result in judged))


if __name__ == "__main__":
    sys.exit(main())

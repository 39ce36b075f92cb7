"""Fixtures of all tests: compiled programs are kept between runs, the tests of a file share a worker, and no test
changes a registry for another."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import bound_memory

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Most of the time of all tests is compiling; programs that run for a second need not be the fastest.
FAST_COMPILATION = (
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FAST_COMPILATION))
UNROLLED = ("test_keys", "test_runs", "test_devices", "test_sweeps")
"""Files that test the unrolled generator, or compare bits with those of a process that uses it."""
DEAREST = (
    "test_documents",
    "test_hopplus",
    "test_adaptation",
    "test_glances",
    "test_crossplay",
    "test_moa",
    "test_devices",
    "test_world_model",
    "test_reference",
    "test_choices",
    "test_datasets",
    "test_acquaintance",
    "test_sweeps",
    "test_runs",
    "test_maps",
)
"""Files that take longest (`make test-times`), in order."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--times", type=Path, metavar="FILE", help="write where the tests' time goes as JSON, and print it"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--times")
    if path is None:
        return
    import timing

    is_controller = not hasattr(config, "workerinput")
    if not is_controller or not config.getoption("numprocesses"):
        config.pluginmanager.register(timing.Recorder())
    if is_controller:
        config.pluginmanager.register(timing.Summary(path))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the dearest files first: workers take whole files (`--dist loadfile`), and should end together."""
    items.sort(key=lambda item: DEAREST.index(item.path.stem) if item.path.stem in DEAREST else len(DEAREST))


@pytest.fixture(autouse=True)
def registries_stay_as_they_were() -> Iterator[None]:
    from common import kept_registries

    with kept_registries():
        yield


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, trainings_write_no_page: None) -> Path:
    """The run directory of a small finished training (`TINY_PPO`). Read-only: tests that write into it copy it."""
    from common import TINY_PPO, short_evaluations
    from hopplus.cli.main import main

    path = tmp_path_factory.mktemp("runs") / "tiny"
    with short_evaluations():
        assert main([*TINY_PPO, "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def programs_made_once() -> Iterator[None]:
    """Commands that train with the same settings share their compiled programs."""
    from common import shared_programs

    with shared_programs():
        yield


@pytest.fixture(scope="module")
def cheap_trainings(programs_made_once: None) -> Iterator[None]:
    """They do, and are evaluated in fewer episodes."""
    from common import short_evaluations

    with short_evaluations():
        yield


@pytest.fixture(autouse=True, scope="session")
def trainings_write_no_page() -> Iterator[None]:
    """It takes longer than the small trainings of most tests; one runs a training as a user would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopplus.cli.train._report", lambda run: None)
        patch.setattr("hopplus.cli.train._compile_report", lambda run, setup: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def rolled_random_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """JAX's own generator instead of the unrolled one of `hopplus.keys`, which draws the same (tests/test_keys.py) and
    takes longer to compile."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in UNROLLED:
            patch.setattr("hopplus.keys.UNROLLED", "threefry2x32")
        yield


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Compiled programs stay for the next file of the same worker as long as memory allows."""
    yield
    bound_memory()


@pytest.fixture(autouse=True)
def bounded_memory_of_slow_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Slow tests compile hundreds of programs each: memory is checked after each of them."""
    yield
    if request.node.get_closest_marker("slow"):
        bound_memory()


@pytest.fixture(autouse=True)
def only_oracles_of_the_package(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's user has computed does not show in tests, nor what tests compute in the user's cache."""
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("hopplus.evaluation.oracle.cache_directory", lambda: directory)

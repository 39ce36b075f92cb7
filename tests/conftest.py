"""Fixtures of all tests: persistent compilation cache, one worker per file, isolated registries."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import bound_memory

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Compilation takes most of the tests' time, and most programs run for less than a second.
FAST_COMPILATION = (
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FAST_COMPILATION))
UNROLLED = (
    "core/test_keys",
    "training/test_runs",
    "training/test_damaged_runs",
    "training/test_run_metrics",
    "training/test_sharding",
    "sweeps/test_sweeps",
)
"""Files that test the unrolled generator, or compare bits with those of a process that uses it."""
SLOWEST = (
    "integration/test_documents",
    "algorithms/test_hopplus",
    "evaluation/test_adaptation",
    "networks/test_sparse_first_layer",
    "evaluation/test_crossplay",
    "models/test_opponent",
    "training/test_sharding",
    "models/test_world",
    "games/test_reference",
    "evaluation/test_decisions",
    "rollouts/test_dataset",
    "beliefs/test_belief_tracker",
    "sweeps/test_sweeps",
    "training/test_runs",
    "training/test_damaged_runs",
    "algorithms/test_hopplus_runs",
    "algorithms/test_expert_iteration",
    "games/test_initial_states",
)
"""Slowest files (`make test-times`), in order."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--times", type=Path, metavar="FILE", help="write a time profile of the tests as JSON, and print it"
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
    """Put the slowest files first: workers take whole files (`--dist loadfile`), and should end together."""
    items.sort(key=lambda item: SLOWEST.index(_name(item.path)) if _name(item.path) in SLOWEST else len(SLOWEST))


def _name(path: Path) -> str:
    """Name of a test file, as in `UNROLLED` and `SLOWEST`."""
    return path.relative_to(Path(__file__).parent).with_suffix("").as_posix()


@pytest.fixture(autouse=True)
def isolated_registries() -> Iterator[None]:
    """Registries are restored after every test."""
    from common import kept_registries

    with kept_registries():
        yield


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, trainings_write_no_page: None) -> Path:
    """Run directory of a small finished training (`TINY_PPO`). Read-only: tests that write into it copy it."""
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
    """Commands that train share their compiled programs, and evaluate in fewer episodes."""
    from common import short_evaluations

    with short_evaluations():
        yield


@pytest.fixture(autouse=True, scope="session")
def trainings_write_no_page() -> Iterator[None]:
    """Trainings write no report and play no trials: these take longer than the small trainings of most tests.

    Tests of both call or restore them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopplus.cli.train.held_out_figures", lambda run: [])
        patch.setattr("hopplus.cli.train._report", lambda run: None)
        patch.setattr("hopplus.cli.train._compile_report", lambda run, experiment: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def rolled_random_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use JAX's own generator, which compiles faster than the unrolled one of `hopplus.core.keys` and gives the same
    numbers (tests/core/test_keys.py)."""
    with pytest.MonkeyPatch.context() as patch:
        if _name(request.path) not in UNROLLED:
            patch.setattr("hopplus.core.keys.UNROLLED", "threefry2x32")
        yield


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Compiled programs are kept for the next file of the same worker as long as memory allows."""
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
    """Tests use packaged oracles only: the user's cache of oracles is neither read nor written."""
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("hopplus.evaluation.oracle.cache_directory", lambda: directory)

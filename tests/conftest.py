"""What all tests live in: compiled programs kept between runs and shared by the processes of one, and registries that
no test changes for another."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Most of the time of all tests is compiling; programs that run for a second need not be the fastest.
os.environ.setdefault("XLA_FLAGS", "--xla_llvm_disable_expensive_passes=true")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, metavar="FILE", help="write where the tests' time goes as JSON, and print it")


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


@pytest.fixture(autouse=True)
def registries_stay_as_they_were() -> Iterator[None]:
    from hopplus.games import catalog as games
    from hopplus.players import catalog as players
    from hopplus.training.fits import FITS
    from hopplus.training.recipes import RECIPES

    with contextlib.ExitStack() as stack:
        for registry in (games._GAMES, players._PLAYERS, RECIPES, FITS):
            stack.callback(_restore, registry, dict(registry))
        yield


@pytest.fixture(autouse=True, scope="session")
def trainings_write_no_page() -> Iterator[None]:
    """It takes longer than the small trainings of most tests; one runs a training as a user would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopplus.cli.train._report", lambda run: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def programs_are_forgotten() -> Iterator[None]:
    """Every compiled program holds memory and maps of it, of which a process may have 65,530 on Linux: one that keeps
    all programs of all tests crashes."""
    yield
    import jax

    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def only_oracles_of_the_package(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's user has computed does not show in tests, nor what tests compute in the user's cache."""
    directory = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("hopplus.evaluation.oracle.cache_directory", lambda: directory)


def _restore(registry: dict[str, Any], before: dict[str, Any]) -> None:
    registry.clear()
    registry.update(before)

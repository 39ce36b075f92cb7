"""Who may sit with a person: scripted players, what comes with the package, and runs below a directory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.players import catalog
from hopplus.training.policies import same_shape
from hopplus.training.run import CONFIG, open_run
from hopplus.training.shipped import shipped_figures, shipped_names

PLANNING = "search=on"
SPECIAL = frozenset("(),:\"'")
"""What has a meaning in a cast: a run whose name has such a character cannot be named there."""


@dataclass(frozen=True)
class Guest:
    """Somebody who may sit with a person."""

    word: str
    """As in a cast."""
    kind: str
    """`script`, `shipped` or `run`."""
    says: str
    """In a few words, who it is."""
    run: str | None = None
    """Where its run lies below the directory."""


def guests_of(game: Game[Any], directory: Path | None) -> list[Guest]:
    """All who can sit in a game."""
    found = [*_shipped(game), *_scripts(game)]
    return found if directory is None else [*found, *_runs(game, directory)]


def _scripts(game: Game[Any]) -> Iterator[Guest]:
    """Those of the catalogue that need no options and can play this game."""
    for name in catalog.names():
        try:
            catalog.make(name, game)
        except InputError:
            continue
        yield Guest(name, "script", catalog.describe(name))


def _shipped(game: Game[Any]) -> Iterator[Guest]:
    for name in shipped_names(game):
        figures = shipped_figures(game, name)
        says = f"{figures['steps']:,} steps of self-play"
        if figures["goals"]:
            yield Guest(f"{name}:{PLANNING}", "shipped", f"plans before it acts; {says}")
        yield Guest(name, "shipped", says)


def _runs(game: Game[Any], directory: Path) -> Iterator[Guest]:
    for path in run_directories(directory):
        word = path.relative_to(directory).as_posix()
        if SPECIAL & set(word):
            continue
        try:
            config: Mapping[str, Any] = open_run(path).config
            fits = same_shape(game, make(config["training"]["game"]))
        except InputError:
            continue
        if fits and any((path / "checkpoints").glob("*")):
            says = f"{config['recipe']}, trained on {config['training']['game']}, {config['training']['cast']}"
            if "search" in config["settings"]:
                yield Guest(f"run({word},{PLANNING})", "run", f"plans before it acts; {says}", word)
            yield Guest(word, "run", says, word)


def run_directories(directory: Path) -> list[Path]:
    """The directories of all runs below a directory that really lie there; a link that leads out of it is not
    followed."""
    inside = directory.resolve()
    found = sorted(path.parent for path in directory.rglob(CONFIG))
    return [path for path in found if (path / CONFIG).resolve().is_relative_to(inside)]

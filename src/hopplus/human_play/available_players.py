"""Co-players that a person can choose: pretrained policies, scripted players, and runs below a directory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.games import Game, make
from hopplus.planning.catalog import OFF
from hopplus.players import catalog
from hopplus.training.policies import same_shape
from hopplus.training.pretrained import pretrained_figures, pretrained_names
from hopplus.training.run import CONFIG, open_run

PLANNING = "planner=rollouts"
"""Option of policies that can plan: belief rollouts before each action."""
PLANNER_NAMES = {"rollouts": "belief rollouts", "tree": "tree search"}
"""Planning methods in words."""
SPECIAL = frozenset("(),:\"'")
"""Characters with a meaning in a cast: a run whose path contains one of them cannot be named in a cast."""


@dataclass(frozen=True)
class AvailablePlayer:
    """Co-player that a person can choose."""

    word: str
    """Name in a cast."""
    kind: str
    """`script`, `pretrained` or `run`."""
    description: str
    """Short description."""
    run: str | None = None
    """Path of the run relative to the directory; None for other players."""


def available_players(game: Game[Any], directory: Path | None) -> list[AvailablePlayer]:
    """Returns all co-players that can play a game: pretrained policies first, then scripts, then runs."""
    players = [*_pretrained(game), *_scripts(game)]
    return players if directory is None else [*players, *_runs(game, directory)]


def _scripts(game: Game[Any]) -> Iterator[AvailablePlayer]:
    """Catalogue players that need no options and can play this game."""
    for name in catalog.names():
        try:
            catalog.make(name, game)
        except InputError:
            continue
        yield AvailablePlayer(name, "script", catalog.describe(name))


def _pretrained(game: Game[Any]) -> Iterator[AvailablePlayer]:
    for name in pretrained_names(game):
        figures = pretrained_figures(game, name)
        description = f"{figures['steps']:,} steps of self-play"
        if figures["goals"]:
            planned = f"{planning_text('rollouts')}; {description}"
            yield AvailablePlayer(f"{name}:{PLANNING}", "pretrained", planned)
            own_planner = "rollouts" if figures.get("planning") else OFF
            description = f"{planning_text(own_planner)}; {description}"
        yield AvailablePlayer(name, "pretrained", description)


def _runs(game: Game[Any], directory: Path) -> Iterator[AvailablePlayer]:
    for path in run_directories(directory):
        name = path.relative_to(directory).as_posix()
        if SPECIAL & set(name):
            continue
        try:
            config: Mapping[str, Any] = open_run(path).config
            fits = same_shape(game, make(config["training"]["game"]))
        except InputError:
            continue
        if fits and any((path / "checkpoints").glob("*")):
            training = config["training"]
            description = f"{config['algorithm']}, trained on {training['game']}, {training['cast']}"
            own_planner = config["settings"].get("planner")
            if own_planner is not None:
                planned = f"{planning_text('rollouts')}; {description}"
                yield AvailablePlayer(f"run({name},{PLANNING})", "run", planned, name)
                description = f"{planning_text(own_planner)}; {description}"
            yield AvailablePlayer(name, "run", description, name)


def planning_text(planner: str) -> str:
    """Returns how a player with this setting `planner` chooses its actions."""
    if planner == OFF:
        return "acts by its policy"
    return f"plans each action by {PLANNER_NAMES.get(planner, planner)}"


def run_directories(directory: Path) -> list[Path]:
    """Returns the directories of all runs below a directory; links that lead out of it are not followed."""
    root = directory.resolve()
    candidates = sorted(path.parent for path in directory.rglob(CONFIG))
    return [path for path in candidates if (path / CONFIG).resolve().is_relative_to(root)]

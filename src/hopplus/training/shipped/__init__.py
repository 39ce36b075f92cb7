"""Policies that come with the package, so that there is somebody to play with before anything is trained.

A file for every game and recipe, GAME/RECIPE.safetensors, and figures.json, which says of each how it was trained and
what it earns. `python docs/results/shipped.py keep` makes them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.training.policies import SUFFIX, Policy, is_policy, load_policy, same_shape

DIRECTORY = Path(__file__).parent
FIGURES = "figures.json"


def shipped_path(name: str, game: Game[Any]) -> Path | None:
    """The file of what a recipe has learnt for games of this form; None where there is none."""
    trained = _trained(name, game)
    return None if trained is None else DIRECTORY / trained / f"{name}{SUFFIX}"


def shipped_names(game: Game[Any]) -> list[str]:
    """The recipes of which a policy for games of this form is there."""
    return [name for name in shipped_words() if shipped_path(name, game)]


def shipped_words() -> list[str]:
    """The words that stand for such policies in a cast, whatever the game."""
    return sorted({file.stem for file in _files()})


def is_shipped(text: str) -> bool:
    """Whether a player as people type it is such a policy, and not a run or a policy of theirs with the same name."""
    return not is_policy(text) and text.partition(":")[0] in shipped_words()


def shipped_figures(game: Game[Any], name: str) -> Mapping[str, Any]:
    """How the policy for games of this form was trained, and what it earns. Keys: `game` (it was trained for), `seed`,
    `steps`, `goals` (what it takes others to be after), `bytes`, `training` (the command), `machine`, `versions`,
    `commit`, `started`, `seeds` (of each, the scores by which it was chosen), `self_play` and `held_out`."""
    trained = _trained(name, game)
    if trained is None:
        raise _missing(name, game)
    return read_figures()[trained][name]


def read_figures() -> dict[str, dict[str, dict[str, Any]]]:
    """All figures, by game and recipe."""
    return json.loads((DIRECTORY / FIGURES).read_text(encoding="utf-8"))


def load_shipped(name: str, game: Game[Any]) -> Policy:
    """The policy for games of this form; InputError where there is none."""
    path = shipped_path(name, game)
    if path is None:
        raise _missing(name, game)
    return load_policy(str(path))


def _missing(name: str, game: Game[Any]) -> InputError:
    games = ", ".join(_games(name))
    return InputError(
        f"no {name} comes with the package for {game.name}, but for games like {games}: train one"
        f" (hopplus train {name} --game {game.name}) and name its directory instead"
    )


def _trained(name: str, game: Game[Any]) -> str | None:
    """The game for which the policy was trained; of a form there is no more than one."""
    return next((trained for trained in _games(name) if same_shape(make(trained), game)), None)


def _games(name: str) -> list[str]:
    return [file.parent.name for file in _files() if file.stem == name]


def _files() -> list[Path]:
    return sorted(DIRECTORY.glob(f"*/*{SUFFIX}"))

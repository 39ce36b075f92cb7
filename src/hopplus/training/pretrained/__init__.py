"""Pretrained policies, shipped with the package.

One file per game and algorithm, GAME/ALGORITHM.safetensors, and figures.json with the training and evaluation of each.
`python experiments/pretrained.py keep` makes them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.games import Game, make
from hopplus.training.policies import SUFFIX, Policy, is_policy, load_policy, same_shape

__all__ = [
    "is_pretrained",
    "load_pretrained",
    "pretrained_figures",
    "pretrained_names",
    "pretrained_path",
    "pretrained_specs",
    "read_figures",
]

DIRECTORY = Path(__file__).parent
FIGURES = "figures.json"


def pretrained_path(name: str, game: Game[Any]) -> Path | None:
    """File of an algorithm's policy for games of this shape; None where there is none."""
    trained = _trained(name, game)
    return None if trained is None else DIRECTORY / trained / f"{name}{SUFFIX}"


def pretrained_names(game: Game[Any]) -> list[str]:
    """Algorithms with a policy for games of this shape."""
    return [name for name in pretrained_specs() if pretrained_path(name, game)]


def pretrained_specs() -> list[str]:
    """Names of pretrained policies in casts, over all games."""
    return sorted({file.stem for file in _files()})


def is_pretrained(text: str) -> bool:
    """Returns whether a player as typed is a pretrained policy, and not a run or policy file of the same name."""
    return not is_policy(text) and text.partition(":")[0] in pretrained_specs()


def pretrained_figures(game: Game[Any], name: str) -> Mapping[str, Any]:
    """Training and evaluation of the policy for games of this shape.

    Keys: `game` (of the training), `seed`, `steps`, `goals` (goal space), `bytes`, `training` (command), `machine`,
    `versions`, `commit`, `started`, `seeds` (validation scores by which the seed was chosen), `self_play`, `held_out`.
    """
    trained = _trained(name, game)
    if trained is None:
        raise _missing(name, game)
    return read_figures()[trained][name]


def read_figures() -> dict[str, dict[str, dict[str, Any]]]:
    """All figures by game and algorithm."""
    return json.loads((DIRECTORY / FIGURES).read_text(encoding="utf-8"))


def load_pretrained(name: str, game: Game[Any]) -> Policy:
    """Loads the policy for games of this shape; InputError where there is none."""
    path = pretrained_path(name, game)
    if path is None:
        raise _missing(name, game)
    return load_policy(str(path))


def _missing(name: str, game: Game[Any]) -> InputError:
    games = ", ".join(_games(name))
    return InputError(
        f"there is no pretrained {name} for {game.name}, only for games like {games}: train one"
        f" (hopplus train {name} --game {game.name}) and name its directory instead"
    )


def _trained(name: str, game: Game[Any]) -> str | None:
    """Game of the training; there is at most one per shape."""
    return next((trained for trained in _games(name) if same_shape(make(trained), game)), None)


def _games(name: str) -> list[str]:
    return [file.parent.name for file in _files() if file.stem == name]


def _files() -> list[Path]:
    return sorted(DIRECTORY.glob(f"*/*{SUFFIX}"))

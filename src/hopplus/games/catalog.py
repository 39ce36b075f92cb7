"""Catalog of games by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.specs import check_options, nearest, parse
from hopplus.games.game import Game
from hopplus.games.snowdrift import Snowdrift
from hopplus.games.stag_hunt import StagHunt

_GAMES: dict[str, Callable[[], Game[Any]]] = {}


def register(name: str, create: Callable[[], Game[Any]]) -> None:
    """Registers a game under a new name, for `make` and for every command."""
    if name in _GAMES:
        raise InputError(f"a game named {name!r} is already registered: choose another name")
    _GAMES[name] = create


def names() -> list[str]:
    """Names of all registered games, in order of registration."""
    return list(_GAMES)


def make(name: str, **overrides: Any) -> Game[Any]:
    """Makes a game by name, optionally with changed settings: `make("msh-8x8-4h1s", T=50)`.

    The name may contain settings, as in a command: `make("msh-8x8-4h1s:T=50")`. The `name` of the returned game
    contains all settings that differ from the registered game's.
    """
    spec = parse(name)
    if spec.name not in _GAMES:
        raise InputError(f"there is no game {spec.name!r}{nearest(spec.name, _GAMES)}")
    if spec.arguments:
        raise InputError(f"the settings of a game follow a colon, as in '{spec.name}:T=50', not in brackets")
    game = _GAMES[spec.name]()
    settings = {**dict(spec.options), **overrides}
    if not settings:
        return game
    fields = [field.name for field in dataclasses.fields(game) if field.name != "name"]  # pyright: ignore[reportArgumentType]
    check_options(f"game {spec.name!r}", settings, fields)
    changed = dataclasses.replace(game, **settings)  # pyright: ignore[reportArgumentType, reportCallIssue]
    changes = [
        f"{key}={str(getattr(changed, key)).replace(' ', '')}"
        for key in fields
        if getattr(changed, key) != getattr(game, key)
    ]
    return dataclasses.replace(changed, name=":".join([spec.name, *changes]))


def _register_named_settings() -> None:
    hunts = {
        "msh-4x4-4h1s": StagHunt(height=4, width=4, players=4, stags=1, hares=4, blocks=0, T=35),
        "msh-4x4-2h1s": StagHunt(height=4, width=4, players=2, stags=1, hares=2, blocks=0, T=35),
        "msh-6x6-4h1s": StagHunt(height=6, width=6, players=4, stags=1, hares=4, blocks=4, T=35),
        "msh-8x8-4h1s": StagHunt(height=8, width=8, players=4, stags=1, hares=4, blocks=5, T=35),
        "msh-8x8-4h2s": StagHunt(height=8, width=8, players=4, stags=2, hares=4, blocks=5, T=35),
    }
    drifts = {f"msg-{side}x{side}": Snowdrift(height=side, width=side, T=T) for side, T in ((4, 15), (6, 25), (8, 50))}
    for name, game in {**hunts, **drifts}.items():
        register(name, lambda game=game, name=name: dataclasses.replace(game, name=name))


_register_named_settings()

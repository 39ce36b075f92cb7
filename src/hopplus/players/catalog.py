"""Catalogue of players by name, with options: `ns`, `nh:then=stay`, `noisy(ns,0.2)`, `switching(ns,nh,every=5)`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, check_options, keyword_names, nearest, parse, parse_value
from hopplus.games import Game
from hopplus.players import pool, scripted
from hopplus.players.player import Player

Factory = Callable[..., Player]
"""`factory(game, *arguments, **options) -> Player`; options are keyword-only parameters."""

_PLAYERS: dict[str, Factory] = {
    "random": scripted.random,
    "stay": scripted.stay,
    "ns": scripted.nearest_stag,
    "nh": scripted.nearest_hare,
    "cleaner": scripted.cleaner,
    "exploiter": scripted.exploiter,
    "noisy": scripted.noisy,
    "switching": scripted.switching,
    "pool": pool.pool,
    "mix": pool.mix,
}


def register(name: str, factory: Factory) -> None:
    """Registers a player under a new name, for `make` and all commands."""
    if name in _PLAYERS:
        raise InputError(f"the player {name!r} is already known: choose another name")
    _PLAYERS[name] = factory


def names() -> list[str]:
    """Returns the names of all registered players and wrappers."""
    return list(_PLAYERS)


def describe(name: str) -> str:
    """Returns a one-line description of a registered player."""
    return (inspect.getdoc(_PLAYERS[name]) or "").splitlines()[0]


def make(text: str, game: Game[Any]) -> Player:
    """Makes a player from its name with options."""
    return build(parse(text), game)


def build(spec: Spec, game: Game[Any], extra: Mapping[str, Factory] | None = None) -> Player:
    """Makes a player from its parsed name; `extra` adds names for this call only."""
    return _build(spec, game, {**_PLAYERS, **(extra or {})})


def _build(spec: Spec, game: Game[Any], known: Mapping[str, Factory]) -> Player:
    if spec.name not in known:
        raise InputError(f"there is no player {spec.name!r}{nearest(spec.name, known)}")
    factory = known[spec.name]
    options = dict(spec.options)
    positional = _argument_names(factory)
    check_options(f"player {spec.name!r}", options, [*keyword_names(factory), *positional])
    arguments = [_argument(argument, game, known) for argument in spec.arguments]
    try:
        inspect.signature(factory).bind(game, *arguments, **options)
    except TypeError:
        raise InputError(f"player {spec.name!r} is written {_usage(spec.name, factory)}") from None
    for name, value in zip(positional, arguments, strict=False):
        if inspect.signature(factory).parameters[name].annotation is Player and not isinstance(value, Player):
            raise InputError(
                f"player {spec.name!r} wraps a player, but {value!r} is not one{nearest(str(value), known)}"
            )
    return factory(game, *arguments, **options)


def _argument(argument: Spec, game: Game[Any], known: Mapping[str, Factory]) -> Any:
    if argument.name in known or argument.arguments or argument.options:
        return _build(argument, game, known)
    return parse_value(argument.name)


def _argument_names(factory: Factory) -> list[str]:
    parameters = list(inspect.signature(factory).parameters.values())[1:]
    return [parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]


def _usage(name: str, factory: Factory) -> str:
    arguments = ",".join([*_argument_names(factory), *(f"{option}=..." for option in keyword_names(factory))])
    return f"'{name}({arguments})'" if _argument_names(factory) else f"'{name}'"

"""Settings by name: files, command lines and presets name a setting without the group of a nested config that holds it.

Field names are unique over all groups of a config; `tests/configs/test_configs.py` holds that.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from hopplus.core.errors import InputError
from hopplus.core.specs import check_options, nearest

T = TypeVar("T")


def flatten(config: Any) -> dict[str, Any]:
    """Returns all settings by name, those of nested groups included."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flat |= flatten(value)
        else:
            flat[field.name] = value
    return flat


def replace_settings(config: T, settings: Mapping[str, Any]) -> T:
    """Returns a config with some settings changed, whichever group holds them; KeyError for an unknown name."""
    unknown = set(settings) - set(flatten(config))
    if unknown:
        raise KeyError(min(unknown))
    return _replace(config, settings)


def _replace(config: Any, settings: Mapping[str, Any]) -> Any:
    changes = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = _replace(value, settings)
        elif field.name in settings:
            changes[field.name] = settings[field.name]
    return dataclasses.replace(config, **changes)


def setting_types(config: Any) -> dict[str, Any]:
    """Returns the types of all settings of a config, or of a class of configs, without annotations."""
    types: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        hint = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        if dataclasses.is_dataclass(hint):
            types |= setting_types(hint)
        else:
            types[field.name] = hint
    return types


def make_settings(kind: str, name: str, known: Mapping[str, type[T]], settings: Mapping[str, Any] | None) -> T:
    """Builds a dataclass of settings by name.

    Args:
        kind: What the dataclasses configure, for error messages: "algorithm", "model".
        name: Key into `known`.
        known: The dataclasses by name; all their fields have defaults.
        settings: Settings that differ from the defaults, those of nested groups included; lists, as read from JSON,
            become tuples.
    """
    if name not in known:
        raise InputError(f"there is no {kind} {name!r}{nearest(name, known)}")
    config = known[name]()
    changes = {key: tuple(value) if isinstance(value, list) else value for key, value in (settings or {}).items()}
    check_options(f"{kind} {name!r}", changes, flatten(config))
    return replace_settings(config, changes)

"""Nested configs with flat names: files, command lines and presets name a setting without the group that holds it.

Field names are unique over all groups of a config; `tests/configs/test_nesting.py` holds that.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

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

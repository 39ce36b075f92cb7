"""Opponent models and world models, trained online by algorithms and offline by fitting."""

from collections.abc import Mapping
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.settings import make_settings
from hopplus.models.base import Model
from hopplus.models.opponent.model import MOA, OpponentModelFit, Subgoals
from hopplus.models.world.model import WorldModel

MODELS: dict[str, type[Model]] = {"moa": MOA, "subgoals": Subgoals, "world-model": WorldModel}


def make_model(name: str, settings: Mapping[str, Any] | None = None) -> Model:
    """Returns a model by name, with some settings changed."""
    return make_settings("model", name, MODELS, settings)


def register_model(name: str, model: type[Model]) -> None:
    """Registers a model under a new name, for `make_model` and all commands."""
    if name in MODELS:
        raise InputError(f"a model named {name!r} is already known")
    MODELS[name] = model


__all__ = ["MOA", "MODELS", "Model", "OpponentModelFit", "Subgoals", "WorldModel", "make_model", "register_model"]

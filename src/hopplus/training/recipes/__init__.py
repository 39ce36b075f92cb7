"""The recipes by name; each is one file."""

from collections.abc import Callable, Mapping
from typing import Any

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.specs import make_settings
from hopplus.training.recipe import Recipe
from hopplus.training.recipes.hop import Hop, hop_paper
from hopplus.training.recipes.hopplus import HopPlus
from hopplus.training.recipes.ppo import PPO

RECIPES: dict[str, type[Recipe]] = {"hopplus": HopPlus, "hop": Hop, "ppo": PPO}


PRESETS: dict[str, tuple[str, Callable[[Game[Any]], dict[str, Any]]]] = {"hop-paper": ("hop", hop_paper)}
"""Settings under one name: of which recipe, and what they are for a game."""


def make_recipe(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name with some settings changed."""
    return make_settings("recipe", name, RECIPES, settings)


def register_recipe(name: str, recipe: type[Recipe]) -> None:
    """Make a recipe known by a name of its own, for `make_recipe` and for every command."""
    if name in RECIPES:
        raise InputError(f"a recipe named {name!r} is already known")
    RECIPES[name] = recipe


__all__ = ["PPO", "PRESETS", "RECIPES", "Hop", "HopPlus", "make_recipe", "register_recipe"]

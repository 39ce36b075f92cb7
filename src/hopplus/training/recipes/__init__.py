"""The recipes by name; each is one file."""

from collections.abc import Mapping
from typing import Any

from hopplus.errors import InputError
from hopplus.specs import make_settings
from hopplus.training.recipe import Recipe
from hopplus.training.recipes.ppo import PPO

RECIPES: dict[str, type[Recipe]] = {"ppo": PPO}


def make_recipe(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name with some settings changed."""
    return make_settings("recipe", name, RECIPES, settings)


def register_recipe(name: str, recipe: type[Recipe]) -> None:
    """Make a recipe known by a name of its own, for `make_recipe` and for every command."""
    if name in RECIPES:
        raise InputError(f"a recipe named {name!r} is already known")
    RECIPES[name] = recipe


__all__ = ["PPO", "RECIPES", "make_recipe", "register_recipe"]

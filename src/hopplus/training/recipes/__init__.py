"""The recipes by name; each is one file."""

from collections.abc import Callable, Mapping
from typing import Any

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.specs import make_settings
from hopplus.training.recipe import Recipe
from hopplus.training.recipes.hop import Hop, hop_paper
from hopplus.training.recipes.hopplus import HopPlus, direct_om, omg
from hopplus.training.recipes.liam import Liam
from hopplus.training.recipes.ppo import PPO
from hopplus.training.recipes.prosocial import Prosocial
from hopplus.training.recipes.recurrent import RecurrentPPO

RECIPES: dict[str, type[Recipe]] = {
    "hopplus": HopPlus,
    "hop": Hop,
    "ppo": PPO,
    "prosocial": Prosocial,
    "recurrent": RecurrentPPO,
    "liam": Liam,
}


PRESETS: dict[str, tuple[str, Callable[[Game[Any]], dict[str, Any]]]] = {
    "hop-paper": ("hop", hop_paper),
    "omg": ("hopplus", omg),
    "direct-om": ("hopplus", direct_om),
}
"""Settings under one name: of which recipe, and what they are for a game."""


def make_recipe(name: str, settings: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name with some settings changed."""
    return make_settings("recipe", name, RECIPES, settings)


def register_recipe(name: str, recipe: type[Recipe]) -> None:
    """Make a recipe known by a name of its own, for `make_recipe` and for every command."""
    if name in RECIPES:
        raise InputError(f"a recipe named {name!r} is already known")
    RECIPES[name] = recipe


__all__ = [
    "PPO",
    "PRESETS",
    "RECIPES",
    "Hop",
    "HopPlus",
    "Liam",
    "Prosocial",
    "RecurrentPPO",
    "make_recipe",
    "register_recipe",
]

"""HOP: beliefs about prey, planning by tree search, and expert iteration."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hopplus.games import Game
from hopplus.settings import HopOptions
from hopplus.training.recipes.hopplus import HopPlus


@dataclass(frozen=True)
class Hop(HopOptions, HopPlus):
    """HOP: goals are prey; the search acts, and the policy learns from it."""

    name: ClassVar[str] = "hop"
    traced: ClassVar[tuple[str, ...]] = tuple(name for name in HopPlus.traced if name != "discount")
    """All but the discount, which its search holds as a constant."""


def hop_paper(game: Game[Any]) -> dict[str, Any]:
    """HOP as it was published: five goals drawn, two hundred simulations each, PUCT on raw values with a constant that
    depends on the game, action by softmax(2 Q), discounted counts between episodes, plain Bayes within."""
    return {
        "draws": 5,
        "simulations": 200,
        "exploration": 15.0 if game.name.startswith("msg") else 1.0,
        "temperature": 0.5,
        "discount": 0.95,
        "memory": "counts",
        "switch": 0.0,
        "distrust": False,
        "only_earning": True,
    }

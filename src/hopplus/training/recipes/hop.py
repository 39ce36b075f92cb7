"""HOP: beliefs about prey, planning by tree search, and expert iteration."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hopplus.games import Game
from hopplus.planning.goals import Space
from hopplus.training.recipes.hopplus import HopPlus


@dataclass(frozen=True)
class Hop(HopPlus):
    """HOP: goals are prey; the search acts, and the policy learns from it."""

    goals: Space = "prey"
    """What others may be after: prey; none, which is direct opponent modelling; zero: a goal input is there, and
    always 0."""
    learn: Literal["ppo", "expert", "both"] = "expert"
    """How policy and value learn: from play by the search, towards it."""
    search: Literal["off", "on"] = "on"
    """Whether the player searches before it acts, once it is trained."""
    environments: int = 32
    """Environments played side by side."""
    rollout_steps: int = 16
    """Steps of each of them in one iteration."""

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

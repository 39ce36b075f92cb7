"""Human player, whose actions are given as params."""

from dataclasses import dataclass

from jaxtyping import Array, Int

from hopplus.core.keys import Key
from hopplus.games import Observation
from hopplus.players.player import Info, Memory, Params, Player, as_action

YOU = "you"
"""Name of a human player in a cast."""


@dataclass(frozen=True)
class Human(Player):
    """Plays a human's decisions. Params are the actions by step: int[T]."""

    name: str = YOU

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(params[observation.time]), memory, None

"""A person in a seat: somebody who decides for themselves."""

from dataclasses import dataclass

from jaxtyping import Array, Int

from hopplus.games import Observation
from hopplus.keys import Key
from hopplus.players.player import Info, Memory, Params, Player, as_action

YOU = "you"
"""What a person is called in a cast."""


@dataclass(frozen=True)
class Person(Player):
    """Does at every step what a person has decided to do there. Params are these decisions, by step: int[T]."""

    name: str = YOU

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(params[observation.time]), memory, ()

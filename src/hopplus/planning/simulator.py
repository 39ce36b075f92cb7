"""What would come of everybody's actions: by the rules, or by a learnt model of the world. The ego is in seat 0."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import flax.linen as nn
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Game, Observation, ego_first, one_seat
from hopplus.keys import Key
from hopplus.networks.world_model import Predicted
from hopplus.struct import struct

Params = Any
World = Literal["rules", "learned"]
WORLDS: tuple[str, ...] = get_args(World)


@struct
class Situation:
    """Where a simulation has come to."""

    state: Any
    """The game's, the ego in seat 0."""
    legal: Bool[Array, "n A"]
    """What everybody may do."""


@struct
class Consequence:
    """What a simulated step brought."""

    situation: Situation
    reward: Float[Array, " n"]
    goes_on: Bool[Array, ""]
    """Whether the ego is still in a game that is not over."""


@dataclass(frozen=True)
class Simulator:
    """Steps of one game by its rules, or by a network of the world if there is one."""

    game: Game[Any]
    network: nn.Module | None = None

    def at(self, observation: Observation) -> Situation:
        """The situation that one seat sees."""
        return Situation(self.game.restore(observation), observation.legal)

    def observe(self, situation: Situation) -> Observation:
        """What everybody sees, ego first; what they may do is what the simulation says."""
        seen = self.game.observe(situation.state)
        return Observation(**{**vars(seen), "legal": ego_first(situation.legal)})

    def step(self, key: Key, params: Params, situation: Situation, actions: Int[Array, " n"]) -> Consequence:
        """One step of everybody; `params` are those of the network of the world, () for the rules."""
        if self.network is None:
            state, outcome = self.game.step(key, situation.state, actions)
            goes_on = ~outcome.over & ~outcome.left[0]
            return Consequence(Situation(state, self.game.legal(state)), outcome.reward, goes_on)
        predicted = foresee(self.network, params, one_seat(self.observe(situation), 0), actions)
        following = self.at(predicted.observation)
        return Consequence(following, predicted.reward, ~predicted.over & ~predicted.left[0])


def foresee(network: nn.Module, params: Params, observation: Observation, actions: Int[Array, " n"]) -> Predicted:
    """What a network of the world expects of one observation and everybody's actions, ego-first."""
    return network.apply(params, observation, actions, method="predict")  # pyright: ignore[reportReturnType]

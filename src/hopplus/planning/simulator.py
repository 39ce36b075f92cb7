"""Simulator of one game step, by the game's rules or by a learnt world model. The ego is in seat 0."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import flax.linen as nn
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, ego_first, one_seat
from hopplus.networks.world_model import Predicted

Params = Any
World = Literal["rules", "learned"]
WORLDS: tuple[str, ...] = get_args(World)


@struct
class SimState:
    """State of a simulation."""

    state: Any
    """Game state, the ego in seat 0."""
    legal: Bool[Array, "n A"]
    """Legal actions of all players."""


@struct
class SimStep:
    """Result of a simulated step."""

    state: SimState
    reward: Float[Array, " n"]
    components: Float[Array, "n C"] | None
    """The reward by component; None with a world model, which predicts rewards only."""
    is_alive: Bool[Array, ""]
    """True while the game is not over and the ego has not left."""


@dataclass(frozen=True)
class Simulator:
    """Simulates a game by its rules, or by a world model if `network` is set."""

    game: Game[Any]
    network: nn.Module | None = None
    """World model; None: the game's rules."""

    def from_observation(self, observation: Observation) -> SimState:
        """Returns the simulation state for one seat's observation."""
        return SimState(self.game.restore(observation), observation.legal)

    def observe(self, sim_state: SimState) -> Observation:
        """Returns all players' observations [n, ...], ego first, with the simulation's action masks."""
        observations = self.game.observe(sim_state.state)
        return replace(observations, legal=ego_first(sim_state.legal))

    def step(self, key: Key, params: Params, sim_state: SimState, actions: Int[Array, " n"]) -> SimStep:
        """Simulates one step of all players; `params` are those of the world model, () for the rules."""
        if self.network is None:
            state, outcome = self.game.step(key, sim_state.state, actions)
            is_alive = ~outcome.over & ~outcome.left[0]
            return SimStep(SimState(state, self.game.legal(state)), outcome.reward, outcome.components, is_alive)
        predicted = predict(self.network, params, one_seat(self.observe(sim_state), 0), actions)
        next_state = self.from_observation(predicted.observation)
        return SimStep(next_state, predicted.reward, None, ~predicted.over & ~predicted.left[0])


def predict(network: nn.Module, params: Params, observation: Observation, actions: Int[Array, " n"]) -> Predicted:
    """Returns the world model's prediction for one observation and all players' actions, ego first."""
    return network.apply(params, observation, actions, method="predict")  # pyright: ignore[reportReturnType]

"""One simulated step: the rules or a world model, the ego's beliefs after it, and its policy and value there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import BeliefTracker, CoPlayerBeliefs
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, one_seat
from hopplus.games.preferences import Preference, preferred_reward
from hopplus.networks.sparse_first_layer import sparse_board, sparse_inputs
from hopplus.planning.simulator import SimState, Simulator

Params = Any
Evaluate = Callable[[Params, Observation, CoPlayerBeliefs], tuple[Array, Array]]
"""`(policy's params, ego's observation, ego's beliefs) -> (masked logits [A], value [])`."""


@struct
class SimulatedStep:
    """Result of a simulated step, with the ego's updated beliefs, policy and value."""

    state: SimState
    beliefs: CoPlayerBeliefs
    observation: Observation
    reward: Float[Array, ""]
    """The ego's reward in the game."""
    components: Float[Array, " C"] | None
    """That reward by component; None with a learnt world model."""
    is_alive: Bool[Array, ""]
    """True while the game is not over and the ego has not left."""
    logits: Float[Array, " A"]
    value: Float[Array, ""]

    def preferred_reward(self, preference: Preference) -> Float[Array, ""]:
        """Reward of an ego in the game, by its preference.

        A learnt world model predicts no components, so that the preference must be neutral: `HopPlus.check`.
        """
        return self.reward if self.components is None else preferred_reward(preference, self.components, True)


@dataclass(frozen=True)
class BeliefSimulator:
    """Simulator of steps with the ego's belief tracker, policy and value."""

    simulator: Simulator
    belief_tracker: BeliefTracker
    evaluate: Evaluate

    @property
    def game(self) -> Game[Any]:
        """The game."""
        return self.simulator.game

    def step(
        self,
        key: Key,
        params: Params,
        sim_state: SimState,
        beliefs: CoPlayerBeliefs,
        action: Int[Array, ""],
        replies: Int[Array, " n-1"],
    ) -> SimulatedStep:
        """Simulates one step with the ego's action and the co-players' replies, and updates the ego's beliefs."""
        actions = jnp.concatenate([action[None], replies])
        step = self.simulator.step(key, params.get("world", ()), sim_state, actions)
        observations = self.simulator.observe(step.state)
        beliefs = self.belief_tracker.update_imagined(params["moa"], beliefs, replies, observations, step.state.state)
        observation = one_seat(observations, 0)
        board = jax.tree.map(lambda leaf: leaf[0], sparse_board(self.game, step.state.state))
        with sparse_inputs(self.game, board):
            logits, value = self.evaluate(params["policy"], observation, beliefs)
        components = None if step.components is None else step.components[0]
        return SimulatedStep(step.state, beliefs, observation, step.reward[0], components, step.is_alive, logits, value)


def sample_actions(
    uniform: Float[Array, "*batch n-1"], probabilities: Float[Array, "n-1 A"]
) -> Int[Array, "*batch n-1"]:
    """Samples actions by inverting the cumulative distribution at uniform numbers.

    An action of probability 0 is never sampled.
    """
    bounds = jnp.cumsum(probabilities, -1)
    actions = (uniform[..., None] * bounds[:, -1:] >= bounds).sum(-1)
    last = jnp.max(jnp.where(probabilities > 0, jnp.arange(probabilities.shape[-1]), 0), -1)
    return jnp.minimum(actions, last).astype(jnp.int32)

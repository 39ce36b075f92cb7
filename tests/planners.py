"""Planners for tests, with exact opponent models of scripted players instead of learnt ones."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.beliefs.belief_tracker import BeliefTracker, CoPlayerBeliefs
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.games import Game, Observation, one_seat
from hopplus.planning.plan import Plan
from hopplus.planning.simulation import BeliefSimulator, Evaluate
from hopplus.planning.simulator import Simulator
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from hopplus.players import Player, make


@dataclass(frozen=True)
class KnownOpponents(OpponentModel):
    """Exact opponent model of scripted players: a goal is the index of an agent type."""

    agent_types: tuple[Player, ...] = ()

    def features(self, observations: Observation) -> Any:
        return jax.tree.map(lambda leaf: leaf[1:], observations)

    def policies(self, params: Any, features: Any, particles: Any = None) -> jax.Array:
        def by_type(observation: Observation) -> jax.Array:
            memories = [player.init(jax.random.key(0), ()) for player in self.agent_types]
            return jnp.stack(
                [
                    player.probabilities((), memory, observation)
                    for player, memory in zip(self.agent_types, memories, strict=True)
                ]
            )

        return jax.vmap(by_type)(features)


def known_opponents(game: Game[Any], *names: str) -> KnownOpponents:
    """Returns the exact opponent model of these agent types."""
    return KnownOpponents(game, "codes", None, len(names), agent_types=tuple(make(name, game) for name in names))  # pyright: ignore[reportArgumentType]


def params_of(goals: int) -> dict[str, Any]:
    """Returns the params of a planner without networks."""
    return {"policy": (), "moa": {"network": (), "prior": np.zeros(goals, np.float32)}}


def uniform_policy(params: Any, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[jax.Array, jax.Array]:
    """Returns the logits of a uniform policy and a value of 0."""
    return jnp.where(observation.legal[0], 0.0, -1e9), jnp.float32(0)


@dataclass(frozen=True)
class CertainPolicy:
    """Policy with this probability of one action, the others being equally likely, and a value of 0.

    A probability of 1 is so close to it that the other probabilities underflow to 0.
    """

    action: int
    probability: float = 0.999

    def __call__(self, params: Any, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[jax.Array, jax.Array]:
        legal = observation.legal[0]
        other = jnp.log(max(1 - self.probability, 1e-30) / jnp.maximum(legal.sum() - 1, 1))
        other = jnp.where(self.probability == 1, -200.0, other)
        logits = jnp.where(jnp.arange(len(legal)) == self.action, jnp.log(self.probability), other)
        return jnp.where(legal, logits, -1e9), jnp.float32(0)


def make_tree_planner(
    opponent_model: OpponentModel, search: SearchConfig, evaluate: Evaluate = uniform_policy, **settings: Any
) -> TreePlanner:
    """Returns a tree search with the game's rules and without networks."""
    tracker = BeliefTracker(opponent_model, **settings)
    return TreePlanner(search, BeliefSimulator(Simulator(opponent_model.game), tracker, evaluate))


@partial(jax.jit, static_argnames=("tracker", "simulator"))
def _observation_and_beliefs(
    state: Any, tracker: BeliefTracker, simulator: Simulator
) -> tuple[Observation, CoPlayerBeliefs]:
    params = params_of(tracker.opponent_model.num_goals)["moa"]
    observation = one_seat(simulator.game.observe(state), 0)
    sim_state = simulator.from_observation(observation)
    memory = tracker.init(jax.random.key(0), params)
    _, beliefs = tracker.predict(params, memory, observation, simulator.observe(sim_state), sim_state.state)
    return observation, beliefs


def initial_beliefs(planner: TreePlanner, state: Any, belief: Any = None) -> tuple[Observation, CoPlayerBeliefs]:
    """Returns seat 0's observation in a state, and its beliefs at the start of a trial or with this belief [n-1, K].

    There must be one rationality hypothesis. Equal opponent models are compiled once, whatever the search.
    """
    observation, beliefs = _observation_and_beliefs(
        state, planner.simulation.belief_tracker, planner.simulation.simulator
    )
    if belief is None:
        return observation, beliefs
    return observation, replace(beliefs, belief=jnp.asarray(belief, jnp.float32)[:, None])


@partial(jax.jit, static_argnames="planner")
def _plan(key: jax.Array, beliefs: CoPlayerBeliefs, observation: Observation, planner: TreePlanner) -> Plan:
    return planner.plan(
        key, params_of(planner.simulation.belief_tracker.opponent_model.num_goals), beliefs, observation
    )


def plan_in(planner: TreePlanner, state: Any, seed: int = 0, belief: Any = None) -> Plan:
    """Returns seat 0's plan in a state; equal planners are compiled once."""
    observation, beliefs = initial_beliefs(planner, state, belief)
    return jax.tree.map(np.asarray, _plan(jax.random.key(seed), beliefs, observation, planner))


def certain(goal: int, planner: TreePlanner) -> np.ndarray:
    """Returns the belief [n-1, K] that every co-player has this goal."""
    opponent_model = planner.simulation.belief_tracker.opponent_model
    return np.tile(np.eye(opponent_model.num_goals)[goal], (opponent_model.game.num_players - 1, 1))

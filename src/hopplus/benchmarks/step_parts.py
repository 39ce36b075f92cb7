"""Shares of the time of a simulated step: each part alone, in batches as large as a planner's."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.benchmarks.planning_setup import Setup
from hopplus.benchmarks.timed import Timed
from hopplus.core.keys import Key
from hopplus.games import Observation
from hopplus.networks.sparse_first_layer import sparse_board, sparse_inputs
from hopplus.planning.catalog import PlanningMethod
from hopplus.planning.queue import num_slots
from hopplus.planning.rollouts import RolloutPlanner
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.simulator import SimState
from hopplus.planning.tree_search import TreePlanner
from hopplus.players import Params

ROWS = 16
"""Batches of different states in one timing of a part."""
REST = "rest"


def step_parts(setup: Setup, planner: str, batch: int) -> dict[str, Timed]:
    """Compiles each part of a simulated step alone, for as many simulations at once as the planner runs."""
    player, method, params = setup.player(planner), setup.method(planner), jax.jit(setup.params)()
    lanes = _lanes(method, batch)
    decisions = setup.decisions(planner, params, ROWS * lanes)
    states = jax.vmap(player.simulation.simulator.from_observation)(decisions.observation)
    inputs = jax.tree.map(lambda leaf: leaf.reshape(ROWS, lanes, *leaf.shape[1:]), (decisions, states))

    def compile_part(part: str) -> Timed:
        step = _STEPS[part](player.simulation)

        def every_row(params: Params, rows: Any) -> Any:
            one_row = jax.vmap(step, (None, 0, 0, 0, 0))
            return jax.lax.map(
                lambda row: one_row(params, row[0].key, row[1], row[0].beliefs, row[0].observation), rows
            )

        started = time.perf_counter()
        compiled = jax.jit(every_row).lower(params, inputs).compile()
        timed = Timed({"part": part}, compiled, [(params, inputs)], time.perf_counter() - started, float(ROWS * lanes))
        jax.block_until_ready(compiled(params, inputs))
        return timed

    return {part: compile_part(part) for part in PARTS}


def _lanes(method: PlanningMethod, batch: int) -> int:
    """Simulations that a planner runs at once; for planners of a user one per decision."""
    if isinstance(method, RolloutPlanner):
        return num_slots(batch * method.config.rollouts)
    return batch * method.search.belief_samples if isinstance(method, TreePlanner) else batch


def shares_of_time(steps_per_second: float | None, parts: dict[str, Timed]) -> dict[str, float] | None:
    """Returns the parts' shares of the time of one simulated step; None if that is unknown.

    The rest is sampling, the queue or the trees, the choice among candidates, and idle slots. It can be negative where
    the compiler saves time by fusing parts.
    """
    if steps_per_second is None:
        return None
    shares = {name: part.seconds / part.steps * steps_per_second for name, part in parts.items() if part.steps}
    return {**shares, REST: 1 - sum(shares.values())}


def _rules(simulation: BeliefSimulator) -> Callable[..., Any]:
    def step(params: Params, key: Key, state: SimState, beliefs: CoPlayerBeliefs, observation: Observation) -> Any:
        actions = jnp.full(simulation.game.num_players, simulation.game.idle_action, jnp.int32)
        after = simulation.simulator.step(key, params.get("world", ()), state, actions)
        return after, simulation.simulator.observe(after.state)

    return step


def _opponent_model(simulation: BeliefSimulator) -> Callable[..., Array]:
    model = simulation.belief_tracker.opponent_model

    def step(params: Params, key: Key, state: SimState, beliefs: CoPlayerBeliefs, observation: Observation) -> Array:
        inputs = model.sparse_inputs(simulation.simulator.observe(state), state.state)
        return model.policies(params["moa"]["network"], inputs, beliefs.particles)

    return step


def _own_network(simulation: BeliefSimulator) -> Callable[..., Any]:
    def step(params: Params, key: Key, state: SimState, beliefs: CoPlayerBeliefs, observation: Observation) -> Any:
        board = jax.tree.map(lambda leaf: leaf[0], sparse_board(simulation.game, state.state))
        with sparse_inputs(simulation.game, board):
            return simulation.evaluate(params["policy"], observation, beliefs)

    return step


def _filter(simulation: BeliefSimulator) -> Callable[..., Array]:
    tracker = simulation.belief_tracker

    def step(params: Params, key: Key, state: SimState, beliefs: CoPlayerBeliefs, observation: Observation) -> Array:
        actions = jnp.full(tracker.co_players, simulation.game.idle_action, jnp.int32)
        return tracker.filter_imagined(beliefs.belief, beliefs, actions, observation)

    return step


_STEPS: dict[str, Callable[[BeliefSimulator], Callable[..., Any]]] = {
    "rules": _rules,
    "opponent_model": _opponent_model,
    "own_network": _own_network,
    "beliefs": _filter,
}
PARTS = tuple(_STEPS)

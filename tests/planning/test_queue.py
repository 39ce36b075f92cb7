"""Queue of simulations: a simulation's result does not depend on the others, whatever shares its slots."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gamble import GAMBLE, Coin, gamble
from hopplus.planning.playout import Simulation
from hopplus.planning.queue import FEWEST_SLOTS, Roots, Tasks, simulations_in_slots
from hopplus.planning.tree_search import SearchConfig
from planners import initial_beliefs, make_tree_planner

DECISIONS, SIZE = 3, 40


def step(params: Array, root: Roots, task: Tasks, sim: Simulation) -> tuple[Simulation, Array]:
    """A step that pays a number of its task, of its root and of the params, in simulations of 1 to 9 steps."""
    total = sim.total + params * (1 + task.plan) + root.beliefs.plan
    return replace(sim, total=total, time=sim.time + 1), sim.time >= task.action


def roots_and_tasks() -> tuple[Roots, Tasks]:
    """Returns a root for each decision and random tasks [DECISIONS, SIZE], none of them valid in the last decision."""
    planner = make_tree_planner(Coin(GAMBLE, "codes", None, 1), SearchConfig())  # pyright: ignore[reportArgumentType]
    observation, beliefs = initial_beliefs(planner, gamble(True))
    state = planner.simulation.simulator.from_observation(observation)
    root = Roots(state, beliefs, observation.time, observation.deadline)
    roots = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (DECISIONS, 1, *jnp.shape(leaf))), root)
    roots = replace(roots, beliefs=replace(roots.beliefs, plan=100 * jnp.arange(DECISIONS)[:, None]))
    generator, shape = np.random.default_rng(0), (DECISIONS, SIZE)
    is_valid = generator.random(shape) < 0.7
    is_valid[-1] = False
    tasks = Tasks(
        root=jnp.zeros(shape, jnp.int32),
        key=jax.random.split(jax.random.key(0), shape),
        action=jnp.asarray(generator.integers(0, 9, shape)),
        plan=jnp.asarray(generator.integers(0, 50, shape)),
        hypothesis=jnp.zeros((*shape, 1), jnp.int32),
        is_valid=jnp.asarray(is_valid),
    )
    return roots, tasks


def expected(tasks: Tasks, params: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the returns and lengths of the tasks, with params [DECISIONS]."""
    lengths = np.where(tasks.is_valid, 1 + np.asarray(tasks.action), 0)
    pay = np.asarray(params)[:, None] * (1 + np.asarray(tasks.plan)) + 100 * np.arange(DECISIONS)[:, None]
    return lengths * pay, lengths


def test_simulations_of_one_decision_wait_for_a_slot() -> None:
    roots, tasks = roots_and_tasks()
    first = jax.tree.map(lambda leaf: leaf[0], (roots, tasks))
    results = jax.jit(simulations_in_slots(step))(1.0, *first)
    for result, right in zip(results, expected(tasks, np.ones(DECISIONS)), strict=True):
        np.testing.assert_array_equal(result, right[0])
    assert SIZE > 2 * FEWEST_SLOTS


def test_decisions_of_a_batch_share_slots() -> None:
    """The same results in a batch of batches, in which one decision has no simulation."""
    roots, tasks = roots_and_tasks()
    run = jax.vmap(jax.vmap(simulations_in_slots(step), (None, 0, 0)), (None, None, 0))
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tasks)
    for result, right in zip(jax.jit(run)(1.0, roots, twice), expected(tasks, np.ones(DECISIONS)), strict=True):
        np.testing.assert_array_equal(result, np.stack([right, right]))


def test_each_of_several_parameter_sets_has_its_own_slots() -> None:
    roots, tasks = roots_and_tasks()
    params = jnp.arange(1.0, 1 + DECISIONS)
    results = jax.jit(jax.vmap(simulations_in_slots(step)))(params, roots, tasks)
    for result, right in zip(results, expected(tasks, params), strict=True):
        np.testing.assert_array_equal(result, right)

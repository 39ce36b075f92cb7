"""Queue of simulations that end at different times, run in few slots.

A slot whose simulation has ended takes the next one. Under `jax.vmap`, all decisions of a batch share the slots, so
that no slot is idle while the decision with the longest simulations is planned. A simulation's result does not depend
on its slot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.keys import Key
from hopplus.core.struct import struct, where_first
from hopplus.planning.playout import Simulation
from hopplus.planning.simulation import Params
from hopplus.planning.simulator import SimState
from hopplus.planning.tree import anywhere

SIMULATIONS_PER_SLOT = 16
"""Mean number of simulations that a slot runs one after another."""
FEWEST_SLOTS = 8
"""Slots for few simulations; a step in fewer slots takes as long."""


@struct
class Roots:
    """Starts of simulations, by decision [R]."""

    state: SimState
    beliefs: CoPlayerBeliefs
    time: Int[Array, " R"]
    """Steps played in the episode."""
    deadline: Int[Array, " R"]
    """The step at which the game ends at the latest."""


@struct
class Tasks:
    """Simulations [S] to run."""

    root: Int[Array, " S"]
    """Index of the decision."""
    key: Key
    action: Int[Array, " S"]
    """The ego's first action."""
    plan: Int[Array, " S"]
    """The plan that the ego follows."""
    hypothesis: Int[Array, "S n-1"]
    """Hypotheses about the co-players, numbered b K + k."""
    is_valid: Bool[Array, " S"]
    """False for simulations that are not run."""


@struct
class Queue:
    """Simulations that run in slots [L], wait or have ended."""

    simulation: Simulation
    """By slot."""
    task: Tasks
    """By slot."""
    position: Int[Array, " L"]
    """Position in the queue of each slot's simulation."""
    started: Int[Array, ""]
    """Simulations that have started."""
    returns: Float[Array, " S"]
    """Returns of the simulations that have ended."""
    lengths: Int[Array, " S"]
    """Steps of the simulations that have ended."""


Step = Callable[[Params, Roots, Tasks, Simulation], tuple[Simulation, Bool[Array, ""]]]
"""`(params, root, task, simulation) -> (simulation after one step, whether it has ended)`, each of one simulation."""
Run = Callable[[Params, Roots, Tasks], tuple[Float[Array, " S"], Int[Array, " S"]]]
"""`(params, roots, tasks) -> (returns, lengths)`; both are 0 for simulations that are not run."""


def simulations_in_slots(step: Step) -> Run:
    """Returns a function that runs simulations to their ends; `step` must not capture traced arrays."""

    @custom_vmap
    def run(params: Params, roots: Roots, tasks: Tasks) -> tuple[Array, Array]:
        return _run(step, params, roots, tasks)

    @run.def_vmap
    def _(axis_size: int, in_batched: Any, params: Params, roots: Roots, tasks: Tasks) -> Any:
        if any(jax.tree.leaves(in_batched[0])):
            # With several parameter sets, each has slots of its own: gathered weights would cost more than idle slots.
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
            return jax.vmap(partial(_run, step), axes)(params, roots, tasks), (True, True)

        def flatten(leaf: Array, is_batched: bool) -> Array:
            batch = leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            return batch.reshape(-1, *batch.shape[2:])

        roots, tasks = jax.tree.map(flatten, (roots, tasks), tuple(in_batched[1:]))
        decisions, size = len(roots.beliefs.plan) // axis_size, len(tasks.root) // axis_size
        first_root = decisions * jnp.repeat(jnp.arange(axis_size, dtype=tasks.root.dtype), size)
        outputs = run(params, roots, Tasks(**{**vars(tasks), "root": tasks.root + first_root}))
        return tuple(output.reshape(axis_size, size) for output in outputs), (True, True)

    return run


def num_slots(simulations: int) -> int:
    """Returns the number of slots for a number of simulations."""
    return max(simulations // SIMULATIONS_PER_SLOT, min(simulations, FEWEST_SLOTS))


def _run(step: Step, params: Params, roots: Roots, tasks: Tasks) -> tuple[Float[Array, " S"], Int[Array, " S"]]:
    size = len(tasks.root)
    number, rank = tasks.is_valid.sum(), jnp.cumsum(tasks.is_valid) - 1
    order = jnp.zeros(size, jnp.int32).at[jnp.where(tasks.is_valid, rank, size)].set(jnp.arange(size), mode="drop")

    def root_of(task: Tasks) -> Roots:
        return jax.tree.map(lambda leaf: leaf[task.root], roots)

    def start(position: Array) -> tuple[Simulation, Tasks]:
        task = jax.tree.map(lambda leaf: leaf[order[jnp.minimum(position, size - 1)]], tasks)
        root = root_of(task)
        simulation = Simulation(
            state=root.state,
            belief=root.beliefs.belief,
            action_probs_by_goal=root.beliefs.action_probs_by_goal,
            hypothesis=task.hypothesis,
            action=task.action,
            total=jnp.zeros(position.shape),
            time=jnp.zeros(position.shape, jnp.int32),
        )
        return simulation, task

    def advance(queue: Queue) -> Queue:
        after, ended = jax.vmap(partial(step, params))(root_of(queue.task), queue.task, queue.simulation)
        ended = ended & (queue.position < number)
        target = jnp.where(ended, order[jnp.minimum(queue.position, size - 1)], size)
        position = jnp.where(ended, queue.started + jnp.cumsum(ended) - 1, queue.position)
        simulation, task = where_first(ended, start(position), (after, queue.task))
        returns = queue.returns.at[target].set(after.total, mode="drop")
        lengths = queue.lengths.at[target].set(after.time, mode="drop")
        return Queue(simulation, task, position, queue.started + ended.sum(), returns, lengths)

    first = jnp.arange(num_slots(size))
    queue = Queue(*start(first), first, jnp.int32(len(first)), jnp.zeros(size), jnp.zeros(size, jnp.int32))
    queue = jax.lax.while_loop(lambda queue: anywhere((queue.position < number).any()), advance, queue)
    return queue.returns, queue.lengths

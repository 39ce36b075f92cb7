"""Online training of models inside an algorithm: a few optimiser steps per iteration on the latest rollout.

Train states are stacked over parameter sets [P, ...]. Each set learns only from the rows of the seats that it models.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from hopplus.core.keys import Key
from hopplus.core.sharding import replicate, shard
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.networks.train_state import TrainState
from hopplus.players import Params

Objective = Callable[[Params, Key, Any], tuple[Array, dict[str, tuple[Array, Array]]]]
"""`(params, key, batch) -> (loss, terms as sums and counts)`."""
SHUFFLE, LOSS = range(2)
"""Purposes of a fit's key."""
MOVING = 0.05
"""Step size of moving averages of frequencies and returns."""


def make_optimizer() -> optax.GradientTransformation:
    """Returns Adam on clipped gradients; its updates are still to be multiplied by the learning rate."""
    return optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())


def init_train_state(params: Params) -> TrainState:
    """Returns the initial train state of parameters [P, ...]."""
    return TrainState(params, jax.vmap(make_optimizer().init)(params))


def fit(
    key: Key,
    objective: Objective,
    train_state: TrainState,
    data: Any,
    batches: int,
    rate: Float[Array, ""] | float,
    for_set: Callable[[Any, Any], Any],
    about: Any,
    weights: Float[Array, " N"] | None = None,
) -> tuple[TrainState, dict[str, tuple[Array, Array]]]:
    """Makes one pass over data [N, ...] in random minibatches.

    Args:
        key: Random key.
        objective: Loss of one parameter set.
        train_state: Train state [P, ...].
        data: Training data [N, ...].
        batches: Number of minibatches.
        rate: Learning rate.
        for_set: `for_set(batch, about[p])` is the minibatch of parameter set p.
        about: Description of each parameter set [P, ...].
        weights: Sampling weights of the data; by default every unit is drawn once.

    Returns:
        The new train state, and the loss terms [P] summed over minibatches.
    """
    data = replicate(data)
    number, shuffle_key = len(jax.tree.leaves(data)[0]), jax.random.fold_in(key, SHUFFLE)
    if weights is None:
        order = jax.random.permutation(shuffle_key, number)
    else:
        order = jax.random.choice(shuffle_key, number, (number,), p=weights / weights.sum())
    minibatches = order[: number // batches * batches].reshape(batches, -1)

    def step(train_state: TrainState, minibatch: tuple[Array, Array]) -> tuple[TrainState, Any]:
        index, step_number = shard(minibatch[0], 0), minibatch[1]
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        loss_key = jax.random.fold_in(jax.random.fold_in(key, LOSS), step_number)

        def update(params: Params, opt_state: Any, about: Any) -> tuple[Params, Any, Any]:
            gradient = jax.grad(objective, has_aux=True)
            gradients, terms = gradient(params, loss_key, for_set(batch, about))
            changes, opt_state = make_optimizer().update(gradients, opt_state)
            return jax.tree.map(lambda param, change: param - rate * change, params, changes), opt_state, terms

        params, opt_state, terms = jax.vmap(update)(train_state.params, train_state.opt_state, about)
        return TrainState(params, opt_state), terms

    train_state, terms = jax.lax.scan(step, train_state, (minibatches, jnp.arange(batches)))
    return train_state, jax.tree.map(lambda leaf: leaf.sum(0), terms)


def mask_seats(trajectories: AgentTrajectories, seats: Bool[Array, " n"]) -> AgentTrajectories:
    """Masks the rows of all but some seats."""
    return AgentTrajectories(**{**vars(trajectories), "alive": trajectories.alive & seats[trajectories.seat][:, None]})


def update_prior(
    prior: Float[Array, " K"],
    trajectories: AgentTrajectories,
    seats: Bool[Array, " n"],
    first_rows: Bool[Array, "N L"],
) -> Float[Array, " K"]:
    """Moves the log-prior over goals towards the frequencies of initial goals in these trajectories."""
    counted = (mask_seats(trajectories, seats).alive & first_rows)[..., None] & (
        trajectories.goal[..., None] == jnp.arange(prior.shape[0])
    )
    counts = counted.sum((0, 1)).astype(jnp.float32)
    frequencies = (counts + 1.0) / (counts + 1.0).sum()
    moved = (1 - MOVING) * jax.nn.softmax(prior) + MOVING * frequencies
    return jnp.where(counts.sum() > 0, jnp.log(moved), prior)


def inverse_frequency_weights(trajectories: AgentTrajectories, goals: int) -> Float[Array, " N"]:
    """Returns sampling weights of trajectories that balance the goals; every weight is positive.

    The optimal prediction given a goal does not depend on the goal's frequency, but rare goals are learnt slowly.
    """
    has_goal = trajectories.alive[..., None] & (trajectories.goal[..., None] == jnp.arange(goals))
    counts = has_goal.sum((0, 1)).astype(jnp.float32)
    inverse = jnp.where(counts > 0, 1.0 / jnp.maximum(counts, 1.0), 0.0)
    return (has_goal * inverse).sum((1, 2)) + 1e-3 / trajectories.alive.shape[0]


def update_goal_returns(goal_returns: Float[Array, " K"], trajectories: AgentTrajectories) -> Float[Array, " K"]:
    """Moves the mean return of each goal towards that in these trajectories; 0 for goals that have not occurred yet."""
    has_goal = trajectories.alive[..., None] & (trajectories.goal[..., None] == jnp.arange(goal_returns.shape[0]))
    count = has_goal.sum((0, 1))
    means = jnp.where(has_goal, trajectories.value[..., None], 0.0).sum((0, 1)) / jnp.maximum(count, 1)
    moved = jnp.where(goal_returns == 0, means, (1 - MOVING) * goal_returns + MOVING * means)
    return jnp.where(count > 0, moved, goal_returns)

"""Models that learn from what was just played, inside a training: a few steps of an optimiser in every iteration.

Learners are stacked, sets first [P, ...]; every set learns only from the rows of those whom it is about.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from hopplus.devices import divided, whole
from hopplus.keys import Key
from hopplus.learning.lives import Lives
from hopplus.learning.ppo import Learner
from hopplus.players import Params

Objective = Callable[[Params, Key, Any], tuple[Array, dict[str, tuple[Array, Array]]]]
"""`(params, key, batch) -> (loss, terms as sums and counts)`."""
DEAL, LOSS = range(2)
"""Purposes of a fit's key."""
MOVING = 0.05
"""How fast counted frequencies follow what is played."""


def optimiser() -> optax.GradientTransformation:
    """Adam on clipped gradients; its steps are still to be multiplied by the step size."""
    return optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())


def first(params: Params) -> Learner:
    """A learner [P, ...] before its first step."""
    return Learner(params, jax.vmap(optimiser().init)(params))


def fit(
    key: Key,
    objective: Objective,
    learner: Learner,
    data: Any,
    batches: int,
    rate: Float[Array, ""] | float,
    for_set: Callable[[Any, Any], Any],
    about: Any,
    weights: Float[Array, " N"] | None = None,
) -> tuple[Learner, dict[str, tuple[Array, Array]]]:
    """One pass over data [N, ...] in so many batches, drawn at random; what a set [P] learns from is for_set(batch,
    about[p]). With weights, data are drawn in proportion to them instead, some more than once. Returns the learner
    and the terms of the losses [P], summed."""
    data = whole(data)
    number, deal = len(jax.tree.leaves(data)[0]), jax.random.fold_in(key, DEAL)
    if weights is None:
        order = jax.random.permutation(deal, number)
    else:
        order = jax.random.choice(deal, number, (number,), p=weights / weights.sum())
    dealt = order[: number // batches * batches].reshape(batches, -1)

    def step(learner: Learner, chosen: tuple[Array, Array]) -> tuple[Learner, Any]:
        index, numbered = divided(chosen[0], 0), chosen[1]
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        own = jax.random.fold_in(jax.random.fold_in(key, LOSS), numbered)

        def one(params: Params, memory: Any, about: Any) -> tuple[Params, Any, Any]:
            gradient = jax.grad(objective, has_aux=True)
            gradients, terms = gradient(params, own, for_set(batch, about))
            changes, memory = optimiser().update(gradients, memory)
            return jax.tree.map(lambda param, change: param - rate * change, params, changes), memory, terms

        params, memory, terms = jax.vmap(one)(learner.params, learner.optimiser, about)
        return Learner(params, memory), terms

    learner, terms = jax.lax.scan(step, learner, (dealt, jnp.arange(batches)))
    return learner, jax.tree.map(lambda leaf: leaf.sum(0), terms)


def of_seats(lives: Lives, seats: Bool[Array, " n"]) -> Lives:
    """Only what players in some seats lived."""
    return Lives(**{**vars(lives), "alive": lives.alive & seats[lives.seat][:, None]})


def followed_prior(
    prior: Float[Array, " K"], lives: Lives, seats: Bool[Array, " n"], first_rows: Bool[Array, "N L"]
) -> Float[Array, " K"]:
    """The logarithm of how often each goal is a life's first, moved towards what these lives had."""
    counted = (of_seats(lives, seats).alive & first_rows)[..., None] & (
        lives.goal[..., None] == jnp.arange(prior.shape[0])
    )
    counts = counted.sum((0, 1)).astype(jnp.float32)
    now = (counts + 1.0) / (counts + 1.0).sum()
    moved = (1 - MOVING) * jax.nn.softmax(prior) + MOVING * now
    return jnp.where(counts.sum() > 0, jnp.log(moved), prior)


def rare_goals_first(lives: Lives, goals: int) -> Float[Array, " N"]:
    """Weights of lives by which every goal is met equally often, and none of them is never met.

    What a model says given a goal is the same however often each goal occurs; but what it hardly ever meets it does
    not learn.
    """
    having = lives.alive[..., None] & (lives.goal[..., None] == jnp.arange(goals))
    often = having.sum((0, 1)).astype(jnp.float32)
    rare = jnp.where(often > 0, 1.0 / jnp.maximum(often, 1.0), 0.0)
    return (having * rare).sum((1, 2)) + 1e-3 / lives.alive.shape[0]


def followed_worth(worth: Float[Array, " K"], lives: Lives) -> Float[Array, " K"]:
    """What those earned who had each goal, moved towards what these lives earned; 0 of a goal that nobody had yet."""
    having = lives.alive[..., None] & (lives.goal[..., None] == jnp.arange(worth.shape[0]))
    count = having.sum((0, 1))
    now = jnp.where(having, lives.value[..., None], 0.0).sum((0, 1)) / jnp.maximum(count, 1)
    moved = jnp.where(worth == 0, now, (1 - MOVING) * worth + MOVING * now)
    return jnp.where(count > 0, moved, worth)

"""Codes: goals that nobody has named, found as the hidden states of one co-player's behaviour.

A player has a code k, drawn from a prior and kept but for a small chance of being drawn anew; it acts by pi(a | o, k).
What is learnt maximises the likelihood of whole lives by the forward algorithm: there is no encoder and nothing is
sampled. As a code is kept, it says what sort of player this is; it cannot merely name the next action.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.learning.lives import Lives
from hopplus.learning.moa import log_probabilities, of_action
from hopplus.networks.action_model import ActionModel
from hopplus.planning.beliefs import Filtered, follow, smooth
from hopplus.players import Params


def likelihoods(network: ActionModel, params: Params, lives: Lives) -> Float[Array, "N L K"]:
    """log pi(a | o, k) of what was done, for every code."""
    return of_action(log_probabilities(network, params, lives), lives.action)


def evidence(
    prior: Float[Array, " K"],
    likelihood: Float[Array, "N L K"],
    alive: Bool[Array, "N L"],
    switch: float,
    starts: Bool[Array, "N L"] | None = None,
) -> Filtered:
    """The filter of the model itself: its `evidence` sums to the logarithm of each life's probability."""
    begins = jnp.zeros_like(alive) if starts is None else starts
    return jax.vmap(lambda seen, alive, begins: follow(prior, seen, alive, switch, starts=begins))(
        likelihood, alive, begins
    )


def hindsight(
    prior: Float[Array, " K"],
    likelihood: Float[Array, "N L K"],
    filtered: Filtered,
    alive: Bool[Array, "N L"],
    switch: float,
    starts: Bool[Array, "N L"] | None = None,
) -> Float[Array, "N L K"]:
    """The smoothed posterior over codes in every step of every life, as probabilities."""
    begins = jnp.zeros_like(alive) if starts is None else starts
    smooth_one = jax.vmap(lambda filtered, seen, *rest: smooth(filtered, seen, rest[0], prior, switch, rest[1]))
    return jnp.exp(smooth_one(filtered, likelihood, alive, begins))


def usage(posterior: Float[Array, "N L K"], alive: Bool[Array, "N L"]) -> Float[Array, " K"]:
    """The mean posterior over living rows: how much each code is used."""
    weights = alive[..., None]
    return (posterior * weights).sum((0, 1)) / jnp.maximum(weights.sum(), 1)


def divergence_from_uniform(usage: Float[Array, " K"]) -> Float[Array, ""]:
    """KL(usage || uniform): 0 where all codes are used alike, log K where only one is."""
    safe = jnp.maximum(usage, 1e-12)
    return (usage * (jnp.log(safe) + jnp.log(usage.shape[0]))).sum()

"""Beliefs about the goal of another player, from what it does: the filter of a hidden Markov model, and its smoother.

Goals are numbered 0 to K - 1. A goal is kept from step to step, but for a chance `switch` of being drawn anew from the
prior; a goal that is no longer there (its prey is gone) gives its probability to those that are, in proportion to the
prior. Everything is in logarithms and for one player's steps [T]; batches are made with `jax.vmap`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.struct import struct

SLIP = 0.02
"""How far a model of a player is distrusted: the share of a uniform choice in the likelihood, so that Bayes does not
lock in."""
IMPOSSIBLE = -1e9


@struct
class Filtered:
    """What the history says before each step."""

    before: Float[Array, "T K"]
    """The logarithm of the belief before each step's action is seen."""
    evidence: Float[Array, " T"]
    """The logarithm of the probability of each step's action given all before it; 0 where the player is not there."""
    after: Float[Array, " K"]
    """The logarithm of the belief after the last step."""


def with_slips(probability: Float[Array, "..."], choices: Float[Array, "..."]) -> Float[Array, "..."]:
    """The likelihood of an action to which a model gives a probability, among so many legal ones."""
    return (1 - SLIP) * probability + SLIP / choices


def follow(
    prior: Float[Array, " K"],
    likelihood: Float[Array, "T K"],
    alive: Bool[Array, " T"],
    switch: float = 0.0,
    available: Bool[Array, "T K"] | None = None,
    starts: Bool[Array, " T"] | None = None,
) -> Filtered:
    """The filter: prior and likelihoods are logarithms; steps in which the player is not there change nothing. Steps
    that start another life begin again with the prior."""
    there = jnp.ones_like(likelihood, bool) if available is None else available
    begins = jnp.zeros_like(alive) if starts is None else starts
    prior = normalised(prior)

    def step(belief: Array, seen: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        likelihood, alive, there, begins = seen
        belief = only_those_there(jnp.where(begins, prior, belief), prior, there)
        evidence = jax.nn.logsumexp(belief + likelihood)
        after = learn(belief, prior, likelihood, switch) - evidence
        return jnp.where(alive, after, belief), (belief, jnp.where(alive, evidence, 0.0))

    after, (before, evidence) = jax.lax.scan(step, prior, (likelihood, alive, there, begins))
    return Filtered(before, evidence, after)


def smooth(
    filtered: Filtered,
    likelihood: Float[Array, "T K"],
    alive: Bool[Array, " T"],
    prior: Float[Array, " K"],
    switch: float,
    starts: Bool[Array, " T"] | None = None,
) -> Float[Array, "T K"]:
    """The logarithm of the belief about the goal in each step in hindsight, of the whole life (all goals there)."""
    prior = normalised(prior)
    begins = jnp.zeros_like(alive) if starts is None else starts

    def step(future: Array, seen: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        likelihood, alive, ends = seen
        future = jnp.where(ends, 0.0, future)
        stays = jnp.log1p(-switch) + future
        anew = jnp.log(switch) + jax.nn.logsumexp(prior + future) if switch else jnp.full_like(stays, IMPOSSIBLE)
        message = likelihood + jnp.logaddexp(stays, anew)
        message = jnp.where(alive, message - message.max(), future)
        return message, message

    nothing = jnp.zeros_like(prior)
    ends = jnp.concatenate([begins[1:], jnp.zeros(1, bool)])
    _, messages = jax.lax.scan(step, nothing, (likelihood, alive, ends), reverse=True)
    return normalised(filtered.before + messages)


def normalised(log_weights: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """The logarithm of the probabilities that are in proportion to the weights."""
    return log_weights - jax.nn.logsumexp(log_weights, axis=-1, keepdims=True)


def learn(
    belief: Float[Array, "... K"], prior: Float[Array, " K"], likelihood: Float[Array, " K"], switch: float
) -> Float[Array, "... K"]:
    """The belief after an action, not normalised: what it weighs in all is the belief's evidence."""
    joint = belief + likelihood
    if not switch:
        return joint
    anew = jnp.log(switch) + prior + jax.nn.logsumexp(joint, axis=-1, keepdims=True)
    return jnp.logaddexp(jnp.log1p(-switch) + joint, anew)


def only_those_there(
    belief: Float[Array, "... K"], prior: Float[Array, " K"], there: Bool[Array, " K"]
) -> Float[Array, "... K"]:
    """The belief with what lay on goals that are gone shared out among those that are there."""
    lost = jax.nn.logsumexp(jnp.where(there, IMPOSSIBLE, belief), axis=-1, keepdims=True)
    among = jnp.where(there, prior, IMPOSSIBLE)
    shared = jnp.logaddexp(belief, lost + among - jax.nn.logsumexp(among))
    return jnp.where(there, shared, IMPOSSIBLE)

"""Hidden Markov model of a player's goal: filter and smoother.

Goals are numbered 0 to K - 1. At each step the goal is resampled from the prior with probability `switch_probability`,
and stays the same otherwise. The mass of an unavailable goal (its prey is gone) is redistributed to the available goals
in proportion to the prior. Quantities are log-probabilities over the steps [T] of one player, except in the functions
named `..._probs`; use `jax.vmap` for batches.

A player may have fixed properties beside its goal (its rationality, for instance): quantities then have the shape
[..., K], the prior is joint over all axes, and goals switch by the prior given the fixed properties.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.core.struct import struct

IMPOSSIBLE = -1e9
"""Log-probability of an impossible goal."""
SMALLEST = 1e-30
"""Least divisor, and least probability of an action whose logarithm is taken."""


@struct
class Filtered:
    """Result of the filter."""

    before: Float[Array, "T *B K"]
    """Log-belief before each step's action is observed."""
    evidence: Float[Array, " T"]
    """Log-probability of each step's action given all earlier actions; 0 where the player is not alive."""
    after: Float[Array, "*B K"]
    """Log-belief after the last step."""


def filter(
    prior: Float[Array, "*B K"],
    likelihood: Float[Array, "T *B K"],
    alive: Bool[Array, " T"],
    switch_probability: float = 0.0,
    available: Bool[Array, "T K"] | None = None,
    is_first: Bool[Array, " T"] | None = None,
) -> Filtered:
    """Filters the goal of one player.

    Args:
        prior: log-prior over goals; need not be normalised.
        likelihood: log-likelihood of each step's action under each goal.
        alive: steps in which the player acts; other steps leave the belief unchanged.
        switch_probability: per-step probability that the goal is resampled.
        available: goals available in each step; by default all.
        is_first: first steps of episodes, at which the belief is reset to the prior; by default only the first step.
    """
    if available is None:
        available = jnp.ones((likelihood.shape[0], likelihood.shape[-1]), bool)
    is_first = jnp.zeros_like(alive) if is_first is None else is_first
    prior = normalize_joint(prior)
    goal_prior = normalize(prior)

    def step(belief: Array, inputs: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        likelihood, alive, available, is_first = inputs
        belief = restrict_to_available(jnp.where(is_first, prior, belief), goal_prior, available)
        evidence = jax.nn.logsumexp(belief + likelihood)
        after = update(belief, goal_prior, likelihood, switch_probability) - evidence
        return jnp.where(alive, after, belief), (belief, jnp.where(alive, evidence, 0.0))

    after, (before, evidence) = jax.lax.scan(step, prior, (likelihood, alive, available, is_first))
    return Filtered(before, evidence, after)


def smooth(
    filtered: Filtered,
    likelihood: Float[Array, "T *B K"],
    alive: Bool[Array, " T"],
    prior: Float[Array, "*B K"],
    switch_probability: float,
    is_first: Bool[Array, " T"] | None = None,
) -> Float[Array, "T *B K"]:
    """Smooths a filtered goal: log-posterior over the goal in each step given the whole episode.

    All goals are assumed to be available. Arguments are those of `filter`.
    """
    prior = normalize(prior)
    is_first = jnp.zeros_like(alive) if is_first is None else is_first

    def step(future: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        likelihood, alive, is_last = inputs
        future = jnp.where(is_last, 0.0, future)
        stays = jnp.log1p(-switch_probability) + future
        switches = (
            jnp.log(switch_probability) + jax.nn.logsumexp(prior + future, axis=-1, keepdims=True)
            if switch_probability
            else jnp.full_like(stays, IMPOSSIBLE)
        )
        message = likelihood + jnp.logaddexp(stays, switches)
        message = jnp.where(alive, message - message.max(), future)
        return message, message

    is_last = jnp.concatenate([is_first[1:], jnp.zeros(1, bool)])
    _, messages = jax.lax.scan(step, jnp.zeros_like(prior), (likelihood, alive, is_last), reverse=True)
    return jax.vmap(normalize_joint)(filtered.before + messages)


def normalize_joint(log_weights: Float[Array, "*B K"]) -> Float[Array, "*B K"]:
    """Normalises log-weights to log-probabilities over all axes."""
    return log_weights - jax.nn.logsumexp(log_weights)


def normalize(log_weights: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Normalises log-weights to log-probabilities over the last axis."""
    return log_weights - jax.nn.logsumexp(log_weights, axis=-1, keepdims=True)


def update(
    belief: Float[Array, "... K"],
    prior: Float[Array, "... K"],
    likelihood: Float[Array, "... K"],
    switch_probability: float,
) -> Float[Array, "... K"]:
    """Returns the log-belief after an action, not normalised: its log-sum is the evidence of the action.

    The prior over goals is normalised over the last axis.
    """
    joint = belief + likelihood
    if not switch_probability:
        return joint
    switches = jnp.log(switch_probability) + prior + jax.nn.logsumexp(joint, axis=-1, keepdims=True)
    return jnp.logaddexp(jnp.log1p(-switch_probability) + joint, switches)


def restrict_to_available(
    belief: Float[Array, "... K"], prior: Float[Array, "... K"], available: Bool[Array, " K"]
) -> Float[Array, "... K"]:
    """Redistributes the mass of unavailable goals, within the last axis, in proportion to the prior."""
    lost = jax.nn.logsumexp(jnp.where(available, IMPOSSIBLE, belief), axis=-1, keepdims=True)
    available_prior = jnp.where(available, prior, IMPOSSIBLE)
    restricted = jnp.logaddexp(belief, lost + normalize(available_prior))
    return jnp.where(available, restricted, IMPOSSIBLE)


# -- the same in probabilities, for simulated steps: their beliefs are normalised after each action


def update_probs(
    belief: Float[Array, "... K"],
    prior: Float[Array, "... K"],
    likelihood: Float[Array, "... K"],
    switch_probability: float,
) -> Float[Array, "... K"]:
    """Returns what `update` does, from probabilities and as probabilities, not normalised."""
    joint = belief * likelihood
    if switch_probability:
        evidence = joint.sum(-1, keepdims=True)
        joint = (1 - switch_probability) * joint + switch_probability * prior * evidence
    return joint


def restrict_probs(
    belief: Float[Array, "... K"], prior: Float[Array, "... K"], available: Bool[Array, " K"]
) -> Float[Array, "... K"]:
    """Returns what `restrict_to_available` does, from probabilities and as probabilities."""
    lost = jnp.where(available, 0.0, belief).sum(-1, keepdims=True)
    available_prior = jnp.where(available, prior, 0.0)
    total = available_prior.sum(-1, keepdims=True)
    return jnp.where(available, belief, 0.0) + lost * available_prior / jnp.maximum(total, SMALLEST)

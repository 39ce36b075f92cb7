"""Codes: unlabelled goals, learnt as the hidden states of a co-player's behaviour.

A player has a code k, drawn from a prior and resampled with a small probability per step; it acts by pi(a | o, k).
Training maximises the likelihood of whole trajectories by the forward algorithm, without an encoder or sampling. As a
code persists, it identifies a sort of player; it cannot merely name the next action.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.beliefs.hmm import Filtered, filter, smooth
from hopplus.beliefs.rationality import EXACT, Rationality
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.models.opponent.loss import log_probabilities, of_action
from hopplus.players import Params


def likelihoods(
    network: nn.Module, params: Params, trajectories: AgentTrajectories, rationality: Rationality = EXACT
) -> Float[Array, "N L *B K"]:
    """Returns log pi(a | o, k) of the recorded actions for every code, and for every tremble unless there is none."""
    policy = log_probabilities(network, params, trajectories)
    if rationality == EXACT:
        return of_action(policy, trajectories.action)
    return jnp.log(rationality.likelihoods(jnp.exp(policy), trajectories.action))


def joint_prior(prior: Float[Array, " K"], rationality: Rationality) -> Float[Array, "*B K"]:
    """Returns the log-prior over trembles and codes, which are independent."""
    if rationality == EXACT:
        return prior
    return jnp.log(jnp.asarray(rationality.prior, jnp.float32))[:, None] + jax.nn.log_softmax(prior)


def evidence(
    prior: Float[Array, "*B K"],
    likelihood: Float[Array, "N L *B K"],
    alive: Bool[Array, "N L"],
    switch: float,
    is_first: Bool[Array, "N L"] | None = None,
) -> Filtered:
    """Filters the codes; the result's `evidence` sums to the log-probability of each trajectory."""
    first = jnp.zeros_like(alive) if is_first is None else is_first
    return jax.vmap(lambda seen, alive, first: filter(prior, seen, alive, switch, is_first=first))(
        likelihood, alive, first
    )


def hindsight(
    prior: Float[Array, "*B K"],
    likelihood: Float[Array, "N L *B K"],
    filtered: Filtered,
    alive: Bool[Array, "N L"],
    switch: float,
    is_first: Bool[Array, "N L"] | None = None,
) -> Float[Array, "N L *B K"]:
    """Returns the smoothed posterior over codes (and trembles) at every step, as probabilities."""
    first = jnp.zeros_like(alive) if is_first is None else is_first
    smooth_each = jax.vmap(lambda filtered, seen, *rest: smooth(filtered, seen, rest[0], prior, switch, rest[1]))
    return jnp.exp(smooth_each(filtered, likelihood, alive, first))


def usage(posterior: Float[Array, "N L K"], alive: Bool[Array, "N L"]) -> Float[Array, " K"]:
    """Returns the mean posterior over valid rows."""
    weights = alive[..., None]
    return (posterior * weights).sum((0, 1)) / jnp.maximum(weights.sum(), 1)


def divergence_from_uniform(usage: Float[Array, " K"]) -> Float[Array, ""]:
    """Returns KL(usage || uniform): 0 if all codes are used equally, log K if only one is."""
    safe = jnp.maximum(usage, 1e-12)
    return (usage * (jnp.log(safe) + jnp.log(usage.shape[0]))).sum()

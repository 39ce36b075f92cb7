"""Model of other agents (MOA): losses and predictions of a player's actions, with and without goals.

Functions take per-agent trajectories [N, L]. Two sorts of predictions must not be mixed up: `filtered` ones depend on
the past only and can be used in play; those given a goal's hindsight label depend on the player's later actions.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.hmm import Filtered, filter
from hopplus.beliefs.rationality import EXACT, MODEL_NOISE, Rationality, mix_uniform
from hopplus.core.struct import struct
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.players import Params


@struct
class Predictions:
    """Predictions of an opponent model for trajectories [N, L]."""

    filtered: Float[Array, "N L A"]
    """Action probabilities given the past."""
    given_goal: Float[Array, "N L A"]
    """Action probabilities given the goal, which is known in hindsight only."""
    belief: Float[Array, "N L K"]
    """Belief over goals before each action; with one goal if the model has none."""
    after: Float[Array, "N K"]
    """Belief at the end of the trajectory."""


def log_probabilities(
    network: nn.Module, params: Params, trajectories: AgentTrajectories, goal: Float[Array, "N L Z"] | None = None
) -> Float[Array, "N L K A"] | Float[Array, "N L A"]:
    """Returns log-probabilities of actions, for every goal or given a goal; the softmax is applied exactly once."""
    inputs = (trajectories.features,) if goal is None else (trajectories.features, goal)
    logits: Any = network.apply({"params": params}, *inputs)
    return jax.nn.log_softmax(logits)


def of_action(values: Float[Array, "N L ... A"], action: Int[Array, "N L"]) -> Float[Array, "N L ..."]:
    """Selects the entries of the chosen actions."""
    index = action.reshape(*action.shape, *[1] * (values.ndim - action.ndim))
    return jnp.take_along_axis(values, index, -1)[..., 0]


def of_goal(values: Float[Array, "N L K A"], goal: Int[Array, "N L"]) -> Float[Array, "N L A"]:
    """Selects the entries of one goal per row."""
    return jnp.take_along_axis(values, goal[..., None, None], -2)[..., 0, :]


def total(values: Float[Array, "N L"], mask: Bool[Array, "N L"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Returns the sum over the masked rows, and their number."""
    return jnp.where(mask, values, 0.0).sum(), mask.sum().astype(jnp.float32)


def cross_entropy(
    network: nn.Module,
    params: Params,
    trajectories: AgentTrajectories,
    rows: Bool[Array, "N L"],
    label: Int[Array, "N L"],
    rationality: Rationality = EXACT,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Returns the sum of -log p(a | o, label) over rows, and their number.

    With several trembles, the likelihood of each trajectory is their mixture, so that the network need not learn noise.
    """
    policy = log_probabilities(network, params, trajectories)
    policy = of_goal(policy, label)
    if rationality == EXACT:
        return total(-of_action(policy, trajectories.action), rows)
    likelihood = rationality.likelihoods(jnp.exp(policy)[..., None, :], trajectories.action)[..., 0]
    by_tremble = jnp.where(rows[..., None], jnp.log(likelihood), 0.0).sum(1)
    evidence = jax.nn.logsumexp(by_tremble + jnp.log(rationality.prior), axis=-1)
    return -evidence.sum(), rows.sum().astype(jnp.float32)


def predict_without_goals(network: nn.Module, params: Params, trajectories: AgentTrajectories) -> Predictions:
    """Predicts from the observation alone."""
    policy = jnp.exp(log_probabilities(network, params, trajectories)[..., 0, :])
    belief = jnp.ones((*trajectories.action.shape, 1))
    return Predictions(policy, policy, belief, belief[:, 0])


def predict_by_belief(
    network: nn.Module,
    params: Params,
    prior: Float[Array, " K"],
    trajectories: AgentTrajectories,
    switch: float,
    labelled: bool,
) -> Predictions:
    """Predicts by the mixture of all goals' policies, weighted by the filtered belief.

    Args:
        switch: Per-step probability that the goal is resampled.
        labelled: Goals have hindsight labels and may become unavailable. Otherwise (codes), `given_goal` is the
            prediction of the most likely code at the end of the trajectory.
    """
    policy = jnp.exp(log_probabilities(network, params, trajectories))
    beliefs = beliefs_of(policy, prior, trajectories, switch, labelled)
    belief = jnp.exp(beliefs.before)
    filtered = jnp.einsum("nlk,nlka->nla", belief, policy)
    final = jnp.broadcast_to(beliefs.after.argmax(-1)[:, None], trajectories.action.shape)
    return Predictions(
        filtered, of_goal(policy, trajectories.goal if labelled else final), belief, jnp.exp(beliefs.after)
    )


def beliefs_of(
    policy: Float[Array, "N L K A"],
    prior: Float[Array, " K"],
    trajectories: AgentTrajectories,
    switch: float,
    vanish: bool,
) -> Filtered:
    """Filters the goals with model noise in the likelihoods; with `vanish`, goals may become unavailable."""
    legal = (policy[..., 0, :] > 0).sum(-1)[..., None]
    likelihood = jnp.log(mix_uniform(of_action(policy, trajectories.action), legal, MODEL_NOISE))
    if vanish:
        filter_each = jax.vmap(lambda *seen: filter(prior, seen[0], seen[1], switch, seen[2], seen[3]))
        return filter_each(likelihood, trajectories.alive, trajectories.available, trajectories.is_first)
    filter_each = jax.vmap(lambda seen, alive, first: filter(prior, seen, alive, switch, is_first=first))
    return filter_each(likelihood, trajectories.alive, trajectories.is_first)

"""The model of other agents (MOA): losses and predictions of a player's actions, with and without goals.

All of it is for lives [N, L] (`learning.lives`). Predictions of two sorts must not be mixed up: `filtered` ones know
the past only and can be used in play; those given a goal's hindsight label know what the player did later.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.learning.lives import Lives
from hopplus.networks.action_model import ActionModel
from hopplus.planning.beliefs import Filtered, follow, with_slips
from hopplus.players import Params
from hopplus.struct import struct

Terms = dict[str, tuple[Array, Array]]
"""What a loss has to tell, each as a sum and the count of which it is the mean."""


@struct
class Predictions:
    """What a model says of lives [N, L]."""

    filtered: Float[Array, "N L A"]
    """Probabilities of the actions, from what was seen before them."""
    given_goal: Float[Array, "N L A"]
    """Probabilities given what is known in hindsight only."""
    belief: Float[Array, "N L K"]
    """The belief about the goal before each action; of one goal where there is no choice."""
    after: Float[Array, "N K"]
    """The belief at the end of the life."""


def log_probabilities(
    network: ActionModel, params: Params, lives: Lives, goal: Float[Array, "N L Z"] | None = None
) -> Float[Array, "N L K A"] | Float[Array, "N L A"]:
    """The logarithm of the policy, of every goal or given a goal: exactly once through a softmax."""
    logits: Any = network.apply({"params": params}, lives.features, goal)
    return jax.nn.log_softmax(logits)


def of_action(values: Float[Array, "N L ... A"], action: Int[Array, "N L"]) -> Float[Array, "N L ..."]:
    """The entries of the actions that were chosen."""
    index = action.reshape(*action.shape, *[1] * (values.ndim - action.ndim))
    return jnp.take_along_axis(values, index, -1)[..., 0]


def of_goal(values: Float[Array, "N L K A"], goal: Int[Array, "N L"]) -> Float[Array, "N L A"]:
    """The entries of one goal each."""
    return jnp.take_along_axis(values, goal[..., None, None], -2)[..., 0, :]


def total(values: Float[Array, "N L"], mask: Bool[Array, "N L"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """A sum over the living rows, and their number."""
    return jnp.where(mask, values, 0.0).sum(), mask.sum().astype(jnp.float32)


def cross_entropy(
    network: ActionModel, params: Params, lives: Lives, rows: Bool[Array, "N L"], by_goal: bool
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The sum of -log pi(a | o, goal) over rows, and their number; the goal is the hindsight label."""
    policy = log_probabilities(network, params, lives)
    policy = of_goal(policy, lives.goal if by_goal else jnp.zeros_like(lives.goal))
    return total(-of_action(policy, lives.action), rows)


def predict_without_goals(network: ActionModel, params: Params, lives: Lives) -> Predictions:
    """From the observation alone."""
    policy = jnp.exp(log_probabilities(network, params, lives)[..., 0, :])
    nothing = jnp.ones((*lives.action.shape, 1))
    return Predictions(policy, policy, nothing, nothing[:, 0])


def predict_by_belief(
    network: ActionModel,
    params: Params,
    prior: Float[Array, " K"],
    lives: Lives,
    switch: float,
    labelled: bool,
) -> Predictions:
    """Every goal's policy, weighted with a filtered belief; `labelled` goals are known in hindsight and can vanish.

    Where goals are not labelled (codes), `given_goal` is the prediction of the likeliest code at the end of the life.
    """
    policy = jnp.exp(log_probabilities(network, params, lives))
    beliefs = beliefs_of(policy, prior, lives, switch, labelled)
    belief = jnp.exp(beliefs.before)
    filtered = jnp.einsum("nlk,nlka->nla", belief, policy)
    final = jnp.broadcast_to(beliefs.after.argmax(-1)[:, None], lives.action.shape)
    return Predictions(filtered, of_goal(policy, lives.goal if labelled else final), belief, jnp.exp(beliefs.after))


def beliefs_of(
    policy: Float[Array, "N L K A"], prior: Float[Array, " K"], lives: Lives, switch: float, vanish: bool
) -> Filtered:
    """The filter over the goals of all lives, the models being distrusted a little."""
    legal = (policy[..., 0, :] > 0).sum(-1)[..., None]
    likelihood = jnp.log(with_slips(of_action(policy, lives.action), legal))
    if vanish:
        filter_one = jax.vmap(lambda *seen: follow(prior, seen[0], seen[1], switch, seen[2], seen[3]))
        return filter_one(likelihood, lives.alive, lives.available, lives.starts)
    filter_one = jax.vmap(lambda seen, alive, starts: follow(prior, seen, alive, switch, starts=starts))
    return filter_one(likelihood, lives.alive, lives.starts)

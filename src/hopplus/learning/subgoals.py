"""Losses of subgoals in a Gaussian space: autoencoder, inference from history, and which state is the subgoal."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.keys import Key
from hopplus.learning.lives import Lives
from hopplus.learning.moa import Predictions, Terms, of_action, total
from hopplus.networks.subgoals import Gaussian, GaussianSubgoals
from hopplus.players import Params

Select = Literal["optimistic", "conservative", "last"]
"""Which of the next states is taken for the subgoal: that of the highest value, of the lowest, or the last."""
PARTICLES = 8
"""Subgoals drawn from what was inferred, for a prediction."""
STATE, HISTORY = range(2)
"""Purposes of a loss's key."""


def divergence(of: Gaussian, to: Gaussian) -> Float[Array, "..."]:
    """KL(of || to), summed over dimensions."""
    difference = (of.mean - to.mean) ** 2
    ratio = (jnp.exp(of.log_variance) + difference) / jnp.exp(to.log_variance)
    return 0.5 * (ratio - 1 + to.log_variance - of.log_variance).sum(-1)


def standard(like: Gaussian) -> Gaussian:
    """The standard normal distribution."""
    return Gaussian(jnp.zeros_like(like.mean), jnp.zeros_like(like.log_variance))


def selected(value: Float[Array, "N L"], alive: Bool[Array, "N L"], horizon: int, select: Select) -> Int[Array, "N L"]:
    """For each step, which of the next `horizon` living steps is its subgoal; a life's last step is its own."""
    steps = jnp.arange(value.shape[1])
    ahead = jnp.minimum(steps[:, None] + jnp.arange(1, horizon + 1), value.shape[1] - 1)  # [L, horizon]
    later = alive[:, ahead] & (ahead > steps[:, None])
    if select == "last":
        score = jnp.broadcast_to(ahead.astype(jnp.float32), later.shape)
    else:
        score = value[:, ahead] * (1 if select == "optimistic" else -1)
    best = jnp.where(later, score, -jnp.inf).argmax(-1)
    chosen = jnp.take_along_axis(jnp.broadcast_to(ahead, later.shape), best[..., None], -1)[..., 0]
    return jnp.where(later.any(-1), chosen, steps)


def apply(network: GaussianSubgoals, params: Params, method: str, *inputs: Any) -> Any:
    """A part of the network."""
    return network.apply({"params": params}, *inputs, method=method)


def last_actions(lives: Lives) -> Int[Array, "N L"]:
    """What the player did in the step before; -1 in its first."""
    return jnp.concatenate([jnp.full_like(lives.action[:, :1], -1), lives.action[:, :-1]], axis=1)


def subgoals_of(network: GaussianSubgoals, params: Params, lives: Lives, horizon: int, select: Select) -> Gaussian:
    """In hindsight, the subgoal of every step: the encoded state that was selected."""
    value = jax.lax.stop_gradient(apply(network, params, "value", lives.features))
    index = selected(value, lives.alive, horizon, select)
    states = jnp.take_along_axis(lives.features, index[..., None], 1)
    return apply(network, params, "encode", states)


def loss_terms(
    network: GaussianSubgoals, params: Params, key: Key, lives: Lives, horizon: int, select: Select, loss: str
) -> Terms:
    """All terms, each with the number of rows of which it is the sum:

    `reconstruction` (the mean squared error of a board's entries, of every state from its own encoding), `kl` (of the
    encodings that the loss uses), `action` (the cross-entropy of actions given the subgoal), `inference` (how far what
    is inferred from history diverges from the subgoal) and `value` (squared error, in units of its scale).
    """
    goals = subgoals_of(network, params, lives, horizon, select)
    states = apply(network, params, "encode", lives.features)
    noise = jax.random.normal(jax.random.fold_in(key, STATE), (2, *states.mean.shape))
    state, goal = states.at(noise[0]), goals.at(noise[1])
    if loss == "reconstruction":  # boards form the encoding; the policy only learns to read it
        goal = jax.lax.stop_gradient(goal)
    else:  # actions form the encoding; the decoder only learns to picture it
        state = jax.lax.stop_gradient(state)
    boards = apply(network, params, "decode", state)
    error = ((boards - lives.board) ** 2).mean((-1, -2, -3))
    policy = jax.nn.log_softmax(apply(network, params, "act", lives.features, goal))
    inferred = apply(network, params, "infer", lives.features, last_actions(lives))
    value = apply(network, params, "value", lives.features)
    used = states if loss == "reconstruction" else goals
    return {
        "reconstruction": total(error, lives.alive),
        "kl": total(divergence(used, standard(used)), lives.alive),
        "action": total(-of_action(policy, lives.action), lives.alive),
        "inference": total(divergence(jax.lax.stop_gradient(goals), inferred), lives.alive),
        "value": total(((value - lives.value) / network.value_scale) ** 2, lives.alive),
    }


def predict_by_inference(
    network: GaussianSubgoals, params: Params, key: Key, lives: Lives, horizon: int, select: Select
) -> Predictions:
    """Actions by subgoals drawn from what is inferred from the history (which holds the likelihoods already), and by
    the subgoal that was selected in hindsight. The `belief` is the mean of what was inferred."""
    inferred: Gaussian = apply(network, params, "infer", lives.features, last_actions(lives))

    def act(goal: Float[Array, "N L Z"]) -> Float[Array, "N L A"]:
        return jax.nn.softmax(apply(network, params, "act", lives.features, goal))

    noise = jax.random.normal(jax.random.fold_in(key, HISTORY), (PARTICLES, *inferred.mean.shape))
    filtered = jax.lax.map(lambda one: act(inferred.at(one)), noise).mean(0)
    known = act(subgoals_of(network, params, lives, horizon, select).mean)
    last = jnp.maximum(lives.alive.sum(-1) - 1, 0)
    return Predictions(filtered, known, inferred.mean, inferred.mean[jnp.arange(len(last)), last])

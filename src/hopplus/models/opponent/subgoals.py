"""Gaussian subgoals: losses of the autoencoder and of the inference from history, and selection of subgoal states."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.models.base import Terms
from hopplus.models.opponent.loss import Predictions, of_action, total
from hopplus.networks.subgoal_vae import Gaussian, GaussianSubgoals
from hopplus.players import Params

Select = Literal["optimistic", "conservative", "last"]
"""Next state that is the subgoal: the one of the highest value, of the lowest value, or the last."""
Groups = tuple[AgentTrajectories, ...]
"""Per-agent trajectories by length."""
PARTICLES = 8
"""Samples of the inferred subgoal per prediction."""
STATE, HISTORY = range(2)
"""Purposes of a loss's key."""


def divergence(of: Gaussian, to: Gaussian) -> Float[Array, "..."]:
    """Returns KL(of || to), summed over dimensions."""
    difference = (of.mean - to.mean) ** 2
    ratio = (jnp.exp(of.log_variance) + difference) / jnp.exp(to.log_variance)
    return 0.5 * (ratio - 1 + to.log_variance - of.log_variance).sum(-1)


def standard(like: Gaussian) -> Gaussian:
    """Returns standard normal distributions of the same shape."""
    return Gaussian(jnp.zeros_like(like.mean), jnp.zeros_like(like.log_variance))


def selected(
    value: Float[Array, "N L"],
    alive: Bool[Array, "N L"],
    horizon: int,
    select: Select,
    is_first: Bool[Array, "N L"] | None = None,
) -> Int[Array, "N L"]:
    """Returns each step's subgoal among the next `horizon` valid steps; a trajectory's last step is its own subgoal."""
    index = trajectory_index(jnp.zeros_like(alive) if is_first is None else is_first)
    steps = jnp.arange(value.shape[1])
    ahead = jnp.minimum(steps[:, None] + jnp.arange(1, horizon + 1), value.shape[1] - 1)  # [L, horizon]
    later = alive[:, ahead] & (ahead > steps[:, None]) & (index[:, ahead] == index[..., None])
    if select == "last":
        score = jnp.broadcast_to(ahead.astype(jnp.float32), later.shape)
    else:
        score = value[:, ahead] * (1 if select == "optimistic" else -1)
    best = jnp.where(later, score, -jnp.inf).argmax(-1)
    chosen = jnp.take_along_axis(jnp.broadcast_to(ahead, later.shape), best[..., None], -1)[..., 0]
    return jnp.where(later.any(-1), chosen, steps)


def apply(network: GaussianSubgoals, params: Params, method: str, *inputs: Any) -> Any:
    """Applies a method of the network."""
    return network.apply({"params": params}, *inputs, method=method)


def rows_of(groups: Groups, values: Callable[[AgentTrajectories], Array]) -> Float[Array, "R ..."]:
    """Concatenates the rows of all groups, so that the network is applied, and compiled, once."""
    return jnp.concatenate([values(group).reshape(-1, *values(group).shape[2:]) for group in groups])


def by_group(groups: Groups, rows: Float[Array, "R ..."]) -> list[Float[Array, "N L ..."]]:
    """Splits rows back into the groups."""
    ends = np.cumsum([math.prod(group.action.shape) for group in groups])
    parts = jnp.split(rows, ends[:-1])
    return [part.reshape(*group.action.shape, *rows.shape[1:]) for part, group in zip(parts, groups, strict=True)]


def trajectory_index(is_first: Bool[Array, "N L"]) -> Int[Array, "N L"]:
    """Returns the index of each step's trajectory among several in one row."""
    return jnp.cumsum(is_first, -1)


def subgoal_rows(groups: Groups, value: Float[Array, " R"], horizon: int, select: Select) -> Int[Array, " R"]:
    """Returns, for every row, the row of its subgoal."""
    chosen, start = [], 0
    for group, values in zip(groups, by_group(groups, value), strict=True):
        number, length = group.action.shape
        first = start + length * jnp.arange(number)[:, None]
        chosen.append((first + selected(values, group.alive, horizon, select, group.is_first)).reshape(-1))
        start += number * length
    return jnp.concatenate(chosen)


def infer(network: GaussianSubgoals, params: Params, groups: Groups) -> Gaussian:
    """Infers every row's subgoal from the player's observation and its past actions."""
    features = rows_of(groups, lambda group: group.features)
    evidence = apply(network, params, "action_evidence", features, rows_of(groups, lambda group: group.action))
    history = []
    for group, group_evidence in zip(groups, by_group(groups, evidence), strict=True):
        index = trajectory_index(group.is_first)
        earlier = jnp.tril(index[:, :, None] == index[:, None], -1).astype(jnp.float32)
        total_evidence = jnp.einsum("nts,nsm->ntm", earlier, group_evidence)
        history.append(total_evidence.reshape(-1, group_evidence.shape[-1]))
    return apply(network, params, "infer", features, jnp.concatenate(history))


def hindsight(
    network: GaussianSubgoals, params: Params, groups: Groups, horizon: int, select: Select
) -> tuple[Gaussian, Gaussian, Float[Array, " R"]]:
    """Returns every row's encoding, the encoding of its subgoal state, and its value."""
    features = rows_of(groups, lambda group: group.features)
    states, value = apply(network, params, "encode", features), apply(network, params, "value", features)
    chosen = subgoal_rows(groups, jax.lax.stop_gradient(value), horizon, select)
    return states, jax.tree.map(lambda leaf: leaf[chosen], states), value


def loss_terms(
    network: GaussianSubgoals, params: Params, key: Key, groups: Groups, horizon: int, select: Select, loss: str
) -> Terms:
    """Returns the loss terms, each as a sum and a number of rows.

    - `reconstruction`: mean squared error of a board's entries, of every state from its own encoding;
    - `kl`: divergence of the encodings that the loss uses from the standard normal distribution;
    - `action`: cross-entropy of actions given the subgoal;
    - `inference`: divergence of the subgoal from the one inferred from history;
    - `value`: squared error, in units of its scale.
    """
    features = rows_of(groups, lambda group: group.features)
    alive = rows_of(groups, lambda group: group.alive)
    states, goals, value = hindsight(network, params, groups, horizon, select)
    noise = jax.random.normal(jax.random.fold_in(key, STATE), (2, *states.mean.shape))
    state, goal = states.sample(noise[0]), goals.sample(noise[1])
    if loss == "reconstruction":  # boards train the encoder; the policy sends no gradient into it
        goal = jax.lax.stop_gradient(goal)
    else:  # actions train the encoder; the decoder sends no gradient into it
        state = jax.lax.stop_gradient(state)
    boards = apply(network, params, "decode", state)
    error = ((boards - rows_of(groups, lambda group: group.board)) ** 2).mean((-1, -2, -3))
    policy = jax.nn.log_softmax(apply(network, params, "act", features, goal))
    used = states if loss == "reconstruction" else goals
    returns = rows_of(groups, lambda group: group.value)
    inferred = infer(network, params, groups)
    return {
        "reconstruction": total(error, alive),
        "kl": total(divergence(used, standard(used)), alive),
        "action": total(-of_action(policy, rows_of(groups, lambda group: group.action)), alive),
        "inference": total(divergence(jax.lax.stop_gradient(goals), inferred), alive),
        "value": total(((value - returns) / network.value_scale) ** 2, alive),
    }


def predict_by_inference(
    network: GaussianSubgoals, params: Params, key: Key, groups: Groups, horizon: int, select: Select
) -> tuple[Predictions, ...]:
    """Predicts actions by samples of the inferred subgoal, and by the subgoal selected in hindsight.

    The inference from history includes the likelihoods of past actions. The `belief` is the mean of the inferred
    subgoal.
    """
    features = rows_of(groups, lambda group: group.features)
    inferred = infer(network, params, groups)

    def act(goal: Float[Array, "R Z"]) -> Float[Array, "R A"]:
        return jax.nn.softmax(apply(network, params, "act", features, goal))

    noise = jax.random.normal(jax.random.fold_in(key, HISTORY), (PARTICLES, *inferred.mean.shape))
    filtered = jax.lax.map(lambda sample: act(inferred.sample(sample)), noise).mean(0)
    given_goal = act(hindsight(network, params, groups, horizon, select)[1].mean)
    parts = zip(groups, *(by_group(groups, values) for values in (filtered, given_goal, inferred.mean)), strict=True)
    return tuple(
        Predictions(filtered, given_goal, belief, _last(group, belief)) for group, filtered, given_goal, belief in parts
    )


def _last(group: AgentTrajectories, values: Float[Array, "N L Z"]) -> Float[Array, "N Z"]:
    """Values at each trajectory's last step."""
    last = jnp.maximum(group.alive.sum(-1) - 1, 0)
    return values[jnp.arange(len(last)), last]

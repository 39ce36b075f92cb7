"""Losses of subgoals in a Gaussian space: autoencoder, inference from history, and which state is the subgoal."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.keys import Key
from hopplus.learning.lives import Lives
from hopplus.learning.moa import Predictions, Terms, of_action, total
from hopplus.networks.subgoals import Gaussian, GaussianSubgoals
from hopplus.players import Params

Select = Literal["optimistic", "conservative", "last"]
"""Which of the next states is taken for the subgoal: that of the highest value, of the lowest, or the last."""
Groups = tuple[Lives, ...]
"""Lives by length."""
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


def selected(
    value: Float[Array, "N L"],
    alive: Bool[Array, "N L"],
    horizon: int,
    select: Select,
    starts: Bool[Array, "N L"] | None = None,
) -> Int[Array, "N L"]:
    """For each step, which of the next `horizon` living steps is its subgoal; a life's last step is its own."""
    life = number_of_life(jnp.zeros_like(alive) if starts is None else starts)
    steps = jnp.arange(value.shape[1])
    ahead = jnp.minimum(steps[:, None] + jnp.arange(1, horizon + 1), value.shape[1] - 1)  # [L, horizon]
    later = alive[:, ahead] & (ahead > steps[:, None]) & (life[:, ahead] == life[..., None])
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


def rows_of(groups: Groups, values: Callable[[Lives], Array]) -> Float[Array, "R ..."]:
    """All rows of all groups, one after the other: a network sees them at once, and compiles once."""
    return jnp.concatenate([values(lives).reshape(-1, *values(lives).shape[2:]) for lives in groups])


def by_group(groups: Groups, rows: Float[Array, "R ..."]) -> list[Float[Array, "N L ..."]]:
    """Rows as they lie in the groups."""
    ends = np.cumsum([math.prod(lives.action.shape) for lives in groups])
    parts = jnp.split(rows, ends[:-1])
    return [part.reshape(*lives.action.shape, *rows.shape[1:]) for part, lives in zip(parts, groups, strict=True)]


def number_of_life(starts: Bool[Array, "N L"]) -> Int[Array, "N L"]:
    """Which of several lives in one row of steps each step belongs to."""
    return jnp.cumsum(starts, -1)


def subgoal_rows(groups: Groups, value: Float[Array, " R"], horizon: int, select: Select) -> Int[Array, " R"]:
    """For every row, which row is its subgoal."""
    found, start = [], 0
    for lives, values in zip(groups, by_group(groups, value), strict=True):
        number, length = lives.action.shape
        first = start + length * jnp.arange(number)[:, None]
        found.append((first + selected(values, lives.alive, horizon, select, lives.starts)).reshape(-1))
        start += number * length
    return jnp.concatenate(found)


def infer(network: GaussianSubgoals, params: Params, groups: Groups) -> Gaussian:
    """What is inferred of every row's subgoal: from what the player sees, and from all that it did before."""
    features = rows_of(groups, lambda lives: lives.features)
    evidence = apply(network, params, "testify", features, rows_of(groups, lambda lives: lives.action))
    gathered = []
    for lives, each in zip(groups, by_group(groups, evidence), strict=True):
        life = number_of_life(lives.starts)
        earlier = jnp.tril(life[:, :, None] == life[:, None], -1).astype(jnp.float32)
        gathered.append(jnp.einsum("nts,nsm->ntm", earlier, each).reshape(-1, each.shape[-1]))
    return apply(network, params, "infer", features, jnp.concatenate(gathered))


def hindsight(
    network: GaussianSubgoals, params: Params, groups: Groups, horizon: int, select: Select
) -> tuple[Gaussian, Gaussian, Float[Array, " R"]]:
    """Every row's encoding, its subgoal's (that of the state which was selected), and its value."""
    features = rows_of(groups, lambda lives: lives.features)
    states, value = apply(network, params, "encode", features), apply(network, params, "value", features)
    chosen = subgoal_rows(groups, jax.lax.stop_gradient(value), horizon, select)
    return states, jax.tree.map(lambda leaf: leaf[chosen], states), value


def loss_terms(
    network: GaussianSubgoals, params: Params, key: Key, groups: Groups, horizon: int, select: Select, loss: str
) -> Terms:
    """All terms, each with the number of rows of which it is the sum:

    `reconstruction` (the mean squared error of a board's entries, of every state from its own encoding), `kl` (of the
    encodings that the loss uses), `action` (the cross-entropy of actions given the subgoal), `inference` (how far what
    is inferred from history diverges from the subgoal) and `value` (squared error, in units of its scale).
    """
    features = rows_of(groups, lambda lives: lives.features)
    alive = rows_of(groups, lambda lives: lives.alive)
    states, goals, value = hindsight(network, params, groups, horizon, select)
    noise = jax.random.normal(jax.random.fold_in(key, STATE), (2, *states.mean.shape))
    state, goal = states.at(noise[0]), goals.at(noise[1])
    if loss == "reconstruction":  # boards form the encoding; the policy only learns to read it
        goal = jax.lax.stop_gradient(goal)
    else:  # actions form the encoding; the decoder only learns to picture it
        state = jax.lax.stop_gradient(state)
    boards = apply(network, params, "decode", state)
    error = ((boards - rows_of(groups, lambda lives: lives.board)) ** 2).mean((-1, -2, -3))
    policy = jax.nn.log_softmax(apply(network, params, "act", features, goal))
    used = states if loss == "reconstruction" else goals
    earned = rows_of(groups, lambda lives: lives.value)
    inferred = infer(network, params, groups)
    return {
        "reconstruction": total(error, alive),
        "kl": total(divergence(used, standard(used)), alive),
        "action": total(-of_action(policy, rows_of(groups, lambda lives: lives.action)), alive),
        "inference": total(divergence(jax.lax.stop_gradient(goals), inferred), alive),
        "value": total(((value - earned) / network.value_scale) ** 2, alive),
    }


def predict_by_inference(
    network: GaussianSubgoals, params: Params, key: Key, groups: Groups, horizon: int, select: Select
) -> tuple[Predictions, ...]:
    """Actions by subgoals drawn from what is inferred from the history (which holds the likelihoods already), and by
    the subgoal that was selected in hindsight. The `belief` is the mean of what was inferred."""
    features = rows_of(groups, lambda lives: lives.features)
    inferred = infer(network, params, groups)

    def act(goal: Float[Array, "R Z"]) -> Float[Array, "R A"]:
        return jax.nn.softmax(apply(network, params, "act", features, goal))

    noise = jax.random.normal(jax.random.fold_in(key, HISTORY), (PARTICLES, *inferred.mean.shape))
    filtered = jax.lax.map(lambda one: act(inferred.at(one)), noise).mean(0)
    known = act(hindsight(network, params, groups, horizon, select)[1].mean)
    each = zip(groups, *(by_group(groups, values) for values in (filtered, known, inferred.mean)), strict=True)
    return tuple(Predictions(filtered, known, belief, _last(lives, belief)) for lives, filtered, known, belief in each)


def _last(lives: Lives, values: Float[Array, "N L Z"]) -> Float[Array, "N Z"]:
    """The values of each life's last step."""
    last = jnp.maximum(lives.alive.sum(-1) - 1, 0)
    return values[jnp.arange(len(last)), last]

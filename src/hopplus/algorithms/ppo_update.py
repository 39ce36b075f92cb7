"""The PPO update: epochs of minibatches over valid transitions, for one parameter set per seat or one for all seats.

Transitions are grouped [P, M]: P parameter sets, each with the M transitions that it learns from. Independent
parameters have one set per learning seat, with the transitions of that seat; shared parameters have a single set with
all transitions. For recurrent networks the units are sequences [P, M, T].
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from hopplus.configs import PPOUpdateConfig
from hopplus.core.keys import Key, fast
from hopplus.core.sharding import replicate, shard
from hopplus.core.struct import struct, where_first
from hopplus.networks.train_state import TrainState

Params = Any
Network = Callable[[Params, Any], Any]
"""`network(params, features) -> (masked logits [..., A], value [...])`, and more where the loss needs it."""
Metrics = dict[str, Array]
METRIC_NAMES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
"""Per-transition metrics of an update."""


@struct
class Transitions:
    """Training data: one transition is one step of one seat in one environment."""

    features: Any
    """Network input at collection time."""
    seat: Int[Array, "*rows"]
    """Seat that the transition belongs to; it travels with the data, so that records of who trained what are true."""
    action: Int[Array, "*rows"]
    log_probability: Float[Array, "*rows"]
    """Log-probability of the action at collection time."""
    value: Float[Array, "*rows"]
    """Value at collection time."""
    advantage: Float[Array, "*rows"]
    target: Float[Array, "*rows"]
    """Value target: advantage + value."""
    is_valid: Bool[Array, "*rows"]
    """Whether the player was in the game and the learner itself acted; other transitions are ignored."""
    collected_at: Int[Array, "*rows"]
    """Iteration of collection."""


def make_optimizer(config: PPOUpdateConfig) -> optax.GradientTransformation:
    """Adam on clipped gradients, without the step size."""
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5))


def init_train_state(keys: Key, init: Callable[[Key], Params], config: PPOUpdateConfig) -> TrainState:
    """Fresh parameter sets [P], one per key."""
    params = jax.vmap(init)(keys)
    return TrainState(params, jax.vmap(make_optimizer(config).init)(params))


def masked_mean(values: Float[Array, "*rows"], mask: Bool[Array, "*rows"], axis: Any = None) -> Array:
    """Mean over true entries of the mask; 0 where there is none."""
    return jnp.where(mask, values, 0.0).sum(axis) / jnp.maximum(mask.sum(axis), 1)


def normalize(advantage: Float[Array, "*rows"], mask: Bool[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Advantages with mean 0 and standard deviation 1 over the mask."""
    centred = advantage - masked_mean(advantage, mask)
    return centred * jax.lax.rsqrt(masked_mean(centred**2, mask) + 1e-8)


def loss(
    params: Params,
    network: Network,
    rows: Transitions,
    counts: Bool[Array, " M"],
    settings: PPOUpdateConfig,
    value_scale: float,
    ent_coef: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], Metrics]:
    """PPO's loss of one parameter set on transitions [M], and metrics by transition [M].

    Args:
        counts: Mask of the transitions that count.
        value_scale: Unit of values.
        ent_coef: Annealed entropy coefficient.
    """
    terms, metrics = loss_terms(params, network, rows, counts, counts, settings, value_scale)
    total = terms.policy + settings.vf_coef * terms.value - ent_coef * terms.entropy
    return masked_mean(total, counts), metrics


@struct
class LossTerms:
    """Terms of the loss by transition, before coefficients."""

    policy: Float[Array, " M"]
    value: Float[Array, " M"]
    entropy: Float[Array, " M"]
    log_policy: Float[Array, "M A"]


def loss_terms(
    params: Params,
    network: Network,
    rows: Transitions,
    counts: Bool[Array, " M"],
    acted: Bool[Array, " M"],
    settings: PPOUpdateConfig,
    value_scale: float,
) -> tuple[LossTerms, Metrics]:
    """Terms and metrics by transition [M].

    Args:
        counts: Mask of the transitions that count.
        acted: Mask of those in which the policy itself chose the action: the probability ratio is of these.
    """
    names = ("log_probability", "value", "advantage", "target")
    rows = dataclasses.replace(rows, **{name: jnp.where(counts, getattr(rows, name), 0.0) for name in names})
    logits, value = network(params, rows.features)
    log_policy = jax.nn.log_softmax(logits)
    log_probability = jnp.take_along_axis(log_policy, rows.action[..., None], -1)[..., 0]
    log_ratio = jnp.where(acted, log_probability - rows.log_probability, 0.0)
    ratio = jnp.exp(log_ratio)
    advantage = normalize(rows.advantage, acted)
    clipped = jnp.clip(ratio, 1 - settings.clip_coef, 1 + settings.clip_coef)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage)
    entropy = -(jnp.exp(log_policy) * log_policy).sum(-1)
    value_loss = clipped_value_loss(value, rows.value, rows.target, settings.clip_coef, value_scale)
    return LossTerms(policy_loss, value_loss, entropy, log_policy), {
        "policy_loss": policy_loss,
        "value_loss": jnp.square(value - rows.target),
        "entropy": entropy,
        "kl": ratio - 1 - log_ratio,
        "clip_fraction": (jnp.abs(ratio - 1) > settings.clip_coef).astype(jnp.float32),
    }


def clipped_value_loss(
    value: Float[Array, "*rows"],
    old_value: Float[Array, "*rows"],
    target: Float[Array, "*rows"],
    clip: float,
    scale: float,
) -> Float[Array, "*rows"]:
    """Half the squared error in units of `scale`, with the change from the old value clipped."""
    value, old_value, target = value / scale, old_value / scale, target / scale
    near_old = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near_old - target))


def anneal(settings: PPOUpdateConfig, value: float, progress: Float[Array, ""]) -> Float[Array, ""]:
    """A value annealed linearly to a tenth, at a share of the training."""
    return value * jnp.where(settings.anneal_lr, 1 - 0.9 * jnp.clip(progress, 0.0, 1.0), 1.0)


def update(
    key: Key,
    network: Network,
    train_state: TrainState,
    rows: Transitions,
    settings: PPOUpdateConfig,
    value_scale: float,
    progress: Float[Array, ""],
    num_seats: int,
    loss: Callable[..., tuple[Array, Metrics]] = loss,
    metric_names: tuple[str, ...] = METRIC_NAMES,
) -> tuple[TrainState, Metrics]:
    """All epochs over transitions [P, M] or sequences [P, M, T], in minibatches of those with a valid step.

    The shuffle depends on places only and is the same for every parameter set, so that a permutation of the seats
    commutes with the update.

    Args:
        progress: Share of the training that is done.
        loss: Function like `loss`.
        metric_names: Names of the metrics that the loss returns.

    Returns:
        The train state, and sums of metrics [P, n] by the seat of the transitions, with their number as `rows`.
    """
    rows = replicate(rows)
    units = rows.seat.shape[1]
    slots = min(settings.minibatch_size or -(-units // 8), units)
    has_valid = rows.is_valid.any(tuple(range(2, rows.is_valid.ndim)))
    num_valid = has_valid.sum(1)
    num_minibatches = -(-num_valid.max() // slots)
    ent_coef = anneal(settings, settings.ent_coef, progress)
    set_loss = partial(loss, settings=settings, value_scale=value_scale, ent_coef=ent_coef)
    rate = anneal(settings, settings.learning_rate, progress)
    step = partial(_step, network=network, rows=rows, settings=settings, loss=set_loss, rate=rate, seats=num_seats)

    def epoch(carry: tuple[TrainState, Metrics], number: Int[Array, ""]) -> tuple[tuple[TrainState, Metrics], None]:
        order = shuffle_valid_first(jax.random.fold_in(key, number), has_valid)

        def minibatch(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            train_state, totals = carry
            size, larger = num_valid // num_minibatches, num_valid % num_minibatches
            first = size * index + jnp.minimum(index, larger)
            end = first + size + (index < larger)
            places = first[:, None] + jnp.arange(slots)
            chosen = jnp.take_along_axis(order, jnp.minimum(places, order.shape[1] - 1), 1)
            train_state, sums = step(train_state, chosen, places < end[:, None])
            return train_state, jax.tree.map(jnp.add, totals, sums)

        return jax.lax.fori_loop(0, num_minibatches, minibatch, carry), None

    totals: Metrics = dict.fromkeys([*metric_names, "rows"], jnp.zeros((num_valid.shape[0], num_seats)))
    (train_state, totals), _ = jax.lax.scan(epoch, (train_state, totals), jnp.arange(settings.update_epochs))
    return train_state, totals


def _step(
    train_state: TrainState,
    chosen: Int[Array, "P slots"],
    counts: Bool[Array, "P slots"],
    network: Network,
    rows: Transitions,
    settings: PPOUpdateConfig,
    loss: Callable[..., tuple[Array, Metrics]],
    rate: Float[Array, ""],
    seats: int,
) -> tuple[TrainState, Metrics]:
    """One optimizer step of every parameter set on the chosen units; sums of metrics [P, n]."""
    chosen, counts = shard((chosen, counts), 1)
    minibatch = jax.tree.map(lambda field: jax.vmap(lambda own, places: own[places])(field, chosen), rows)
    counts = minibatch.is_valid & counts.reshape(*counts.shape, *[1] * (minibatch.is_valid.ndim - 2))
    gradient = jax.vmap(jax.grad(loss, has_aux=True), (0, None, 0, 0))
    gradients, metrics = gradient(train_state.params, network, minibatch, counts)
    changes, opt_state = jax.vmap(make_optimizer(settings).update)(gradients, train_state.opt_state)
    params = jax.tree.map(lambda param, change: param - rate * change, train_state.params, changes)
    # A parameter set without a valid transition stays as it is: the momentum of its optimizer would move it.
    within_set = tuple(range(1, counts.ndim))
    train_state = where_first(counts.any(within_set), TrainState(params, opt_state), train_state)
    owner = jax.nn.one_hot(minibatch.seat, seats) * counts[..., None]
    sums = {name: jnp.where(owner > 0, term[..., None], 0.0).sum(within_set) for name, term in metrics.items()}
    return train_state, {**sums, "rows": owner.sum(within_set)}


def shuffle_valid_first(key: Key, is_valid: Bool[Array, "P M"]) -> Int[Array, "P M"]:
    """Places in random order, valid ones before the others."""
    places = is_valid.shape[1]
    bits = max(1, (places - 1).bit_length())
    # One word per place, so that only words are sorted: whether it is invalid, a draw, the place.
    draws = (jax.random.bits(fast(key), (places,)) >> (bits + 1)) << bits
    words = draws | jnp.arange(places, dtype=jnp.uint32) | jnp.where(is_valid, jnp.uint32(0), jnp.uint32(1 << 31))
    return (jnp.sort(words, axis=1) & ((1 << bits) - 1)).astype(jnp.int32)


def group_by_params(rows: Transitions, shared: bool) -> Transitions:
    """Transitions [N, L, ...] of the learning seats as [P, M, ...]: all in one set, or one set per seat."""
    if shared:
        return jax.tree.map(lambda field: field.reshape(1, -1, *field.shape[2:]), rows)
    return jax.tree.map(lambda field: jnp.moveaxis(field, 1, 0), rows)


def mean_by_seat(values: Float[Array, "*rows"], rows: Transitions, num_seats: int) -> Float[Array, " n"]:
    """Mean of values over valid transitions, by seat."""
    owner = jax.nn.one_hot(rows.seat, num_seats) * rows.is_valid[..., None]
    return jnp.einsum("...,...n->n", values, owner) / jnp.maximum(owner.reshape(-1, num_seats).sum(0), 1)


def explained_variance(rows: Transitions, num_seats: int) -> Float[Array, " n"]:
    """Share of the variance of the value targets that the values explain, by seat; at most 1."""

    def variance(values: Array) -> Array:
        return mean_by_seat(values**2, rows, num_seats) - mean_by_seat(values, rows, num_seats) ** 2

    return 1 - variance(rows.target - rows.value) / jnp.maximum(variance(rows.target), 1e-8)

"""Proximal policy optimisation over living rows, for one parameter set a seat or one for all seats.

Rows are arranged [P, M]: P parameter sets, each with the M rows it learns from. With `independent` parameters there are
as many sets as seats that learn, each with its own seat's rows; with `shared` ones a single set has the rows of all.
Where a network remembers, rows are whole lines of steps [P, M, T], dealt line by line; else T is not there.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from hopplus.devices import divided, whole
from hopplus.keys import Key, fast
from hopplus.settings import PPOSettings
from hopplus.struct import struct, where_first

Params = Any
Network = Callable[[Params, Any], Any]
"""`network(params, features) -> (masked logits [..., A], value [...])`, and more where a loss asks for it."""
Metrics = dict[str, Array]
MEASURED = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
"""What an update tells of its rows."""


@struct
class Rows:
    """What is learnt from: a row is a step of one seat in one environment."""

    features: Any
    """What the acting network saw, as it takes it."""
    seat: Int[Array, "*rows"]
    """Whose row it is: travels with the row, so that a record of who trained what cannot differ from the truth."""
    action: Int[Array, "*rows"]
    log_probability: Float[Array, "*rows"]
    """Of the action, when it was chosen."""
    value: Float[Array, "*rows"]
    """What the acting network expected then."""
    advantage: Float[Array, "*rows"]
    target: Float[Array, "*rows"]
    """advantage + value: what the value should have been."""
    learns: Bool[Array, "*rows"]
    """Whether it is a living row in which the network itself acted; the others count for nothing."""
    written: Int[Array, "*rows"]
    """The iteration that played it."""


@struct
class Learner:
    """Parameter sets [P, ...] and their optimisers'."""

    params: Params
    optimiser: Any


def optimiser(settings: PPOSettings) -> optax.GradientTransformation:
    """Adam on shortened gradients; its steps are still to be multiplied by the step size."""
    return optax.chain(optax.clip_by_global_norm(settings.gradient_norm), optax.scale_by_adam(eps=1e-5))


def first_learner(keys: Key, initialise: Callable[[Key], Params], settings: PPOSettings) -> Learner:
    """Fresh parameter sets [P], each from its own key [P]."""
    params = jax.vmap(initialise)(keys)
    return Learner(params, jax.vmap(optimiser(settings).init)(params))


def masked_mean(values: Float[Array, "*rows"], mask: Bool[Array, "*rows"], axis: Any = None) -> Array:
    """The mean over true entries of the mask; 0 where there is none."""
    return jnp.where(mask, values, 0.0).sum(axis) / jnp.maximum(mask.sum(axis), 1)


def normalised(advantage: Float[Array, "*rows"], mask: Bool[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Advantages of mean 0 and deviation 1 over the rows that count."""
    centred = advantage - masked_mean(advantage, mask)
    return centred * jax.lax.rsqrt(masked_mean(centred**2, mask) + 1e-8)


def loss(
    params: Params,
    network: Network,
    rows: Rows,
    counts: Bool[Array, " M"],
    settings: PPOSettings,
    value_scale: float,
    entropy_weight: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], Metrics]:
    """The loss of one parameter set on rows [M], of which some count, and what there is to say of each row [M]."""
    terms, said = terms_of_rows(params, network, rows, counts, counts, settings, value_scale)
    parts = terms.policy + settings.value_weight * terms.value - entropy_weight * terms.entropy
    return masked_mean(parts, counts), said


@struct
class RowTerms:
    """What a row adds to the loss, before weights."""

    policy: Float[Array, " M"]
    value: Float[Array, " M"]
    entropy: Float[Array, " M"]
    log_policy: Float[Array, "M A"]


def terms_of_rows(
    params: Params,
    network: Network,
    rows: Rows,
    counts: Bool[Array, " M"],
    acted: Bool[Array, " M"],
    settings: PPOSettings,
    value_scale: float,
) -> tuple[RowTerms, Metrics]:
    """The terms of rows [M] that count, and what there is to say of each; PPO's ratio is of those in which the policy
    itself acted."""
    names = ("log_probability", "value", "advantage", "target")
    rows = dataclasses.replace(rows, **{name: jnp.where(counts, getattr(rows, name), 0.0) for name in names})
    logits, value = network(params, rows.features)
    log_policy = jax.nn.log_softmax(logits)
    log_probability = jnp.take_along_axis(log_policy, rows.action[..., None], -1)[..., 0]
    log_ratio = jnp.where(acted, log_probability - rows.log_probability, 0.0)
    ratio = jnp.exp(log_ratio)
    advantage = normalised(rows.advantage, acted)
    clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage)
    entropy = -(jnp.exp(log_policy) * log_policy).sum(-1)
    value_loss = clipped_value_loss(value, rows.value, rows.target, settings.clip, value_scale)
    return RowTerms(policy_loss, value_loss, entropy, log_policy), {
        "policy_loss": policy_loss,
        "value_loss": jnp.square(value - rows.target),
        "entropy": entropy,
        "kl": ratio - 1 - log_ratio,
        "clip_fraction": (jnp.abs(ratio - 1) > settings.clip).astype(jnp.float32),
    }


def clipped_value_loss(
    value: Float[Array, "*rows"],
    old_value: Float[Array, "*rows"],
    target: Float[Array, "*rows"],
    clip: float,
    scale: float,
) -> Float[Array, "*rows"]:
    """Half the squared error in units of `scale`, where the value has not moved from the old one by more than clip."""
    value, old_value, target = value / scale, old_value / scale, target / scale
    near_old = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near_old - target))


def annealed(settings: PPOSettings, value: float, progress: Float[Array, ""]) -> Float[Array, ""]:
    """A value that falls linearly to a tenth, when this share of the training is done."""
    return value * jnp.where(settings.anneal, 1 - 0.9 * jnp.clip(progress, 0.0, 1.0), 1.0)


def update(
    key: Key,
    network: Network,
    learner: Learner,
    rows: Rows,
    settings: PPOSettings,
    value_scale: float,
    progress: Float[Array, ""],
    num_seats: int,
    loss: Callable[..., tuple[Array, Metrics]] = loss,
    measured: tuple[str, ...] = MEASURED,
) -> tuple[Learner, Metrics]:
    """All epochs over rows [P, M] or lines of them [P, M, T], in minibatches of those that have something living;
    metrics [P, n] by whose rows they were.

    Rows are shuffled by numbers that belong to their places, the same for every parameter set, so that a permutation
    of the seats commutes with it.
    """
    rows = whole(rows)
    every = rows.seat.shape[1]
    slots = min(settings.minibatch or -(-every // 8), every)
    lives = rows.learns.any(tuple(range(2, rows.learns.ndim)))
    living = lives.sum(1)
    number = -(-living.max() // slots)
    rate = annealed(settings, settings.learning_rate, progress)
    entropy_weight = annealed(settings, settings.entropy_weight, progress)
    transform = optimiser(settings)
    own_loss = partial(loss, settings=settings, value_scale=value_scale, entropy_weight=entropy_weight)
    gradient = jax.vmap(jax.grad(own_loss, has_aux=True), (0, None, 0, 0))

    def learn(learner: Learner, chosen: Int[Array, "P slots"], counts: Bool[Array, "P slots"]) -> tuple[Learner, Any]:
        chosen, counts = divided((chosen, counts), 1)
        minibatch = jax.tree.map(lambda field: jax.vmap(lambda own, places: own[places])(field, chosen), rows)
        counts = minibatch.learns & counts.reshape(*counts.shape, *[1] * (minibatch.learns.ndim - 2))
        gradients, said = gradient(learner.params, network, minibatch, counts)
        steps, state = jax.vmap(transform.update)(gradients, learner.optimiser)
        params = jax.tree.map(lambda param, step: param - rate * step, learner.params, steps)
        # A parameter set without a row here stays as it is: its optimiser's momentum would move it.
        steps_of_set = tuple(range(1, counts.ndim))
        learner = where_first(counts.any(steps_of_set), Learner(params, state), learner)
        owner = jax.nn.one_hot(minibatch.seat, num_seats) * counts[..., None]
        sums = {name: jnp.where(owner > 0, term[..., None], 0.0).sum(steps_of_set) for name, term in said.items()}
        return learner, {**sums, "rows": owner.sum(steps_of_set)}

    def epoch(carry: tuple[Learner, Metrics], epoch_number: Int[Array, ""]) -> tuple[tuple[Learner, Metrics], None]:
        order = living_first(jax.random.fold_in(key, epoch_number), lives)

        def minibatch(index: Array, carry: tuple[Learner, Metrics]) -> tuple[Learner, Metrics]:
            learner, totals = carry
            size, larger = living // number, living % number
            first = size * index + jnp.minimum(index, larger)
            end = first + size + (index < larger)
            places = first[:, None] + jnp.arange(slots)
            chosen = jnp.take_along_axis(order, jnp.minimum(places, order.shape[1] - 1), 1)
            learner, sums = learn(learner, chosen, places < end[:, None])
            return learner, jax.tree.map(jnp.add, totals, sums)

        return jax.lax.fori_loop(0, number, minibatch, carry), None

    nothing = jnp.zeros((living.shape[0], num_seats))
    totals: Metrics = dict.fromkeys([*measured, "rows"], nothing)
    (learner, totals), _ = jax.lax.scan(epoch, (learner, totals), jnp.arange(settings.epochs))
    return learner, totals


def living_first(key: Key, learns: Bool[Array, "P M"]) -> Int[Array, "P M"]:
    """Places of rows in random order, those that count before those that don't."""
    places = learns.shape[1]
    bits = max(1, (places - 1).bit_length())
    # One number a row, so that numbers alone are sorted: whether it does not count, a draw, its place.
    draws = (jax.random.bits(fast(key), (places,)) >> (bits + 1)) << bits
    numbers = draws | jnp.arange(places, dtype=jnp.uint32) | jnp.where(learns, jnp.uint32(0), jnp.uint32(1 << 31))
    return (jnp.sort(numbers, axis=1) & ((1 << bits) - 1)).astype(jnp.int32)


def arrange(rows: Rows, shared: bool) -> Rows:
    """Rows [N, L, ...] of the seats that learn as [P, M, ...]: all in one set, or one set a seat."""
    if shared:
        return jax.tree.map(lambda field: field.reshape(1, -1, *field.shape[2:]), rows)
    return jax.tree.map(lambda field: jnp.moveaxis(field, 1, 0), rows)


def by_seat(values: Float[Array, "*rows"], rows: Rows, num_seats: int) -> Float[Array, " n"]:
    """The mean of values over the rows that learn, by whose rows they are."""
    owner = jax.nn.one_hot(rows.seat, num_seats) * rows.learns[..., None]
    return jnp.einsum("...,...n->n", values, owner) / jnp.maximum(owner.reshape(-1, num_seats).sum(0), 1)


def explained_variance(rows: Rows, num_seats: int) -> Float[Array, " n"]:
    """How much of the variance of the returns the acting network's values explain, by seat: 1 is all of it."""

    def variance(values: Array) -> Array:
        return by_seat(values**2, rows, num_seats) - by_seat(values, rows, num_seats) ** 2

    return 1 - variance(rows.target - rows.value) / jnp.maximum(variance(rows.target), 1e-8)

"""Training loop of models fitted to recorded episodes: whole epochs are compiled, for all seeds at once.

The split of the episodes is fixed: a tenth is held out for evaluation, a tenth (validation) chooses between restarts,
the rest is the training part. Every epoch has a checkpoint.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Game
from hopplus.models.base import Data, Model, Terms
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.population import Recorded
from hopplus.training import checkpoint
from hopplus.training.callbacks import DivergedError
from hopplus.training.logging import Line, Log
from hopplus.training.population import make_population
from hopplus.training.run import Run

PARTS = 10
HELD_OUT, VALIDATION = 0, 5
"""Positions of the held-out and the validation episode among every ten."""
INITIAL, SHUFFLE, LOSS, AUGMENT = range(4)
"""Purposes of a restart's key."""


@struct
class FitState:
    """State of a fit between minibatches, over seeds and restarts: [members, ...]."""

    params: Params
    opt_state: Any
    key: Key
    step: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class Split:
    """Recorded episodes by part."""

    train: Recorded
    validation: Recorded
    held_out: Recorded


def split(recorded: Recorded) -> Split:
    """Splits recorded episodes; the same episodes always go to the same part."""
    part = np.arange(len(recorded.agent_types)) % PARTS
    train = (part != HELD_OUT) & (part != VALIDATION)
    return Split(*(recorded.select(np.flatnonzero(mask)) for mask in (train, part == VALIDATION, part == HELD_OUT)))


# ------------------------------------------------------------------------------------------------ compiled programs


def make_optimizer(model: Model, batches: int) -> optax.GradientTransformation:
    """Returns AdamW with clipped gradients and a cosine schedule to 0. Biases and counted frequencies do not decay."""
    rate = optax.cosine_decay_schedule(model.learning_rate, model.epochs * batches)

    def weights(params: Params) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    adamw = optax.adamw(rate, weight_decay=model.weight_decay, mask=weights)
    return optax.chain(optax.clip_by_global_norm(10.0), adamw)


def number_of_batches(model: Model, data: Data) -> int:
    """Returns the number of minibatches per epoch; each group must have a unit for each."""
    smallest = min(len(jax.tree.leaves(group)[0]) for group in data)
    return max(1, min(model.num_rows(data) // model.batch, smallest))


def _to_batches(key: Key, data: Data, batches: int) -> tuple[Int[Array, "batches units"], ...]:
    """Indices of every group's units in random order, equally many per minibatch; a remainder is dropped."""
    by_group = []
    for number, group in enumerate(data):
        units = len(jax.tree.leaves(group)[0])
        order = jax.random.permutation(jax.random.fold_in(key, number), units)
        by_group.append(order[: units // batches * batches].reshape(batches, -1))
    return tuple(by_group)


def run_epoch(
    state: FitState, data: Data, epoch: Array, model: Model, game: Game[Any], batches: int
) -> tuple[FitState, dict[str, Array], Array]:
    """Makes one pass over the data; returns the state, the mean loss terms, and whether all parameters are finite."""
    optimizer = make_optimizer(model, batches)
    shuffle_key = jax.random.fold_in(jax.random.fold_in(state.key, SHUFFLE), epoch)

    def update(state: FitState, units: tuple[Array, ...]) -> tuple[FitState, Terms]:
        batch = tuple(
            jax.tree.map(lambda leaf, index=index: leaf[index], group) for group, index in zip(data, units, strict=True)
        )
        key = jax.random.fold_in(jax.random.fold_in(state.key, LOSS), state.step)
        augment_key = jax.random.fold_in(jax.random.fold_in(state.key, AUGMENT), state.step)
        batch = model.augment(augment_key, batch, game)
        progress = state.step / (model.epochs * batches)
        (_, terms), gradients = jax.value_and_grad(model.objective, has_aux=True)(
            state.params, key, batch, game, progress
        )
        changes, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        return FitState(optax.apply_updates(state.params, changes), opt_state, state.key, state.step + 1), terms

    state, terms = jax.lax.scan(update, state, _to_batches(shuffle_key, data, batches))
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params)]).all()
    return state, {name: total.sum() / jnp.maximum(count.sum(), 1) for name, (total, count) in terms.items()}, finite


def init_state(key: Key, data: Data, model: Model, game: Game[Any], batches: int) -> FitState:
    """Returns the state before the first epoch."""
    params = model.init(jax.random.fold_in(key, INITIAL), game, data)
    return FitState(params, make_optimizer(model, batches).init(params), key, jnp.int32(0))


def member_keys(model: Model, seeds: Sequence[int]) -> Key:
    """Returns keys [seeds x restarts]; those of a seed do not depend on the other seeds."""
    seed_keys = jax.vmap(jax.random.key)(np.array(seeds))
    keys = jax.vmap(lambda key: jax.vmap(lambda restart: jax.random.fold_in(key, restart))(jnp.arange(model.restarts)))
    return fast(keys(seed_keys).reshape(-1))


# ----------------------------------------------------------------------------------------------------- the host loop


@dataclass(frozen=True)
class FitSetup:
    """A checked fit: model, dataset and seeds."""

    model: Model
    dataset: Dataset
    seeds: tuple[int, ...]


def prepare(model: Model, dataset: Dataset, seeds: tuple[int, ...]) -> FitSetup:
    """Checks model and dataset; raises InputError if they cannot be fitted."""
    model.check(dataset.game)
    if dataset.header["episodes"] < PARTS:
        raise InputError(
            f"{dataset.path} has {dataset.header['episodes']} episodes, too few to split: it needs at least {PARTS}"
        )
    return FitSetup(model, dataset, seeds)


def describe(setup: FitSetup) -> dict[str, Any]:
    """Returns the contents of config.json."""
    return {
        "fit": setup.model.name,
        "settings": dataclasses.asdict(setup.model),  # pyright: ignore[reportArgumentType]
        "dataset": str(setup.dataset.path.resolve()),
        "data": {name: setup.dataset.header[name] for name in ("casts", "seed", "episodes", "steps", "rows")},
        "game": setup.dataset.header["game"],
        "game_version": setup.dataset.header["version"],
        "seeds": list(setup.seeds),
    }


Watch = Callable[[Sequence[Line]], None]
"""Called after every epoch with its metrics, one line per seed."""


def fit(
    run: Run,
    setup: FitSetup,
    saved: checkpoint.Checkpoint | None = None,
    watch: Watch = lambda lines: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Fits from the start or from a checkpoint; returns the summary, which is also written to evaluation/final.json."""
    model, game, clock = setup.model, setup.dataset.game, time.perf_counter()
    parts = split(setup.dataset.load())
    data, validation = jax.device_put((model.data(game, parts.train), model.validation_data(game, parts.validation)))
    batches = number_of_batches(model, data)
    keys = member_keys(model, setup.seeds)
    begin = jax.jit(jax.vmap(partial(init_state, model=model, game=game, batches=batches), in_axes=(0, None)))
    epoch = jax.jit(
        jax.vmap(partial(run_epoch, model=model, game=game, batches=batches), in_axes=(0, None, None)),
        donate_argnums=0,
    )
    score = jax.jit(jax.vmap(partial(_score, model=model, game=game), in_axes=(0, None)))
    evaluate = model.evaluator(setup.dataset, parts.held_out, partial(make_population, game, setup.dataset.agent_types))
    template = jax.eval_shape(begin, keys, data)
    with ThreadPoolExecutor() as other_core:  # an epoch takes long to compile: all else compiles meanwhile
        learn = other_core.submit(lambda: epoch.lower(template, data, jnp.int32(0)).compile())
        if saved:
            states, done, seconds = checkpoint.restore(template, saved.arrays), saved.number, saved.notes["seconds"]
        else:
            states, done, seconds = begin(keys, data), 0, 0.0
        score(states.params, validation)
        evaluate(_member(states.params, 0))
    log, before = Log(run, done), seconds
    lines: list[Line] = [line for line in run.metrics() if line["iteration"] == done]
    try:
        while done < model.epochs:
            states, terms, finite = learn.result()(states, data, jnp.int32(done))
            _stop_if_diverged(setup, terms, np.asarray(finite), done + 1)
            done += 1
            chosen = _choose(setup, np.asarray(score(states.params, validation)))
            params, terms = _member((states.params, terms), chosen)
            lines = _lines(setup, evaluate, params, terms, done)
            seconds = before + time.perf_counter() - clock
            for line in lines:
                line["seconds"] = seconds
            log.write(lines)
            notes = {"seconds": seconds, "chosen": chosen.tolist()}
            checkpoint.save(run.checkpoints, done, states, notes, kept=model.epochs + 1)
            watch(lines)
            if should_stop() and done < model.epochs:
                raise KeyboardInterrupt
    finally:
        log.close()
    summary = {**describe(setup), "epochs": done, "seconds": seconds, "per_seed": lines}
    run.write_evaluation("final", summary)
    return summary


def _score(params: Params, validation: Data, model: Model, game: Game[Any]) -> Float[Array, ""]:
    """Validation loss at the end of all schedules."""
    return model.objective(params, jax.random.key(0), validation, game, jnp.float32(1.0))[0]


def _member(values: Any, member: Any) -> Any:
    """Arrays of one or several members; NumPy's indexing compiles nothing."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[member], values)


def _choose(setup: FitSetup, scores: Float[np.ndarray, " members"]) -> Int[np.ndarray, " seeds"]:
    """Index, among the members, of each seed's restart with the lowest loss."""
    restarts = setup.model.restarts
    by_seed = np.where(np.isfinite(scores), scores, np.inf).reshape(-1, restarts)
    return by_seed.argmin(1) + restarts * np.arange(len(setup.seeds))


def _lines(
    setup: FitSetup,
    evaluate: Callable[[Params], dict[str, Any]],
    params: Params,
    terms: Mapping[str, Array],
    epoch: int,
) -> list[Line]:
    lines = []
    for place, seed in enumerate(setup.seeds):
        metrics = evaluate(_member(params, place))
        train_terms = {f"learnt_{name}": float(value[place]) for name, value in terms.items()}
        lines.append({"seed": seed, "iteration": epoch, "steps": epoch, **train_terms, **metrics})
    return lines


def _stop_if_diverged(
    setup: FitSetup, terms: Mapping[str, Array], finite: Bool[np.ndarray, " members"], epoch: int
) -> None:
    is_finite = finite & np.all([np.isfinite(np.asarray(value)) for value in terms.values()], axis=0)
    by_seed = is_finite.reshape(-1, setup.model.restarts).any(1)
    if not by_seed.all():
        seed = setup.seeds[int(np.argmin(by_seed))]
        raise DivergedError(f"seed {seed}: a loss or parameter is not a finite number after epoch {epoch}")

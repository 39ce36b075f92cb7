"""The loop around a model that is fitted to recorded episodes: epochs compiled whole, for all seeds at once.

Episodes are dealt out once and for all: a tenth is held out and only ever judged, a tenth (the validation part) chooses
between restarts, the rest is learnt from. A checkpoint is kept of every epoch.
"""

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.keys import Key, fast
from hopplus.learning.moa import Terms
from hopplus.play.dataset import Dataset, Recorded, open_dataset
from hopplus.players import Params
from hopplus.struct import struct
from hopplus.training import checkpoint
from hopplus.training.logging import Line, Log
from hopplus.training.run import Run
from hopplus.training.trainer import DivergedError

PARTS = 10
HELD_OUT, VALIDATION = 0, 5
"""Of every ten episodes, which one is held out and which one chooses between restarts."""
INITIAL, SHUFFLING, LOSS, VARYING = range(4)
"""Purposes of a restart's key."""

Data = tuple[Any, ...]
"""What a model learns from: groups, each a tree of arrays [units, ...]; every batch has its share of each group."""


class Model(ABC):
    """What is fitted, as a frozen dataclass of its settings. A new kind of model implements the abstract members."""

    name: ClassVar[str]
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float = 0.0
    """How fast weights decay, in units of the learning rate."""

    @property
    def restarts(self) -> int:
        """How many times it is begun; of them the one that the validation part likes best is kept."""
        return 1

    def check(self, game: Game[Any]) -> None:
        """InputError where the settings make no sense for a game."""
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise InputError("epochs and batch must be at least 1, and the learning rate greater than 0")

    @abstractmethod
    def data(self, game: Game[Any], recorded: Recorded) -> Data:
        """What is learnt from recorded episodes."""

    def validation_data(self, game: Game[Any], recorded: Recorded) -> Data:
        """The same of episodes that only choose between restarts, in as few groups as compile fast."""
        return self.data(game, recorded)

    @abstractmethod
    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        """Fresh parameters; of the training data only what is counted there may be used (frequencies, vocabularies)."""

    @abstractmethod
    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        """The loss of a batch, and its terms; `progress` goes from 0 to 1 over the whole fit."""

    def vary(self, key: Key, batch: Data, game: Game[Any]) -> Data:
        """A batch as it is learnt from: what leaves the rules as they are may be varied at random."""
        return batch

    @abstractmethod
    def units(self, data: Data) -> int:
        """How many rows there are to learn from: `batch` of them make a batch."""

    @abstractmethod
    def judge(self, dataset: Dataset, recorded: Recorded) -> Callable[[Params], dict[str, Any]]:
        """What tells how good fitted parameters are on recorded episodes: figures, named as metrics.jsonl has them."""


@struct
class FitState:
    """Everything that determines the future of a fit, seeds and restarts first: [members, ...]."""

    params: Params
    optimiser: Any
    key: Key
    step: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class Split:
    """Recorded episodes, dealt out."""

    learnt: Recorded
    validation: Recorded
    held_out: Recorded


def split(recorded: Recorded) -> Split:
    """The same episodes always go to the same part."""
    part = np.arange(len(recorded.kinds)) % PARTS
    others = (part != HELD_OUT) & (part != VALIDATION)
    return Split(*(recorded.select(np.flatnonzero(one)) for one in (others, part == VALIDATION, part == HELD_OUT)))


# ------------------------------------------------------------------------------------------------ compiled programs


def optimiser(model: Model, batches: int) -> optax.GradientTransformation:
    """Adam with gradients clipped and weights decaying (not biases, nor what was counted); its rate falls to 0 along
    a cosine."""
    rate = optax.cosine_decay_schedule(model.learning_rate, model.epochs * batches)

    def weights(params: Params) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    decaying = optax.adamw(rate, weight_decay=model.weight_decay, mask=weights)
    return optax.chain(optax.clip_by_global_norm(10.0), decaying)


def number_of_batches(model: Model, data: Data) -> int:
    """How many batches an epoch has: each group must have a unit for each."""
    smallest = min(len(jax.tree.leaves(group)[0]) for group in data)
    return max(1, min(model.units(data) // model.batch, smallest))


def _deal(key: Key, data: Data, batches: int) -> tuple[Int[Array, "batches units"], ...]:
    """Every group's units in a random order, the same number in each batch; a remainder waits for another epoch."""
    dealt = []
    for number, group in enumerate(data):
        units = len(jax.tree.leaves(group)[0])
        order = jax.random.permutation(jax.random.fold_in(key, number), units)
        dealt.append(order[: units // batches * batches].reshape(batches, -1))
    return tuple(dealt)


def run_epoch(
    state: FitState, data: Data, epoch: Array, model: Model, game: Game[Any], batches: int
) -> tuple[FitState, dict[str, Array], Array]:
    """One pass over the data; the means of the loss's terms, and whether all parameters are finite."""
    rule = optimiser(model, batches)
    shuffling = jax.random.fold_in(jax.random.fold_in(state.key, SHUFFLING), epoch)

    def learn(state: FitState, units: tuple[Array, ...]) -> tuple[FitState, Terms]:
        batch = tuple(
            jax.tree.map(lambda leaf, index=index: leaf[index], group) for group, index in zip(data, units, strict=True)
        )
        key = jax.random.fold_in(jax.random.fold_in(state.key, LOSS), state.step)
        varying = jax.random.fold_in(jax.random.fold_in(state.key, VARYING), state.step)
        batch = model.vary(varying, batch, game)
        progress = state.step / (model.epochs * batches)
        (_, terms), gradients = jax.value_and_grad(model.objective, has_aux=True)(
            state.params, key, batch, game, progress
        )
        changes, memory = rule.update(gradients, state.optimiser, state.params)
        return FitState(optax.apply_updates(state.params, changes), memory, state.key, state.step + 1), terms

    state, terms = jax.lax.scan(learn, state, _deal(shuffling, data, batches))
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params)]).all()
    return state, {name: total.sum() / jnp.maximum(count.sum(), 1) for name, (total, count) in terms.items()}, finite


def first_state(key: Key, data: Data, model: Model, game: Game[Any], batches: int) -> FitState:
    """Before the first epoch."""
    params = model.init(jax.random.fold_in(key, INITIAL), game, data)
    return FitState(params, optimiser(model, batches).init(params), key, jnp.int32(0))


def member_keys(model: Model, seeds: Sequence[int]) -> Key:
    """Keys [seeds x restarts]: a seed's own, whatever other seeds there are."""
    seed_keys = jax.vmap(jax.random.key)(np.array(seeds))
    keys = jax.vmap(lambda key: jax.vmap(lambda restart: jax.random.fold_in(key, restart))(jnp.arange(model.restarts)))
    return fast(keys(seed_keys).reshape(-1))


# ----------------------------------------------------------------------------------------------------- the host loop


@dataclass(frozen=True)
class Setup:
    """A fit that has been checked."""

    model: Model
    dataset: Dataset
    seeds: tuple[int, ...]


def prepare(model: Model, dataset: Dataset, seeds: tuple[int, ...]) -> Setup:
    """Check everything that a fit needs; InputError says what is wrong."""
    model.check(dataset.game)
    if dataset.header["episodes"] < PARTS:
        raise InputError(
            f"{dataset.path} has {dataset.header['episodes']} episodes, too few to learn from some and judge on others:"
            f" at least {PARTS}"
        )
    return Setup(model, dataset, seeds)


def describe(setup: Setup) -> dict[str, Any]:
    """What config.json says of a fit."""
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
"""Called after every epoch with its lines, one a seed."""


def fit(
    run: Run,
    setup: Setup,
    saved: checkpoint.Checkpoint | None = None,
    watch: Watch = lambda lines: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Fit from the start, or on from a checkpoint; returns the summary kept as evaluation/final.json."""
    model, game, clock = setup.model, setup.dataset.game, time.perf_counter()
    parts = split(setup.dataset.load())
    data, validation = jax.device_put((model.data(game, parts.learnt), model.validation_data(game, parts.validation)))
    batches = number_of_batches(model, data)
    keys = member_keys(model, setup.seeds)
    begin = jax.jit(jax.vmap(partial(first_state, model=model, game=game, batches=batches), in_axes=(0, None)))
    epoch = jax.jit(
        jax.vmap(partial(run_epoch, model=model, game=game, batches=batches), in_axes=(0, None, None)),
        donate_argnums=0,
    )
    score = jax.jit(jax.vmap(partial(_score, model=model, game=game), in_axes=(0, None)))
    judge = model.judge(setup.dataset, parts.held_out)
    template = jax.eval_shape(begin, keys, data)
    with ThreadPoolExecutor() as other_core:  # an epoch takes long to compile: all else compiles meanwhile
        learn = other_core.submit(lambda: epoch.lower(template, data, jnp.int32(0)).compile())
        if saved:
            states, done, seconds = checkpoint.restore(template, saved.arrays), saved.number, saved.notes["seconds"]
        else:
            states, done, seconds = begin(keys, data), 0, 0.0
        score(states.params, validation)
        judge(_member(states.params, 0))
    log, before = Log(run, done), seconds
    lines: list[Line] = [line for line in run.metrics() if line["iteration"] == done]
    try:
        while done < model.epochs:
            states, terms, finite = learn.result()(states, data, jnp.int32(done))
            _stop_if_diverged(setup, terms, np.asarray(finite), done + 1)
            done += 1
            chosen = _choose(setup, np.asarray(score(states.params, validation)))
            params, terms = _member((states.params, terms), chosen)
            lines = _lines(setup, judge, params, terms, done)
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
    """The loss without what is there for learning only, on the validation part."""
    return model.objective(params, jax.random.key(0), validation, game, jnp.float32(1.0))[0]


def _member(values: Any, member: Any) -> Any:
    """The arrays of a member, or of several; NumPy's indexing compiles nothing."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[member], values)


def _choose(setup: Setup, scores: Float[np.ndarray, " members"]) -> Int[np.ndarray, " seeds"]:
    """Of every seed's restarts the one with the lowest loss, as its place among the members."""
    restarts = setup.model.restarts
    by_seed = np.where(np.isfinite(scores), scores, np.inf).reshape(-1, restarts)
    return by_seed.argmin(1) + restarts * np.arange(len(setup.seeds))


def _lines(
    setup: Setup, judge: Callable[[Params], dict[str, Any]], params: Params, terms: Mapping[str, Array], epoch: int
) -> list[Line]:
    lines = []
    for place, seed in enumerate(setup.seeds):
        figures = judge(_member(params, place))
        learnt = {f"learnt_{name}": float(value[place]) for name, value in terms.items()}
        lines.append({"seed": seed, "iteration": epoch, "steps": epoch, **learnt, **figures})
    return lines


def _stop_if_diverged(
    setup: Setup, terms: Mapping[str, Array], finite: Bool[np.ndarray, " members"], epoch: int
) -> None:
    sound = finite & np.all([np.isfinite(np.asarray(value)) for value in terms.values()], axis=0)
    by_seed = sound.reshape(-1, setup.model.restarts).any(1)
    if not by_seed.all():
        seed = setup.seeds[int(np.argmin(by_seed))]
        raise DivergedError(f"seed {seed}: a loss or parameter is not a finite number after epoch {epoch}")


# ------------------------------------------------------------------------------------------------------ fitted models


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit has learnt, by epoch and seed."""

    run: Run
    model: Model

    @property
    def epochs(self) -> list[int]:
        """The epochs of which there are checkpoints, from the first."""
        return sorted(checkpoint.number_of(path) for path in checkpoint.found(self.run.checkpoints))

    def params(self, seed: int | None = None, epoch: int | None = None) -> Params:
        """A seed's parameters (the first's unless one is named) after an epoch (the last unless one is named)."""
        seeds = self.run.seeds
        chosen = seeds[0] if seed is None else seed
        if chosen not in seeds:
            raise InputError(f"{self.run.path} has no seed {seed}: its seeds are {', '.join(map(str, seeds))}")
        found = checkpoint.load(self.run.checkpoints, epoch)
        place = found.notes["chosen"][seeds.index(chosen)]
        return jax.tree.map(lambda leaf: leaf[place], found.tree()["params"])

    def dataset(self, path: Path | None = None) -> Dataset:
        """The dataset that it was fitted to, or another of the same game."""
        found = open_dataset(Path(self.run.config["dataset"]) if path is None else path)
        played, modelled = found.header["game"], self.run.config["game"]
        if played != modelled:
            raise InputError(f"{found.path} was played on {played}, and {self.run.path} models {modelled}")
        return found

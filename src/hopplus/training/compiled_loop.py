"""Compiled programs of a training: initial states, iterations and evaluation, for all seeds at once.

Environments are sharded over several devices (`hopplus.core.sharding`).
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float

from hopplus.algorithms.base import Algorithm, CurriculumPhase, Metrics, State
from hopplus.algorithms.seats import Seats
from hopplus.core.compilation import quick_options
from hopplus.core.keys import Key, fast
from hopplus.core.settings import flatten, replace_settings, setting_types
from hopplus.core.sharding import REPLICATED, barrier, put, spec
from hopplus.games import Game
from hopplus.players import Params
from hopplus.rollouts import RolloutState, play_episodes
from hopplus.training.experiment import Experiment

EVALUATION = 1000
"""Purpose of a seed's key for evaluations, apart from those of all algorithms."""
EVALUATION_EPISODES = 1000
TIMING_ROUNDS = 3
Numbers = tuple[dict[str, Any], dict[str, Any]]
"""Traced settings of the algorithm and of the phase, by name."""


def untrained_params(experiment: Experiment) -> Params:
    """Parameter sets [P, ...] of one seed, all zero, in the shapes of the trained ones."""
    init = _init(experiment, experiment.frozen_params())
    params = experiment.algorithm.params(jax.eval_shape(lambda seed: init(jax.random.key(seed)), 0))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)


def _init(experiment: Experiment, frozen: Mapping[str, Params]) -> Callable[[Key], State]:
    """Initial state of one seed."""
    phase = experiment.phases[0][1]
    return partial(experiment.algorithm.init, phase=phase, frozen=frozen, init_params=experiment.init_params)


def over_seeds(function: Callable[..., Any], seeds: int) -> Callable[..., Any]:
    """A function of one seed, mapped over the first argument [K]; a single seed is not batched."""
    if seeds > 1:
        return lambda first, *common: jax.vmap(lambda of_seed: function(of_seed, *common))(first)

    def of_one_seed(first: Any, *common: Any) -> Any:
        result = function(jax.tree.map(lambda leaf: leaf[0], first), *common)
        return jax.tree.map(lambda leaf: leaf[None], result)

    return of_one_seed


def traced_numbers(algorithm: Algorithm, phase: CurriculumPhase) -> Numbers:
    """Settings that are arguments of a compiled program."""
    dtypes = {bool: np.bool_, int: np.int32, float: np.float32}

    def scalars(values: Mapping[str, Any], types: Mapping[str, type], names: tuple[str, ...]) -> dict[str, Any]:
        return {name: dtypes[types[name]](values[name]) for name in names}

    of_algorithm = scalars(flatten(algorithm), setting_types(algorithm), algorithm.traced)
    types = {field.name: field.type for field in dataclasses.fields(phase)}
    return of_algorithm, scalars(vars(phase), types, phase.traced)  # pyright: ignore[reportArgumentType]


def run_iterations(
    state: State,
    frozen: Mapping[str, Params],
    numbers: Numbers,
    algorithm: Algorithm,
    phase: CurriculumPhase,
    iterations: int,
) -> tuple[State, Metrics, Array]:
    """Several iterations of one seed.

    Returns:
        The state, metrics summed over the iterations, and whether all parameters are finite.
    """
    algorithm = replace_settings(algorithm, numbers[0])
    phase = dataclasses.replace(phase, **numbers[1])

    def iterate(state: State, _: None) -> tuple[State, Metrics]:
        return algorithm.iterate(state, phase, frozen)

    state, metrics = jax.lax.scan(iterate, state, None, length=iterations)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(algorithm.params(state))]).all()
    return state, jax.tree.map(lambda leaf: leaf.sum(0), metrics), finite


def run_evaluation(
    key_and_params: tuple[Key, Params], frozen: Mapping[str, Params], game: Game[Any], seats: Seats, episodes: int
) -> Float[Array, "episodes n"]:
    """Returns of whole episodes from fresh states."""
    key, params = key_and_params
    return play_episodes(key, game, seats.cast, episodes, seats.params(params, frozen))[1].returns


def state_shardings(states: State, mesh: Mesh) -> State:
    """Shardings of states [K, ...]: environments are divided among the devices, all else is replicated."""

    def of_part(part: Any) -> Any:
        divides = isinstance(part, RolloutState)
        return jax.tree.map(lambda leaf: NamedSharding(mesh, spec(leaf, 1) if divides else REPLICATED), part)

    return jax.tree.map(of_part, states, is_leaf=lambda part: isinstance(part, RolloutState))


class CompiledLoop:
    """The compiled programs of a training, each made on first use.

    Programs are traced one after the other, since tracing holds Python's lock, and compiled side by side; the
    evaluation compiles while the first iterations run.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._compiled: dict[Any, Future[Any]] = {}
        self._threads = ThreadPoolExecutor(2)
        self._frozen = experiment.frozen_params()
        self._init = over_seeds(_init(experiment, self._frozen), len(experiment.seeds))
        states = jax.eval_shape(self._init, jax.eval_shape(self._seed_keys))
        self.template = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), states)
        """Shapes of the states."""
        self._everywhere = self._shardings = None
        if experiment.mesh:
            self._everywhere = NamedSharding(experiment.mesh, REPLICATED)
            self._shardings = state_shardings(self.template, experiment.mesh)
            self._frozen = put(self._frozen, jax.tree.map(lambda leaf: self._everywhere, self._frozen))

    def _lower(self, function: Callable[..., Any], *inputs: Any, **shardings: Any) -> Any:
        """A traced function, sharded where there are several devices."""
        if self._experiment.mesh is None:
            return jax.jit(function).lower(*inputs)
        with jax.set_mesh(self._experiment.mesh):
            return jax.jit(function, **shardings).lower(*inputs)

    def _seed_keys(self) -> Key:
        return fast(jax.vmap(jax.random.key)(np.array(self._experiment.seeds)))

    def seed_keys(self) -> Key:
        """Root keys of the seeds [K]."""
        if self._experiment.mesh is None:
            return self._seed_keys()
        return jax.jit(self._seed_keys, out_shardings=self._everywhere)()

    def shard_states(self, states: State) -> State:
        """States of a checkpoint, placed as the programs expect them."""
        return states if self._experiment.mesh is None else put(states, self._shardings)

    def prefetch(self, steps: int, evaluation: bool) -> None:
        """Starts compiling the programs that are needed first."""
        self._program(self._experiment.phase_at(steps))
        if evaluation:
            self._program("evaluation")

    def init_states(self) -> State:
        """States of all seeds before the first iteration."""
        keys = self.seed_keys()
        init = self._lower(self._init, keys, out_shardings=self._shardings).compile(compiler_options=quick_options())
        barrier()
        return init(keys)

    def iterate(self, states: State, steps: int) -> tuple[State, Metrics, Array]:
        """One compiled call: several iterations of all seeds, in the phase of a step count."""
        phase = self._experiment.phase_at(steps)
        program = self._program(phase).result()
        barrier()
        return program(states, self._frozen, self._numbers(phase))

    def evaluate(self, states: State, number: int) -> Float[np.ndarray, "K episodes n"]:
        """Greedy returns of every seed; the initial states depend on the evaluation's number."""
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION), number))(self.seed_keys())
        program, params = self._program("evaluation").result(), self._experiment.algorithm.params(states)
        barrier()
        return np.asarray(program((keys, params), self._frozen), np.float64)

    def time_parts(self, states: State, steps: int) -> dict[str, float]:
        """Seconds of each part of one seed's iteration, compiled alone; the best of three rounds."""
        state = jax.tree.map(lambda leaf: leaf[0], states)
        parts = self._experiment.algorithm.timed_parts(self._experiment.phase_at(steps), self._frozen)
        results: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        for name, part in parts.items():
            run = jax.jit(part)
            results[name] = jax.block_until_ready(run(state, results))
            rounds = []
            for _ in range(TIMING_ROUNDS):
                started = time.perf_counter()
                jax.block_until_ready(run(state, results))
                rounds.append(time.perf_counter() - started)
            seconds[f"seconds_{name}"] = min(rounds)
        return seconds

    def _program(self, name: Any) -> Future[Any]:
        if name not in self._compiled:
            if name == "evaluation":
                self._compiled[name] = self._threads.submit(lambda: self._lower_evaluation().compile())
            else:
                self._compiled[name] = self._threads.submit(self._lower_iterations(name).compile)
        return self._compiled[name]

    def _numbers(self, phase: CurriculumPhase) -> Numbers:
        numbers = traced_numbers(self._experiment.algorithm, phase)
        if self._experiment.mesh is None:
            return numbers
        return put(numbers, jax.tree.map(lambda leaf: self._everywhere, numbers))

    def _lower_iterations(self, phase: CurriculumPhase) -> Any:
        experiment = self._experiment
        iterations = experiment.training.iterations_per_call
        run = partial(run_iterations, algorithm=experiment.algorithm, phase=phase, iterations=iterations)
        return self._lower(
            over_seeds(run, len(experiment.seeds)),
            self.template,
            self._frozen,
            self._numbers(phase),
            in_shardings=(self._shardings, self._everywhere, self._everywhere),
            out_shardings=(self._shardings, self._everywhere, self._everywhere),
        )

    def _lower_evaluation(self) -> Any:
        experiment = self._experiment
        seats, episodes = experiment.eval_seats, EVALUATION_EPISODES
        run = partial(run_evaluation, game=experiment.game, seats=seats, episodes=episodes)
        inputs = (jax.eval_shape(self._seed_keys), experiment.algorithm.params(self.template))
        shardings = {"in_shardings": self._everywhere, "out_shardings": self._everywhere}
        return self._lower(over_seeds(run, len(experiment.seeds)), inputs, self._frozen, **shardings)

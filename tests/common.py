"""Helpers shared by the tests."""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float, Int

from hopplus import games, rollouts
from hopplus.algorithms import ALGORITHMS, Hop, HopPlus, presets
from hopplus.beliefs import goal_space
from hopplus.cli.output import PLUGINS_RUN
from hopplus.core.settings import replace_settings
from hopplus.games import catalog as game_catalog
from hopplus.models import MODELS
from hopplus.networks import opponent_model
from hopplus.planning import catalog as planner_catalog
from hopplus.players import catalog as player_catalog
from hopplus.training import compiled_loop, trainer
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment
from hopplus.training.summary import log_lines

QUICK_TO_RUN = {"xla_backend_optimization_level": 1}
"""Compiler options of programs that run for seconds: a fifth more time to compile, a tenth of the time to run."""

# A game's functions as one program each, shared by all tests: equal games use the same program, and called without
# `jit` every operation in them would be compiled as a program of its own.


@functools.partial(jax.jit, static_argnames="game")
def step(game: games.Game[Any], key: jax.Array, state: Any, actions: Any) -> tuple[Any, games.Outcome]:
    """`game.step`, compiled once per game."""
    return game.step(key, state, actions)


@functools.partial(jax.jit, static_argnames="game")
def legal(game: games.Game[Any], state: Any) -> jax.Array:
    """`game.legal`, compiled once per game."""
    return game.legal(state)


@functools.partial(jax.jit, static_argnames="game")
def observations(game: games.Game[Any], trajectory: rollouts.Trajectory) -> games.Observation:
    """`rollouts.observations`, compiled once per game."""
    return rollouts.observations(game, trajectory)


TINY_GAME = "msh-4x4-2h1s"
TINY_PPO = (
    f"train ppo --game {TINY_GAME} --num-envs 8 --num-steps 16 --hidden 16 --iterations-per-call 2"
    " --steps 768 --seeds 0-2"
).split()
"""Command of the fixture `tiny_run`: three chunks. Other tests that train use the same settings, so that its programs
are compiled once for all of them."""


REGISTRIES: tuple[dict[str, Any], ...] = (
    game_catalog._GAMES,
    player_catalog._PLAYERS,
    ALGORITHMS,
    MODELS,
    planner_catalog._PLANNERS,
    goal_space._LABELLED,
    opponent_model._OPPONENT_MODELS,
)


@contextlib.contextmanager
def kept_registries() -> Iterator[None]:
    """Context that restores all registries, and runs plugins again."""
    plugins = set(PLUGINS_RUN)
    PLUGINS_RUN.clear()
    with contextlib.ExitStack() as stack:
        stack.callback(PLUGINS_RUN.update, plugins)
        stack.callback(PLUGINS_RUN.clear)
        for registry in REGISTRIES:
            stack.callback(_restore, registry, dict(registry))
        yield


def _restore(registry: dict[str, Any], before: dict[str, Any]) -> None:
    registry.clear()
    registry.update(before)


@contextlib.contextmanager
def shared_programs() -> Iterator[None]:
    """Context in which trainings, in memory or by a command, that differ at most in their initial parameters are traced
    and compiled once."""
    compiled: dict[Any, CompiledLoop] = {}

    def compiled_loop_of(experiment: Experiment) -> CompiledLoop:
        frozen = experiment.frozen_params()
        values = tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(frozen))
        training = replace(experiment.training, init=())
        settings = (training, experiment.algorithm, experiment.mesh, compiled_loop.EVALUATION_EPISODES)
        key = (*settings, str(jax.tree.structure(frozen)), values)
        if not experiment.init_params:
            if key not in compiled:
                compiled[key] = CompiledLoop(experiment)
            return compiled[key]
        loop = CompiledLoop(experiment)
        if key in compiled:
            loop._compiled = compiled[key]._compiled
        return loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "CompiledLoop", compiled_loop_of)
        yield


@contextlib.contextmanager
def short_evaluations() -> Iterator[None]:
    """Context in which trainings are evaluated in 50 episodes instead of 1,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_loop, "EVALUATION_EPISODES", 50)
        yield


@functools.partial(jax.jit, static_argnames=("game", "environments"))
def _wander(key: jax.Array, game: games.Game[Any], environments: int) -> tuple[Any, jax.Array]:
    """States [T, E, ...] of random play that prefers work actions, and the legal actions [T, E, n] taken in them."""

    def step(states: Any, key: jax.Array) -> tuple[Any, tuple[Any, jax.Array]]:
        legal = jax.vmap(game.legal)(states)
        scores = jax.random.uniform(key, legal.shape) + 0.7 * (jnp.arange(game.num_actions) > game.idle_action)
        actions = jnp.argmax(jnp.where(legal, scores, -1), axis=-1).astype(jnp.int32)
        return jax.vmap(game.step, in_axes=(None, 0, 0))(key, states, actions)[0], (states, actions)

    first = games.init_batch(game, jax.random.split(key, environments))
    return jax.lax.scan(step, first, jax.random.split(jax.random.fold_in(key, 1), game.last_step))[1]


@functools.partial(jax.jit, static_argnames="game")
def first_state(game: games.Game[Any], seed: int = 0) -> Any:
    """Initial state, compiled once for all seeds."""
    return game.init(jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="game")
def observe(game: games.Game[Any], state: Any) -> games.Observation:
    """Observations of all seats, compiled once per game."""
    return game.observe(state)


def played_states(game: games.Game[Any], environments: int = 24, seed: int = 0) -> tuple[Any, np.ndarray]:
    """States [N, ...] from all steps of random episodes, and joint actions [N, n], legal or not, to try in them."""
    states, legal_actions = _wander(jax.random.key(seed), game, environments)
    states = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)
    chosen = np.asarray(legal_actions).reshape(-1, game.num_players)
    generator = np.random.default_rng(seed)
    arbitrary = generator.integers(-1, game.num_actions + 1, chosen.shape)
    return states, np.where(generator.random(chosen.shape) < 0.8, chosen, arbitrary).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Trained:
    """Finished training in memory."""

    experiment: Experiment
    first: Any
    states: Any
    lines: list[dict[str, Any]]

    def returns(self, episodes: int = 600) -> tuple[Float[np.ndarray, "episodes n"], Int[np.ndarray, " episodes"]]:
        """Greedy returns, and the episodes' kinds (their initial times if the game has no kinds)."""
        learned = jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.experiment.algorithm.params(self.states))
        seats = self.experiment.eval_seats
        params = seats.params(learned, self.experiment.frozen_params())
        _, trajectory = rollouts.play_episodes(jax.random.key(1), self.experiment.game, seats.cast, episodes, params)
        return np.asarray(trajectory.returns), np.asarray(getattr(trajectory.state, "kind", trajectory.state.time)[0])

    def by_kind(self) -> Float[np.ndarray, "kinds n"]:
        """Mean greedy returns for each kind of episode."""
        returns, kinds = self.returns()
        return np.stack([returns[kinds == kind].mean(0) for kind in range(3)])


def train(experiment: Experiment, loop: CompiledLoop | None = None, start_steps: int = 0) -> Trained:
    """Train one seed for its steps, starting from step `start_steps`."""
    loop = loop or CompiledLoop(experiment)
    first = loop.init_states()
    states, lines = replace(first, steps=first.steps + start_steps), []
    while int(states.steps[0]) - start_steps < experiment.training.steps:
        states, metrics, _ = loop.iterate(states, start_steps)
        lines += log_lines(experiment, states, metrics, np.ones(1, bool), len(lines) + 1)
    return Trained(experiment, first, states, lines)


def floats(values: Any) -> Any:
    """NumPy array of 32-bit floats."""
    return np.array(values, np.float32)


def differs_by(number: int, false_alarm_rate: float = 1e-9) -> float:
    """Largest plausible error of the mean of independent samples from [0, 1] (Hoeffding's bound)."""
    return float(np.sqrt(np.log(2 / false_alarm_rate) / (2 * number)))


def hopplus(**settings: Any) -> HopPlus:
    """HOP+ of the preset `plain`, which compiles fast, with some settings changed, whichever group holds them."""
    return replace_settings(HopPlus(), {**presets.plain(games.make("msh-4x4-2h1s")), **settings})


def hop(**settings: Any) -> Hop:
    """HOP with some settings changed, whichever group holds them."""
    return replace_settings(Hop(), settings)

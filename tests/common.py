"""What the tests share."""

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

from hopplus import games, play
from hopplus.cli.output import PLUGINS_RUN
from hopplus.games import catalog as game_catalog
from hopplus.players import catalog as player_catalog
from hopplus.training import trainer
from hopplus.training.fits import FITS
from hopplus.training.recipes import RECIPES
from hopplus.training.trainer import Programs, Setup, lines_of

QUICK_TO_RUN = {"xla_backend_optimization_level": 1}
"""Compiler options of programs that run for seconds: a fifth more time to compile, a tenth of the time to run."""

# A game's functions as one program each, shared by all tests: equal games use the same program, and called without
# `jit` every operation in them would be compiled as a program of its own.


@functools.partial(jax.jit, static_argnames="game")
def step(game: games.Game[Any], key: jax.Array, state: Any, actions: Any) -> tuple[Any, games.Outcome]:
    return game.step(key, state, actions)


@functools.partial(jax.jit, static_argnames="game")
def legal(game: games.Game[Any], state: Any) -> jax.Array:
    return game.legal(state)


@functools.partial(jax.jit, static_argnames="game")
def observations(game: games.Game[Any], episode: play.Episode) -> games.Observation:
    return play.observations(game, episode)


TINY_GAME = "msh-4x4-2h1s"
TINY_PPO = (
    f"train ppo --game {TINY_GAME} --environments 8 --rollout-steps 16 --hidden 16 --chunk 2 --steps 768 --seeds 0-2"
).split()
"""The command of the fixture `tiny_run`: three chunks. Other tests that train something use the same settings, so that
its programs are compiled once for all of them."""


@contextlib.contextmanager
def kept_registries() -> Iterator[None]:
    """Restores the names of games, players, recipes and fits at the end, and runs plugins as in a new process."""
    plugins = set(PLUGINS_RUN)
    PLUGINS_RUN.clear()
    with contextlib.ExitStack() as stack:
        stack.callback(PLUGINS_RUN.update, plugins)
        stack.callback(PLUGINS_RUN.clear)
        for registry in (game_catalog._GAMES, player_catalog._PLAYERS, RECIPES, FITS):
            stack.callback(_restore, registry, dict(registry))
        yield


def _restore(registry: dict[str, Any], before: dict[str, Any]) -> None:
    registry.clear()
    registry.update(before)


@contextlib.contextmanager
def shared_programs() -> Iterator[None]:
    """Trainings in this context, in memory or by a command, that differ at most in the parameters they start from are
    traced and compiled once."""
    made: dict[Any, Programs] = {}

    def programs(setup: Setup) -> Programs:
        frozen = setup.frozen_params()
        values = tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(frozen))
        settings = (replace(setup.training, init=()), setup.recipe, setup.mesh, trainer.EVALUATION_EPISODES)
        key = (*settings, str(jax.tree.structure(frozen)), values)
        if not setup.begun:
            if key not in made:
                made[key] = Programs(setup)
            return made[key]
        begun = Programs(setup)
        if key in made:
            begun._compiled = made[key]._compiled
        return begun

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "Programs", programs)
        yield


@contextlib.contextmanager
def short_evaluations() -> Iterator[None]:
    """Trainings in this context are evaluated in 50 episodes instead of 1,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "EVALUATION_EPISODES", 50)
        yield


@functools.partial(jax.jit, static_argnames=("game", "environments"))
def _wander(key: jax.Array, game: games.Game[Any], environments: int) -> tuple[Any, jax.Array]:
    """States [T, E, ...] of random play that rarely misses a chance to work on something, and legal actions in them."""

    def step(states: Any, key: jax.Array) -> tuple[Any, tuple[Any, jax.Array]]:
        legal = jax.vmap(game.legal)(states)
        taste = jax.random.uniform(key, legal.shape) + 0.7 * (jnp.arange(game.num_actions) > game.idle_action)
        actions = jnp.argmax(jnp.where(legal, taste, -1), axis=-1).astype(jnp.int32)
        return jax.vmap(game.step, in_axes=(None, 0, 0))(key, states, actions)[0], (states, actions)

    first = games.init_batch(game, jax.random.split(key, environments))
    return jax.lax.scan(step, first, jax.random.split(jax.random.fold_in(key, 1), game.last_step))[1]


@functools.partial(jax.jit, static_argnames="game")
def first_state(game: games.Game[Any], seed: int = 0) -> Any:
    """A first state; compiled once for all seeds."""
    return game.init(jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="game")
def observe(game: games.Game[Any], state: Any) -> games.Observation:
    """What all seats see in a state."""
    return game.observe(state)


def played_states(game: games.Game[Any], environments: int = 24, seed: int = 0) -> tuple[Any, np.ndarray]:
    """States [N, ...] from all times of random episodes, and joint actions [N, n], legal or not, to try in them."""
    states, legal_actions = _wander(jax.random.key(seed), game, environments)
    states = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)
    chosen = np.asarray(legal_actions).reshape(-1, game.num_players)
    generator = np.random.default_rng(seed)
    wild = generator.integers(-1, game.num_actions + 1, chosen.shape)
    return states, np.where(generator.random(chosen.shape) < 0.8, chosen, wild).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Trained:
    """A training in memory."""

    setup: Setup
    first: Any
    states: Any
    lines: list[dict[str, Any]]

    def returns(self, episodes: int = 600) -> tuple[Float[np.ndarray, "episodes n"], Int[np.ndarray, " episodes"]]:
        """Greedy returns, and the kinds of the episodes if they have some."""
        learnt = jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.setup.recipe.learnt(self.states))
        judged = self.setup.judged
        params = judged.params(learnt, self.setup.frozen_params())
        _, episode = play.play_episodes(jax.random.key(1), self.setup.game, judged.cast, episodes, params)
        return np.asarray(episode.returns), np.asarray(getattr(episode.state, "kind", episode.state.time)[0])

    def by_kind(self) -> Float[np.ndarray, "kinds n"]:
        returns, kinds = self.returns()
        return np.stack([returns[kinds == kind].mean(0) for kind in range(3)])


def train(setup: Setup, programs: Programs | None = None, start_steps: int = 0) -> Trained:
    """Train one seed for its steps, in a training that is already at step `start_steps`."""
    programs = programs or Programs(setup)
    first = programs.first_states()
    states, lines = replace(first, steps=first.steps + start_steps), []
    while int(states.steps[0]) - start_steps < setup.training.steps:
        states, metrics, _ = programs.chunk(states, start_steps)
        lines += lines_of(setup, states, metrics, np.ones(1, bool), len(lines) + 1)
    return Trained(setup, first, states, lines)


def floats(values: Any) -> Any:
    """Numbers as a NumPy array of 32-bit floats."""
    return np.array(values, np.float32)


def differs_by(number: int, false_alarm_rate: float = 1e-9) -> float:
    """By how much the mean of so many independent draws from [0, 1] may differ from its expectation (Hoeffding)."""
    return float(np.sqrt(np.log(2 / false_alarm_rate) / (2 * number)))

"""What the tests share."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus import games


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


def played_states(game: games.Game[Any], environments: int = 24, seed: int = 0) -> tuple[Any, np.ndarray]:
    """States [N, ...] from all times of random episodes, and joint actions [N, n], legal or not, to try in them."""
    states, legal_actions = _wander(jax.random.key(seed), game, environments)
    states = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)
    chosen = np.asarray(legal_actions).reshape(-1, game.num_players)
    generator = np.random.default_rng(seed)
    wild = generator.integers(-1, game.num_actions + 1, chosen.shape)
    return states, np.where(generator.random(chosen.shape) < 0.8, chosen, wild).astype(np.int32)

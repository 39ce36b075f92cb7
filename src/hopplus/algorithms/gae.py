"""Generalised advantage estimation over trajectories with ends and edges."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, "T *rows"],
    value: Float[Array, "T *rows"],
    last_value: Float[Array, " *rows"],
    ended: Bool[Array, "T *rows"],
    alive: Bool[Array, "T *rows"],
    gamma: float,
    gae_lambda: float,
) -> tuple[Float[Array, "T *rows"], Float[Array, "T *rows"]]:
    """Generalised advantage estimates of every step, and value targets (advantage + value); 0 where not alive.

    Args:
        value: Value of the acting network at collection time.
        last_value: Value of the state after the last step, before any reset, for rollouts cut by the batch's edge.
        ended: Whether the step was the player's last in its episode: it left, or the game was over.
        alive: Whether the player was in the game.
    """

    def back(carry: tuple[Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        following_value, following_advantage = carry
        reward, value, ended, alive = row
        delta = reward + gamma * jnp.where(ended, 0.0, following_value) - value
        advantage = delta + gamma * gae_lambda * jnp.where(ended, 0.0, following_advantage)
        return (value, advantage), jnp.where(alive, advantage, 0.0)

    start = (last_value, jnp.zeros_like(last_value))
    _, advantages = jax.lax.scan(back, start, (reward, value, ended, alive), reverse=True)
    return advantages, jnp.where(alive, advantages + value, 0.0)

"""How much better an action was than expected: generalised advantage estimation over rows with ends and edges."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    reward: Float[Array, "T *rows"],
    value: Float[Array, "T *rows"],
    last_value: Float[Array, " *rows"],
    ended: Bool[Array, "T *rows"],
    alive: Bool[Array, "T *rows"],
    discount: float,
    trace: float,
) -> tuple[Float[Array, "T *rows"], Float[Array, "T *rows"]]:
    """Advantages and returns (advantages + the same values) of every step; 0 where not alive.

    `value` is what the acting network said; `ended` is true where the step was the player's last in its episode (it
    left, or the game was over): nothing is expected from after it. `last_value` is the value of what the last step led
    to, before any reset: what a rollout cut by the batch's edge may still expect. `trace` is GAE's lambda.
    """

    def back(carry: tuple[Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        following_value, following_advantage = carry
        reward, value, ended, alive = row
        surprise = reward + discount * jnp.where(ended, 0.0, following_value) - value
        advantage = surprise + discount * trace * jnp.where(ended, 0.0, following_advantage)
        return (value, advantage), jnp.where(alive, advantage, 0.0)

    start = (last_value, jnp.zeros_like(last_value))
    _, found = jax.lax.scan(back, start, (reward, value, ended, alive), reverse=True)
    return found, jnp.where(alive, found + value, 0.0)

"""Imagined play: the ego's policy in a simulated world, co-players drawn from the model of them.

What the ego believes follows what its imagined co-players do, by the same inference as in real play.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.keys import Key, fast
from hopplus.planning.acquaintance import Mind
from hopplus.planning.search import Params, Planning, drawn
from hopplus.planning.tastes import slipping
from hopplus.struct import struct

GOALS, ACTIONS, REPLIES, SLIPS, STEP = range(5)
"""Purposes of an imagined play's key, and of its steps'."""


@struct
class Imagined:
    """One ego's imagined steps [H]; those after its end are not `alive`."""

    seen: Observation
    """Before each step."""
    mind: Mind
    action: Int[Array, " H"]
    log_probability: Float[Array, " H"]
    value: Float[Array, " H"]
    reward: Float[Array, " H"]
    ended: Bool[Array, " H"]
    alive: Bool[Array, " H"]
    last_value: Float[Array, ""]


def imagine(planning: Planning, key: Key, params: Params, mind: Mind, observation: Observation, steps: int) -> Imagined:
    """Play on from a real situation for a number of steps, with co-players whose goals are drawn from the beliefs."""
    key = fast(key)
    goals = jax.random.categorical(jax.random.fold_in(key, GOALS), mind.belief)
    logits, value = planning.evaluate(params["policy"], observation, mind)
    first = (planning.simulator.at(observation), mind, observation, logits, value, jnp.bool_(True))

    def step(carry: tuple, number: Array) -> tuple[tuple, Imagined]:
        situation, mind, seen, logits, value, alive = carry
        own = jax.random.fold_in(key, STEP + number)
        meant = jax.random.categorical(jax.random.fold_in(own, ACTIONS), logits)
        action = slipping(jax.random.fold_in(own, SLIPS), mind.taste, meant, seen.legal[0])
        uniform = jax.random.uniform(jax.random.fold_in(own, REPLIES), goals.shape)
        chosen = jnp.take_along_axis(mind.expected, goals[:, None, None], 1)[:, 0]
        after = planning.simulate(
            jax.random.fold_in(own, STEP), params, situation, mind, action, drawn(uniform, chosen)
        )
        row = Imagined(
            seen=seen,
            mind=mind,
            action=meant,
            log_probability=jax.nn.log_softmax(logits)[meant],
            value=value,
            reward=jnp.where(alive, after.reward, 0.0),
            ended=~after.goes_on,
            alive=alive,
            last_value=after.value,
        )
        return (after.situation, after.mind, after.seen, after.logits, after.value, alive & after.goes_on), row

    _, rows = jax.lax.scan(step, first, jnp.arange(steps))
    return Imagined(**{**vars(rows), "last_value": rows.last_value[-1]})

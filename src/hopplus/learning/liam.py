"""LIAM: a memory learns to tell what the co-players see and do, beside PPO, whose gradient does not touch it.

What they see and do is known while learning only; who acts has nothing but the own history.
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, UInt8

from hopplus.learning import ppo
from hopplus.networks.encoding import ILLEGAL
from hopplus.struct import struct

TOLD = (*ppo.MEASURED, "others_seen", "others_foreseen", "others_there")
"""What an update tells of its rows: shares of the co-players' boards and actions that were told rightly, both summed
over those co-players who were there."""


@struct
class RowsWithOthers(ppo.Rows):
    """Rows to learn from, with what the co-players [n-1], ego-first, saw and did then."""

    others_board: UInt8[Array, "*rows n-1 cells"]
    """What stands where, as each of them sees it."""
    others_action: Int[Array, "*rows n-1"]
    others_legal: Bool[Array, "*rows n-1 A"]
    others_alive: Bool[Array, "*rows n-1"]


def loss(
    params: ppo.Params,
    network: ppo.Network,
    rows: RowsWithOthers,
    counts: Bool[Array, "*rows"],
    settings: ppo.PPOSettings,
    value_scale: float,
    entropy_weight: Float[Array, ""] | float,
    weight: float,
) -> tuple[Float[Array, ""], ppo.Metrics]:
    """PPO's loss, and the reconstruction's times its weight; the network also gives (boards, actions) as logits."""
    logits, value, (boards, actions) = network(params, rows.features)
    found, said = ppo.loss(
        params, lambda params, features: (logits, value), rows, counts, settings, value_scale, entropy_weight
    )
    error, right = reconstruction(boards, actions, rows, counts)
    return found + weight * error, {**said, **right}


def reconstruction(
    boards: Float[Array, "*rows n-1 cells"],
    actions: Float[Array, "*rows n-1 A"],
    rows: RowsWithOthers,
    counts: Bool[Array, "*rows"],
) -> tuple[Float[Array, ""], ppo.Metrics]:
    """The mean cross-entropy of a cell and of an action, added, over living co-players; and by row how much of it was
    right."""
    there = counts[..., None] & rows.others_alive
    seen = optax.sigmoid_binary_cross_entropy(boards, rows.others_board.astype(jnp.float32)).mean(-1)
    log_policy = jax.nn.log_softmax(jnp.where(rows.others_legal, actions, ILLEGAL))
    done = -jnp.take_along_axis(log_policy, rows.others_action[..., None], -1)[..., 0]
    right_board = ((boards > 0) == (rows.others_board > 0)).mean(-1)
    right_action = log_policy.argmax(-1) == rows.others_action
    return ppo.masked_mean(seen + done, there), {
        "others_seen": jnp.where(there, right_board, 0.0).sum(-1),
        "others_foreseen": jnp.where(there, right_action, 0.0).sum(-1),
        "others_there": there.sum(-1).astype(jnp.float32),
    }

"""Learning from a search: the policy towards what the search found, the value towards what came of it.

A row may be one in which the policy itself acted, and PPO's ratio sees only those; one for which a search said what it
would do; or both. Rows that were imagined teach the policy, and the value only if it is wished.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.learning.ppo import MEASURED, Metrics, Network, Params, PPOSettings, Rows, masked_mean, terms_of_rows
from hopplus.struct import struct

TOLD = (*MEASURED, "teacher_loss", "taught")
"""What an update tells of its rows; `taught` is how many of them `teacher_loss` is of."""


@struct
class Lessons(Rows):
    """Rows to learn from, with what a search says of them."""

    acted: Bool[Array, "*rows"]
    """Whether the policy itself chose the action."""
    valued: Bool[Array, "*rows"]
    """Whether the value learns from it."""
    taught: Bool[Array, "*rows"]
    """Whether a search has said what it would do."""
    teacher: Float[Array, "*rows A"]
    """The search's improved policy."""


def loss(
    params: Params,
    network: Network,
    rows: Lessons,
    counts: Bool[Array, " M"],
    settings: PPOSettings,
    value_scale: float,
    entropy_weight: Float[Array, ""] | float,
    teacher_weight: float,
) -> tuple[Float[Array, ""], Metrics]:
    """The loss of one parameter set on rows [M], of which some count, and what there is to say of each row [M]."""
    acted, taught = counts & rows.acted, counts & rows.taught
    terms, said = terms_of_rows(params, network, rows, counts, acted, settings, value_scale)
    entropy = masked_mean(terms.entropy, counts & (rows.acted | rows.taught))
    difference = -(rows.teacher * jnp.maximum(terms.log_policy, -50.0)).sum(-1)
    total = (
        masked_mean(terms.policy, acted)
        + settings.value_weight * masked_mean(terms.value, counts & rows.valued)
        + teacher_weight * masked_mean(difference, taught)
        - entropy_weight * entropy
    )
    told = jnp.where(taught, difference, 0.0)
    return total, {**said, "teacher_loss": told, "taught": taught.astype(jnp.float32)}

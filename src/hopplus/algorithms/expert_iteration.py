"""Expert iteration: the policy is trained towards search policies, the value towards returns.

The policy itself acted in some transitions, and PPO's ratio is of these only; others have a search policy as target;
some have both. Imagined transitions train the policy, and the value on request.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.algorithms import ppo_update
from hopplus.algorithms.ppo_update import (
    Metrics,
    Network,
    Params,
    PPOUpdateConfig,
    Transitions,
    loss_terms,
    masked_mean,
)
from hopplus.core.struct import struct

METRIC_NAMES = (*ppo_update.METRIC_NAMES, "plan_loss", "plan_targets")
"""Per-transition metrics of an update; `plan_targets` counts the transitions of `plan_loss`."""


@struct
class PlannedTransitions(Transitions):
    """Transitions with search policies as targets."""

    policy_acted: Bool[Array, "*rows"]
    """Whether the policy itself chose the action."""
    trains_value: Bool[Array, "*rows"]
    """Whether the value is trained on the transition."""
    has_plan_target: Bool[Array, "*rows"]
    """Whether the transition has a search policy."""
    plan_policy: Float[Array, "*rows A"]
    """Improved policy of the search."""


def loss(
    params: Params,
    network: Network,
    rows: PlannedTransitions,
    counts: Bool[Array, " M"],
    settings: PPOUpdateConfig,
    value_scale: float,
    ent_coef: Float[Array, ""] | float,
    plan_coef: float,
) -> tuple[Float[Array, ""], Metrics]:
    """PPO's loss plus the weighted cross-entropy from the search policies, and metrics by transition [M]."""
    acted, planned = counts & rows.policy_acted, counts & rows.has_plan_target
    terms, metrics = loss_terms(params, network, rows, counts, acted, settings, value_scale)
    entropy = masked_mean(terms.entropy, counts & (rows.policy_acted | rows.has_plan_target))
    cross_entropy = -(rows.plan_policy * jnp.maximum(terms.log_policy, -50.0)).sum(-1)
    total = (
        masked_mean(terms.policy, acted)
        + settings.vf_coef * masked_mean(terms.value, counts & rows.trains_value)
        + plan_coef * masked_mean(cross_entropy, planned)
        - ent_coef * entropy
    )
    plan_loss = jnp.where(planned, cross_entropy, 0.0)
    return total, {**metrics, "plan_loss": plan_loss, "plan_targets": planned.astype(jnp.float32)}

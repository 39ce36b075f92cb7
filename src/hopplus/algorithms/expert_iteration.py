"""Expert iteration: the policy is trained towards search policies, the value towards returns.

The policy itself acted in some transitions, and PPO's ratio is of these only; others have a search policy as target;
some have both. Imagined transitions train the policy, and the value on request.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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

METRIC_NAMES = (*ppo_update.METRIC_NAMES, "plan_loss", "plan_targets", "plan_head_loss", "plan_head_targets")
"""Per-transition metrics of an update; `plan_targets` and `plan_head_targets` count the transitions of the losses."""
NO_PLAN = -1
"""Value of `base_plan` for transitions without a target of the plan head."""


@struct
class PlannedTransitions(Transitions):
    """Transitions with planned policies as targets."""

    policy_acted: Bool[Array, "*rows"]
    """Whether the policy itself chose the action."""
    trains_value: Bool[Array, "*rows"]
    """Whether the value is trained on the transition."""
    has_plan_target: Bool[Array, "*rows"]
    """Whether the transition has a planned policy."""
    plan_policy: Float[Array, "*rows A"]
    """Improved policy of tree search, or the action that belief rollouts chose."""
    base_plan: Int[Array, "*rows"]
    """Base plan that belief rollouts follow there, the target of the plan head; `NO_PLAN` without one."""


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
    """PPO's loss plus weighted cross-entropies from planned policies and base plans, and metrics by transition [M].

    A network with a plan head also returns its logits.
    """
    acted, planned = counts & rows.policy_acted, counts & rows.has_plan_target
    outputs = network(params, rows.features)
    terms, metrics = loss_terms(params, lambda *_: outputs[:2], rows, counts, acted, settings, value_scale)
    entropy = masked_mean(terms.entropy, counts & (rows.policy_acted | rows.has_plan_target))
    cross_entropy = -(rows.plan_policy * jnp.maximum(terms.log_policy, -50.0)).sum(-1)
    total = (
        masked_mean(terms.policy, acted)
        + settings.vf_coef * masked_mean(terms.value, counts & rows.trains_value)
        + plan_coef * masked_mean(cross_entropy, planned)
        - ent_coef * entropy
    )
    has_base_plan = counts & (rows.base_plan != NO_PLAN)
    head_loss = jnp.zeros(counts.shape)
    if len(outputs) > 2:
        chosen = jax.nn.one_hot(rows.base_plan, outputs[2].shape[-1])
        head_loss = -jnp.where(has_base_plan, (chosen * jax.nn.log_softmax(outputs[2])).sum(-1), 0.0)
        total += plan_coef * masked_mean(head_loss, has_base_plan)
    return total, {
        **metrics,
        "plan_loss": jnp.where(planned, cross_entropy, 0.0),
        "plan_targets": planned.astype(jnp.float32),
        "plan_head_loss": head_loss,
        "plan_head_targets": has_base_plan.astype(jnp.float32),
    }

"""Result of planning one decision, whatever the method."""

from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct


@struct
class PlanChoice:
    """Choice among the ego's base plans by belief rollouts; values are returns of the game from now on.

    The challenger and the reference are compared on fresh paired simulations. A plan is an index into the ego's base
    plans (`games/preferences.py`).
    """

    plan: Int[Array, ""]
    """Plan that the ego follows from now on, which may be a delayed one."""
    base_plan: Int[Array, ""]
    """Base plan that it follows in this step."""
    reference: Int[Array, " 2"]
    """Action and plan that the ego would take without the comparison: those of the plan that it follows."""
    challenger: Int[Array, " 2"]
    """Action and plan of the best other candidate."""
    replaced: Bool[Array, ""]
    """True if the challenger replaces the reference."""
    values: Float[Array, " 2"]
    """Mean returns of the reference and the challenger."""
    errors: Float[Array, " 2"]
    """Standard errors of these means."""
    advantage: Float[Array, ""]
    """Mean paired difference: challenger minus reference."""
    advantage_error: Float[Array, ""]
    """Standard error of the difference."""
    plan_values: Float[Array, " W"]
    """Value of each base plan with its best first action."""
    plan_errors: Float[Array, " W"]
    """Standard errors of these values."""
    simulated_steps: Int[Array, ""]
    """Simulated steps of the decision."""


@struct
class Plan:
    """Result of planning one decision."""

    values: Float[Array, " A"]
    """Q-values by action. Unvisited legal actions have a mixed value of the root; illegal actions have 0."""
    errors: Float[Array, " A"] | None
    """Standard errors of the values; None if the method has none."""
    visits: Float[Array, " A"]
    """Simulations by first action."""
    policy: Float[Array, " A"]
    """Improved policy."""
    value: Float[Array, ""]
    """Expected return under the improved policy."""
    depth: Float[Array, ""]
    """Mean depth of the simulations, in steps."""
    choice: PlanChoice | None = None
    """Choice among base plans; None for other methods than belief rollouts."""

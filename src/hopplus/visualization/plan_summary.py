"""Results of planning as plain Python: values by action, and the choice among base plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopplus.planning.plan import Plan, PlanChoice
    from hopplus.players.planner import Planner

FEWEST_SIMULATIONS = 2
"""Simulations of an action below which its value has no standard error."""


@dataclass(frozen=True)
class ReturnEstimate:
    """Mean return for the rest of the episode."""

    value: float
    error: float
    """Standard error."""


@dataclass(frozen=True)
class ComparedCandidate:
    """A first action and the base plan that is followed after it, with the result of the paired comparison."""

    action: str
    plan: str
    result: ReturnEstimate


@dataclass(frozen=True)
class ChoiceSummary:
    """Choice among base plans by belief rollouts."""

    plan: str
    """Base plan that is followed from now on."""
    replaced: bool
    """True if the challenger replaced the reference."""
    reference: ComparedCandidate
    """Candidate of the plan that was followed before."""
    challenger: ComparedCandidate
    """Best other candidate; equal to the reference if there is no other."""
    advantage: ReturnEstimate
    """Paired difference: challenger minus reference."""
    base_plans: Mapping[str, ReturnEstimate]
    """Base plans, each with its best first action in the screening."""

    @property
    def changes_plan(self) -> bool:
        """True if another base plan than before is followed from now on."""
        return self.replaced and self.challenger.plan != self.reference.plan


@dataclass(frozen=True)
class PlanSummary:
    """Result of planning over the legal actions, by tree search, belief rollouts or another planner."""

    values: Mapping[str, float]
    """Action values, in units of the game's reward."""
    errors: Mapping[str, float] | None
    """Standard errors of the values of actions with several simulations; None if the planner has none."""
    visits: Mapping[str, int]
    """Simulations by first action; the value of an action without any is only an estimate."""
    policy: Mapping[str, float]
    """Improved policy."""
    value: float
    """Expected return for the rest of the episode."""
    depth: float
    """Mean depth of the simulations, in steps."""
    choice: ChoiceSummary | None = None
    """Choice among base plans; None for other planners than belief rollouts."""


def summarize_plan(
    plan: "Plan", actions: Sequence[str], legal: Sequence[int], base_plans: Sequence[str]
) -> PlanSummary:
    """Converts the plan of one decision from arrays to names.

    Args:
        plan: Plan in one state.
        actions: Names of the actions [A].
        legal: Numbers of the legal actions.
        base_plans: Names of the base plans [W]; not used without a choice among them.
    """

    def by_action(values: Any) -> dict[str, float]:
        return {actions[number]: float(values[number]) for number in legal}

    visits = {name: round(number) for name, number in by_action(plan.visits).items()}
    errors = None
    if plan.errors is not None:
        errors = {name: error for name, error in by_action(plan.errors).items() if visits[name] >= FEWEST_SIMULATIONS}
    return PlanSummary(
        values=by_action(plan.values),
        errors=errors,
        visits=visits,
        policy=by_action(plan.policy),
        value=float(plan.value),
        depth=float(plan.depth),
        choice=None if plan.choice is None else _summarize_choice(plan.choice, actions, base_plans),
    )


def _summarize_choice(choice: "PlanChoice", actions: Sequence[str], base_plans: Sequence[str]) -> ChoiceSummary:
    def candidate(pair: Any, index: int) -> ComparedCandidate:
        result = ReturnEstimate(float(choice.values[index]), float(choice.errors[index]))
        return ComparedCandidate(actions[int(pair[0])], base_plans[int(pair[1])], result)

    estimates = map(ReturnEstimate, map(float, choice.plan_values), map(float, choice.plan_errors))
    return ChoiceSummary(
        plan=base_plans[int(choice.plan)],
        replaced=bool(choice.replaced),
        reference=candidate(choice.reference, 0),
        challenger=candidate(choice.challenger, 1),
        advantage=ReturnEstimate(float(choice.advantage), float(choice.advantage_error)),
        base_plans=dict(zip(base_plans, estimates, strict=False)),
    )


def base_plan_names(planner: "Planner") -> tuple[str, ...]:
    """Returns the names of the base plans that a planner chooses among; none unless it plans by belief rollouts."""
    from hopplus.planning.rollouts import RolloutPlanner

    method = None if planner.planning is None else planner.planning_method(planner.planning)
    if not isinstance(method, RolloutPlanner):
        return ()
    return method.table.names

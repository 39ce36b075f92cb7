"""Descriptions of frames in sentences, and the text elements that terminal output and pictures share."""

from collections.abc import Sequence
from itertools import cycle
from string import ascii_lowercase, ascii_uppercase

from hopplus.visualization.frame import Cell, Frame
from hopplus.visualization.plan_summary import ChoiceSummary, PlanSummary, ReturnEstimate
from hopplus.visualization.reasoning import OTHERS, Belief, Probabilities, Reasoning, likeliest

SYMBOLS = {"block": "█", "stag": "S", "hare": "h", "drift": "*"}
UNKNOWN = "·"
FIRST_ESTIMATES = "base plans, first estimates:"
"""Heading of the values of the base plans, which are less exact than those of the comparison."""


def describe(frame: Frame) -> str:
    """Returns a description of a frame in sentences, for screen readers."""
    sentences = [f"A board of {frame.height} rows and {frame.width} columns, {step_of(frame)}"]
    for seat, cell in enumerate(frame.players):
        parts = [
            f"Seat {seat} ({frame.player_names[seat]}) " + (f"stands on {place(cell)}" if cell else "has left"),
            *([f"last action {frame.last_actions[seat]}"] if frame.last_actions else []),
            *([f"reward {signed(frame.rewards[seat])}"] if frame.rewards else []),
            *([f"total {number(frame.totals[seat])}"] if frame.totals else []),
        ]
        sentences.append(", ".join(parts))
    for kind, cells in shown_things(frame).items():
        sentences.append(f"{kind.capitalize()}: {'; '.join(map(place, cells)) or 'none'}")
    if frame.reasoning:
        sentences += [describe_reasoning(seat, reasoning) for seat, reasoning in frame.reasoning.reasonings.items()]
    return ". ".join(sentences) + "."


def describe_reasoning(seat: int, reasoning: Reasoning) -> str:
    """Returns the reasoning of a player in one sentence."""
    plan, value = with_share(reasoning.action_probabilities), number(reasoning.expected_return)
    parts = [f"Seat {seat} plans {plan} and expects {value}"]
    if reasoning.plan and reasoning.plan.choice:
        parts += [describe_choice(reasoning.plan.choice), describe_base_plans(reasoning.plan.choice)]
    parts += [f"of seat {belief.about} it believes {describe_belief(belief)}" for belief in reasoning.beliefs]
    return "; ".join(parts)


def describe_belief(belief: Belief) -> str:
    """Returns the likeliest goal (of several) and next action of a co-player, and its rationality if one is likely."""
    goal = f"goal {with_share(belief.goals)}, " if len(belief.goals) > 1 else ""
    rationality = describe_rationality(belief)
    return f"{goal}next action {with_share(belief.actions)}" + (f", rationality {rationality}" if rationality else "")


def describe_rationality(belief: Belief) -> str:
    """Returns the likely rationality hypothesis: `random 93%`, `tremble 0.25: 71%`; empty if none is likely."""
    name = belief.likely_rationality
    if name is None:
        return ""
    return f"{name}{':' if name[-1].isdigit() else ''} {share(belief.rationality[name])}"


def describe_choice(choice: ChoiceSummary) -> str:
    """Returns the base plan that a player follows, and the paired comparison that decided it."""
    reference, challenger = choice.reference, choice.challenger
    same_plan = challenger.plan == reference.plan
    if same_plan and challenger.action == reference.action:
        return f"plan: {choice.plan}, without alternative ({with_error(reference.result)})"
    values = f"{with_error(challenger.result)} against {with_error(reference.result)}"
    if not choice.replaced:
        other = f"other first action: {challenger.action}" if same_plan else f"other: {challenger.plan}"
        return f"plan: {choice.plan}, kept (best {other} {values})"
    followed = f"{choice.plan}, first action {challenger.action}" if same_plan else choice.plan
    before = reference.action if same_plan else reference.plan
    gain = f"{values}, difference {with_error(choice.advantage)}"
    if aligned(choice.advantage.value) == aligned(0):  # Of equal returns, the planner prefers the earlier.
        gain = f"the same {with_error(challenger.result)}, but sooner"
    return f"plan: {followed} (replaced {before}: {gain})"


def describe_base_plans(choice: ChoiceSummary) -> str:
    """Returns the value of every base plan, estimated in the screening."""
    return f"{FIRST_ESTIMATES} {'; '.join(base_plan_texts(choice))}"


def base_plan_texts(choice: ChoiceSummary) -> list[str]:
    """Returns the name and the value of every base plan."""
    return [f"{name} {with_error(estimate)}" for name, estimate in choice.base_plans.items()]


def visits_label(plan: PlanSummary) -> str:
    """Returns the name of a planner's counts by action."""
    return "rollouts" if plan.choice else "visits"


def with_error(estimate: ReturnEstimate) -> str:
    """Returns a value with its standard error: `1.00 ± 0.05`."""
    return f"{aligned(estimate.value)} ± {aligned(estimate.error)}"


def with_share(probabilities: Probabilities) -> str:
    """Returns the likeliest name with its probability: `hare 97%`."""
    name, probability = likeliest(probabilities)
    return f"{name} {share(probability)}"


def row_of(frame: Frame, seat: int) -> tuple[str, str, str, str]:
    """Returns name, last action, reward and total of a player."""
    action = frame.last_actions[seat] if frame.last_actions else UNKNOWN
    reward = signed(frame.rewards[seat]) if frame.rewards else UNKNOWN
    total = number(frame.totals[seat]) if frame.totals else UNKNOWN
    return frame.player_names[seat], action, reward, total


def shown_things(frame: Frame) -> dict[str, tuple[Cell, ...]]:
    """Returns the items by kind, without blocks if the board has none; other kinds are shown with zero items."""
    return {kind: cells for kind, cells in frame.things.items() if cells or kind != "block"}


def symbols_of(frame: Frame) -> dict[str, str]:
    """Returns one character per kind of item, distinct as far as the letters of the names allow."""
    symbols: dict[str, str] = {}
    for kind in frame.things:
        used = {*SYMBOLS.values(), *symbols.values()}
        free = (letter for letter in kind.upper() if letter.isalpha() and letter not in used)
        symbols[kind] = SYMBOLS.get(kind) or next(free, kind[:1].upper())
    return symbols


def goal_symbols(goals: Sequence[str]) -> dict[str, str]:
    """Returns one character per goal: that of the item, the last digit of a number, or else the next letter."""
    letters = cycle(ascii_lowercase + ascii_uppercase)
    known = {**SYMBOLS, "nothing": UNKNOWN, OTHERS: "-"}
    return {goal: known.get(goal) or (goal[-1] if goal[-1].isdigit() else next(letters)) for goal in goals}


def step_of(frame: Frame) -> str:
    """Returns the step and the deadline as text."""
    return f"step {frame.time} of {frame.deadline}"


def place(cell: Cell) -> str:
    """Returns the row and column of a cell as text."""
    return f"row {cell[0]}, column {cell[1]}"


def number(value: float) -> str:
    """Formats a number with at most two decimals, without negative zero."""
    return aligned(value).rstrip("0").rstrip(".")


def aligned(value: float) -> str:
    """Formats a number with two decimals, without negative zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def share(value: float) -> str:
    """Formats a share of 1 in percent."""
    return f"{100 * value:.0f}%"


def signed(value: float) -> str:
    """Formats a number with its sign, also for positive numbers."""
    text = number(value)
    return f"+{text}" if value > 0 and text != "0" else text

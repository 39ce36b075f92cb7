"""What the board is called in writing: a description of all of it, and the words that text and pictures share."""

from collections.abc import Sequence
from itertools import cycle
from string import ascii_lowercase, ascii_uppercase

from hopplus.report.frame import Cell, Frame
from hopplus.report.thoughts import OTHERS, Belief, Probabilities, Reasoning, likeliest

SYMBOLS = {"block": "█", "stag": "S", "hare": "h", "drift": "*"}
UNKNOWN = "·"


def describe(frame: Frame) -> str:
    """The whole board in sentences, for readers who do not see it."""
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
    if frame.thinking:
        sentences += [thought(seat, own) for seat, own in frame.thinking.reasonings.items()]
    return ". ".join(sentences) + "."


def thought(seat: int, own: Reasoning) -> str:
    """What a player thinks, in one sentence."""
    parts = [f"Seat {seat} plans {with_share(own.chances)} and expects {number(own.expects)}"]
    parts += [f"of seat {belief.about} it believes {believed(belief)}" for belief in own.beliefs]
    return "; ".join(parts)


def believed(belief: Belief) -> str:
    """What is believed of a co-player: what it is after, unless there is but one goal, and what it will do."""
    goal = f"goal {with_share(belief.goals)}, " if len(belief.goals) > 1 else ""
    return f"{goal}next action {with_share(belief.actions)}"


def with_share(probabilities: Probabilities) -> str:
    """The likeliest of several, and how likely it is: `hare 97%`."""
    name, probability = likeliest(probabilities)
    return f"{name} {share(probability)}"


def row_of(frame: Frame, seat: int) -> tuple[str, str, str, str]:
    """A player's name, last action, reward and total."""
    action = frame.last_actions[seat] if frame.last_actions else UNKNOWN
    reward = signed(frame.rewards[seat]) if frame.rewards else UNKNOWN
    total = number(frame.totals[seat]) if frame.totals else UNKNOWN
    return frame.player_names[seat], action, reward, total


def shown_things(frame: Frame) -> dict[str, tuple[Cell, ...]]:
    """All kinds except blocks where there are none: prey can be gone, but blocks do not go."""
    return {kind: cells for kind, cells in frame.things.items() if cells or kind != "block"}


def symbols_of(frame: Frame) -> dict[str, str]:
    """One character a kind of thing, different ones as long as the letters of the names allow it."""
    symbols: dict[str, str] = {}
    for kind in frame.things:
        taken = {*SYMBOLS.values(), *symbols.values()}
        free = (letter for letter in kind.upper() if letter.isalpha() and letter not in taken)
        symbols[kind] = SYMBOLS.get(kind) or next(free, kind[:1].upper())
    return symbols


def goal_symbols(goals: Sequence[str]) -> dict[str, str]:
    """One character a goal: that of the thing, the last digit of a number, or else a letter, in turn."""
    letters = cycle(ascii_lowercase + ascii_uppercase)
    known = {**SYMBOLS, "nothing": UNKNOWN, OTHERS: "-"}
    return {goal: known.get(goal) or (goal[-1] if goal[-1].isdigit() else next(letters)) for goal in goals}


def step_of(frame: Frame) -> str:
    """The time, in words."""
    return f"step {frame.time} of {frame.deadline}"


def place(cell: Cell) -> str:
    """The cell, in words."""
    return f"row {cell[0]}, column {cell[1]}"


def number(value: float) -> str:
    """At most two digits after the point, and never a negative zero."""
    return aligned(value).rstrip("0").rstrip(".")


def aligned(value: float) -> str:
    """Two digits after the point, and never a negative zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def share(value: float) -> str:
    """Of 1, in percent."""
    return f"{100 * value:.0f}%"


def signed(value: float) -> str:
    """The number with its sign, also when it is a gain."""
    written = number(value)
    return f"+{written}" if value > 0 and written != "0" else written

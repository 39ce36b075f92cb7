"""Frames as text for a terminal."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from PIL import ImageColor

from hopplus.visualization.frame import Frame
from hopplus.visualization.reasoning import OTHERS, FrameReasoning, Probabilities, Reasoning, likeliest, portions
from hopplus.visualization.style import goal_colour, ink_on, seat_colour
from hopplus.visualization.text import (
    FIRST_ESTIMATES,
    SYMBOLS,
    UNKNOWN,
    aligned,
    base_plan_texts,
    describe_choice,
    describe_rationality,
    goal_symbols,
    number,
    row_of,
    share,
    shown_things,
    step_of,
    symbols_of,
    visits_label,
    with_share,
)

ARROWS = {"UP": "↑", "DOWN": "↓", "LEFT": "←", "RIGHT": "→"}
CODES = {"block": "90", "stag": "1;33", "hare": "1", "drift": "1;36"}
"""ANSI colours of items."""
OTHER_CODE = "1;35"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
WIDTH, BAR = 100, 10
"""Characters per line where possible, and characters of a belief bar."""
ROOMY_UP_TO = 12
"""Up to this many columns, cells are five characters wide; up to this many rows, lines separate them."""


def as_text(frame: Frame, colour: bool = True) -> str:
    """Returns the board, one line per player and the reasoning; colour adds no information."""
    marks = {kind: _painted(symbol, CODES.get(kind, OTHER_CODE)) for kind, symbol in symbols_of(frame).items()}
    lines = [
        "  ".join(filter(None, (frame.title, step_of(frame)))),
        *_board_lines(frame, marks),
        *_table_lines(frame),
        "  ".join(f"{marks[kind]} {kind}: {len(cells)}" for kind, cells in shown_things(frame).items()),
        *(_reasoning_lines(frame.reasoning) if frame.reasoning and frame.reasoning.reasonings else ()),
    ]
    text = "\n".join(line.rstrip() for line in lines)
    return text if colour else ESCAPES.sub("", text)


def _painted(characters: str, code: str) -> str:
    return f"\x1b[{code}m{characters}\x1b[0m"


def _on(characters: str, colour: str) -> str:
    ink, ground = (";".join(map(str, ImageColor.getrgb(hue))) for hue in (ink_on(colour), colour))
    return _painted(characters, f"1;38;2;{ink};48;2;{ground}")


def _seat(seat: int) -> str:
    return _on(str(seat), seat_colour(seat))


def _board_lines(frame: Frame, marks: dict[str, str]) -> Iterator[str]:
    """Yields the lines of the grid; only columns with a crowded cell are wider than the others."""
    columns, rows = range(frame.width), range(frame.height)
    contents = [[_contents(frame, (row, column), marks) for column in columns] for row in rows]
    least = 5 if frame.width <= ROOMY_UP_TO else 3
    widths = [max(least, *(_width(contents[row][column]) for row in rows)) for column in columns]

    def border(left: str, middle: str, right: str) -> str:
        return "   " + left + middle.join("─" * width for width in widths) + right

    yield "    " + " ".join(f"{column:^{widths[column]}}" for column in columns)
    yield border("┌", "┬", "┐")
    for row in rows:
        if row and frame.height <= ROOMY_UP_TO:
            yield border("├", "┼", "┤")
        yield f"{row:2} │" + "│".join(map(_centred, contents[row], widths)) + "│"
    yield border("└", "┴", "┘")


def _contents(frame: Frame, cell: tuple[int, int], marks: dict[str, str]) -> str:
    """Returns the items and the seats of the players on a cell."""
    things = [marks[kind] for kind, cells in frame.things.items() if cell in cells]
    return "".join(things + [_seat(seat) for seat, place in enumerate(frame.players) if place == cell])


def _width(text: str) -> int:
    return len(ESCAPES.sub("", text))


def _centred(contents: str, width: int) -> str:
    """Returns the contents centred in the cell; a block alone fills it."""
    if ESCAPES.sub("", contents) == SYMBOLS["block"]:
        return contents.replace(SYMBOLS["block"], SYMBOLS["block"] * width)
    spare = width - _width(contents)
    return " " * (spare // 2) + contents + " " * (spare - spare // 2)


def _table_lines(frame: Frame) -> Iterator[str]:
    rows = [row_of(frame, seat) for seat in range(len(frame.players))]
    last_actions = [f"{ARROWS.get(action, ' ')} {action}" for _, action, _, _ in rows]
    names = max(map(len, ("player", *frame.player_names)))
    actions = max(map(len, ("last action", *last_actions)))
    yield f"seat  {'player':{names}}  {'last action':{actions}}  {'reward':>8}  {'total':>8}"
    for seat, (name, _, reward, total) in enumerate(rows):
        chip = " " * (4 - len(str(seat))) + _seat(seat)
        left = "  left" if frame.players[seat] is None else ""
        yield f"{chip}  {name:{names}}  {last_actions[seat]:{actions}}  {reward:>8}  {total:>8}{left}"


# --------------------------------------------------------------------------------------------------- reasoning


def _reasoning_lines(reasoning: FrameReasoning) -> Iterator[str]:
    """Yields a block per planner, with its plan, beliefs on the left and actions on the right, and the goal legend.

    Below the beliefs is the rationality of the co-players.
    """
    marks, reasonings = _goal_marks(reasoning), reasoning.reasonings
    beliefs = {seat: _belief_lines(reasoning, player, marks) for seat, player in reasonings.items()}
    actions = {seat: _action_lines(reasoning.actions, player) for seat, player in reasonings.items()}
    left_width = max((_width(line) for lines in beliefs.values() for line in lines), default=0)
    fits_beside = left_width + 3 + max(len(line) for lines in actions.values() for line in lines) <= WIDTH
    yield ""
    for seat, player in reasonings.items():
        action, value = _with_arrow(player.action_probabilities), number(player.expected_return)
        yield f"{_seat(seat)} plans {action}, expects {value}{_depth(player)}"
        yield from _choice_lines(player)
        if fits_beside:
            for left, right in zip_longest(beliefs[seat], actions[seat], fillvalue=""):
                yield left + " " * (left_width - _width(left)) + " │ " + right
        else:
            yield from (*beliefs[seat], *(f"    {line}" for line in actions[seat]))
        likely = [(belief.about, text) for belief in player.beliefs if (text := describe_rationality(belief))]
        yield from _wrapped("  rationality:", (f"{_seat(about)} {text}" for about, text in likely))
    if len(reasoning.goals) > 1:
        yield from _wrapped("goals:", (f"{marks[goal]} {goal}" for goal in reasoning.shown_goals))


def _depth(player: Reasoning) -> str:
    if player.plan is None:
        return ""
    depth = number(player.plan.depth)
    return f", simulations of {depth} steps" if player.plan.choice else f", search depth {depth}"


def _choice_lines(player: Reasoning) -> Iterator[str]:
    """Yields the followed base plan and the values of all base plans, if the player chose among them."""
    if player.plan and player.plan.choice:
        yield from textwrap.wrap(
            describe_choice(player.plan.choice), WIDTH, initial_indent="  ", subsequent_indent="    "
        )
        yield from _wrapped(f"  {FIRST_ESTIMATES}", base_plan_texts(player.plan.choice))


def _goal_marks(reasoning: FrameReasoning) -> dict[str, str]:
    """Returns one coloured character per goal."""
    goals = (*reasoning.goals, OTHERS)
    symbols = goal_symbols(goals)
    return {goal: _on(symbols[goal], goal_colour(goal, index)) for index, goal in enumerate(goals)}


def _belief_lines(reasoning: FrameReasoning, player: Reasoning, marks: dict[str, str]) -> list[str]:
    """Returns one line per co-player: its likeliest goal, a bar of all goals, and its likeliest action."""
    lines, longest = [], max((len(with_share(belief.goals)) for belief in player.beliefs), default=0)
    for belief in player.beliefs:
        bar = "".join(marks[goal] * part for goal, part in portions(reasoning.shown(belief), BAR).items())
        goal = f"{with_share(belief.goals):{longest}} {bar}  " if bar else ""
        lines.append(f"  {_seat(belief.about)} {goal}next {_with_arrow(belief.actions)}")
    return lines


def _action_lines(actions: Sequence[str], player: Reasoning) -> list[str]:
    """Returns a table of all actions, with planned values and visits of the legal ones, or their probabilities."""
    rows, plan = {"": {action: action for action in actions}}, player.plan
    if plan:
        rows["value"] = {action: aligned(value) for action, value in plan.values.items()}
        if plan.errors is not None:
            rows["error"] = {action: f"±{aligned(error)}" for action, error in plan.errors.items()}
        rows[visits_label(plan)] = {action: str(visits) for action, visits in plan.visits.items()}
    else:
        rows["policy"] = {action: share(probability) for action, probability in player.action_probabilities.items()}
    label_width = max(6, *map(len, rows))
    widths = {action: max(4, *(len(row.get(action, "")) for row in rows.values())) for action in actions}
    return [
        f"{name:{label_width}} " + "  ".join(f"{row.get(action, UNKNOWN):>{width}}" for action, width in widths.items())
        for name, row in rows.items()
    ]


def _with_arrow(actions: Probabilities) -> str:
    """Returns the likeliest action and its probability, after an arrow if the action is a move."""
    mark = ARROWS.get(likeliest(actions)[0])
    return f"{mark} {with_share(actions)}" if mark else with_share(actions)


def _wrapped(head: str, parts: Iterable[str]) -> Iterator[str]:
    """Yields the parts after the head, wrapped to `WIDTH`; no line without parts."""
    line = head
    for part in parts:
        if _width(line) + 2 + _width(part) > WIDTH:
            yield line
            line = " " * len(head)
        line += f"  {part}"
    if line != head:
        yield line

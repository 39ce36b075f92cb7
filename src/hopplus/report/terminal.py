"""The board as text for a terminal."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from PIL import ImageColor

from hopplus.report.frame import Frame
from hopplus.report.style import goal_colour, ink_on, seat_colour
from hopplus.report.thoughts import OTHERS, Probabilities, Reasoning, Thinking, likeliest, portions
from hopplus.report.words import (
    SYMBOLS,
    UNKNOWN,
    aligned,
    goal_symbols,
    number,
    row_of,
    share,
    shown_things,
    step_of,
    symbols_of,
    with_share,
)

ARROWS = {"UP": "↑", "DOWN": "↓", "LEFT": "←", "RIGHT": "→"}
CODES = {"block": "90", "stag": "1;33", "hare": "1", "drift": "1;36"}
"""A terminal's colours of things."""
OTHER_CODE = "1;35"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
WIDTH, BAR = 100, 10
"""So many characters a line has room for where it can be helped, and so many show a belief."""
ROOMY_UP_TO = 12
"""Up to so many columns, cells have room for five characters; up to so many rows, there are lines between them."""


def as_text(frame: Frame, colour: bool = True) -> str:
    """The board for a terminal, below it one line a player, and what they think. Without colour it says the same."""
    marks = {kind: _painted(symbol, CODES.get(kind, OTHER_CODE)) for kind, symbol in symbols_of(frame).items()}
    lines = [
        "  ".join(filter(None, (frame.title, step_of(frame)))),
        *_board_lines(frame, marks),
        *_table_lines(frame),
        "  ".join(f"{marks[kind]} {kind}: {len(cells)}" for kind, cells in shown_things(frame).items()),
        *(_thinking_lines(frame.thinking) if frame.thinking and frame.thinking.reasonings else ()),
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
    """The grid; only columns with a crowded cell are wider than the others."""
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
    """Things, then the seats of all players who stand there."""
    things = [marks[kind] for kind, cells in frame.things.items() if cell in cells]
    return "".join(things + [_seat(seat) for seat, place in enumerate(frame.players) if place == cell])


def _width(text: str) -> int:
    return len(ESCAPES.sub("", text))


def _centred(contents: str, width: int) -> str:
    """The contents in the middle of the cell; a block alone fills it."""
    if ESCAPES.sub("", contents) == SYMBOLS["block"]:
        return contents.replace(SYMBOLS["block"], SYMBOLS["block"] * width)
    spare = width - _width(contents)
    return " " * (spare // 2) + contents + " " * (spare - spare // 2)


def _table_lines(frame: Frame) -> Iterator[str]:
    rows = [row_of(frame, seat) for seat in range(len(frame.players))]
    acted = [f"{ARROWS.get(action, ' ')} {action}" for _, action, _, _ in rows]
    names = max(map(len, ("player", *frame.player_names)))
    actions = max(map(len, ("last action", *acted)))
    yield f"seat  {'player':{names}}  {'last action':{actions}}  {'reward':>8}  {'total':>8}"
    for seat, (name, _, reward, total) in enumerate(rows):
        chip = " " * (4 - len(str(seat))) + _seat(seat)
        left = "  left" if frame.players[seat] is None else ""
        yield f"{chip}  {name:{names}}  {acted[seat]:{actions}}  {reward:>8}  {total:>8}{left}"


# ---------------------------------------------------------------------------------------------- what they think


def _thinking_lines(thinking: Thinking) -> Iterator[str]:
    """A block for each player that thinks: what it plans, and below that beliefs on the left, actions on the right; and
    which character is which goal."""
    marks, reasonings = _goal_marks(thinking), thinking.reasonings
    beliefs = {seat: _belief_lines(thinking, own, marks) for seat, own in reasonings.items()}
    actions = {seat: _action_lines(thinking.actions, own) for seat, own in reasonings.items()}
    room = max((_width(line) for lines in beliefs.values() for line in lines), default=0)
    beside = room + 3 + max(len(line) for lines in actions.values() for line in lines) <= WIDTH
    yield ""
    for seat, own in reasonings.items():
        depth = f", search depth {number(own.search.depth)}" if own.search else ""
        yield f"{_seat(seat)} plans {_arrowed(own.chances)}, expects {number(own.expects)}{depth}"
        if beside:
            for left, right in zip_longest(beliefs[seat], actions[seat], fillvalue=""):
                yield left + " " * (room - _width(left)) + " │ " + right
        else:
            yield from (*beliefs[seat], *(f"    {line}" for line in actions[seat]))
    if len(thinking.goals) > 1:
        yield from _wrapped("goals:", (f"{marks[goal]} {goal}" for goal in thinking.shown_goals))


def _goal_marks(thinking: Thinking) -> dict[str, str]:
    """A character in the colour of each goal."""
    goals = (*thinking.goals, OTHERS)
    symbols = goal_symbols(goals)
    return {goal: _on(symbols[goal], goal_colour(goal, place)) for place, goal in enumerate(goals)}


def _belief_lines(thinking: Thinking, own: Reasoning, marks: dict[str, str]) -> list[str]:
    """Of each co-player its likeliest goal, a bar of all goals, and its likeliest action."""
    lines, longest = [], max((len(with_share(belief.goals)) for belief in own.beliefs), default=0)
    for belief in own.beliefs:
        bar = "".join(marks[goal] * part for goal, part in portions(thinking.shown(belief), BAR).items())
        goal = f"{with_share(belief.goals):{longest}} {bar}  " if bar else ""
        lines.append(f"  {_seat(belief.about)} {goal}next {_arrowed(belief.actions)}")
    return lines


def _action_lines(actions: Sequence[str], own: Reasoning) -> list[str]:
    """All actions, and of the legal ones what the search found, or how likely they are."""
    rows = {"": {action: action for action in actions}}
    if own.search:
        rows["value"] = {action: aligned(value) for action, value in own.search.values.items()}
        rows["visits"] = {action: str(visits) for action, visits in own.search.visits.items()}
    else:
        rows["chance"] = {action: share(chance) for action, chance in own.chances.items()}
    widths = {action: max(4, *(len(row.get(action, "")) for row in rows.values())) for action in actions}
    return [
        f"{name:6} " + "  ".join(f"{row.get(action, UNKNOWN):>{width}}" for action, width in widths.items())
        for name, row in rows.items()
    ]


def _arrowed(actions: Probabilities) -> str:
    """The likeliest action, after an arrow if it is a move, and how likely it is."""
    mark = ARROWS.get(likeliest(actions)[0])
    return f"{mark} {with_share(actions)}" if mark else with_share(actions)


def _wrapped(head: str, parts: Iterable[str]) -> Iterator[str]:
    """The parts after the head, on as many lines as it takes; no line where there are none."""
    line = head
    for part in parts:
        if _width(line) + 2 + _width(part) > WIDTH:
            yield line
            line = " " * len(head)
        line += f"  {part}"
    if line != head:
        yield line

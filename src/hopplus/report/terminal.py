"""The board as text for a terminal."""

import re
from collections.abc import Iterator

from PIL import ImageColor

from hopplus.report.frame import Frame
from hopplus.report.style import ink_on, seat_colour
from hopplus.report.words import SYMBOLS, row_of, shown_things, step_of, symbols_of

ARROWS = {"UP": "↑", "DOWN": "↓", "LEFT": "←", "RIGHT": "→"}
CODES = {"block": "90", "stag": "1;33", "hare": "1", "drift": "1;36"}
"""A terminal's colours of things."""
OTHER_CODE = "1;35"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ROOMY_UP_TO = 12
"""Up to so many columns, cells have room for five characters; up to so many rows, there are lines between them."""


def as_text(frame: Frame, colour: bool = True) -> str:
    """The board for a terminal, and below it one line a player. Without colour it says the same."""
    marks = {kind: _painted(symbol, CODES.get(kind, OTHER_CODE)) for kind, symbol in symbols_of(frame).items()}
    lines = [
        "  ".join(filter(None, (frame.title, step_of(frame)))),
        *_board_lines(frame, marks),
        *_table_lines(frame),
        "  ".join(f"{marks[kind]} {kind}: {len(cells)}" for kind, cells in shown_things(frame).items()),
    ]
    text = "\n".join(line.rstrip() for line in lines)
    return text if colour else ESCAPES.sub("", text)


def _painted(characters: str, code: str) -> str:
    return f"\x1b[{code}m{characters}\x1b[0m"


def _seat(seat: int) -> str:
    colour = seat_colour(seat)
    ink, ground = (";".join(map(str, ImageColor.getrgb(hue))) for hue in (ink_on(colour), colour))
    return _painted(str(seat), f"1;38;2;{ink};48;2;{ground}")


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

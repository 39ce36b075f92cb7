"""Layout of a picture: the board, a panel with actions and rewards of the players, and the reasoning table below."""

import itertools
import math
from collections.abc import Iterator

from hopplus.core.errors import InputError
from hopplus.visualization import glyphs
from hopplus.visualization.draw_reasoning import action_label, reasoning_size, reasoning_table
from hopplus.visualization.frame import Cell, Frame
from hopplus.visualization.reasoning import likeliest
from hopplus.visualization.shapes import Line, Picture, Rectangle, Shape, ShapeGroup, Shapes, Text, placed
from hopplus.visualization.style import (
    BOARD,
    CHIP_ROOM,
    CHIP_SIDE,
    FAINT_INK,
    GAIN,
    GRID_LINE,
    INK,
    LOSS,
    SMALL_SIZE,
    TEXT_SIZE,
    font,
    shortened,
)
from hopplus.visualization.text import place, row_of, shown_things, step_of, symbols_of, with_share

MARGIN, LABEL_ROOM, TITLE_ROOM = 16, 18, 36
ROW_HEIGHT, TITLE_SIZE = 30, 19
MOST_NAME_ROOM, ACTION_ROOM, PLAN_ROOM, NUMBER_ROOM = 200, 128, 118, 66
LEGEND_SIDE, LEGEND_GAP = 26, 12
PANEL_GAP, REASONING_GAP = 28, 20
CELL_FILL, LARGEST_GLYPH = 0.94, 0.78
"""Maximum shares of a cell's side for all its glyphs together, and for a single glyph."""


def picture_of(frame: Frame, cell_size: int | None = None) -> Picture:
    """Returns the picture of a frame: board, panel and reasoning.

    Args:
        frame: Frame to draw.
        cell_size: Side of a cell in pixels; by default such that a board of any size fits on a screen.
    """
    size = _cell_size(frame) if cell_size is None else cell_size
    if size < 8:
        raise InputError(f"cell_size must be at least 8 pixels, not {size}")
    left, top = MARGIN + LABEL_ROOM, MARGIN + (TITLE_ROOM if frame.title else 0)
    columns = _columns(frame, left + frame.width * size + PANEL_GAP)
    board_height = LABEL_ROOM + frame.height * size
    panel_height = ROW_HEIGHT * (2 + len(frame.players) + len(shown_things(frame))) + LEGEND_GAP
    below = top + max(board_height, panel_height) + REASONING_GAP
    table_width, table_height = reasoning_size(frame)
    width = math.ceil(max(columns[-1], MARGIN + table_width) + MARGIN)
    height = below + (table_height or -REASONING_GAP) + MARGIN
    title = shortened(frame.title, TITLE_SIZE, width - 2 * MARGIN)
    shapes = (
        *([Text(MARGIN, MARGIN + TITLE_ROOM / 3, title, TITLE_SIZE, INK)] if title else []),
        *_board(frame, left, top + LABEL_ROOM, size),
        *_panel(frame, columns, top),
        *reasoning_table(frame, MARGIN, below),
    )
    return Picture(width, height, shapes)


def board_of(frame: Frame) -> Picture:
    """Returns the picture of the board without panel."""
    size, edge = _cell_size(frame), LABEL_ROOM + 4
    shapes = tuple(_board(frame, edge, edge, size))
    return Picture(edge + frame.width * size + 4, edge + frame.height * size + 4, shapes)


def _cell_size(frame: Frame) -> int:
    """Returns the side of a cell in pixels, such that a board of any size fits on a screen."""
    return min(80, max(40, 560 // max(frame.height, frame.width)))


# ------------------------------------------------------------------------------------------------------- the board


def _board(frame: Frame, left: float, top: float, size: float) -> Iterator[Shape]:
    width, height = frame.width * size, frame.height * size
    yield Rectangle(left, top, width, height, BOARD)
    for column in range(frame.width):
        x = left + column * size
        yield Text(x + size / 2, top - 9, str(column), SMALL_SIZE, FAINT_INK, "middle")
        yield Line(((x, top), (x, top + height)), GRID_LINE, 1)
    for row in range(frame.height):
        y = top + row * size
        yield Text(left - 6, y + size / 2, str(row), SMALL_SIZE, FAINT_INK, "end")
        yield Line(((left, y), (left + width, y)), GRID_LINE, 1)
    for cell in sorted({cell for cell in frame.players if cell}.union(*frame.things.values())):
        yield from placed(_cell(frame, cell), left + (cell[1] + 0.5) * size, top + (cell[0] + 0.5) * size, size)
    yield Rectangle(left, top, width, height, fill=None, outline=INK, stroke=2)


def _cell(frame: Frame, cell: Cell) -> Iterator[ShapeGroup]:
    """Yields the contents of a cell in a box of side 1: a block fills it, items and then players stand side by side."""
    if cell in frame.things.get("block", ()):
        yield ShapeGroup(f"block on {place(cell)}", glyphs.THINGS["block"])
    shown: list[tuple[str, Shapes]] = [
        (f"{kind} on {place(cell)}", glyphs.thing(kind, symbol))
        for kind, symbol in symbols_of(frame).items()
        if cell in frame.things[kind] and kind != "block"
    ]
    for seat in (seat for seat, stands in enumerate(frame.players) if stands == cell):
        action = frame.last_actions[seat] if frame.last_actions else None
        last_action = f", last action {action}" if action else ""
        label = f"seat {seat} ({frame.player_names[seat]}) on {place(cell)}{last_action}"
        shown.append((label, glyphs.player(seat, None if action == frame.idle_action else action)))
    for (label, glyph), slot in zip(shown, _slots(len(shown)), strict=True):
        yield ShapeGroup(label, placed(glyph, *slot))


def _slots(number: int) -> list[tuple[float, float, float]]:
    """Returns centres and side of equal squares in rows, as large as possible, in a box of side 1.

    The first row is the shorter one.
    """
    if number == 5:  # The layout of a die makes the glyphs a quarter larger, for four hunters on a stag.
        side = CELL_FILL / (1 + math.sqrt(2))
        reach = (CELL_FILL - side) / 2
        return [(x * reach, y * reach, side) for x, y in ((0, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))]
    columns = max(1, math.ceil(math.sqrt(number)))
    rows = math.ceil(number / columns)
    side = min(CELL_FILL / columns, LARGEST_GLYPH)
    missing = rows * columns - number
    return [
        ((column - (columns - 1 + missing * (row == 0)) / 2) * side, (row - (rows - 1) / 2) * side, side)
        for row, column in (divmod(index, columns) for index in range(missing, rows * columns))
    ]


# ------------------------------------------------------------------------------------------------------- the panel

Columns = tuple[float, float, float, float, float, float]
"""Left edges of seats, names, actions and plans; right edges of rewards and totals."""


def _columns(frame: Frame, left: float) -> Columns:
    names = left + CHIP_ROOM
    widest = max(font(TEXT_SIZE).getlength(name) for name in (*frame.player_names, "player"))
    actions = names + min(widest, MOST_NAME_ROOM) + 20
    plans = actions + ACTION_ROOM
    rewards = plans + (PLAN_ROOM if frame.reasoning else 0) + NUMBER_ROOM
    return left, names, actions, plans, rewards, rewards + NUMBER_ROOM


def _panel(frame: Frame, columns: Columns, top: float) -> Iterator[Shape]:
    """Yields the step, one row per player, and the numbers of items on the board."""
    middles = (top + (line + 0.5) * ROW_HEIGHT for line in itertools.count())
    left, names, actions, plans, rewards, totals = columns
    yield Text(left, next(middles), step_of(frame), TEXT_SIZE + 2, INK)
    y = next(middles)
    yield Text(names, y, "player", SMALL_SIZE, FAINT_INK)
    yield Text(actions, y, "last action", SMALL_SIZE, FAINT_INK)
    if frame.reasoning:
        yield Text(plans, y, "plans", SMALL_SIZE, FAINT_INK)
    yield Text(rewards, y, "reward", SMALL_SIZE, FAINT_INK, "end")
    yield Text(totals, y, "total", SMALL_SIZE, FAINT_INK, "end")
    rule = y + ROW_HEIGHT / 2 - 2
    yield Line(((left, rule), (totals, rule)), GRID_LINE, 1)
    for seat in range(len(frame.players)):
        yield from _row(frame, seat, columns, next(middles))
    symbols = symbols_of(frame)
    for kind, cells in shown_things(frame).items():
        y = next(middles) + LEGEND_GAP
        side = LEGEND_SIDE * (0.7 if kind == "block" else 1.0)
        yield from placed(glyphs.thing(kind, symbols[kind]), left + CHIP_SIDE / 2, y, side)
        yield Text(names, y, f"{kind}: {len(cells)}", TEXT_SIZE, INK)


def _row(frame: Frame, seat: int, columns: Columns, y: float) -> Iterator[Shape]:
    left, names, actions, plans, rewards, totals = columns
    name, action, reward, total = row_of(frame, seat)
    gone = frame.players[seat] is None
    ink = FAINT_INK if gone else INK
    chip = glyphs.absent_player(seat) if gone else glyphs.player(seat, None)
    yield from placed(chip, left + CHIP_SIDE / 2, y, CHIP_SIDE)
    yield Text(names, y, shortened(name, TEXT_SIZE, MOST_NAME_ROOM), TEXT_SIZE, ink)
    action_text = f"{action}, left" if gone else action
    yield from action_label(action, action_text, actions, y, TEXT_SIZE, ink, ACTION_ROOM)
    if frame.reasoning and (reasoning := frame.reasoning.reasonings.get(seat)):
        plan, _ = likeliest(reasoning.action_probabilities)
        yield from action_label(plan, with_share(reasoning.action_probabilities), plans, y, TEXT_SIZE, INK, PLAN_ROOM)
    yield Text(rewards, y, reward, TEXT_SIZE, {"+": GAIN, "-": LOSS}.get(reward[0], ink), "end")
    yield Text(totals, y, total, TEXT_SIZE, ink, "end")

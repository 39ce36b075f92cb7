"""A board as text, SVG, PNG and animated GIF.

What is shown is a `Frame`, plain Python without arrays. Text is written from it directly; for pictures it becomes a
`Picture`, a list of simple shapes, which the SVG and the Pillow back end draw shape by shape.
"""

import contextlib
import functools
import io
import itertools
import math
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hopplus.games.game import Game, one_seat
from hopplus.games.grid import Cell

# ------------------------------------------------------------------------------------------------- what is shown


@dataclass(frozen=True)
class Frame:
    """One moment of one game. Every tuple about players has one entry a seat, in the order of the seats."""

    height: int
    width: int
    players: tuple[Cell | None, ...]
    """Where each stands, as (row, column); None for one who has left."""
    things: Mapping[str, tuple[Cell, ...]]
    """What lies on the board, by the name of its channel, also kinds of which nothing is left."""
    last_actions: tuple[str, ...] | None
    """The names of the actions executed in the last step; None before the first."""
    rewards: tuple[float, ...] | None
    """What each collected in the last step; None where it is not known."""
    totals: tuple[float, ...] | None
    """What each has collected so far; None where it is not known."""
    time: int
    deadline: int
    player_names: tuple[str, ...]
    title: str = ""
    idle_action: str = "STAY"
    """The action that is not worth a mark on the board."""

    def __post_init__(self) -> None:
        for field in ("last_actions", "rewards", "totals", "player_names"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.players):
                raise ValueError(f"{field} must have one entry for each of {len(self.players)} players, not {values}")
        for kind, cells in {"player": self.players, **self.things}.items():
            for cell in cells:
                if cell is not None and not (0 <= cell[0] < self.height and 0 <= cell[1] < self.width):
                    raise ValueError(f"the {kind} at {cell} is off the {self.height}x{self.width} board")


def frame_of(
    game: Game[Any],
    state: Any,
    *,
    rewards: Sequence[float] | np.ndarray | None = None,
    totals: Sequence[float] | np.ndarray | None = None,
    player_names: Sequence[str] | None = None,
    title: str = "",
) -> Frame:
    """What one state of any game looks like, from what its seat 0 sees: ego-first, that is the order of the seats."""
    seen = one_seat(game.observe(state), 0)
    n, time = game.num_players, int(seen.time)
    height, width, _ = seen.grid.shape
    channels = [tuple((int(row), int(column)) for row, column in np.argwhere(plane)) for plane in _planes(seen.grid)]
    last_actions = tuple(game.action_names[action] for action in np.asarray(seen.last_actions))
    return Frame(
        height=height,
        width=width,
        players=tuple(cells[0] if cells else None for cells in channels[:n]),
        things=dict(zip(game.channel_names[n:], channels[n:], strict=True)),
        last_actions=last_actions if time > 0 else None,
        rewards=None if rewards is None else tuple(float(reward) for reward in rewards),
        totals=None if totals is None else tuple(float(total) for total in totals),
        time=time,
        deadline=int(seen.deadline),
        player_names=tuple(f"player {seat}" for seat in range(n)) if player_names is None else tuple(player_names),
        title=title,
        idle_action=game.action_names[game.idle_action],
    )


def _planes(grid: Any) -> np.ndarray:
    return np.moveaxis(np.asarray(grid), -1, 0)


# --------------------------------------------------------------------------------------------- how things are called


class Move(NamedTuple):
    """Where an action of that name leads: columns to the right, rows down."""

    right: int
    down: int
    arrow: str


MOVES = {"UP": Move(0, -1, "↑"), "DOWN": Move(0, 1, "↓"), "LEFT": Move(-1, 0, "←"), "RIGHT": Move(1, 0, "→")}
SYMBOLS = {"block": "█", "stag": "S", "hare": "h", "drift": "*"}
UNKNOWN = "-"


def describe(frame: Frame) -> str:
    """The whole board in sentences, for readers who do not see it."""
    sentences = [f"A board of {frame.height} rows and {frame.width} columns, {_step(frame)}"]
    for seat, cell in enumerate(frame.players):
        name = frame.player_names[seat]
        parts = [
            f"Seat {seat} ({name}) " + ("has left" if cell is None else f"stands on {_place(cell)}"),
            *([f"last action {frame.last_actions[seat]}"] if frame.last_actions else []),
            *([f"reward {_signed(frame.rewards[seat])}"] if frame.rewards else []),
            *([f"total {_number(frame.totals[seat])}"] if frame.totals else []),
        ]
        sentences.append(", ".join(parts))
    for kind, cells in _shown_things(frame).items():
        places = "; ".join(_place(cell) for cell in cells) or "none"
        sentences.append(f"{kind.capitalize()}: {places}")
    return ". ".join(sentences) + "."


def _place(cell: Cell) -> str:
    return f"row {cell[0]}, column {cell[1]}"


def _step(frame: Frame) -> str:
    return f"step {frame.time} of {frame.deadline}"


def _number(value: float) -> str:
    """At most two digits after the point, and never a negative zero."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def _signed(value: float) -> str:
    written = _number(value)
    return f"+{written}" if value > 0 and written != "0" else written


def _shown_things(frame: Frame) -> dict[str, tuple[Cell, ...]]:
    """All kinds except blocks where there are none: prey can be gone, but blocks do not go."""
    return {kind: cells for kind, cells in frame.things.items() if cells or kind != "block"}


def _symbols(kinds: Sequence[str]) -> dict[str, str]:
    """One character a kind, different ones as long as the letters of the names allow it."""
    symbols: dict[str, str] = {}
    for kind in kinds:
        taken = {*SYMBOLS.values(), *symbols.values()}
        letters = [letter for letter in kind.upper() if letter.isalpha()]
        free = [letter for letter in letters if letter not in taken]
        symbols[kind] = SYMBOLS.get(kind) or (free or letters or ["?"])[0]
    return symbols


class Row(NamedTuple):
    """What is written about one player, in words."""

    seat: int
    name: str
    action: str
    reward: str
    total: str
    left: bool


def _rows(frame: Frame) -> list[Row]:
    return [
        Row(
            seat=seat,
            name=frame.player_names[seat],
            action=frame.last_actions[seat] if frame.last_actions else UNKNOWN,
            reward=_signed(frame.rewards[seat]) if frame.rewards else UNKNOWN,
            total=_number(frame.totals[seat]) if frame.totals else UNKNOWN,
            left=cell is None,
        )
        for seat, cell in enumerate(frame.players)
    ]


# ------------------------------------------------------------------------------------------------------- colours

SEAT_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
"""The palette of Okabe and Ito, which colour-blind readers can tell apart."""
INK, FAINT_INK, PAPER = "#22262b", "#6b7178", "#ffffff"
BOARD, GRID_LINE, BLOCK = "#f8f6f0", "#c9c4b8", "#3a3f47"
GAIN, LOSS = "#00694c", "#a83c00"


def _seat_colour(seat: int) -> str:
    return SEAT_COLOURS[seat % len(SEAT_COLOURS)]


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue


def _ink_on(colour: str) -> str:
    """Black or white, whichever reads better on the colour."""
    red, green, blue = _channels(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 125 else "#ffffff"


# ---------------------------------------------------------------------------------------------------------- text

TERMINAL_CODES = {"block": "90", "stag": "1;33", "hare": "1", "drift": "1;36"}
OTHER_THING_CODE = "1;35"
WIDE_CELLS_UP_TO = 12
"""Boards of at most this many columns or rows get room for five characters a cell, or lines between their rows."""


class Piece(NamedTuple):
    """Characters with a terminal code for their colour ("" for none)."""

    characters: str
    code: str = ""


def as_text(frame: Frame, colour: bool = True) -> str:
    """The board for a terminal, and below it one line a player. Without colour it says the same."""
    symbols = _symbols(list(frame.things))
    contents = {
        (row, column): _cell_pieces(frame, (row, column), symbols)
        for row in range(frame.height)
        for column in range(frame.width)
    }
    longest = max(sum(len(piece.characters) for piece in pieces) for pieces in contents.values())
    cell_width = max(5 if frame.width <= WIDE_CELLS_UP_TO else 3, longest)
    lines = [
        "  ".join(part for part in (frame.title, _step(frame)) if part),
        *_board_lines(frame, contents, cell_width, colour),
        *_table_lines(frame, colour),
        "  ".join(
            f"{_written(Piece(symbols[kind], _thing_code(kind)), colour)} {kind}: {len(cells)}"
            for kind, cells in _shown_things(frame).items()
        ),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _thing_code(kind: str) -> str:
    return TERMINAL_CODES.get(kind, OTHER_THING_CODE)


def _seat_piece(seat: int) -> Piece:
    background = _channels(_seat_colour(seat))
    foreground = _channels(_ink_on(_seat_colour(seat)))
    return Piece(str(seat), f"1;38;2;{';'.join(map(str, foreground))};48;2;{';'.join(map(str, background))}")


def _written(piece: Piece, colour: bool) -> str:
    return f"\x1b[{piece.code}m{piece.characters}\x1b[0m" if colour and piece.code else piece.characters


def _cell_pieces(frame: Frame, cell: Cell, symbols: Mapping[str, str]) -> list[Piece]:
    """Things, then the seats of all players who stand there."""
    things = [Piece(symbols[kind], _thing_code(kind)) for kind, cells in frame.things.items() if cell in cells]
    return things + [_seat_piece(seat) for seat, place in enumerate(frame.players) if place == cell]


def _board_lines(frame: Frame, contents: Mapping[Cell, list[Piece]], cell_width: int, colour: bool) -> Iterator[str]:
    def border(left: str, middle: str, right: str) -> str:
        return "   " + left + middle.join(["─" * cell_width] * frame.width) + right

    yield "    " + " ".join(f"{column:^{cell_width}}" for column in range(frame.width))
    yield border("┌", "┬", "┐")
    for row in range(frame.height):
        if row and frame.height <= WIDE_CELLS_UP_TO:
            yield border("├", "┼", "┤")
        cells = [_cell_text(contents[row, column], cell_width, colour) for column in range(frame.width)]
        yield f"{row:2} │" + "│".join(cells) + "│"
    yield border("└", "┴", "┘")


def _cell_text(pieces: Sequence[Piece], cell_width: int, colour: bool) -> str:
    """The pieces in the middle of the cell; a block alone fills it."""
    if [piece.characters for piece in pieces] == [SYMBOLS["block"]]:
        return _written(Piece(pieces[0].characters * cell_width, pieces[0].code), colour)
    spare = cell_width - sum(len(piece.characters) for piece in pieces)
    before = (spare + 1) // 2 if len(pieces) > 1 else spare // 2
    return " " * before + "".join(_written(piece, colour) for piece in pieces) + " " * (spare - before)


def _table_lines(frame: Frame, colour: bool) -> Iterator[str]:
    rows = _rows(frame)
    acted = [f"{MOVES[row.action].arrow if row.action in MOVES else ' '} {row.action}" for row in rows]
    name_width = max(len("player"), *(len(row.name) for row in rows))
    action_width = max(len("last action"), *(len(action) for action in acted))
    yield f"seat  {'player':{name_width}}  {'last action':{action_width}}  {'reward':>8}  {'total':>8}"
    for row, action in zip(rows, acted, strict=True):
        seat = _seat_piece(row.seat)
        chip = " " * (4 - len(seat.characters)) + _written(seat, colour)
        written = f"{row.name:{name_width}}  {action:{action_width}}  {row.reward:>8}  {row.total:>8}"
        yield f"{chip}  {written}" + ("  left" if row.left else "")


# -------------------------------------------------------------------------------------------------------- shapes

Point = tuple[float, float]


@dataclass(frozen=True)
class Rectangle:
    """With its upper left corner at x, y."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None
    outline: str | None = None
    stroke: float = 1.0
    radius: float = 0.0


@dataclass(frozen=True)
class Ellipse:
    """With its centre at x, y."""

    x: float
    y: float
    radius_x: float
    radius_y: float
    fill: str
    outline: str | None = None
    stroke: float = 1.0


@dataclass(frozen=True)
class Polygon:
    """A filled area; its outline is closed."""

    points: tuple[Point, ...]
    fill: str
    outline: str | None = None
    stroke: float = 1.0


@dataclass(frozen=True)
class Line:
    """An open line through the points, with round ends."""

    points: tuple[Point, ...]
    colour: str
    stroke: float


@dataclass(frozen=True)
class Text:
    """One line of writing whose capitals have their middle at height y."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class Group:
    """Shapes that together show one thing, and what that is."""

    label: str
    shapes: tuple["Shape", ...]


Shape = Rectangle | Ellipse | Polygon | Line | Text | Group
AnyShape = TypeVar("AnyShape", bound=Shape)


@dataclass(frozen=True)
class Picture:
    """Shapes in pixels, drawn in their order, on white paper."""

    width: int
    height: int
    shapes: tuple[Shape, ...]


def _placed(shape: AnyShape, x: float, y: float, scale: float) -> AnyShape:
    """The shape drawn so much larger, and its origin moved to x, y."""
    match shape:
        case Rectangle():
            place = {"x": x + shape.x * scale, "y": y + shape.y * scale, "radius": shape.radius * scale}
            size = {"width": shape.width * scale, "height": shape.height * scale, "stroke": shape.stroke * scale}
            return replace(shape, **place, **size)
        case Ellipse():
            place = {"x": x + shape.x * scale, "y": y + shape.y * scale, "stroke": shape.stroke * scale}
            size = {"radius_x": shape.radius_x * scale, "radius_y": shape.radius_y * scale}
            return replace(shape, **place, **size)
        case Polygon() | Line():
            points = tuple((x + right * scale, y + down * scale) for right, down in shape.points)
            return replace(shape, points=points, stroke=shape.stroke * scale)
        case Text():
            return replace(shape, x=x + shape.x * scale, y=y + shape.y * scale, size=shape.size * scale)
        case Group():
            return replace(shape, shapes=tuple(_placed(part, x, y, scale) for part in shape.shapes))


# ------------------------------------------------------------------- glyphs, in a box of side 1 around the origin


def _mirrored(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple((-right, down) for right, down in points)


def _stag_glyph() -> tuple[Shape, ...]:
    """A head seen from the front, with antlers."""
    hide, dark, antler = "#8b5a2b", "#3b2412", "#5c3a1a"
    beam = ((0.07, -0.10), (0.15, -0.22), (0.32, -0.30), (0.38, -0.46))
    tines = (((0.17, -0.235), (0.15, -0.45)), ((0.30, -0.29), (0.27, -0.47)), ((0.25, -0.27), (0.44, -0.28)))
    ear = ((0.12, -0.08), (0.36, -0.14), (0.30, 0.0), (0.15, 0.04))
    face = ((-0.17, -0.13), (0.17, -0.13), (0.19, 0.05), (0.10, 0.36), (0.05, 0.44), (-0.05, 0.44), (-0.10, 0.36))
    return (
        *(Line(side(line), antler, 0.05) for line in (beam, *tines) for side in (tuple, _mirrored)),
        *(Polygon(side(ear), hide, dark, 0.025) for side in (tuple, _mirrored)),
        Polygon((*face, (-0.19, 0.05)), hide, dark, 0.025),
        Ellipse(0.0, 0.37, 0.07, 0.05, dark),
        *(Ellipse(right, 0.05, 0.033, 0.033, dark) for right in (-0.1, 0.1)),
    )


def _hare_glyph() -> tuple[Shape, ...]:
    """A head seen from the front, with two long ears."""
    fur, dark, pink = "#b4b7bb", "#4d5257", "#e8c4c4"
    return (
        *(Ellipse(right, -0.2, 0.09, 0.27, fur, dark, 0.03) for right in (-0.13, 0.13)),
        *(Ellipse(right, -0.19, 0.035, 0.18, pink) for right in (-0.13, 0.13)),
        Ellipse(0.0, 0.2, 0.27, 0.24, fur, dark, 0.03),
        *(Ellipse(right, 0.15, 0.033, 0.04, dark) for right in (-0.11, 0.11)),
        Polygon(((-0.04, 0.24), (0.04, 0.24), (0.0, 0.29)), dark),
        *(
            Line(((right, 0.27), (2.2 * right, 0.25 + rise)), dark, 0.015)
            for right in (-0.1, 0.1)
            for rise in (0, 0.07)
        ),
    )


def _drift_glyph() -> tuple[Shape, ...]:
    """A heap of snow of two hills."""
    snow, shade, edge = "#eaf5fd", "#b9d7ec", "#3f7fae"

    def ridge(right: float) -> float:
        hills = ((-0.1, 0.27, 0.6), (0.2, 0.2, 0.38))
        return 0.3 - max(height * math.exp(-(((right - middle) / width) ** 2)) for middle, width, height in hills)

    steps = [-0.46 + 0.92 * step / 40 for step in range(41)]
    outline = ((-0.46, 0.36), *((right, ridge(right)) for right in steps), (0.46, 0.36))
    return (
        Polygon(outline, snow, edge, 0.035),
        Line(((-0.28, 0.22), (-0.18, 0.1), (-0.12, 0.16)), shade, 0.04),
        Line(((0.04, 0.24), (0.16, 0.14), (0.26, 0.22)), shade, 0.04),
    )


def _lettered_glyph(letter: str) -> tuple[Shape, ...]:
    """For things of a game that is not ours."""
    tile = Rectangle(-0.36, -0.36, 0.72, 0.72, "#efe6f6", "#6a4a8c", 0.04, radius=0.14)
    return (tile, Text(0.0, 0.0, letter, 0.5, "#4b2e6b", "middle"))


BLOCK_GLYPH: tuple[Shape, ...] = (Rectangle(-0.5, -0.5, 1.0, 1.0, BLOCK),)
GLYPHS = {"block": BLOCK_GLYPH, "stag": _stag_glyph(), "hare": _hare_glyph(), "drift": _drift_glyph()}


def _glyph(kind: str, symbol: str) -> tuple[Shape, ...]:
    return GLYPHS.get(kind) or _lettered_glyph(symbol)


def _turned(points: Sequence[Point], move: Move) -> tuple[Point, ...]:
    """Points that point to the right, turned into the direction of the move."""
    return tuple(
        (along * move.right - across * move.down, along * move.down + across * move.right) for along, across in points
    )


def _arrow_glyph(move: Move, colour: str) -> tuple[Shape, ...]:
    shaft, head = ((-0.4, 0.0), (0.2, 0.0)), ((0.45, 0.0), (0.05, -0.3), (0.05, 0.3))
    return (Line(_turned(shaft, move), colour, 0.13), Polygon(_turned(head, move), colour))


def _chip_glyph(seat: int, action: str | None, idle_action: str) -> tuple[Shape, ...]:
    """A disc with the seat's number: a beak shows where the player came to, a badge what it did instead of moving."""
    colour = _seat_colour(seat)
    disc = Ellipse(0.0, 0.0, 0.37, 0.37, colour, INK, 0.03)
    number = Text(0.0, 0.0, str(seat), 0.5, _ink_on(colour), "middle")
    if action in MOVES:
        beak = _turned(((0.52, 0.0), (0.24, -0.27), (0.24, 0.27)), MOVES[action])
        return (Polygon(beak, colour, INK, 0.03), disc, number)
    if action is None or action == idle_action:
        return (disc, number)
    badge = Ellipse(0.29, -0.29, 0.18, 0.18, PAPER, INK, 0.03)
    return (disc, number, badge, Text(0.29, -0.29, action[:1], 0.27, INK, "middle"))


def _absent_chip_glyph(seat: int) -> tuple[Shape, ...]:
    return (
        Ellipse(0.0, 0.0, 0.35, 0.35, PAPER, _seat_colour(seat), 0.08),
        Text(0.0, 0.0, str(seat), 0.45, FAINT_INK, "middle"),
    )


# --------------------------------------------------------------------------------------------------- the picture

MARGIN, LABEL_ROOM, TITLE_ROOM = 16, 18, 36
ROW_HEIGHT, TEXT_SIZE, SMALL_SIZE, TITLE_SIZE = 30, 15, 12, 19
CHIP_ROOM, MOST_NAME_ROOM, ACTION_ROOM, NUMBER_ROOM = 38, 200, 128, 66
CHIP_SIDE, LEGEND_SIDE, LEGEND_GAP = 30, 26, 12
PANEL_GAP = 28


class Box(NamedTuple):
    """A part of the picture."""

    x: float
    y: float
    width: float
    height: float


def default_cell_size(frame: Frame) -> int:
    """Pixels of a cell's side such that boards of all sizes fit on a screen."""
    return min(80, max(40, 560 // max(frame.height, frame.width)))


def picture_of(frame: Frame, cell_size: int | None = None) -> Picture:
    """The board, and beside it a panel with what each player did and got."""
    size = default_cell_size(frame) if cell_size is None else cell_size
    if size < 8:
        raise ValueError(f"cell_size must be at least 8 pixels, not {size}")
    top = MARGIN + (TITLE_ROOM if frame.title else 0)
    board = Box(MARGIN + LABEL_ROOM, top + LABEL_ROOM, frame.width * size, frame.height * size)
    panel_height = ROW_HEIGHT * (2 + len(frame.players) + len(_shown_things(frame))) + LEGEND_GAP
    panel = Box(board.x + board.width + PANEL_GAP, top, _panel_width(frame), panel_height)
    width = math.ceil(panel.x + panel.width + MARGIN)
    height = math.ceil(max(board.y + board.height, panel.y + panel.height) + MARGIN)
    title = _shortened(frame.title, TITLE_SIZE, width - 2 * MARGIN)
    return Picture(
        width,
        height,
        (
            *([Text(MARGIN, MARGIN + TITLE_ROOM / 3, title, TITLE_SIZE, INK)] if title else []),
            *_board_shapes(frame, board, size),
            *_panel_shapes(frame, panel),
        ),
    )


def _board_shapes(frame: Frame, board: Box, size: float) -> Iterator[Shape]:
    yield Rectangle(*board, BOARD)
    for column in range(frame.width):
        yield Text(board.x + (column + 0.5) * size, board.y - 9, str(column), SMALL_SIZE, FAINT_INK, "middle")
    for row in range(frame.height):
        yield Text(board.x - 6, board.y + (row + 0.5) * size, str(row), SMALL_SIZE, FAINT_INK, "end")
    for column in range(1, frame.width):
        right = board.x + column * size
        yield Line(((right, board.y), (right, board.y + board.height)), GRID_LINE, 1)
    for row in range(1, frame.height):
        down = board.y + row * size
        yield Line(((board.x, down), (board.x + board.width, down)), GRID_LINE, 1)
    symbols = _symbols(list(frame.things))
    for cell in _occupied_cells(frame):
        yield from _cell_shapes(
            frame, cell, Box(board.x + cell[1] * size, board.y + cell[0] * size, size, size), symbols
        )
    yield Rectangle(*board, fill=None, outline=INK, stroke=2)


def _occupied_cells(frame: Frame) -> list[Cell]:
    standing = {cell for cell in frame.players if cell is not None}
    return sorted(standing.union(*frame.things.values()))


def _cell_shapes(frame: Frame, cell: Cell, box: Box, symbols: Mapping[str, str]) -> Iterator[Shape]:
    """Everything on the cell, side by side: things in the upper part where players stand below them."""
    kinds = [kind for kind, cells in frame.things.items() if cell in cells and kind != "block"]
    seats = [seat for seat, place in enumerate(frame.players) if place == cell]
    if cell in frame.things.get("block", ()):
        middle = (box.x + box.width / 2, box.y + box.height / 2)
        yield Group(f"block on {_place(cell)}", tuple(_placed(part, *middle, box.width) for part in BLOCK_GLYPH))
    inner = Box(box.x + 0.04 * box.width, box.y + 0.04 * box.height, 0.92 * box.width, 0.92 * box.height)
    things, players = _divided(inner, len(kinds), len(seats))
    for kind, slot in zip(kinds, _slots(things, len(kinds)), strict=True):
        glyph = _glyph(kind, symbols[kind])
        yield Group(f"{kind} on {_place(cell)}", tuple(_placed(part, *slot) for part in glyph))
    for seat, slot in zip(seats, _slots(players, len(seats)), strict=True):
        action = frame.last_actions[seat] if frame.last_actions else None
        glyph = _chip_glyph(seat, action, frame.idle_action)
        label = f"seat {seat} ({frame.player_names[seat]}) on {_place(cell)}" + (
            f", last action {action}" if action else ""
        )
        yield Group(label, tuple(_placed(part, *slot) for part in glyph))


def _divided(box: Box, things: int, players: int) -> tuple[Box, Box]:
    """The parts for things and for players; each has all of the box where the other kind is missing."""
    if not things or not players:
        return box, box
    above = box.height * (0.5 if players <= 2 else 0.4)
    return box._replace(height=above), box._replace(y=box.y + above, height=box.height - above)


def _slots(box: Box, number: int) -> list[tuple[float, float, float]]:
    """Centres and side of the largest equal squares in rows in the box, one for each, the last row in the middle."""
    if not number:
        return []
    columns = max(range(1, number + 1), key=lambda columns: _side(box, number, columns))
    rows, side = math.ceil(number / columns), _side(box, number, columns)
    slots = []
    for index in range(number):
        row, column = divmod(index, columns)
        in_row = min(columns, number - row * columns)
        x = box.x + box.width / 2 + (column - (in_row - 1) / 2) * side
        y = box.y + box.height / 2 + (row - (rows - 1) / 2) * side
        slots.append((x, y, side))
    return slots


def _side(box: Box, number: int, columns: int) -> float:
    return min(box.width / columns, box.height / math.ceil(number / columns))


# ------------------------------------------------------------------------------------------------------- the panel


def _panel_width(frame: Frame) -> float:
    return CHIP_ROOM + _name_room(frame) + ACTION_ROOM + 2 * NUMBER_ROOM


def _name_room(frame: Frame) -> float:
    widest = max(_text_width(name, TEXT_SIZE) for name in (*frame.player_names, "player"))
    return min(widest, MOST_NAME_ROOM) + 20


def _panel_shapes(frame: Frame, panel: Box) -> Iterator[Shape]:
    """The step, one row a player, and what is left on the board."""
    middles = (panel.y + (line + 0.5) * ROW_HEIGHT for line in itertools.count())
    yield Text(panel.x, next(middles), _step(frame), TEXT_SIZE + 2, INK)
    yield from _heading_shapes(frame, panel, next(middles))
    for row in _rows(frame):
        yield from _row_shapes(frame, row, panel, next(middles))
    symbols = _symbols(list(frame.things))
    for kind, cells in _shown_things(frame).items():
        y = next(middles) + LEGEND_GAP
        side = LEGEND_SIDE * (0.7 if kind == "block" else 1.0)
        yield from (_placed(part, panel.x + CHIP_SIDE / 2, y, side) for part in _glyph(kind, symbols[kind]))
        yield Text(panel.x + CHIP_ROOM, y, f"{kind}: {len(cells)}", TEXT_SIZE, INK)


def _columns(frame: Frame, panel: Box) -> tuple[float, float, float, float]:
    """Where names and actions begin, and rewards and totals end."""
    names = panel.x + CHIP_ROOM
    actions = names + _name_room(frame)
    rewards = actions + ACTION_ROOM + NUMBER_ROOM
    return names, actions, rewards, rewards + NUMBER_ROOM


def _heading_shapes(frame: Frame, panel: Box, y: float) -> Iterator[Shape]:
    names, actions, rewards, totals = _columns(frame, panel)
    yield Text(names, y, "player", SMALL_SIZE, FAINT_INK)
    yield Text(actions, y, "last action", SMALL_SIZE, FAINT_INK)
    yield Text(rewards, y, "reward", SMALL_SIZE, FAINT_INK, "end")
    yield Text(totals, y, "total", SMALL_SIZE, FAINT_INK, "end")
    rule = y + ROW_HEIGHT / 2 - 2
    yield Line(((panel.x, rule), (panel.x + panel.width, rule)), GRID_LINE, 1)


def _row_shapes(frame: Frame, row: Row, panel: Box, y: float) -> Iterator[Shape]:
    names, actions, rewards, totals = _columns(frame, panel)
    ink = FAINT_INK if row.left else INK
    chip = _absent_chip_glyph(row.seat) if row.left else _chip_glyph(row.seat, None, frame.idle_action)
    yield from (_placed(part, panel.x + CHIP_SIDE / 2, y, CHIP_SIDE) for part in chip)
    yield Text(names, y, _shortened(row.name, TEXT_SIZE, MOST_NAME_ROOM), TEXT_SIZE, ink)
    if row.action in MOVES:
        yield from (_placed(part, actions + 7, y, 14) for part in _arrow_glyph(MOVES[row.action], ink))
    indent = 20 if row.action in MOVES else 0
    action = f"{row.action}, left" if row.left else row.action
    yield Text(actions + indent, y, _shortened(action, TEXT_SIZE, ACTION_ROOM - indent), TEXT_SIZE, ink)
    gained = {"+": GAIN, "-": LOSS}.get(row.reward[0], ink) if row.reward != UNKNOWN else ink
    yield Text(rewards, y, row.reward, TEXT_SIZE, gained, "end")
    yield Text(totals, y, row.total, TEXT_SIZE, ink, "end")


@functools.lru_cache(maxsize=64)
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise ValueError("this Pillow was built without FreeType, so that it cannot write text of a given size")
    return font


def _text_width(text: str, size: float) -> float:
    return _font(size).getlength(text)


def _shortened(text: str, size: float, room: float) -> str:
    """The text, or as much of its beginning as fits into the room with an ellipsis."""
    if _text_width(text, size) <= room:
        return text
    kept = len(text)
    while kept and _text_width(text[:kept] + "…", size) > room:
        kept -= 1
    return text[:kept] + "…"


# ----------------------------------------------------------------------------------------------------------- SVG

BASELINE = 0.36
"""The middle of capitals is this much of the text size above the line that they stand on, in both back ends."""


def as_svg(frame: Frame, cell_size: int | None = None) -> str:
    """The picture as a document of its own, with a description for screen readers."""
    picture = picture_of(frame, cell_size)
    size = f'width="{picture.width}" height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}"'
    title = f"{frame.title or 'Board'}, {_step(frame)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="Helvetica, Arial, sans-serif">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(describe(frame))}</desc>",
            f'<rect width="{picture.width}" height="{picture.height}" fill="{PAPER}"/>',
            *(_svg_element(shape) for shape in picture.shapes),
            "</svg>\n",
        ]
    )


def _svg_element(shape: Shape) -> str:
    match shape:
        case Rectangle():
            place = _attributes(x=shape.x, y=shape.y, width=shape.width, height=shape.height, rx=shape.radius)
            return f"<rect {place} {_svg_paint(shape)}/>"
        case Ellipse():
            place = _attributes(cx=shape.x, cy=shape.y, rx=shape.radius_x, ry=shape.radius_y)
            return f"<ellipse {place} {_svg_paint(shape)}/>"
        case Polygon():
            return f'<polygon points="{_svg_points(shape.points)}" {_svg_paint(shape)} stroke-linejoin="round"/>'
        case Line():
            ends = 'stroke-linecap="round" stroke-linejoin="round"'
            paint = f'fill="none" stroke="{shape.colour}" {_attributes(stroke_width=shape.stroke)} {ends}'
            return f'<polyline points="{_svg_points(shape.points)}" {paint}/>'
        case Text():
            place = _attributes(x=shape.x, y=shape.y + BASELINE * shape.size, font_size=shape.size)
            return f'<text {place} fill="{shape.colour}" text-anchor="{shape.anchor}">{escape(shape.text)}</text>'
        case Group():
            parts = "".join(_svg_element(part) for part in shape.shapes)
            return f"<g><title>{escape(shape.label)}</title>{parts}</g>"


def _svg_paint(shape: Rectangle | Ellipse | Polygon) -> str:
    stroke = f' stroke="{shape.outline}" {_attributes(stroke_width=shape.stroke)}' if shape.outline else ""
    return f'fill="{shape.fill or "none"}"{stroke}'


def _attributes(**numbers: float) -> str:
    return " ".join(f'{name.replace("_", "-")}="{_number(value)}"' for name, value in numbers.items())


def _svg_points(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(right)},{_number(down)}" for right, down in points)


# -------------------------------------------------------------------------------------------------------- Pillow

SUPERSAMPLING = 3
"""Pillow's shapes have hard edges, so they are drawn this much larger and then made smaller."""


def as_image(frame: Frame, cell_size: int | None = None) -> Image.Image:
    """The picture as pixels, in RGB."""
    picture = picture_of(frame, cell_size)
    large = (picture.width * SUPERSAMPLING, picture.height * SUPERSAMPLING)
    image = Image.new("RGB", large, PAPER)
    draw = ImageDraw.Draw(image)
    for shape in picture.shapes:
        _draw(draw, _placed(shape, 0.0, 0.0, SUPERSAMPLING))
    return image.reduce(SUPERSAMPLING)


def _draw(draw: ImageDraw.ImageDraw, shape: Shape) -> None:
    match shape:
        case Rectangle():
            box = (shape.x, shape.y, shape.x + shape.width, shape.y + shape.height)
            outline = {"outline": shape.outline, "width": round(shape.stroke)}
            draw.rounded_rectangle(_grown(box, shape), shape.radius, shape.fill, **outline)
        case Ellipse():
            left, top = shape.x - shape.radius_x, shape.y - shape.radius_y
            box = (left, top, left + 2 * shape.radius_x, top + 2 * shape.radius_y)
            draw.ellipse(_grown(box, shape), shape.fill, shape.outline, round(shape.stroke))
        case Polygon():
            draw.polygon(shape.points, shape.fill)
            if shape.outline:
                # Once around and over the first corner again, so that this corner is a joint, too.
                draw.line([*shape.points, *shape.points[:2]], shape.outline, round(shape.stroke), joint="curve")
        case Line():
            draw.line(shape.points, shape.colour, round(shape.stroke), joint="curve")
            for x, y in (shape.points[0], shape.points[-1]):
                draw.circle((x, y), shape.stroke / 2, shape.colour)
        case Text():
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            place = (shape.x, shape.y + BASELINE * shape.size)
            draw.text(place, shape.text, shape.colour, _font(shape.size), anchor)
        case Group():
            for part in shape.shapes:
                _draw(draw, part)


def _grown(box: tuple[float, float, float, float], shape: Rectangle | Ellipse) -> tuple[float, float, float, float]:
    """The box with half of the outline around it: Pillow draws outlines inside the box, SVG on its edge. Pillow's
    last pixel is part of the box."""
    half = shape.stroke / 2 if shape.outline else 0.0
    left, top, right, bottom = box
    return left - half, top - half, right + half - 1, bottom + half - 1


# --------------------------------------------------------------------------------------------------------- files

LAST_FRAME_HOLD = 4
"""An animation shows its last frame this many times as long as the others."""
MOST_GIF_COLOURS = 256


def save_svg(path: str | os.PathLike[str], frame: Frame, cell_size: int | None = None) -> None:
    """Write the picture as SVG."""
    _write(path, as_svg(frame, cell_size).encode())


def save_png(path: str | os.PathLike[str], frame: Frame, cell_size: int | None = None) -> None:
    """Write the picture as PNG."""
    buffer = io.BytesIO()
    as_image(frame, cell_size).save(buffer, "PNG", optimize=True)
    _write(path, buffer.getvalue())


def save_gif(
    path: str | os.PathLike[str],
    frames: Sequence[Frame],
    seconds_per_frame: float = 0.5,
    cell_size: int | None = None,
) -> None:
    """Write an animation that goes round and round; equal frames in a row become one that is shown longer."""
    if not frames:
        raise ValueError("an animation needs at least one frame")
    if not 0.01 <= seconds_per_frame <= 60:
        raise ValueError(f"seconds_per_frame must be from 0.01 to 60, not {seconds_per_frame}")
    images = _with_common_palette(_of_one_size([as_image(frame, cell_size) for frame in frames]))
    durations = [round(1000 * seconds_per_frame)] * len(images)
    durations[-1] *= LAST_FRAME_HOLD
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0)
    _write(path, buffer.getvalue())


def _of_one_size(images: Sequence[Image.Image]) -> list[Image.Image]:
    """All on paper of the largest width and height."""
    size = (max(image.width for image in images), max(image.height for image in images))
    sheets = [Image.new("RGB", size, PAPER) for _ in images]
    for sheet, image in zip(sheets, images, strict=True):
        sheet.paste(image, (0, 0))
    return sheets


def _with_common_palette(images: Sequence[Image.Image]) -> list[Image.Image]:
    """The images in their most frequent colours: those of the shapes stay exact and do not flicker between frames."""
    pixels: Counter[Any] = Counter()
    for image in images:
        pixels.update({colour: number for number, colour in image.getcolors(image.width * image.height) or []})
    colours = [colour for colour, _ in pixels.most_common(MOST_GIF_COLOURS)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(bytes(channel for colour in colours for channel in colour))
    return [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]


def _write(path: str | os.PathLike[str], content: bytes) -> None:
    """The file appears whole or not at all, and a failure leaves nothing behind."""
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as file:
            file.write(content)
        os.replace(temporary, target)
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()

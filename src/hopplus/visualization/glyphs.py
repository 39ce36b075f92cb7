"""Glyphs of items and players, each in a box of side 1 around the origin."""

import math
from collections.abc import Iterable

from hopplus.visualization.shapes import Ellipse, Line, Point, Polygon, Rectangle, Shapes, Text
from hopplus.visualization.style import BLOCK, FAINT_INK, FUR, HIDE, INK, PAPER, ink_on, seat_colour

DIRECTIONS = {"UP": (0, -1), "DOWN": (0, 1), "LEFT": (-1, 0), "RIGHT": (1, 0)}
"""Directions of the move actions: columns to the right, rows down."""


def thing(kind: str, symbol: str) -> Shapes:
    """Returns the glyph of an item; unknown items are tiles with their symbol."""
    if kind in THINGS:
        return THINGS[kind]
    tile = Rectangle(-0.36, -0.36, 0.72, 0.72, "#efe6f6", "#6a4a8c", 0.04, radius=0.14)
    return (tile, Text(0.0, 0.0, symbol, 0.5, "#4b2e6b", "middle"))


def player(seat: int, action: str | None) -> Shapes:
    """Returns a disc with the seat number; a beak shows the direction of a move, a badge any other action."""
    colour = seat_colour(seat)
    disc = Ellipse(0.0, 0.0, 0.37, 0.37, colour, INK, 0.03)
    number = Text(0.0, 0.0, str(seat), 0.5, ink_on(colour), "middle")
    if action is None:
        return (disc, number)
    if action in DIRECTIONS:
        return (Polygon(_turned(((0.52, 0.0), (0.24, -0.27), (0.24, 0.27)), action), colour, INK, 0.03), disc, number)
    badge = Ellipse(0.29, -0.29, 0.18, 0.18, PAPER, INK, 0.03)
    return (disc, number, badge, Text(0.29, -0.29, action[:1], 0.27, INK, "middle"))


def absent_player(seat: int) -> Shapes:
    """Returns an empty disc with the seat number."""
    disc = Ellipse(0.0, 0.0, 0.35, 0.35, PAPER, seat_colour(seat), 0.08)
    return (disc, Text(0.0, 0.0, str(seat), 0.45, FAINT_INK, "middle"))


def arrow(action: str, colour: str) -> Shapes:
    """Returns an arrow in the direction of a move action."""
    shaft, head = ((-0.4, 0.0), (0.2, 0.0)), ((0.45, 0.0), (0.05, -0.3), (0.05, 0.3))
    return (Line(_turned(shaft, action), colour, 0.13), Polygon(_turned(head, action), colour))


def _turned(points: Iterable[Point], action: str) -> tuple[Point, ...]:
    """Rotates points of a shape that points right into the direction of a move action."""
    right, down = DIRECTIONS[action]
    return tuple((along * right - across * down, along * down + across * right) for along, across in points)


def _stag() -> Shapes:
    """Head with antlers, from the front."""
    dark, antler = "#3b2412", "#5c3a1a"
    beam = ((0.07, -0.10), (0.15, -0.22), (0.32, -0.30), (0.38, -0.46))
    tines = (((0.17, -0.235), (0.15, -0.45)), ((0.30, -0.29), (0.27, -0.47)), ((0.25, -0.27), (0.44, -0.28)))
    ear = ((0.12, -0.08), (0.36, -0.14), (0.30, 0.0), (0.15, 0.04))
    half_face = ((0.17, -0.13), (0.19, 0.05), (0.10, 0.36), (0.05, 0.44))
    return (
        *(Line(line, antler, 0.05) for half in (beam, *tines) for line in (half, _mirrored(half))),
        *(Polygon(side, HIDE, dark, 0.025) for side in (ear, _mirrored(ear))),
        Polygon((*half_face, *reversed(_mirrored(half_face))), HIDE, dark, 0.025),
        Ellipse(0.0, 0.37, 0.07, 0.05, dark),
        *(Ellipse(right, 0.05, 0.033, 0.033, dark) for right in (-0.1, 0.1)),
    )


def _mirrored(points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple((-right, down) for right, down in points)


def _hare() -> Shapes:
    """Head with two long ears, from the front."""
    dark, pink = "#4d5257", "#e8c4c4"
    whiskers = [((right, 0.27), (2.2 * right, down)) for right in (-0.1, 0.1) for down in (0.25, 0.32)]
    return (
        *(Ellipse(right, -0.2, 0.09, 0.27, FUR, dark, 0.03) for right in (-0.13, 0.13)),
        *(Ellipse(right, -0.19, 0.035, 0.18, pink) for right in (-0.13, 0.13)),
        Ellipse(0.0, 0.2, 0.27, 0.24, FUR, dark, 0.03),
        *(Ellipse(right, 0.15, 0.033, 0.04, dark) for right in (-0.11, 0.11)),
        Polygon(((-0.04, 0.24), (0.04, 0.24), (0.0, 0.29)), dark),
        *(Line(whisker, dark, 0.015) for whisker in whiskers),
    )


def _drift() -> Shapes:
    """Heap of snow with two hills."""
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


THINGS: dict[str, Shapes] = {
    "block": (Rectangle(-0.5, -0.5, 1.0, 1.0, BLOCK),),
    "stag": _stag(),
    "hare": _hare(),
    "drift": _drift(),
}

"""Shapes that pictures are made of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

Point = tuple[float, float]


@dataclass(frozen=True)
class Rectangle:
    """Rectangle with its upper left corner at x, y."""

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
    """Ellipse with its centre at x, y."""

    x: float
    y: float
    radius_x: float
    radius_y: float
    fill: str
    outline: str | None = None
    stroke: float = 1.0


@dataclass(frozen=True)
class Polygon:
    """Filled polygon with a closed outline."""

    points: tuple[Point, ...]
    fill: str
    outline: str | None = None
    stroke: float = 1.0


@dataclass(frozen=True)
class Line:
    """Open line through the points, with round ends."""

    points: tuple[Point, ...]
    colour: str
    stroke: float


@dataclass(frozen=True)
class Text:
    """One line of text; the middle of its capitals is at height y."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class ShapeGroup:
    """Shapes that together show one object, with a label."""

    label: str
    shapes: "Shapes"


Shape = Rectangle | Ellipse | Polygon | Line | Text | ShapeGroup
Shapes = tuple[Shape, ...]
LENGTHS = ("width", "height", "radius", "radius_x", "radius_y", "stroke", "size")


@dataclass(frozen=True)
class Picture:
    """Shapes in pixels, drawn in order on a white background."""

    width: int
    height: int
    shapes: Shapes


def placed(shapes: Iterable[Shape], x: float, y: float, scale: float) -> Shapes:
    """Returns the shapes scaled, with their origin moved to x, y."""
    return tuple(_placed(shape, x, y, scale) for shape in shapes)


def _placed(shape: Shape, x: float, y: float, scale: float) -> Shape:
    moved: dict[str, Any]
    match shape:
        case ShapeGroup():
            return ShapeGroup(shape.label, placed(shape.shapes, x, y, scale))
        case Polygon() | Line():
            moved = {"points": tuple((x + right * scale, y + down * scale) for right, down in shape.points)}
        case Rectangle() | Ellipse() | Text():
            moved = {"x": x + shape.x * scale, "y": y + shape.y * scale}
    scaled = {name: value * scale for name, value in vars(shape).items() if name in LENGTHS}
    return replace(shape, **moved, **scaled)

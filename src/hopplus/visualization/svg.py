"""SVG of frames."""

import os
from collections.abc import Iterable
from xml.sax.saxutils import escape

from hopplus.core.files import write_text
from hopplus.visualization.frame import Frame
from hopplus.visualization.picture import picture_of
from hopplus.visualization.shapes import Ellipse, Line, Picture, Point, Polygon, Rectangle, Shape, ShapeGroup, Text
from hopplus.visualization.style import BASELINE, PAPER, font
from hopplus.visualization.text import describe, number, step_of

FONTS = "Helvetica, Arial, Liberation Sans, sans-serif"


def save_svg(path: str | os.PathLike[str], frame: Frame, cell_size: int | None = None) -> None:
    """Writes the picture of a frame as SVG."""
    write_text(path, as_svg(frame, cell_size))


def as_svg(frame: Frame, cell_size: int | None = None) -> str:
    """Returns the picture of a frame as an SVG document, with a description for screen readers."""
    title = f"{frame.title or 'Board'}, {step_of(frame)}"
    return shapes_as_svg(picture_of(frame, cell_size), title, describe(frame))


def shapes_as_svg(picture: Picture, title: str, description: str = "") -> str:
    """Returns a picture as an SVG document."""
    size = f'width="{picture.width}" height="{picture.height}"'
    box = f'viewBox="0 0 {picture.width} {picture.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {box} font-family="{FONTS}">',
        f"<title>{escape(title)}</title>",
        *([f"<desc>{escape(description)}</desc>"] if description else []),
        f'<rect {size} fill="{PAPER}"/>',
        *map(_drawn, picture.shapes),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _drawn(shape: Shape) -> str:
    match shape:
        case Rectangle():
            box = {"x": shape.x, "y": shape.y, "width": shape.width, "height": shape.height, "rx": shape.radius}
            return _element("rect", **box, **_paint(shape))
        case Ellipse():
            position = {"cx": shape.x, "cy": shape.y, "rx": shape.radius_x, "ry": shape.radius_y}
            return _element("ellipse", **position, **_paint(shape))
        case Polygon():
            return _element("polygon", points=_points(shape.points), **_paint(shape), stroke_linejoin="round")
        case Line():
            paint = {"fill": "none", "stroke": shape.colour, "stroke_width": shape.stroke}
            ends = {"stroke_linecap": "round", "stroke_linejoin": "round"}
            return _element("polyline", points=_points(shape.points), **paint, **ends)
        case Text():
            position = {"x": shape.x, "y": shape.y + BASELINE * shape.size, "font_size": shape.size}
            # The reader's font can be wider than the font that the layout was measured with.
            fit = {"textLength": font(shape.size).getlength(shape.text), "lengthAdjust": "spacingAndGlyphs"}
            return _element("text", shape.text, **position, **fit, fill=shape.colour, text_anchor=shape.anchor)
        case ShapeGroup():
            return f"<g><title>{escape(shape.label)}</title>{''.join(map(_drawn, shape.shapes))}</g>"


def _element(tag: str, content: str = "", /, **attributes: str | float) -> str:
    attribute_text = " ".join(
        f'{name.replace("_", "-")}="{value if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
    )
    return f"<{tag} {attribute_text}>{escape(content)}</{tag}>" if content else f"<{tag} {attribute_text}/>"


def _paint(shape: Rectangle | Ellipse | Polygon) -> dict[str, str | float]:
    return {"fill": shape.fill or "none", "stroke": shape.outline or "none", "stroke_width": shape.stroke}


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{number(right)},{number(down)}" for right, down in points)

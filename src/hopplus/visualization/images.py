"""Raster images of frames: PNG and animated GIF."""

import io
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from hopplus.core.errors import InputError
from hopplus.core.files import write_bytes
from hopplus.visualization.frame import Frame
from hopplus.visualization.picture import picture_of
from hopplus.visualization.shapes import Ellipse, Line, Polygon, Rectangle, Shape, ShapeGroup, Text, placed
from hopplus.visualization.style import BASELINE, PAPER, font

SUPERSAMPLING = 3
"""Supersampling factor: Pillow draws shapes without antialiasing."""
LAST_FRAME_HOLD = 4
"""Duration of the last frame of an animation, relative to the others."""
MOST_GIF_COLOURS = 255
"""One less than a palette holds: Pillow uses the spare entry for unchanged pixels, which makes files smaller."""


def as_image(frame: Frame, cell_size: int | None = None) -> Image.Image:
    """Returns the picture of a frame as an RGB image."""
    picture = picture_of(frame, cell_size)
    image = Image.new("RGB", (picture.width * SUPERSAMPLING, picture.height * SUPERSAMPLING), PAPER)
    draw = ImageDraw.Draw(image)
    for shape in placed(picture.shapes, 0.0, 0.0, SUPERSAMPLING):
        _draw(draw, shape)
    return image.reduce(SUPERSAMPLING)


def save_png(path: str | os.PathLike[str], frame: Frame, cell_size: int | None = None) -> None:
    """Writes the picture of a frame as PNG."""
    buffer = io.BytesIO()
    as_image(frame, cell_size).save(buffer, "PNG", optimize=True)
    write_bytes(path, buffer.getvalue())


def save_gif(
    path: str | os.PathLike[str],
    frames: Sequence[Frame],
    seconds_per_frame: float = 0.5,
    cell_size: int | None = None,
) -> None:
    """Writes an endless animation; consecutive equal frames are merged."""
    if not frames:
        raise InputError("an animation needs at least one frame")
    if not 0.01 <= seconds_per_frame <= 60:
        raise InputError(f"seconds_per_frame must be from 0.01 to 60, not {seconds_per_frame}")
    images = [as_image(frame, cell_size) for frame in frames]
    width, height = max(image.width for image in images), max(image.height for image in images)
    sheets = [ImageOps.expand(image, (0, 0, width - image.width, height - image.height), PAPER) for image in images]
    first, *others = _with_common_palette(sheets)
    durations = [round(1000 * seconds_per_frame)] * len(images)
    durations[-1] *= LAST_FRAME_HOLD
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    write_bytes(path, buffer.getvalue())


def _draw(draw: ImageDraw.ImageDraw, shape: Shape) -> None:
    match shape:
        case Rectangle():
            box = _box(shape, shape.x, shape.y, shape.width, shape.height)
            draw.rounded_rectangle(box, shape.radius, shape.fill, shape.outline, round(shape.stroke))
        case Ellipse():
            left, top = shape.x - shape.radius_x, shape.y - shape.radius_y
            box = _box(shape, left, top, 2 * shape.radius_x, 2 * shape.radius_y)
            draw.ellipse(box, shape.fill, shape.outline, round(shape.stroke))
        case Polygon():
            draw.polygon(shape.points, shape.fill)
            if shape.outline:
                # Passes the first corner twice, so that it becomes a joint too.
                draw.line([*shape.points, *shape.points[:2]], shape.outline, round(shape.stroke), joint="curve")
        case Line():
            draw.line(shape.points, shape.colour, round(shape.stroke), joint="curve")
            for end in (shape.points[0], shape.points[-1]):
                draw.circle(end, shape.stroke / 2, shape.colour)
        case Text():
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            draw.text((shape.x, shape.y + BASELINE * shape.size), shape.text, shape.colour, font(shape.size), anchor)
        case ShapeGroup():
            for part in shape.shapes:
                _draw(draw, part)


def _box(
    shape: Rectangle | Ellipse, left: float, top: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Returns left, top, right and bottom, extended by half of the outline.

    Pillow draws outlines inside the box, SVG on its edge. Pillow's last pixel is part of the box, and a box has
    at least one pixel.
    """
    half = shape.stroke / 2 if shape.outline else 0.0
    right, bottom = left + max(width + half, 1) - 1, top + max(height + half, 1) - 1
    return left - half, top - half, right, bottom


def _with_common_palette(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Converts the images to a common palette of their most frequent colours.

    Colours of shapes stay exact and do not flicker between frames.
    """
    pixels: Counter[Any] = Counter()
    for image in images:
        pixels.update({colour: number for number, colour in image.getcolors(image.width * image.height) or []})
    colours = np.array([colour for colour, _ in pixels.most_common()])
    palette = colours[:MOST_GIF_COLOURS]
    # Not Image.quantize: it compares rounded colours, which turns a white background grey.
    nearest = np.zeros(1 << 24, np.uint8)
    nearest[_codes(colours)] = ((colours[:, None] - palette) ** 2).sum(-1).argmin(-1)
    indexed = [Image.fromarray(nearest[_codes(np.asarray(image))]) for image in images]
    for image in indexed:
        image.putpalette(palette.astype(np.uint8).tobytes())
    return indexed


def _codes(colours: np.ndarray) -> np.ndarray:
    return colours.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)

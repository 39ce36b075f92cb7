"""What a game looks like, for people."""

from hopplus.report.board import (
    Frame,
    as_image,
    as_svg,
    as_text,
    describe,
    frame_of,
    picture_of,
    save_gif,
    save_png,
    save_svg,
)

__all__ = [
    "Frame",
    "as_image",
    "as_svg",
    "as_text",
    "describe",
    "frame_of",
    "picture_of",
    "save_gif",
    "save_png",
    "save_svg",
]

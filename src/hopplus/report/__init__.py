"""What a game looks like, for people: in words, on a terminal, and as SVG, PNG and animated GIF.

A state becomes a `Frame`, plain Python without arrays. Words and text are written from it directly; for pictures it
becomes a `Picture`, a list of simple shapes, which SVG and Pillow then draw shape by shape.
"""

from hopplus.report.frame import Frame, frame_of
from hopplus.report.images import as_image, save_gif, save_png
from hopplus.report.picture import picture_of
from hopplus.report.svg import as_svg, save_svg
from hopplus.report.terminal import as_text
from hopplus.report.thoughts import Thinking, thinking_of
from hopplus.report.words import describe

__all__ = [
    "Frame",
    "Thinking",
    "as_image",
    "as_svg",
    "as_text",
    "describe",
    "frame_of",
    "picture_of",
    "save_gif",
    "save_png",
    "save_svg",
    "thinking_of",
]

"""Visualization of games: descriptions, terminal text, SVG, PNG and animated GIF, charts and reports.

A state becomes a `Frame`, plain Python without arrays. Descriptions and terminal text are written from the frame. For
images, the frame becomes a `Picture`, a list of simple shapes, which the SVG and Pillow back ends draw.
"""

from hopplus.visualization.frame import Frame, frame_of
from hopplus.visualization.images import as_image, save_gif, save_png
from hopplus.visualization.picture import picture_of
from hopplus.visualization.reasoning import FrameReasoning, frame_reasoning
from hopplus.visualization.svg import as_svg, save_svg
from hopplus.visualization.terminal import as_text
from hopplus.visualization.text import describe

__all__ = [
    "Frame",
    "FrameReasoning",
    "as_image",
    "as_svg",
    "as_text",
    "describe",
    "frame_of",
    "frame_reasoning",
    "picture_of",
    "save_gif",
    "save_png",
    "save_svg",
]

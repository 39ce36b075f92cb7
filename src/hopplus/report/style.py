"""Colours and writing in pictures."""

import functools

from PIL import ImageColor, ImageFont

SEAT_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
"""The palette of Okabe and Ito, which colour-blind readers can tell apart."""
INK, FAINT_INK, PAPER = "#22262b", "#6b7178", "#ffffff"
BOARD, GRID_LINE, BLOCK = "#f8f6f0", "#c9c4b8", "#3a3f47"
GAIN, LOSS = "#00694c", "#a83c00"
BASELINE = 0.36
"""The middle of capitals is this much of the text size above the line that they stand on."""


def seat_colour(seat: int) -> str:
    """The colour of the player on this seat."""
    return SEAT_COLOURS[seat % len(SEAT_COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on the colour."""
    red, green, blue, *_ = ImageColor.getrgb(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 125 else "#ffffff"


@functools.lru_cache(maxsize=64)
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font that comes with Pillow."""
    return ImageFont.load_default(size)


def shortened(text: str, size: float, room: float) -> str:
    """The text, or as much of its beginning as fits into the room with an ellipsis."""
    while font(size).getlength(text) > room:
        text = text.removesuffix("…")[:-1] + "…"
    return text

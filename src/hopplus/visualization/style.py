"""Colours and fonts of pictures."""

import colorsys
import functools

from PIL import ImageColor, ImageFont

SEAT_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
"""Palette of Okabe and Ito, which is colour-blind safe."""
GOAL_COLOURS = ("#332288", "#ddcc77", "#44aa99", "#882255", "#88ccee", "#999933", "#cc6677", "#117733")
"""Tol's muted palette, also colour-blind safe, and distinct from the colours of seats."""
INK, FAINT_INK, PAPER = "#22262b", "#6b7178", "#ffffff"
BOARD, GRID_LINE, BLOCK = "#f8f6f0", "#c9c4b8", "#3a3f47"
HIDE, FUR, NOTHING = "#8b5a2b", "#b4b7bb", "#f1eee6"
"""Colours of a stag and a hare, on the board and as goals, and of the goal `nothing`."""
GAIN, LOSS = "#00694c", "#a83c00"
TEXT_SIZE, SMALL_SIZE = 15, 12
CHIP_ROOM, CHIP_SIDE = 38, 30
BASELINE = 0.36
"""Height of the middle of capitals above the baseline, relative to the text size."""


def seat_colour(seat: int) -> str:
    """Returns the colour of a seat."""
    return SEAT_COLOURS[seat % len(SEAT_COLOURS)]


def goal_colour(name: str, number: int) -> str:
    """Returns the colour of a goal: that of its item, else one of the palette, else a generated hue."""
    if name in (known := {"stag": HIDE, "hare": FUR, "nothing": NOTHING, "others": PAPER}):
        return known[name]
    if number < len(GOAL_COLOURS):
        return GOAL_COLOURS[number]
    channels = colorsys.hls_to_rgb(number * 0.618 % 1, 0.35 + 0.1 * (number % 4), 0.55)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def ink_on(colour: str) -> str:
    """Returns black or white, by contrast with the colour."""
    red, green, blue, *_ = ImageColor.getrgb(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 125 else "#ffffff"


@functools.lru_cache(maxsize=64)
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Returns Pillow's default font."""
    return ImageFont.load_default(size)


def shortened(text: str, size: float, room: float) -> str:
    """Returns the text, cut with an ellipsis if it is wider than `room`."""
    while font(size).getlength(text) > room:
        text = text.removesuffix("…")[:-1] + "…"
    return text

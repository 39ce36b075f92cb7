"""What the board is called in writing: a description of all of it, and the words that text and pictures share."""

from hopplus.report.frame import Cell, Frame

SYMBOLS = {"block": "█", "stag": "S", "hare": "h", "drift": "*"}
UNKNOWN = "·"


def describe(frame: Frame) -> str:
    """The whole board in sentences, for readers who do not see it."""
    sentences = [f"A board of {frame.height} rows and {frame.width} columns, {step_of(frame)}"]
    for seat, cell in enumerate(frame.players):
        parts = [
            f"Seat {seat} ({frame.player_names[seat]}) " + (f"stands on {place(cell)}" if cell else "has left"),
            *([f"last action {frame.last_actions[seat]}"] if frame.last_actions else []),
            *([f"reward {signed(frame.rewards[seat])}"] if frame.rewards else []),
            *([f"total {number(frame.totals[seat])}"] if frame.totals else []),
        ]
        sentences.append(", ".join(parts))
    for kind, cells in shown_things(frame).items():
        sentences.append(f"{kind.capitalize()}: {'; '.join(map(place, cells)) or 'none'}")
    return ". ".join(sentences) + "."


def row_of(frame: Frame, seat: int) -> tuple[str, str, str, str]:
    """A player's name, last action, reward and total."""
    action = frame.last_actions[seat] if frame.last_actions else UNKNOWN
    reward = signed(frame.rewards[seat]) if frame.rewards else UNKNOWN
    total = number(frame.totals[seat]) if frame.totals else UNKNOWN
    return frame.player_names[seat], action, reward, total


def shown_things(frame: Frame) -> dict[str, tuple[Cell, ...]]:
    """All kinds except blocks where there are none: prey can be gone, but blocks do not go."""
    return {kind: cells for kind, cells in frame.things.items() if cells or kind != "block"}


def symbols_of(frame: Frame) -> dict[str, str]:
    """One character a kind of thing, different ones as long as the letters of the names allow it."""
    symbols: dict[str, str] = {}
    for kind in frame.things:
        taken = {*SYMBOLS.values(), *symbols.values()}
        free = (letter for letter in kind.upper() if letter.isalpha() and letter not in taken)
        symbols[kind] = SYMBOLS.get(kind) or next(free, kind[:1].upper())
    return symbols


def step_of(frame: Frame) -> str:
    """The time, in words."""
    return f"step {frame.time} of {frame.deadline}"


def place(cell: Cell) -> str:
    """The cell, in words."""
    return f"row {cell[0]}, column {cell[1]}"


def number(value: float) -> str:
    """At most two digits after the point, and never a negative zero."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def signed(value: float) -> str:
    """The number with its sign, also when it is a gain."""
    written = number(value)
    return f"+{written}" if value > 0 and written != "0" else written

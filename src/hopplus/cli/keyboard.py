"""Keyboard input of `hopplus play` in a terminal."""

import sys
from collections.abc import Mapping, Sequence

ESCAPES = {"[A": "↑", "[B": "↓", "[D": "←", "[C": "→", "OA": "↑", "OB": "↓", "OD": "←", "OC": "→"}
"""Arrow keys by the characters that terminals send after an escape."""
WINDOWS = {"H": "↑", "P": "↓", "K": "←", "M": "→"}
"""Arrow keys by the second character that Windows consoles send."""
QUIT = "q"


def keys_of(actions: Sequence[str], idle: str) -> dict[str, str]:
    """Key of every action: arrows for moves, space for the idle action, otherwise a distinct letter."""
    from hopplus.visualization.terminal import ARROWS

    keys: dict[str, str] = {}
    for action in actions:
        free = (letter for letter in action.lower() if letter not in (QUIT, *keys.values()))
        keys[action] = ARROWS.get(action) or (" " if action == idle else next(free, str(len(keys))))
    return keys


def parse_key(text: str, keys: Mapping[str, str]) -> str | None:
    """Action (or QUIT) for a key or a typed name; None if there is none."""
    pressed = text if text == " " else text.strip()
    if pressed.lower() in (QUIT, "quit"):
        return QUIT
    by_name = {action.lower(): action for action in keys}
    by_key = {key: action for action, key in keys.items()}
    return by_key.get(pressed.lower()) or by_name.get(pressed.lower())


def read_key() -> str | None:
    """Next key pressed, or next line if standard input is not a terminal; None at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    return _windows_key() if sys.platform == "win32" else _terminal_key()


def _windows_key() -> str:
    import msvcrt

    key = msvcrt.getwch()  # type: ignore[attr-defined]
    if key in ("\x00", "\xe0"):
        return WINDOWS.get(msvcrt.getwch(), "")  # type: ignore[attr-defined]
    if key == "\x03":
        raise KeyboardInterrupt
    return key


def _terminal_key() -> str | None:
    import os
    import termios
    import tty

    terminal = sys.stdin.fileno()
    previous = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        pressed = os.read(terminal, 8).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, previous)
    if not pressed or pressed == "\x04":
        return None
    return ESCAPES.get(pressed[1:3], "") if pressed.startswith("\x1b") else pressed[0]

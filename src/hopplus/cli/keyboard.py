"""Single keys from a terminal."""

import sys
from collections.abc import Mapping, Sequence

ESCAPES = {"[A": "↑", "[B": "↓", "[D": "←", "[C": "→", "OA": "↑", "OB": "↓", "OD": "←", "OC": "→"}
"""What terminals send after an escape."""
WINDOWS = {"H": "↑", "P": "↓", "K": "←", "M": "→"}
QUIT = "q"


def keys_of(actions: Sequence[str], idle: str) -> dict[str, str]:
    """A key for every action: arrows for moves, space for the idle one, else a letter of its own."""
    from hopplus.report.terminal import ARROWS

    keys: dict[str, str] = {}
    for action in actions:
        free = (letter for letter in action.lower() if letter not in (QUIT, *keys.values()))
        keys[action] = ARROWS.get(action) or (" " if action == idle else next(free, str(len(keys))))
    return keys


def understood(word: str, keys: Mapping[str, str]) -> str | None:
    """The action, or QUIT, that a key or a typed word stands for; None for any other."""
    pressed = word if word == " " else word.strip()
    if pressed.lower() in (QUIT, "quit"):
        return QUIT
    named = {action.lower(): action for action in keys}
    by_key = {key: action for action, key in keys.items()}
    return by_key.get(pressed.lower()) or named.get(pressed.lower())


def read_key() -> str | None:
    """The next key, or, where nobody types, the next line; None at the end."""
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
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        pressed = os.read(terminal, 8).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    if not pressed or pressed == "\x04":
        return None
    return ESCAPES.get(pressed[1:3], "") if pressed.startswith("\x1b") else pressed[0]

"""How figures and names are written, the same in commands' tables and on pages."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def percent(share: float | None) -> str:
    """`97.5%`; `-` where it is not known."""
    return "-" if share is None else f"{100 * share:.1f}%"


def with_interval(figures: Mapping[str, Any], digits: int = 3) -> str:
    """`mean [low, high]`; the mean alone where no interval is known."""
    mean, low, high = (figures[name] for name in ("mean", "low", "high"))
    return f"{mean:.{digits}f}" + ("" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]")


def short_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Directories, or names of players, by their last parts, as many as are needed to tell them apart."""
    resolved = [Path(path).resolve() for path in paths]
    for parts in range(1, 10):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def as_word(path: str | os.PathLike[str]) -> str:
    """A path as one word of a command that can be copied, in any shell."""
    return f'"{path}"' if " " in str(path) else str(path)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def file_name(text: str, longest: int) -> str:
    """A text as part of a file's name on every system; of a longer one the beginning, and a sign of the whole."""
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in text)
    return name if len(name) <= longest else f"{name[: longest - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

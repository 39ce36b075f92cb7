"""Formatting of numbers and names, shared by command output and report pages."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def percent(share: float | None) -> str:
    """Formats a share as `97.5%`; None as `-`."""
    return "-" if share is None else f"{100 * share:.1f}%"


def with_interval(figures: Mapping[str, Any], digits: int = 3) -> str:
    """Formats `mean [low, high]`; the mean alone if the interval is None."""
    mean, low, high = (figures[name] for name in ("mean", "low", "high"))
    return f"{mean:.{digits}f}" + ("" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]")


def short_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Shortens paths (or player names) to the fewest trailing parts that keep them distinct."""
    resolved = [Path(path).resolve() for path in paths]
    for parts in range(1, 10):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def quote_path(path: str | os.PathLike[str]) -> str:
    """Quotes a path that contains a space, so that a printed command can be copied into any shell."""
    return f'"{path}"' if " " in str(path) else str(path)


def duration(seconds: float) -> str:
    """Formats seconds as `45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def file_name(text: str, longest: int) -> str:
    """Makes a text safe as part of a file name; a text over `longest` characters is cut and ends in a hash."""
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in text)
    return name if len(name) <= longest else f"{name[: longest - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

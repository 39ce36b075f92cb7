"""How figures and names are written, the same in commands' tables and on pages."""

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

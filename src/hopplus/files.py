"""Files that appear whole or not at all."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import platformdirs

from hopplus.errors import InputError

UNFINISHED = ".hopplus-"
"""How the names of files begin that are still being written."""


def remove_unfinished(directory: Path) -> None:
    """Remove what processes that were killed left half-written below a directory that nobody else writes into."""
    for path in directory.rglob(f"{UNFINISHED}*"):
        path.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole file or none, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes, durable: bool = False) -> None:
    """Write a whole file or none; a failure leaves nothing behind, and an old file as it was.

    A durable file is on the disk, not only on its way there, before it gets its name.
    """
    target = Path(path)
    temporary = target.parent / f"{UNFINISHED}{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_json(path: Path, missing: str) -> Any:
    """What a file says, as JSON; InputError where it cannot be read, with the sentence for one that is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(missing) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def append_text(path: Path, text: str) -> None:
    """Add to the end of a file, in UTF-8; InputError where that cannot be."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def make_directory(path: Path) -> Path:
    """The directory, made with those above it where it is not there; InputError where it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {path}: {error.strerror or error}") from None
    return path


def cache_directory() -> Path:
    """The user's directory for what can be computed again."""
    return platformdirs.user_cache_path("hopplus", appauthor=False)

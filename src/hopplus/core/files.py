"""Atomic file writes, JSON reading and directories, with user errors as InputError."""

import contextlib
import errno
import json
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

import platformdirs

from hopplus.core.errors import InputError

UNFINISHED = ".hopplus-"
"""Name prefix of files and directories that are still being written."""


def remove_unfinished(directory: Path) -> None:
    """Removes files and directories that killed processes left half-written below a directory.

    No other process may be writing there. Links are removed, never followed. A leftover that cannot be removed stays,
    since nothing reads it.
    """
    for folder, directories, files in os.walk(directory):
        for name in (*directories, *files):
            if name.startswith(UNFINISHED):
                remove(Path(folder, name))
        directories[:] = [name for name in directories if not name.startswith(UNFINISHED)]


def remove(path: Path) -> None:
    """Removes a file, a link, or a directory tree, as far as the system allows."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file atomically, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes, durable: bool = False) -> None:
    """Writes a file atomically; a failure leaves no partial file and keeps the old one.

    Args:
        path: The file to write.
        data: Its content.
        durable: Flush the content to the disk before the rename, and the directory entry after it.
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
        if durable:
            _sync_directory(target.parent)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_directory(directory: Path) -> None:
    """Flushes a directory's entries to the disk.

    Does nothing on Windows, on a file system that does not support it, or if the directory is not readable.
    """
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def read_json(path: Path, missing: str) -> Any:
    """Parses a JSON file; raises InputError if it cannot be read, with the message `missing` if it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(missing) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def check_format(name: str | os.PathLike[str], stated: Any, known: int) -> None:
    """Raises InputError if a file has another format than the one that this version reads.

    Args:
        name: Name of the file in the message.
        stated: Format that the file states; None if it states none.
        known: Format that this version reads and writes.
    """
    if stated != known:
        problem = "states no format" if stated is None else f"has format {stated}"
        raise InputError(f"{name} {problem}, and this version of hopplus reads format {known}")


def append_text(path: Path, text: str) -> None:
    """Appends to a file, in UTF-8; raises InputError on failure."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def make_directory(path: Path) -> Path:
    """Creates a directory and its parents if missing, and returns it; raises InputError on failure."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the directory {path}: {error.strerror or error}") from None
    return path


def cache_directory() -> Path:
    """The user's cache directory, for data that can be recomputed."""
    return platformdirs.user_cache_path("hopplus", appauthor=False)

"""Files that appear whole or not at all."""

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

from hopplus.errors import InputError

UNFINISHED = ".hopplus-"
"""How the names of files and directories begin that are still being written."""


def remove_unfinished(directory: Path) -> None:
    """Remove the files and directories that killed processes left half-written below a directory that nobody else
    writes into. Links are removed, never followed; a leftover that cannot be removed stays, since nothing reads it."""
    for folder, directories, files in os.walk(directory):
        for name in (*directories, *files):
            if name.startswith(UNFINISHED):
                remove(Path(folder, name))
        directories[:] = [name for name in directories if not name.startswith(UNFINISHED)]


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all that is in it, as far as the system allows."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole file or none, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes, durable: bool = False) -> None:
    """Write a whole file or none; a failure leaves nothing behind, and an old file as it was.

    A durable file is on the disk, not only on its way there, before it gets its name, and so is its name after that.
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
    """Write the names in a directory to the disk; not on Windows, nor on a file system that has no way to do it, nor
    where the directory must not be read."""
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

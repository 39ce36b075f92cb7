"""Errors that a user can fix, and warnings that a command prints."""

import importlib
from typing import Any


class InputError(ValueError):
    """A user's mistake. The message is one sentence: what is wrong and what would be right. Commands exit with 2."""


def require(module: str, extra: str) -> Any:
    """Imports a module of an optional package; raises InputError naming the extra that installs it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"this needs {package}, which is not installed: pip install 'hopplus[{extra}]'") from None


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint was skipped because it is damaged on disk. Commands print it on standard error."""

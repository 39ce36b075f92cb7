"""Errors that a user can mend, and warnings that a command shows."""

import importlib
from typing import Any


class InputError(ValueError):
    """A user's mistake, said in one sentence that tells what is wrong and what would be right; exit code 2 in a
    command."""


def require(module: str, extra: str) -> Any:
    """Imports a module of an optional package; InputError says which extra installs it where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"this needs {package}, which is not installed: pip install 'hopplus[{extra}]'") from None


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint was passed over because its bytes are not what was written; one sentence on standard error in a
    command."""

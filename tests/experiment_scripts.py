"""The scripts of experiments/ as modules."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
RESULTS = EXPERIMENTS.parent / "docs" / "results"
"""Directory of the result pages."""


@contextlib.contextmanager
def imported(name: str) -> Iterator[ModuleType]:
    """Context with a script as a module; afterwards all modules of the directory are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXPERIMENTS))
        yield importlib.import_module(name)
    for script in EXPERIMENTS.glob("*.py"):
        sys.modules.pop(script.stem, None)

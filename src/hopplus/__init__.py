"""hopplus: opponent modelling and planning for mixed-motive games, on JAX.

Sub-packages are imported when first used, so that `import hopplus` and `hopplus --help` do not wait for JAX.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PACKAGES = ("games", "players", "play", "evaluation", "report", "adapters")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"hopplus.{name}")
    raise AttributeError(f"module 'hopplus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *_PACKAGES]

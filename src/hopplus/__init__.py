"""hopplus: opponent modelling and planning for mixed-motive games, on JAX.

The functions of `hopplus.api` and the sub-packages are imported on first use, so that `import hopplus` and
`hopplus --help` do not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopplus.api import adapt, evaluate, load, make, make_player, rollout, train

__version__ = "0.1.0"

_PACKAGES = (
    "adapters",
    "algorithms",
    "beliefs",
    "evaluation",
    "games",
    "players",
    "rollouts",
    "training",
    "visualization",
)

__all__ = ["adapt", "evaluate", "load", "make", "make_player", "rollout", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("hopplus.api"), name)
    if name in _PACKAGES:
        return importlib.import_module(f"hopplus.{name}")
    raise AttributeError(f"module 'hopplus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__, *_PACKAGES]

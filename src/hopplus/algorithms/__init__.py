"""Training algorithms by name: settings, losses and updates, without I/O."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hopplus.algorithms.base import Algorithm
from hopplus.algorithms.hop import Hop
from hopplus.algorithms.hopplus import HopPlus
from hopplus.algorithms.liam import Liam
from hopplus.algorithms.ppo import PPO
from hopplus.algorithms.presets import PRESETS
from hopplus.algorithms.prosocial import Prosocial
from hopplus.algorithms.recurrent import RecurrentPPO
from hopplus.core.errors import InputError
from hopplus.core.settings import make_settings

ALGORITHMS: dict[str, type[Algorithm]] = {
    "hopplus": HopPlus,
    "hop": Hop,
    "ppo": PPO,
    "prosocial": Prosocial,
    "recurrent": RecurrentPPO,
    "liam": Liam,
}


def make_algorithm(name: str, settings: Mapping[str, Any] | None = None) -> Algorithm:
    """Returns an algorithm by name with some settings changed.

    Args:
        settings: Settings by name, those of nested groups included; lists, as JSON has them, become tuples.
    """
    return make_settings("algorithm", name, ALGORITHMS, settings)


def register_algorithm(name: str, algorithm: type[Algorithm]) -> None:
    """Makes an algorithm known by name, for `make_algorithm` and all commands; a frozen dataclass with defaults."""
    if name in ALGORITHMS:
        raise InputError(f"an algorithm named {name!r} is already known")
    if not dataclasses.is_dataclass(algorithm):
        raise InputError(f"the algorithm {name!r} must be a dataclass of its settings")
    ALGORITHMS[name] = algorithm


__all__ = [
    "ALGORITHMS",
    "PPO",
    "PRESETS",
    "Algorithm",
    "Hop",
    "HopPlus",
    "Liam",
    "Prosocial",
    "RecurrentPPO",
    "make_algorithm",
    "register_algorithm",
]

"""HOP: beliefs about prey, planning by tree search, and expert iteration."""

from dataclasses import dataclass
from typing import ClassVar

from hopplus.algorithms.hopplus import HopPlus
from hopplus.configs import HopConfig


@dataclass(frozen=True)
class Hop(HopConfig, HopPlus):
    """HOP (ICML 2024): HOP+ with prey as goals, trained by expert iteration."""

    name: ClassVar[str] = "hop"
    traced: ClassVar[tuple[str, ...]] = tuple(name for name in HopPlus.traced if name != "gamma")
    """All but gamma, a constant of the planning."""

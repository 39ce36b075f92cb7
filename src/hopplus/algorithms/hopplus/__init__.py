"""HOP+ in parts: acting, training targets, updates of the opponent and world models, metrics, and their composition."""

from hopplus.algorithms.hopplus.algorithm import HopPlus, HopPlusState

__all__ = ["HopPlus", "HopPlusState"]

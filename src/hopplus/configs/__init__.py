"""Configs of training and algorithms, without JAX: a command checks its options and prints its help in an instant."""

from hopplus.configs.constraints import check_fields
from hopplus.configs.hopplus import (
    BeliefConfig,
    HopConfig,
    HopPlusConfig,
    ImaginationConfig,
    OpponentModelConfig,
    PlanningConfig,
)
from hopplus.configs.ppo import Encoder, LiamConfig, PPOConfig, PPOUpdateConfig, ProsocialConfig, RecurrentConfig
from hopplus.configs.training import MAX_STEPS, TrainingConfig

CONFIGS: dict[str, type[PPOConfig]] = {
    "hopplus": HopPlusConfig,
    "hop": HopConfig,
    "ppo": PPOConfig,
    "prosocial": ProsocialConfig,
    "recurrent": RecurrentConfig,
    "liam": LiamConfig,
}
"""Configs by algorithm."""

__all__ = [
    "CONFIGS",
    "MAX_STEPS",
    "BeliefConfig",
    "Encoder",
    "HopConfig",
    "HopPlusConfig",
    "ImaginationConfig",
    "LiamConfig",
    "OpponentModelConfig",
    "PPOConfig",
    "PPOUpdateConfig",
    "PlanningConfig",
    "ProsocialConfig",
    "RecurrentConfig",
    "TrainingConfig",
    "check_fields",
]

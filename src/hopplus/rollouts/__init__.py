"""Rollouts: casts playing episodes, recorded as arrays."""

from hopplus.rollouts.rollout import RolloutState, init_rollout, play_episodes, rollout, step_keys
from hopplus.rollouts.trajectory import Event, Trajectory, events, observations

__all__ = [
    "Event",
    "RolloutState",
    "Trajectory",
    "events",
    "init_rollout",
    "observations",
    "play_episodes",
    "rollout",
    "step_keys",
]

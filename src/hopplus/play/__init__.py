"""Episodes: a cast of players plays, and what comes of it as arrays."""

from hopplus.play.episode import Episode, Event, events, observations
from hopplus.play.rollout import Table, play_episodes, rollout, start, step_keys

__all__ = ["Episode", "Event", "Table", "events", "observations", "play_episodes", "rollout", "start", "step_keys"]

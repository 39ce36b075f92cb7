"""Opponent models: predictions of a player's actions, with several goal spaces or none."""

__all__ = ["codes", "evaluation", "loss", "model", "scores", "subgoals"]

"""Beliefs about co-players: goal spaces, rationality, hidden Markov model, belief tracker."""

__all__ = ["belief_tracker", "goal_space", "hmm", "rationality"]

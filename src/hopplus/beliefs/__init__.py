"""Beliefs about co-players' goals: goal spaces, hidden Markov model, belief tracker."""

__all__ = ["belief_tracker", "goal_space", "hmm"]

"""Beliefs about co-players' goals: goal spaces, hidden Markov model, belief tracker."""

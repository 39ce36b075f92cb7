"""Evaluation of players and trained policies: matches, adaptation, cross-play, oracles."""

from hopplus.evaluation.match import MatchResult, SeatResult, match

__all__ = ["MatchResult", "SeatResult", "match"]

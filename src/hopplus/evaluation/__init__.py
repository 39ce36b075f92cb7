"""How good a cast is."""

from hopplus.evaluation.match import MatchResult, SeatResult, match

__all__ = ["MatchResult", "SeatResult", "match"]

"""Human play: sessions with co-players, recordings, reviews of the co-players' beliefs, and the local web server."""

from hopplus.human_play.available_players import AvailablePlayer, available_players
from hopplus.human_play.recording import Record, begin_record, is_record, open_record
from hopplus.human_play.review import review_of
from hopplus.human_play.session import Session
from hopplus.human_play.setup import SessionSetup, session_players

__all__ = [
    "AvailablePlayer",
    "Record",
    "Session",
    "SessionSetup",
    "available_players",
    "begin_record",
    "is_record",
    "open_record",
    "review_of",
    "session_players",
]

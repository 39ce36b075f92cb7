"""Sessions of a simulated person, for tests of human play."""

from pathlib import Path

from hopplus.human_play import Session, session_players
from hopplus.human_play.setup import make_setup

GAME = "msh-4x4-4h1s"
CAST = "nh,you,ns,random"


def start_session(cast: str, game: str = GAME, episodes: int = 2) -> Session:
    """Returns a new session with a fixed seed."""
    setup = make_setup(game, cast, episodes, seed=3, hidden=False)
    return Session(setup, session_players(setup, Path()))


def play_to_end(session: Session, prey: str) -> None:
    """Plays all episodes: hunts the prey where that is legal, else takes the legal actions in turn."""
    while not session.finished:
        session.act(prey if prey in session.legal else session.legal[len(session.actions) % len(session.legal)])

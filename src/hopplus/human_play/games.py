"""Games in progress on the server: looked up by name, one turn at a time, resumed from recordings after a restart."""

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.games import make, names
from hopplus.human_play import (
    Record,
    Session,
    SessionSetup,
    available_players,
    begin_record,
    is_record,
    open_record,
    review_of,
    session_players,
)
from hopplus.human_play.recording import FILE, read_record
from hopplus.human_play.run_index import NotFoundError, check_links, inside
from hopplus.human_play.setup import MOST_EPISODES, MOST_SEED, setup_from
from hopplus.players.human import YOU
from hopplus.visualization import Frame, describe
from hopplus.visualization.picture import board_of
from hopplus.visualization.style import seat_colour
from hopplus.visualization.svg import shapes_as_svg

DIRECTORY = "games"
"""Subdirectory of the served directory that holds recorded games."""
ANY = "any"
"""Cast entry for a co-player drawn at random by the server."""
MOST_OPEN = 500
NAME = re.compile(r"[a-z0-9]{12}")


class ConflictError(InputError):
    """Request that does not fit the current state of the game."""


class BusyError(InputError):
    """No room for another open game."""


@dataclass(eq=False)
class LiveGame:
    """Open game."""

    name: str
    session: Session
    record: Record | None
    """None if the game is not recorded."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    warning: str | None = None
    """Reason why the last turn could not be recorded; None if it was."""
    review: dict[str, Any] | None = None
    closed: bool = False
    """True once the game was evicted; it then has to be looked up again."""

    def act(self, action: str) -> None:
        """Takes a turn. A turn that cannot be recorded is played nevertheless, and sets `warning`."""
        self.warning = None
        before = len(self.session.actions)
        try:
            (self.record or self.session).act(action)
        except InputError as error:
            if len(self.session.actions) == before:
                raise ConflictError(str(error)) from None
            self.warning = f"this turn could not be recorded: {error}"

    def stop(self) -> None:
        """Ends the session early."""
        (self.record or self.session).stop()


class LiveGames:
    """All games of a server: those recorded below a directory, and open games that are not recorded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: dict[str, LiveGame] = {}
        self._lock = threading.Lock()
        self._opening = threading.Lock()

    # -- queries

    def options(self, game: str) -> dict[str, Any]:
        """Returns the choices for a new session.

        Returns:
            `games` (all names), `game`, its `num_players` and `rules`, `players` (the available co-players with `word`,
            `kind`, `description` and `run`) and `most_episodes`.
        """
        if game not in names():
            raise NotFoundError(f"there is no game {game!r} here")
        rules = make(game)
        return {
            "games": names(),
            "game": game,
            "num_players": rules.num_players,
            "rules": rules.rules,
            "players": [vars(player) for player in available_players(rules, self.directory)],
            "most_episodes": MOST_EPISODES,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns the recorded games, newest first.

        Returns:
            Rows with `name`, `game`, `episodes`, `played`, `turns`, `finished`, `started` and `returns` (of the person,
            by episode), or with `name` and `error`.
        """
        rows = []
        for path in sorted((self.directory / DIRECTORY).glob(f"*/{FILE}")):
            if path.resolve().is_relative_to(self.directory.resolve()) and NAME.fullmatch(path.parent.name):
                rows.append(_row(path.parent))
        return sorted(rows, key=lambda row: row.get("started", ""), reverse=True)

    # -- actions of a person

    def start(self, settings: Mapping[str, Any]) -> LiveGame:
        """Starts a game.

        Args:
            settings: The fields of `SessionSetup`, and `record`. A cast entry `any` is drawn at random.

        Raises:
            InputError: A setting is invalid.
        """
        is_recorded = settings.get("record", False)
        if not isinstance(is_recorded, bool):
            raise InputError("record must be true or false")
        setup = self._setup({key: value for key, value in settings.items() if key != "record"})
        with self._lock:
            self._make_room()
        session = Session(setup, session_players(setup, self.directory))
        session.warm_up()
        name = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(12))
        record = begin_record(self.directory / DIRECTORY / name, session) if is_recorded else None
        game = LiveGame(name, session, record)
        with self._lock:
            self._open[name] = game
        return game

    @contextmanager
    def at(self, name: str) -> Iterator[LiveGame]:
        """Holds a game exclusively; a recorded game that is not open is replayed first."""
        while True:
            game = self._find(name)
            with game.lock:
                if not game.closed:
                    yield game
                    return

    def turn(self, name: str, number: Any, action: Any) -> dict[str, Any]:
        """Takes turn `number`; a repeated request takes it once.

        Raises:
            ConflictError: The game is at another turn, or the action is illegal. The game is unchanged.
        """
        if type(number) is not int or not isinstance(action, str):
            raise InputError("a turn needs an integer `turn` and the name of an action")
        with self.at(name) as game:
            actions = game.session.actions
            if actions and number == len(actions) - 1 and actions[-1] == action:
                return view(game, after_turn=True)
            if number != len(actions):
                raise ConflictError("this turn was already taken, perhaps in another window: see the current state")
            game.act(action)
            return view(game, after_turn=True)

    def stop(self, name: str) -> dict[str, Any]:
        """Ends a session early."""
        with self.at(name) as game:
            game.stop()
            return view(game)

    def review(self, name: str) -> dict[str, Any]:
        """Returns the review of a finished session (see `review_of`)."""
        with self.at(name) as game:
            if not game.session.finished:
                raise ConflictError("the review is available once the session is over")
            if game.review is None:
                game.review = review_of(game.session)
            return game.review

    # -- internals

    def _setup(self, settings: Mapping[str, Any]) -> SessionSetup:
        """Returns the checked setup, with `any` replaced by players drawn at random."""
        fields = {"hidden": False, "seed": secrets.randbelow(MOST_SEED), **settings}
        game = fields.get("game")
        if game not in names():
            raise InputError(f"there is no game {game!r} here")
        rules = make(game)
        players = available_players(rules, self.directory)
        drawable = [player.word for player in players if player.kind != "run"]
        cast = fields.get("cast")
        if not isinstance(cast, list) or len(cast) != rules.num_players:
            raise InputError(f"{game} has {rules.num_players} seats: the cast must name one player for each")
        run_by_name = {YOU: None, ANY: None, **{player.word: player.run for player in players}}
        for name in cast:
            if not isinstance(name, str) or name not in run_by_name:
                raise InputError(f"there is no co-player {str(name)[:100]!r} for {game} here")
            if (run := run_by_name[name]) is not None:
                check_links(self.directory, self.directory / run)
        drawn = [secrets.choice(drawable) if name == ANY else name for name in cast]
        return setup_from({**fields, "cast": drawn})

    def _find(self, name: str) -> LiveGame:
        if not NAME.fullmatch(name):
            raise NotFoundError(f"there is no game {name[:40]!r}")
        with self._lock:
            if (game := self._open.pop(name, None)) is not None:
                self._open[name] = game
                return game
        path = inside(self.directory, f"{DIRECTORY}/{name}")
        if not is_record(path):
            raise NotFoundError(
                f"there is no game {name!r}: a game that was not recorded is lost when the server restarts"
            )
        with self._lock:
            self._make_room()
        return self._open_again(name, path)

    def _open_again(self, name: str, path: Path) -> LiveGame:
        """Opens a recorded game; concurrent requests share one game."""
        with self._opening:
            with self._lock:
                if name in self._open:
                    return self._open[name]
            record = open_record(path, self.directory)
            with self._lock:
                self._open[name] = LiveGame(name, record.session, record)
                return self._open[name]

    def _make_room(self) -> None:
        """Closes the least recently used game that is recorded or finished, if too many games are open."""
        if len(self._open) < MOST_OPEN:
            return
        for name, game in self._open.items():
            if (game.record is not None or game.session.finished) and game.lock.acquire(blocking=False):
                game.closed = True
                if game.record is not None:
                    game.record.close()
                game.lock.release()
                del self._open[name]
                return
        raise BusyError(f"{MOST_OPEN} games are open: finish one of them first")

    def close(self) -> None:
        """Closes all recordings and so releases their directories."""
        with self._lock:
            for game in self._open.values():
                if game.record is not None:
                    game.record.close()
            self._open.clear()


def _row(path: Path) -> dict[str, Any]:
    try:
        record = read_record(path)
        setup = setup_from(record["setup"])
    except InputError as error:
        return {"name": path.name, "error": str(error)}
    return {
        "name": path.name,
        "game": setup.game,
        "episodes": setup.episodes,
        "played": len(record["returns"]),
        "turns": len(record["actions"]),
        "finished": record["stopped"] or len(record["returns"]) == setup.episodes,
        "started": record["made"].get("started", ""),
        "returns": [returns[setup.seat] for returns in record["returns"]],
    }


def view(game: LiveGame, after_turn: bool = False) -> dict[str, Any]:
    """Returns the current view of a game for the page.

    Returns:
        `name`, `game`, `rules`, `seat`, `recorded`, `hidden`, `episodes`, `episode` (from 0), `turn`, `finished`,
        `stopped`, `left` (True once the person has left the episode), `legal` (action names), `actions`, `players`
        (`name`, `colour`), `now` (current board and figures), `ended` (board and figures at the end of the previous
        episode if the last turn ended it, else null), `returns` by episode and seat, and `warning`.
    """
    session = game.session
    ended = after_turn and session.lasts and (session.finished or not session.episodes[-1])
    last = len(session.lasts) - 1
    return {
        "name": game.name,
        "game": session.setup.game,
        "rules": session.game.rules,
        "seat": session.setup.seat,
        "recorded": game.record is not None,
        "hidden": session.setup.hidden,
        "episodes": session.setup.episodes,
        "episode": min(len(session.lasts), session.setup.episodes - 1),
        "turn": len(session.actions),
        "finished": session.finished,
        "stopped": session.stopped,
        "left": session.has_left,
        "legal": list(session.legal),
        "actions": list(session.game.action_names),
        "players": [{"name": name, "colour": seat_colour(seat)} for seat, name in enumerate(session.names)],
        "now": _frame_view(session.frame()),
        "ended": _frame_view(session.frame_at(last, len(session.episodes[last]))) if ended else None,
        "returns": session.returns,
        "warning": game.warning,
    }


def _frame_view(frame: Frame) -> dict[str, Any]:
    """Returns the figures of a frame without the co-players' reasoning, with the board as SVG and as text."""
    figures = frame.figures()
    del figures["reasoning"]
    return {
        **figures,
        "deadline": frame.deadline,
        "board": shapes_as_svg(board_of(frame), "Board"),
        "description": describe(frame),
    }

"""Games in progress: found by their names, one turn at a time each, gone on with after a restart."""

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.games import make, names
from hopplus.players.person import YOU
from hopplus.report import Frame, describe
from hopplus.report.picture import board_of
from hopplus.report.style import seat_colour
from hopplus.report.svg import shapes_as_svg
from hopplus.server.shelf import NotFound, check_links, inside
from hopplus.sitting import Record, Setup, Table, begin_record, company_of, guests_of, is_record, open_record, review_of
from hopplus.sitting.record import FILE, read_record
from hopplus.sitting.setup import MOST_EPISODES, MOST_SEED, setup_from

DIRECTORY = "games"
"""Where recorded games lie, below the directory that is served."""
ANY = "any"
"""Whoever the server draws."""
MOST_OPEN = 500
NAME = re.compile(r"[a-z0-9]{12}")


class Conflict(InputError):
    """What is asked for does not fit how the game stands now."""


class Busy(InputError):
    """There is no room for another game."""


@dataclass(eq=False)
class Game:
    """A game that is open."""

    name: str
    table: Table
    record: Record | None
    """None for one that is not kept."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    warning: str | None = None
    """Why the last turn could not be kept."""
    review: dict[str, Any] | None = None
    closed: bool = False
    """Whether it has made room for another, and is to be found anew."""

    def act(self, action: str) -> None:
        """Take a turn; one that cannot be kept is taken all the same, and a warning says so."""
        self.warning = None
        before = len(self.table.actions)
        try:
            (self.record or self.table).act(action)
        except InputError as error:
            if len(self.table.actions) == before:
                raise Conflict(str(error)) from None
            self.warning = f"this turn could not be recorded: {error}"

    def get_up(self) -> None:
        """End the series before its time."""
        (self.record or self.table).get_up()


class Games:
    """All games below a directory, and those that are not kept anywhere."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: dict[str, Game] = {}
        self._lock = threading.Lock()
        self._opening = threading.Lock()

    # -- what there is

    def offered(self, game: str) -> dict[str, Any]:
        """What a person can choose. Keys: `games`, their names; of one of them `game`, `players`, `rules`, and
        `guests`, with `word`, `kind` and `says`; and `most_episodes`."""
        if game not in names():
            raise NotFound(f"there is no game {game!r} here")
        rules = make(game)
        return {
            "games": names(),
            "game": game,
            "players": rules.num_players,
            "rules": rules.rules,
            "guests": [vars(guest) for guest in guests_of(rules, self.directory)],
            "most_episodes": MOST_EPISODES,
        }

    def rows(self) -> list[dict[str, Any]]:
        """The games that are recorded, newest first. Keys: `name`, `game`, `episodes`, `played`, `turns`, `finished`,
        `started`, `returns` of the person by episode; or `name` and `error`."""
        found = []
        for path in sorted((self.directory / DIRECTORY).glob(f"*/{FILE}")):
            if path.resolve().is_relative_to(self.directory.resolve()) and NAME.fullmatch(path.parent.name):
                found.append(_row(path.parent))
        return sorted(found, key=lambda row: row.get("started", ""), reverse=True)

    # -- what a person does

    def start(self, asked: Mapping[str, Any]) -> Game:
        """Begin a game; InputError where something asked for cannot be had."""
        record = asked.get("record", False)
        if not isinstance(record, bool):
            raise InputError("record is true or false")
        setup = self._setup({key: value for key, value in asked.items() if key != "record"})
        with self._lock:
            self._make_room()
        table = Table(setup, company_of(setup, self.directory))
        table.warm_up()
        name = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(12))
        kept = begin_record(self.directory / DIRECTORY / name, table) if record else None
        game = Game(name, table, kept)
        with self._lock:
            self._open[name] = game
        return game

    @contextmanager
    def at(self, name: str) -> Iterator[Game]:
        """A game, nobody else's as long as this lasts; one that is only on the disk is played again first."""
        while True:
            game = self._find(name)
            with game.lock:
                if not game.closed:
                    yield game
                    return

    def turn(self, name: str, number: Any, action: Any) -> dict[str, Any]:
        """Take turn `number`. Asking for the same twice takes it once; Conflict, and nothing has happened, where the
        game has gone on otherwise, or the action is not legal."""
        if type(number) is not int or not isinstance(action, str):
            raise InputError("a turn has a whole number and the name of an action")
        with self.at(name) as game:
            taken = game.table.actions
            if taken and number == len(taken) - 1 and taken[-1] == action:
                return view(game, after_turn=True)
            if number != len(taken):
                raise Conflict("this turn has been taken, perhaps in another window: here is how the game stands")
            game.act(action)
            return view(game, after_turn=True)

    def stop(self, name: str) -> dict[str, Any]:
        """The person gets up."""
        with self.at(name) as game:
            game.get_up()
            return view(game)

    def review(self, name: str) -> dict[str, Any]:
        """What everybody believed, once it is over."""
        with self.at(name) as game:
            if not game.table.finished:
                raise Conflict("what the others believe is shown when the series is over")
            if game.review is None:
                game.review = review_of(game.table)
            return game.review

    # -- within

    def _setup(self, asked: Mapping[str, Any]) -> Setup:
        """What was asked for, with those drawn whom the server is to draw, if everybody in it may sit there."""
        found = {"hidden": False, "seed": secrets.randbelow(MOST_SEED), **asked}
        game = found.get("game")
        if game not in names():
            raise InputError(f"there is no game {game!r} here")
        rules = make(game)
        guests = guests_of(rules, self.directory)
        fitting = [guest.word for guest in guests if guest.kind != "run"]
        cast = found.get("cast")
        if not isinstance(cast, list) or len(cast) != rules.num_players:
            raise InputError(f"{game} has {rules.num_players} seats: the cast names one player for each")
        known = {YOU: None, ANY: None, **{guest.word: guest.run for guest in guests}}
        for word in cast:
            if not isinstance(word, str) or word not in known:
                raise InputError(f"nobody called {str(word)[:100]!r} can sit here")
            if (run := known[word]) is not None:
                check_links(self.directory, self.directory / run)
        drawn = [secrets.choice(fitting) if word == ANY else word for word in cast]
        return setup_from({**found, "cast": drawn})

    def _find(self, name: str) -> Game:
        if not NAME.fullmatch(name):
            raise NotFound(f"there is no game {name[:40]!r}")
        with self._lock:
            if (game := self._open.pop(name, None)) is not None:
                self._open[name] = game
                return game
        path = inside(self.directory, f"{DIRECTORY}/{name}")
        if not is_record(path):
            raise NotFound(f"there is no game {name!r}: if there was, it was not recorded, and this is another server")
        with self._lock:
            self._make_room()
        return self._open_again(name, path)

    def _open_again(self, name: str, path: Path) -> Game:
        """Play a recorded game again; where two ask at once, the second gets the first one's."""
        with self._opening:
            with self._lock:
                if name in self._open:
                    return self._open[name]
            record = open_record(path, self.directory)
            with self._lock:
                self._open[name] = Game(name, record.table, record)
                return self._open[name]

    def _make_room(self) -> None:
        """Close the game that was asked for longest ago, of those that can be opened again or are over."""
        if len(self._open) < MOST_OPEN:
            return
        for name, game in self._open.items():
            if (game.record is not None or game.table.finished) and game.lock.acquire(blocking=False):
                game.closed = True
                if game.record is not None:
                    game.record.close()
                game.lock.release()
                del self._open[name]
                return
        raise Busy(f"{MOST_OPEN} games are being played: finish one of them first")

    def close(self) -> None:
        """Let go of all directories."""
        with self._lock:
            for game in self._open.values():
                if game.record is not None:
                    game.record.close()
            self._open.clear()


def _row(path: Path) -> dict[str, Any]:
    try:
        found = read_record(path)
        setup = setup_from(found["setup"])
    except InputError as error:
        return {"name": path.name, "error": str(error)}
    return {
        "name": path.name,
        "game": setup.game,
        "episodes": setup.episodes,
        "played": len(found["returns"]),
        "turns": len(found["actions"]),
        "finished": found["stopped"] or len(found["returns"]) == setup.episodes,
        "started": found["made"].get("started", ""),
        "returns": [own[setup.seat] for own in found["returns"]],
    }


def view(game: Game, after_turn: bool = False) -> dict[str, Any]:
    """How a game stands, for the page. Keys: `name`, `game`, `rules`, `seat`, `recorded`, `hidden`, `episodes`,
    `episode` (from 0), `turn`, `finished`, `stopped`, `left` (whether the person has left the episode), `legal` (names
    of actions), `actions`, `players` (`name`, `colour`), `now` with the board and figures of this moment, `ended` with
    those of the end of the episode before, if the last turn ended it, else null; `returns` by episode and seat;
    `warning`."""
    table = game.table
    ended = after_turn and table.lasts and (table.finished or not table.episodes[-1])
    last = len(table.lasts) - 1
    return {
        "name": game.name,
        "game": table.setup.game,
        "rules": table.game.rules,
        "seat": table.setup.seat,
        "recorded": game.record is not None,
        "hidden": table.setup.hidden,
        "episodes": table.setup.episodes,
        "episode": min(len(table.lasts), table.setup.episodes - 1),
        "turn": len(table.actions),
        "finished": table.finished,
        "stopped": table.stopped,
        "left": table.has_left,
        "legal": list(table.legal),
        "actions": list(table.game.action_names),
        "players": [{"name": name, "colour": seat_colour(seat)} for seat, name in enumerate(table.names)],
        "now": _shown(table.frame()),
        "ended": _shown(table.frame_at(last, len(table.episodes[last]))) if ended else None,
        "returns": table.returns,
        "warning": game.warning,
    }


def _shown(frame: Frame) -> dict[str, Any]:
    figures = frame.figures()
    del figures["thoughts"]
    return {
        **figures,
        "deadline": frame.deadline,
        "board": shapes_as_svg(board_of(frame), "Board"),
        "words": describe(frame),
    }

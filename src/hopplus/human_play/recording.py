"""Recorded games: one directory per game, with the person's actions and the episodes as a dataset.

game.json holds the setup, the person's actions and a digest of the state after each action. This is enough to replay
the whole session and to resume it. episodes/ is a dataset of the finished episodes.
"""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.files import make_directory, read_json, write_text
from hopplus.human_play.session import Session
from hopplus.human_play.setup import session_players, setup_from
from hopplus.rollouts.cast_distribution import CastDistribution
from hopplus.rollouts.dataset import open_dataset, write_dataset
from hopplus.rollouts.dataset_files import restore_replaced
from hopplus.rollouts.population import Recorded
from hopplus.rollouts.session import to_trajectory
from hopplus.training.run import locked, provenance

FILE, EPISODES = "game.json", "episodes"
FORMAT = 1
IN_USE = "another server, or hopplus play, has this game open:"


@dataclass(eq=False)
class Record:
    """Directory of a recorded game, locked while it is open."""

    path: Path
    session: Session
    digests: list[str]
    made: dict[str, Any]
    """Provenance at the start: versions and machine."""
    lock: contextlib.ExitStack

    def act(self, action: str) -> None:
        """Takes a turn and records it. Raises InputError if it cannot be recorded."""
        episodes = len(self.session.lasts)
        self.session.act(action)
        self.digests.append(self.session.digest())
        self.save()
        if len(self.session.lasts) > episodes:
            self.save_episodes()

    def stop(self) -> None:
        """Ends the session early."""
        self.session.stop()
        self.save()

    def save(self) -> None:
        """Writes game.json atomically."""
        session = self.session
        record = {
            "format": FORMAT,
            "setup": session.setup.as_dict(),
            "version": session.game.version,
            "actions": session.actions,
            "digests": self.digests,
            "stopped": session.stopped,
            "returns": session.returns,
            "made": self.made,
        }
        write_text(self.path / FILE, json.dumps(record, indent=1) + "\n")

    def save_episodes(self) -> None:
        """Writes the finished episodes as a dataset."""
        session = self.session
        cast_distribution = CastDistribution.of_cast(session.setup.cast)
        recorded = [
            Recorded(to_trajectory(session.game, turns, last), cast_distribution.casts)
            for turns, last in zip(session.episodes, session.lasts, strict=False)
        ]
        write_dataset(
            self.path / EPISODES,
            session.game,
            recorded,
            cast_distribution,
            session.setup.seed,
            self.made,
            replace=True,
        )

    def save_missing_episodes(self) -> None:
        """Writes the dataset if a killed process has not.

        game.json receives the last turn of an episode before the dataset receives the episode. A game whose dataset
        cannot be written can still be played.
        """
        try:
            written = open_dataset(self.path / EPISODES).header["episodes"]
        except InputError:
            written = 0
        if written < len(self.session.lasts):
            with contextlib.suppress(InputError):
                self.save_episodes()

    def close(self) -> None:
        """Releases the directory."""
        self.lock.close()


def begin_record(path: Path, session: Session) -> Record:
    """Starts the recording of a session in a new directory."""
    if path.exists():
        raise InputError(f"{path} is there already: choose another directory")
    make_directory(path)
    record = Record(path, session, [], provenance(), _lock(path))
    record.save()
    return record


def is_record(path: Path) -> bool:
    """True if a directory holds a recorded game."""
    return (path / FILE).is_file()


def read_record(path: Path) -> dict[str, Any]:
    """Returns the contents of game.json. Raises InputError if it is not a recorded game."""
    record = read_json(path / FILE, f"{path} is not a recorded game: it has no {FILE}")
    types = {"setup": dict, "version": str, "actions": list, "digests": list, "stopped": bool, "made": dict}
    is_complete = isinstance(record, dict) and all(isinstance(record.get(key), type_) for key, type_ in types.items())
    if not is_complete or record.get("format") != FORMAT or len(record["actions"]) != len(record["digests"]):
        raise InputError(f"{path / FILE} does not describe a recorded game of format {FORMAT}")
    return record


def open_record(path: Path, directory: Path) -> Record:
    """Opens a recorded game and replays it to its last state.

    Args:
        path: Directory of the game.
        directory: Directory below which the runs of the cast lie.

    Raises:
        InputError: The replay differs from the recording, because a player was trained further, or because a version or
            the machine has changed.
    """
    recorded = read_record(path)
    setup = setup_from(recorded["setup"])
    lock = _lock(path)
    try:
        restore_replaced(path / EPISODES)
        session = Session(setup, session_players(setup, directory))
        if session.game.version != recorded["version"]:
            raise InputError(f"{path} was played on version {recorded['version']} of {setup.game}, which has changed")
        for turn, (action, digest) in enumerate(zip(recorded["actions"], recorded["digests"], strict=True), start=1):
            session.act(action)
            if session.digest() != digest:
                raise InputError(
                    f"{path} cannot be resumed: its replay comes out differently at turn {turn}, so a player, a version"
                    " or the machine has changed"
                )
        if recorded["stopped"]:
            session.stop()
        record = Record(path, session, recorded["digests"], recorded["made"], lock)
        record.save_missing_episodes()
    except BaseException:
        lock.close()
        raise
    return record


def _lock(path: Path) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.enter_context(locked(path, IN_USE))
    return stack

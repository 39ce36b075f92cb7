"""Games that are kept: a directory each, with what the person did, and the episodes as a dataset.

game.json has the setup, the person's actions and a sign of the table after each; that is enough to play the whole
series again, and so to go on with it. episodes/ is a dataset of the episodes that are over.
"""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.errors import InputError
from hopplus.files import make_directory, read_json, write_text
from hopplus.play.dataset import Recorded, open_dataset, restore_replaced, write_dataset
from hopplus.play.live import episode_of
from hopplus.sitting.setup import company_of, setup_from
from hopplus.sitting.table import Table
from hopplus.training.run import locked, provenance

FILE, EPISODES = "game.json", "episodes"
FORMAT = 1
TAKEN = "another server, or hopplus play, has this game open:"


@dataclass(eq=False)
class Record:
    """A game's directory, nobody else's as long as it is open."""

    path: Path
    table: Table
    digests: list[str]
    made: dict[str, Any]
    """Versions and the machine, at the beginning."""
    holds: contextlib.ExitStack

    def act(self, action: str) -> None:
        """Take a turn and keep it; where it cannot be kept, InputError."""
        ended = len(self.table.lasts)
        self.table.act(action)
        self.digests.append(self.table.digest())
        self.save()
        if len(self.table.lasts) > ended:
            self.save_episodes()

    def get_up(self) -> None:
        """End the series before its time."""
        self.table.get_up()
        self.save()

    def save(self) -> None:
        """Write game.json, whole or not at all."""
        table = self.table
        found = {
            "format": FORMAT,
            "setup": table.setup.as_dict(),
            "version": table.game.version,
            "actions": table.actions,
            "digests": self.digests,
            "stopped": table.stopped,
            "returns": table.returns,
            "made": self.made,
        }
        write_text(self.path / FILE, json.dumps(found, indent=1) + "\n")

    def save_episodes(self) -> None:
        """Write the episodes that are over as a dataset."""
        table = self.table
        kinds = list(dict.fromkeys(table.setup.cast))
        sat = np.array([[kinds.index(word) for word in table.setup.cast]])
        recorded = [
            Recorded(episode_of(table.game, turns, last), sat)
            for turns, last in zip(table.episodes, table.lasts, strict=False)
        ]
        cast = ",".join(table.setup.cast)
        write_dataset(
            self.path / EPISODES, table.game, recorded, [cast], kinds, table.setup.seed, self.made, replace=True
        )

    def save_missing_episodes(self) -> None:
        """Write the dataset where a killed process has not: game.json has an episode's last turn before the dataset has
        the episode. A game whose dataset cannot be written can be played all the same."""
        try:
            kept = open_dataset(self.path / EPISODES).header["episodes"]
        except InputError:
            kept = 0
        if kept < len(self.table.lasts):
            with contextlib.suppress(InputError):
                self.save_episodes()

    def close(self) -> None:
        """Let go of the directory."""
        self.holds.close()


def begin_record(path: Path, table: Table) -> Record:
    """Keep a game from its beginning, in a directory that is not there yet."""
    if path.exists():
        raise InputError(f"{path} is there already: choose another directory")
    make_directory(path)
    record = Record(path, table, [], provenance(), _hold(path))
    record.save()
    return record


def is_record(path: Path) -> bool:
    """Whether a directory holds a game that was kept."""
    return (path / FILE).is_file()


def read_record(path: Path) -> dict[str, Any]:
    """What game.json says; InputError where it is not one."""
    found = read_json(path / FILE, f"{path} is not a recorded game: it has no {FILE}")
    kinds = {"setup": dict, "version": str, "actions": list, "digests": list, "stopped": bool, "made": dict}
    whole = isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
    if not whole or found.get("format") != FORMAT or len(found["actions"]) != len(found["digests"]):
        raise InputError(f"{path / FILE} does not describe a recorded game of format {FORMAT}")
    return found


def open_record(path: Path, directory: Path) -> Record:
    """A game that was kept, as it stood: played again from its beginning. InputError where it does not come out the
    same, since one of the players has learnt on, or versions or the machine have changed."""
    found = read_record(path)
    setup = setup_from(found["setup"])
    holds = _hold(path)
    try:
        restore_replaced(path / EPISODES)
        table = Table(setup, company_of(setup, directory))
        if table.game.version != found["version"]:
            raise InputError(f"{path} was played on version {found['version']} of {setup.game}, which has changed")
        for turn, (action, digest) in enumerate(zip(found["actions"], found["digests"], strict=True), start=1):
            table.act(action)
            if table.digest() != digest:
                raise InputError(
                    f"{path} cannot go on: played again it comes out differently at turn {turn}, so a player, a version"
                    " or the machine has changed"
                )
        if found["stopped"]:
            table.get_up()
        record = Record(path, table, found["digests"], found["made"], holds)
        record.save_missing_episodes()
    except BaseException:
        holds.close()
        raise
    return record


def _hold(path: Path) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.enter_context(locked(path, TAKEN))
    return stack

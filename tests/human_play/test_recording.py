"""Recorded games: replays, resumption after a killed process, and the dataset of episodes."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hopplus.core.errors import InputError
from hopplus.human_play import begin_record, open_record
from hopplus.rollouts.dataset import open_dataset
from sessions import CAST, play_to_end, start_session


def test_a_recorded_session_replays_equally_and_is_a_dataset(tmp_path: Path) -> None:
    record = begin_record(tmp_path / "game", start_session(CAST))
    for _ in range(4):
        record.act(record.session.legal[0])
    record.close()
    resumed = open_record(tmp_path / "game", Path())
    assert resumed.session.digest() == record.session.digest()
    while not resumed.session.finished:
        resumed.act("HARE" if "HARE" in resumed.session.legal else resumed.session.legal[0])
    resumed.close()
    dataset = open_dataset(tmp_path / "game" / "episodes")
    assert dataset.agent_types == ("nh", "you", "ns", "random")
    trajectory = dataset.load().trajectory
    assert trajectory.returns.tolist() == resumed.session.returns
    repeated = start_session(CAST)
    for action in resumed.session.actions:
        repeated.act(action)
    assert repeated.returns == resumed.session.returns
    with pytest.raises(InputError, match="is there already"):
        begin_record(tmp_path / "game", repeated)


class Killed(BaseException):
    """Simulated death of the process: no handler catches it, and no file changes afterwards."""


class Disk:
    """Disk operations of a recorded game.

    The process dies at the `number`-th operation of a name, before it or half-way through it, and performs none
    afterwards.
    """

    def __init__(self, patch: pytest.MonkeyPatch, operation: str, number: int, half: bool) -> None:
        self.fatal, self.number, self.half, self.dead = operation, number, half, False
        by_owner = {os: ["replace"], shutil: ["rmtree"], Path: ["mkdir", "write_bytes", "write_text", "unlink"]}
        for owner, names in by_owner.items():
            for name in names:
                patch.setattr(owner, name, self._wrap(name, getattr(owner, name)))

    def _wrap(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if name == self.fatal and not self.dead:
                self.dead = self.number == 0
                self.number -= 1
                if self.dead and self.half:
                    os.remove(Path(arguments[0]) / "header.json")
            if self.dead:
                raise Killed
            return operation(*arguments, **options)

        return wrapped


@dataclass(frozen=True)
class RecordedGame:
    """Recorded game without its last turn, which ends its second episode; tests copy it and do not change it."""

    path: Path
    action: str
    """Action of the last turn."""
    shards: Any
    """Shards of the dataset after an undisturbed last turn."""

    def killed(self, path: Path, operation: str, number: int, half: bool, patch: pytest.MonkeyPatch) -> None:
        """Makes a copy whose process is killed at an operation of the last turn."""
        record = open_record(Path(shutil.copytree(self.path, path)), Path())
        with patch.context() as during:
            Disk(during, operation, number, half)
            with pytest.raises(Killed):
                record.act(self.action)
        record.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedGame:
    complete, directory = start_session(CAST), tmp_path_factory.mktemp("killed")
    play_to_end(complete, "HARE")
    record = begin_record(directory / "game", start_session(CAST))
    for action in complete.actions[:-1]:
        record.act(action)
    record.close()
    shutil.copytree(directory / "game", directory / "complete")
    record = open_record(directory / "complete", Path())
    record.act(complete.actions[-1])
    record.close()
    return RecordedGame(
        directory / "game", complete.actions[-1], open_dataset(directory / "complete" / "episodes").header["shards"]
    )


@pytest.mark.parametrize(
    ("operation", "number", "half"),
    [
        ("replace", 0, False),  # game.json does not have the turn
        ("mkdir", 0, False),  # it has, and the dataset has not been started
        ("mkdir", 1, False),  # the new dataset is an empty directory
        ("write_bytes", 3, False),
        ("write_text", 0, False),
        ("replace", 1, False),  # the new dataset is complete, and the old one in its place
        ("replace", 2, False),  # the old dataset is out of the way, and its place is empty
        ("rmtree", 0, False),  # the new dataset is in its place, and the old one beside it
        ("rmtree", 0, True),
        ("rmtree", 1, False),
    ],
)
def test_a_game_that_was_killed_at_the_end_of_an_episode_is_resumed(
    operation: str, number: int, half: bool, recorded: RecordedGame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "game"
    recorded.killed(path, operation, number, half, monkeypatch)
    record = open_record(path, Path())
    assert sorted(file.name for file in path.iterdir()) == ["episodes", "game.json", "lock"]
    assert open_dataset(path / "episodes").header["episodes"] == len(record.session.lasts)
    has_turn = (operation, number) != ("replace", 0)
    assert record.session.finished == has_turn
    if not has_turn:
        record.act(recorded.action)
    record.close()
    assert open_dataset(path / "episodes").header["shards"] == recorded.shards


def test_the_old_episodes_of_a_killed_game_survive_if_it_cannot_be_resumed(
    recorded: RecordedGame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "game"
    recorded.killed(path, "replace", 2, False, monkeypatch)
    record = json.loads((path / "game.json").read_text(encoding="utf-8"))
    changed = {**record, "digests": ["another", *record["digests"][1:]]}
    (path / "game.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(InputError, match="comes out differently at turn 1"):
        open_record(path, Path())
    assert open_dataset(path / "episodes").header["episodes"] == 1

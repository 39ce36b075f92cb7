"""A person at the table: series that are kept and come out the same, what everybody believed, play in a terminal."""

import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.keyboard import QUIT, keys_of, understood
from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.games import make
from hopplus.play import live
from hopplus.play.dataset import open_dataset
from hopplus.report import Frame
from hopplus.report.thoughts import Belief, Reasoning, Thinking
from hopplus.sitting import Setup, Table, begin_record, company_of, guests_of, open_record, review_of
from hopplus.sitting.review import beliefs_of, changes_of, episode_frames
from hopplus.sitting.setup import located, make_setup, setup_from

GAME = "msh-4x4-4h1s"
CAST = "nh,you,ns,random"
Capture = pytest.CaptureFixture[str]


def sat_down(cast: str, game: str = GAME, episodes: int = 2, **more: object) -> Table:
    setup = make_setup(game, cast, episodes, seed=3, hidden=bool(more.get("hidden")))
    return Table(setup, company_of(setup, Path()))


def to_the_end(table: Table, prey: str) -> None:
    while not table.finished:
        table.act(prey if prey in table.legal else table.legal[len(table.actions) % len(table.legal)])


# ----------------------------------------------------------------------------------------------------------- setups


@pytest.mark.parametrize(
    ("cast", "episodes", "seed", "said"),
    [
        ("ns,ns,nh,nh", 2, 0, "one seat of the cast must be 'you', not 0"),
        ("you,you,nh,nh", 2, 0, "one seat of the cast must be 'you', not 2"),
        ("you,ns,nh", 2, 0, "has 4 seats"),
        ("you,ns,nh,nobody", 2, 0, "there is no player 'nobody'"),
        ("you,ns,nh,nh", 0, 0, "1 to 100 episodes, not 0"),
        ("you,ns,nh,nh", 2, -1, "seed must be"),
    ],
)
def test_who_cannot_sit_is_one_sentence(cast: str, episodes: int, seed: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        company_of(make_setup(GAME, cast, episodes, seed, False), Path())


def test_a_setup_is_read_as_it_was_written_and_nothing_else_is_taken_for_one() -> None:
    setup = Setup(GAME, ("you", "ns", "nh", "nh"), 2, 3, True)
    written = json.loads(json.dumps(setup.as_dict()))
    assert setup_from(written) == setup
    for wrong in ({**written, "episodes": "2"}, {**written, "more": 1}, {**written, "cast": [1, 2]}, {}, []):
        with pytest.raises(InputError):
            setup_from(wrong)  # type: ignore[arg-type]


def test_runs_are_looked_for_below_the_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}", encoding="utf-8")
    assert located("run", tmp_path) == str(tmp_path / "run")
    assert located("run(run,search=on)", tmp_path) == f"run({tmp_path / 'run'},search=on)"
    assert located("nh", tmp_path) == "nh"


def test_everybody_who_is_offered_can_sit() -> None:
    for name in (GAME, "msg-4x4"):
        game = make(name)
        for guest in guests_of(game, None):
            company_of(make_setup(name, ",".join(["you", *[guest.word] * 3]), 1, 0, False), Path())
    kinds = {guest.word: guest.kind for guest in guests_of(make(GAME), None)}
    assert {"hopplus": "shipped", "ppo": "shipped", "nh": "script"}.items() <= kinds.items()
    assert "cleaner" not in kinds


# ----------------------------------------------------------------------------------------------------------- tables


def test_an_illegal_action_is_refused_and_nothing_has_happened() -> None:
    table = sat_down("you,ns,nh,nh")
    before = table.digest()
    illegal = next(name for name in table.game.action_names if name not in table.legal)
    with pytest.raises(InputError, match="is not legal here"):
        table.act(illegal)
    assert (table.digest(), table.actions) == (before, [])


def test_once_the_others_sit_nothing_is_compiled_any_more() -> None:
    programs: tuple[Any, ...] = (live._act, live._watch, live._advance, live._meet, live._start, live._fresh)
    table = sat_down("you,hopplus,ppo,switching(ns,nh,every=1)")
    table.warm_up()
    table.wait_until_ready()
    before = [program._cache_size() for program in programs]
    to_the_end(table, "HARE")
    assert [program._cache_size() for program in programs] == before


def test_a_kept_series_comes_out_the_same_and_is_a_dataset(tmp_path: Path) -> None:
    record = begin_record(tmp_path / "kept", sat_down(CAST))
    for _ in range(4):
        record.act(record.table.legal[0])
    record.close()
    again = open_record(tmp_path / "kept", Path())
    assert again.table.digest() == record.table.digest()
    while not again.table.finished:
        again.act("HARE" if "HARE" in again.table.legal else again.table.legal[0])
    again.close()
    dataset = open_dataset(tmp_path / "kept" / "episodes")
    assert dataset.kinds == ("nh", "you", "ns", "random")
    episode = dataset.load().episode
    assert episode.returns.tolist() == again.table.returns
    whole = sat_down(CAST)
    for action in again.table.actions:
        whole.act(action)
    assert whole.returns == again.table.returns
    with pytest.raises(InputError, match="is there already"):
        begin_record(tmp_path / "kept", whole)


def test_a_series_that_is_left_early_counts_its_whole_episodes_only(tmp_path: Path) -> None:
    table = sat_down("you,nh,nh,nh", episodes=3)
    while not table.lasts:
        table.act("HARE" if "HARE" in table.legal else table.legal[0])
    table.act(table.legal[0])
    table.get_up()
    assert table.finished
    review = review_of(table)
    assert (len(review["returns"]), len(review["episodes"]), len(review["choices"])) == (1, 1, 1)
    with pytest.raises(InputError, match="is over"):
        table.act("STAY")


# ----------------------------------------------------------------------------------------------------------- killed


class Killed(BaseException):
    """The process is dead: nothing catches it, and no file changes after it."""


class Disk:
    """The operations by which a recorded game changes on the disk. The process dies at one of them, the `number`-th of
    its name, before it or half-way through it, and does none after that."""

    def __init__(self, patch: pytest.MonkeyPatch, operation: str, number: int, half: bool) -> None:
        self.fatal, self.number, self.half, self.dead = operation, number, half, False
        by_owner = {os: ["replace"], shutil: ["rmtree"], Path: ["mkdir", "write_bytes", "write_text", "unlink"]}
        for owner, names in by_owner.items():
            for name in names:
                patch.setattr(owner, name, self._mortal(name, getattr(owner, name)))

    def _mortal(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if name == self.fatal and not self.dead:
                self.dead = self.number == 0
                self.number -= 1
                if self.dead and self.half:
                    os.remove(Path(arguments[0]) / "header.json")
            if self.dead:
                raise Killed
            return act(*arguments, **options)

        return operation


@dataclass(frozen=True)
class Kept:
    """A recorded game without its last turn, which ends its second episode; to be copied, not changed."""

    path: Path
    action: str
    """Of the last turn."""
    shards: Any
    """Of the dataset after it, where nothing goes wrong."""

    def killed(self, path: Path, operation: str, number: int, half: bool, patch: pytest.MonkeyPatch) -> None:
        """Make a copy of which the process was killed at an operation of the last turn."""
        record = open_record(Path(shutil.copytree(self.path, path)), Path())
        with patch.context() as during:
            Disk(during, operation, number, half)
            with pytest.raises(Killed):
                record.act(self.action)
        record.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    whole, directory = sat_down(CAST), tmp_path_factory.mktemp("killed")
    to_the_end(whole, "HARE")
    record = begin_record(directory / "kept", sat_down(CAST))
    for action in whole.actions[:-1]:
        record.act(action)
    record.close()
    shutil.copytree(directory / "kept", directory / "whole")
    record = open_record(directory / "whole", Path())
    record.act(whole.actions[-1])
    record.close()
    return Kept(directory / "kept", whole.actions[-1], open_dataset(directory / "whole" / "episodes").header["shards"])


@pytest.mark.parametrize(
    ("operation", "number", "half"),
    [
        ("replace", 0, False),  # game.json does not have the turn
        ("mkdir", 0, False),  # it has, and the dataset has not been begun
        ("mkdir", 1, False),  # the new dataset is an empty directory
        ("write_bytes", 3, False),
        ("write_text", 0, False),
        ("replace", 1, False),  # the new dataset is whole, and the old one in its place
        ("replace", 2, False),  # the old dataset is out of the way, and its place is empty
        ("rmtree", 0, False),  # the new dataset is in its place, and the old one beside it
        ("rmtree", 0, True),
        ("rmtree", 1, False),
    ],
)
def test_a_game_that_was_killed_at_the_end_of_an_episode_goes_on(
    operation: str, number: int, half: bool, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    kept.killed(path, operation, number, half, monkeypatch)
    record = open_record(path, Path())
    assert sorted(file.name for file in path.iterdir()) == ["episodes", "game.json", "lock"]
    assert open_dataset(path / "episodes").header["episodes"] == len(record.table.lasts)
    has_turn = (operation, number) != ("replace", 0)
    assert record.table.finished == has_turn
    if not has_turn:
        record.act(kept.action)
    record.close()
    assert open_dataset(path / "episodes").header["shards"] == kept.shards


def test_the_old_episodes_of_a_killed_game_are_kept_where_it_cannot_go_on(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    kept.killed(path, "replace", 2, False, monkeypatch)
    found = json.loads((path / "game.json").read_text(encoding="utf-8"))
    changed = {**found, "digests": ["another", *found["digests"][1:]]}
    (path / "game.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(InputError, match="comes out differently at turn 1"):
        open_record(path, Path())
    assert open_dataset(path / "episodes").header["episodes"] == 1


# ---------------------------------------------------------------------------------------------------------- reviews


def frames(*chances: float) -> list[Frame]:
    """An episode in which seat 1 believes in a hare, about seat 0, with these probabilities."""
    found = []
    for chance in chances:
        belief = Belief(0, {"stag": 1 - chance, "hare": chance}, {"STAY": 1.0})
        thinking = Thinking(("stag", "hare"), ("STAY",), {1: Reasoning({"STAY": 1.0}, 0.0, (belief,))})
        found.append(Frame(1, 1, ((0, 0), (0, 0)), {}, None, None, None, 0, 1, ("you", "it"), thinking=thinking))
    return found


def test_a_mind_is_changed_once_one_is_sure_and_not_by_a_small_lead() -> None:
    changes = changes_of([frames(0.5, 0.55, 0.3, 0.45), frames(0.55, 0.7, 0.5, 0.45, 0.2)])
    found = [(one.episode, one.step, one.before, one.after) for one in changes]
    assert found == [(0, 2, None, "stag"), (1, 1, "stag", "hare"), (1, 4, "hare", "stag")]


def test_afterwards_everybodys_beliefs_plans_and_the_oracles_choices_are_there() -> None:
    table = sat_down("you,hopplus,hopplus:search=on,nh")
    to_the_end(table, "HARE")
    review = review_of(table)
    assert {(one["by"], one["about"]) for one in review["beliefs"]} == {
        (by, about) for by in (1, 2) for about in range(4) if by != about
    }
    first = review["episodes"][0]
    assert [player["name"] for player in first["players"]] == ["you", "hopplus", "hopplus:search=on", "nh"]
    thoughts = {thought["seat"]: thought for thought in first["steps"][0]["thoughts"]}
    assert thoughts[1]["search"] is None
    assert set(thoughts[2]["search"]["values"]) == set(thoughts[2]["policy"])
    for own, steps in zip(review["choices"], review["episodes"], strict=True):
        assert 0 < len(own) < len(steps["steps"])
        assert all(one["chosen"] in one["values"] for one in own)
    assert review["summary"]["decisions"] == sum(map(len, review["choices"]))
    json.dumps(review)


def test_a_person_who_always_takes_hares_is_soon_believed_to() -> None:
    table = sat_down("you,hopplus,nh,nh", episodes=4)
    to_the_end(table, "HARE")
    beliefs = beliefs_of([episode_frames(table, number) for number in range(len(table.lasts))])
    (about_you,) = [one for one in beliefs if (one["by"], one["about"]) == (1, 0)]
    last = [point["goals"] for point in about_you["points"] if point["episode"] == 3]
    assert last[0]["hare"] > 0.6, "before anything has happened in the fourth episode"


# --------------------------------------------------------------------------------------------------------- terminal


def test_every_action_has_a_key_of_its_own() -> None:
    for name in (GAME, "msg-4x4"):
        game = make(name)
        keys = keys_of(game.action_names, game.action_names[game.idle_action])
        assert len(set(keys.values())) == game.num_actions
        assert QUIT not in keys.values()
        for action, key in keys.items():
            assert understood(key, keys) == understood(action.lower(), keys) == action
    assert understood("x", keys) is None
    assert understood("Q", keys) == QUIT


def test_a_game_in_the_terminal(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["play", GAME, "--cast", "you,nh,nh,nh", "--episodes", "1", "--seed", "0", "--terminal"]
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\n" + "STAY\n" * 40))
    assert main([*words, "--record", str(tmp_path / "kept")]) == 0
    said = capsys.readouterr().out
    assert "there is no action 'nonsense'" in said
    assert "episode 1 is over" in said
    assert "of your 35 choices" in said
    assert "hopplus dataset" in said
    assert main(["dataset", str(tmp_path / "kept" / "episodes"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["actions"]["STAY"]["count"] >= 35
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["play", "--record", str(tmp_path / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["decisions"] == 35


def test_a_game_in_the_terminal_that_is_broken_off_goes_on(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "play",
        GAME,
        "--cast",
        "you,nh,nh,nh",
        "--episodes",
        "2",
        "--seed",
        "0",
        "--record",
        str(tmp_path / "kept"),
    ]

    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("hopplus.cli.play.read_key", interrupted)
    assert main(words) == 130
    monkeypatch.undo()
    kept = ["--record", str(tmp_path / "kept")]
    for changed, there in (
        ("msg-4x4", f"GAME is {GAME}"),
        ("--cast you,ns,nh,nh", "--cast is you,nh,nh,nh"),
        ("--episodes 5", "--episodes is 2"),
        ("--hidden", "--hidden is False"),
        ("--seed 1", "--seed is 0"),
    ):
        capsys.readouterr()
        assert main(["play", *changed.split(), *kept]) == 2
        assert f"which goes on as it began: {there} there, not " in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(words) == 0
    assert "no episode was played to its end" in capsys.readouterr().out


def test_with_a_browser_the_page_is_opened_with_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr("hopplus.cli.play.has_browser", lambda: True)
    monkeypatch.setattr("hopplus.cli.play.serve_page", lambda *words: opened.append(words))
    assert main(["play", GAME, "--cast", "nh,you,nh,nh", "--episodes", "3", "--hidden"]) == 0
    assert main(["play", "--seed", "0"]) == 0
    (_, host, _, page), (*_, second) = opened
    assert host == "127.0.0.1"
    assert page == f"/play?game={GAME}&cast=nh%2Cyou%2Cnh%2Cnh&episodes=3&hidden=yes"
    assert second == f"/play?game={GAME}&cast=&episodes=5&hidden=&seed=0"


def test_mistakes_are_one_sentence(capsys: Capture) -> None:
    for words, said in (
        (["play", GAME, "--cast", "ns,ns,nh,nh", "--terminal"], "one seat of the cast must be 'you'"),
        (["play", "msh-4x4", "--terminal"], "there is no game"),
        (["play", GAME, "--episodes", "0", "--terminal"], "1 to 100 episodes"),
        (["match", GAME, "--cast", "you,ns,nh,nh"], "there is no player 'you'"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err

"""The contest's table: made only of as many seeds as it says, with every row trained alike."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = Path(__file__).parent.parent / "docs" / "results"


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(RESULTS))
    yield importlib.import_module("contest")
    for name in ("contest", "pages", "ppo"):
        sys.modules.pop(name, None)


def test_every_method_has_the_same_budget_and_co_players(contest: ModuleType) -> None:
    for board, played in contest.BOARDS.items():
        for regime in contest.REGIMES:
            names = [name for name, where in contest.experiments().items() if where[:2] == (board, regime)]
            words = [contest.words_of(*contest.experiments()[name]) for name in names]
            same = {tuple(one[one.index(key) + 1] for key in ("--game", "--cast", "--seeds")) for one in words}
            assert len(same) == 1
            for name, one in zip(names, words, strict=True):
                part = contest.METHODS[contest.experiments()[name][2]].part
                assert int(one[one.index("--steps") + 1]) * part == played.steps
            assert all(set(played.options.split()) <= set(one) for one in words)
            assert f"{board}-{regime}-{contest.OURS}" in names


def test_a_table_of_fewer_seeds_than_it_needs_is_refused(
    contest: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "KEPT", tmp_path)
    monkeypatch.setattr(contest, "HERE", tmp_path)
    with pytest.raises(SystemExit, match="nothing is kept yet"):
        contest.page()
    (tmp_path / "4x4-self-ppo.json").write_text(json.dumps({"config": {"seeds": [0, 1]}}))
    with pytest.raises(SystemExit, match="needs 5 seeds, and there are fewer of 4x4-self-ppo"):
        contest.page()
    assert not (tmp_path / "contest.md").exists()

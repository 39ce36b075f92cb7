"""The contest's table: made only of as many seeds as it says, with every row trained alike."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RESULTS = Path(__file__).parent.parent / "docs" / "results"


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(RESULTS))
    yield importlib.import_module("contest")
    for name in ("contest", "pages", "ppo"):
        sys.modules.pop(name, None)


def test_every_method_has_the_same_budget_and_co_players(contest: ModuleType) -> None:
    same = ("game", "cast", "seeds", "encoder", "acquaintance", "hidden", "discount", "environments")
    for board, played in contest.BOARDS.items():
        for regime in contest.REGIMES:
            names = [name for name, where in contest.experiments().items() if where[:2] == (board, regime)]
            cells = [contest.PLAN.cell(name) for name in names]
            assert len({str([cell.settings.get(key) for key in same]) for cell in cells}) == 1
            mixed = ",".join(["learner", *[f"mix(learner,{played.scripts})"] * 3])
            assert cells[0].settings["cast"] == {"self": "self-play", "pool": mixed}[regime]
            assert cells[0].settings["seeds"] == f"0-{contest.NUMBER_OF_SEEDS - 1}"
            for cell in cells:
                part = 10 if cell.labels["method"] == "hop" else 1
                assert cell.steps * part == cells[0].steps, cell.name
            assert contest.METHODS[played.methods[regime][-1]].startswith("HOP+")


def test_what_ends_half_way_does(contest: ModuleType) -> None:
    halves = {
        cell.name: str(cell.settings[key])
        for cell in contest.PLAN.cells
        for key in ("until", "guest_steps")
        if key in cell.settings
    }
    assert len(halves) == 2
    for name, half in halves.items():
        assert int(half.partition(":")[0]) * 2 == contest.PLAN.cell(name).steps


def kept(mean: float, seeds: int) -> dict[str, Any]:
    """Figures of a row, as `contest.py keep` does."""

    def row(name: str, oracle: float | None) -> dict[str, Any]:
        score = {"per_seed": [mean + 0.01 * seed for seed in range(seeds)], "oracle": oracle, "interval": "95%"}
        curve = [{"episode": 1, "mean": mean, "low": mean, "high": mean, "oracle": oracle}]
        return {"set": name, "seating": "one", "remembers": True, "score": score, "curve": curve}

    return {
        "command": "hopplus train",
        "seconds": 60.0,
        "config": {"seeds": list(range(seeds)), "machine": "one", "versions": {"jax": "0"}},
        "evaluations": {"sampled": {"per_seed": [{"own_return": mean}] * seeds}},
        "adaptation": [row("cooperators", 2.0), row("cooperators-blind", None)],
    }


@pytest.fixture
def place(contest: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KEPT", "HERE"):
        monkeypatch.setattr(contest, name, tmp_path)
    return tmp_path


def test_a_table_of_fewer_seeds_than_it_needs_is_refused(
    contest: ModuleType, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contest.page()
    assert "no contest is kept yet" in capsys.readouterr().out
    (place / "4x4-self-ppo.json").write_text(json.dumps(kept(1.0, 2)))
    with pytest.raises(SystemExit, match="needs 5 seeds, and there are fewer of 4x4-self-ppo"):
        contest.page()
    assert not (place / "contest.md").exists()


def test_the_table_says_who_is_ahead(contest: ModuleType, place: Path) -> None:
    for name, mean in (("ppo", 1.0), ("recurrent", 1.6), ("hopplus", 1.5), ("liam", 1.502)):
        (place / f"4x4-pool-{name}.json").write_text(json.dumps(kept(mean, 5)))
    contest.page()
    text = (place / "contest.md").read_text()
    assert "HOP+, codes is ahead of: PPO. Behind: PPO with a recurrent memory." in text
    assert "Not to be told apart: LIAM." in text
    assert "cooperators-blind" not in text, "there is no share of an oracle that nobody knows"
    assert "| PPO | yes | 1.00 ± 0.00 | 0.51 [" in text
    assert "**+0.25 [" in text
    assert (place / "contest-4x4-pool.png").exists()

"""Page of planning with beliefs: made from saved results, whose commands are those of the sweep's cells."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from experiment_scripts import EXPERIMENTS, RESULTS, imported
from hopplus.sweeps.plan import read_plan


@pytest.fixture
def script() -> Iterator[ModuleType]:
    """The script as a module."""
    with imported("planning") as module:
        yield module


def test_the_page_is_made_from_the_saved_results(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    written = (tmp_path / "planning.md").read_text(encoding="utf-8")
    assert written == (RESULTS / "planning.md").read_text(encoding="utf-8")


def test_every_saved_result_has_the_command_of_its_cell(script: ModuleType) -> None:
    saved = {file.stem: json.loads(file.read_text(encoding="utf-8"))["command"] for file in script.SAVED.iterdir()}
    planned = {
        name: "hopplus " + " ".join(read_plan(EXPERIMENTS / f"{sweep}.toml").cell(name).argv())
        for sweep, names in (("pretrained", script.NAMES), ("distillation", script.DISTILLED.values()))
        for name in names
    }
    assert {"4x4-hopplus", "msg-hopplus", "hares3-hopplus"} <= set(saved)
    assert saved == {name: planned[name] for name in saved}


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/algorithms/hopplus.md"])
def test_tables_elsewhere_have_the_saved_results(script: ModuleType, page: str) -> None:
    text = (EXPERIMENTS.parent / page).read_text(encoding="utf-8")
    saved = script.load_saved(script.SAVED, script.NAMES)

    def share(name: str, judge: str, *sets: str) -> str:
        by_set = saved[name]["adaptation"][judge]
        return script._adaptation_row("", by_set, list(sets or by_set)).split("|")[2].strip()

    columns = [("msg-hopplus",), ("msg-hopplus", "exploiters"), ("hares3-hopplus", "defectors")]
    by_judge = [[share(name, judge, *sets) for name, *sets in columns] for judge in script.DECISIONS]
    rows = np.transpose(by_judge) if page.startswith("docs") else by_judge
    for row in rows:
        assert f"| {' | '.join(row)} |" in text
    for judge in ("held-out", "planning"):
        assert f"| {share('4x4-hopplus', judge)} |" in text
        for large in (share("8x8-hopplus-long", judge), share("8x8-hopplus-long", judge, "defectors")):
            assert large in text


def test_unknown_names_are_not_kept(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["planning.py", "keep", "5x5-hopplus"])
    with pytest.raises(SystemExit, match="5x5-hopplus; known: 4x4-hopplus"):
        script.main()


def test_a_judge_of_some_sets_replaces_their_scores(script: ModuleType) -> None:
    def row(name: str, trials: int) -> dict[str, Any]:
        score = {**dict.fromkeys(("mean", "low", "high", "oracle", "share_of_oracle"), 1.0), "per_seed": [1.0]}
        return {"set": name, "score": score, "trials": trials, "curve": [{"mean": 1.0, "low": 1.0, "high": 1.0}]}

    judged = {"planning: random": [row("random", 64)], "planning": [row("defectors", 8), row("random", 8)]}
    merged = script._by_judge(judged)
    assert {name: list(sets) for name, sets in merged.items()} == {"planning": ["defectors", "random"]}
    assert script._trials(merged["planning"]) == "8, 64 with random"


def test_a_row_of_the_page_has_intervals_over_seeds(script: ModuleType) -> None:
    score: dict[str, Any] = {"per_seed": [0.4, 0.6], "oracle": 0.5}
    row = script._adaptation_row("rollouts", {"one": score, "other": {**score, "oracle": 1.0}}, ["one", "other"])
    assert row == "| rollouts | 0.75 ± 1.91 | 1.00 ± 2.54 | 0.50 ± 1.27 |"

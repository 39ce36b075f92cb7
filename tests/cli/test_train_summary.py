"""Summary of a training: scores with held-out co-players beside the returns in self-play."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from common import short_evaluations
from hopplus.cli.main import main
from hopplus.cli.train_summary import held_out_figures, summary_table
from hopplus.training.run import open_run

ARGV = ["train", "ppo", "--steps", "64", "--num-envs", "4", "--num-steps", "8", "--hidden", "8", "--update-epochs", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of a short training in the stag hunt of four players."""
    path = tmp_path_factory.mktemp("summary") / "run"
    with short_evaluations():
        assert main([*ARGV, "--seeds", "0-1", "--out", str(path)]) == 0
    return path


def text_of(table: Any) -> str:
    """Text of a table without line breaks."""
    console = Console(width=200, record=True)
    console.print(table)
    return console.export_text()


def test_a_training_is_evaluated_with_held_out_co_players(run: Path) -> None:
    rows = held_out_figures(open_run(run))
    assert [row["set"] for row in rows] == ["cooperators", "defectors", "random"]
    assert all(row["trials"] == 4 and row["seeds"] == [0, 1] and not row["greedy"] for row in rows)
    assert all(row["score"]["oracle"] is not None for row in rows)
    assert (run / "evaluation" / "adapt-random.json").exists()
    summary = json.loads((run / "evaluation" / "final.json").read_text(encoding="utf-8"))
    shown = text_of(summary_table(summary, rows))
    score = rows[1]["score"]
    assert f"with defectors: {100 * score['share_of_oracle']:.1f}% of the oracle" in shown
    assert "4 trials per seed, episodes 6 to 10" in " ".join(shown.split())
    assert "oracle" not in text_of(summary_table(summary))


def test_sets_of_another_number_of_players_are_left_out(tiny_run: Path) -> None:
    assert held_out_figures(open_run(tiny_run)) == []


def test_the_command_shows_and_returns_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    score = {"share_of_oracle": 0.5, "mean": 1.25, "standard_error": 0.25}
    rows = [{"set": "defectors", "trials": 8, "score": score}]
    monkeypatch.setattr("hopplus.cli.train.held_out_figures", lambda run: rows)
    with short_evaluations():
        assert main([*ARGV, "--out", str(tmp_path / "run"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["held_out"] == rows
        assert main([*ARGV, "--out", str(tmp_path / "other"), "--no-report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["held_out"] == []

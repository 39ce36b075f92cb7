"""Fixtures of the training tests: run directories of one small training."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from hopplus.cli.main import main
from hopplus.training.run import open_run
from run_directories import ALGORITHM, ARGV, CHUNKS, TRAINING, at_chunk, interrupt, watched


@pytest.fixture(scope="module")
def reference(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of an undisturbed training."""
    path = tmp_path_factory.mktemp("reference") / "run"
    assert main([*ARGV, "--out", str(path)]) == 0
    assert open_run(path).config["settings"] == json.loads(json.dumps(dataclasses.asdict(ALGORITHM)))
    assert open_run(path).config["training"] == json.loads(json.dumps(dataclasses.asdict(TRAINING)))
    return path


@pytest.fixture(scope="module")
def stopped_early(cheap_trainings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of the same training, interrupted four chunks before its end. Read-only."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    with watched(at_chunk(CHUNKS - 4, interrupt)):
        assert main([*ARGV, "--out", str(path)]) == 130
    return path


@pytest.fixture
def unfinished(stopped_early: Path, tmp_path: Path) -> Path:
    """Copy of `stopped_early`."""
    return Path(shutil.copytree(stopped_early, tmp_path / "unfinished"))

"""The commands and programs in README and CONTRIBUTING work as they stand there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hopplus.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


BLOCKS = [[line for line in block.splitlines() if line.startswith("hopplus ")] for block in blocks(README, "sh")]
(TRAINING,) = (block for block in BLOCKS if any(line.startswith("hopplus train ppo") for line in block))
(THINKING,) = (block for block in BLOCKS if any(line.startswith("hopplus watch --run") for line in block))
(RIVALS,) = (block for block in BLOCKS if any(line.startswith("hopplus crossplay") for line in block))
(MODELS,) = (block for block in BLOCKS if any(line.startswith("hopplus fit") for line in block))
"""Commands that follow one another: they need what the ones before them made."""
ALONE = [line for block in BLOCKS if block not in (TRAINING, THINKING, RIVALS, MODELS) for line in block]


@pytest.mark.parametrize("command", ALONE)
def test_commands_of_the_readme(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0


def test_the_training_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in TRAINING:
        assert main(shlex.split(command)[1:]) == 0, command
    final = json.loads(Path("runs/ppo/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["reached"]["evaluation"] >= 2.8


@pytest.mark.slow
def test_hopplus_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in THINKING:
        assert main(shlex.split(command)[1:]) == 0, command
    final = json.loads(Path("runs/hopplus/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["mean_return"] > 2.7


@pytest.mark.slow
def test_the_rivals_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in RIVALS:
        assert main(shlex.split(command)[1:]) == 0, command
    assert list(Path("runs/recurrent/evaluation").glob("crossplay-*.csv"))


@pytest.mark.slow
def test_the_models_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in MODELS:
        assert main(shlex.split(command)[1:]) == 0, command
    final = json.loads(Path("runs/moa/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["share_of_ceiling"] > 0.98
    world = json.loads(Path("runs/world/evaluation/final.json").read_text(encoding="utf-8"))
    assert world["per_seed"][0]["impossible"] == 0


def test_the_program_of_the_readme(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "[0. 5. 5. 0.] (4, 8, 8, 7)" in answer.stdout


def test_the_files_of_contributing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for program in blocks(CONTRIBUTING, "python"):
        Path(program.splitlines()[0].removeprefix("# ")).write_text(program)
    commands = re.findall(r"`(hopplus [^`]*--plugin [^`]*)`", CONTRIBUTING)
    assert len(commands) == 3
    for command in commands:
        assert main([*shlex.split(command)[1:], *(["--episodes", "20"] if " match " in command else [])]) == 0


def test_both_commands_at_the_top_of_the_readme_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    top = [line.split()[1] for line in blocks(README, "sh")[0].splitlines()]
    assert top == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in top)

"""The commands and programs in README and the documentation work as they stand there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.sweeps.plan import read_plan

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


README, CHINESE = read("README.md"), read("README.zh.md")
COMMANDS, TUTORIAL = read("docs/commands.md"), read("docs/tutorial.md")
EXTENSIONS = [f"docs/extend/{what}.md" for what in ("game", "player", "algorithm")]
PICTURE = re.compile(r"Made by\*\n`(hopplus [^`]*)`")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands_of(text: str) -> list[list[str]]:
    """The commands of every block for a shell, in order."""
    return [[line for line in block.splitlines() if line.startswith("hopplus ")] for block in blocks(text, "sh")]


BLOCKS = commands_of(COMMANDS)
(TRAINING,) = (block for block in BLOCKS if any(line.startswith("hopplus train ppo") for line in block))
(THINKING,) = (block for block in BLOCKS if any(line.startswith("hopplus watch --run") for line in block))
(RIVALS,) = (block for block in BLOCKS if any(line.startswith("hopplus crossplay") for line in block))
(MODELS,) = (block for block in BLOCKS if any(line.startswith("hopplus fit") for line in block))
"""Commands that follow one another: they need what the ones before them made."""
ALONE = [line for block in BLOCKS if block not in (TRAINING, THINKING, RIVALS, MODELS) for line in block]


def run_all(commands: list[str]) -> None:
    """Run commands one after the other in the current directory."""
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command


def write_programs(text: str) -> list[Path]:
    """Write a text's Python files, each under the name in its first line, into the current directory."""
    paths = []
    for program in blocks(text, "python"):
        paths.append(Path(program.splitlines()[0].removeprefix("# ")))
        assert re.fullmatch(r"\w+\.py", str(paths[-1])), paths[-1]
        paths[-1].write_text(program, encoding="utf-8")
    return paths


def run_python(*words: str) -> str:
    """What Python prints, in the current directory."""
    answer = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("command", ALONE)
def test_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0


def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs/images").mkdir(parents=True)
    (picture,) = PICTURE.findall(README)
    commands = [picture, *(line for block in commands_of(README) for line in block)]
    assert len(commands) > 3
    run_all(commands)
    assert Path("docs/images/hunt.gif").exists()
    assert Path("ppo.html").exists()


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(TRAINING)
    final = json.loads(Path("runs/ppo/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["reached"]["evaluation"] >= 2.8


@pytest.mark.slow
def test_hopplus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(THINKING)
    final = json.loads(Path("runs/hopplus/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["mean_return"] > 2.7


@pytest.mark.slow
def test_the_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(RIVALS)
    assert list(Path("runs/recurrent/evaluation").glob("crossplay-*.csv"))


@pytest.mark.slow
def test_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(MODELS)
    final = json.loads(Path("runs/moa/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["share_of_ceiling"] > 0.98
    world = json.loads(Path("runs/world/evaluation/final.json").read_text(encoding="utf-8"))
    assert world["per_seed"][0]["impossible"] == 0


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all([line for block in commands_of(TUTORIAL) for line in block])
    (program,) = write_programs(TUTORIAL)
    run_python(str(program))
    assert Path("figure.png").stat().st_size > 10_000
    rows = json.loads(Path("adapt.json").read_text(encoding="utf-8"))["rows"]
    score = {row["focal"]: row["score"]["mean"] for row in rows}
    assert score["runs/ppo"] < 0.4, "the tutorial says that it hardly earns anything with hare hunters"
    assert score["runs/hopplus"] > score["runs/ppo"]


def test_the_program_for_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(COMMANDS, "python")
    assert "[0. 5. 5. 0.] (4, 8, 8, 7)" in run_python("-c", program)


@pytest.mark.parametrize("page", EXTENSIONS)
def test_the_examples_of_extending(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs, commands = write_programs(read(page)), [line for block in commands_of(read(page)) for line in block]
    assert len(programs) == 2
    for program in programs:
        run_python(str(program))
        assert any(f"--plugin {program}" in command for command in commands)
    for command in commands:  # in a process each: a name can be registered only once
        run_python("-m", "hopplus.cli.main", *shlex.split(command)[1:])


def test_the_example_of_a_sweep(tmp_path: Path) -> None:
    """Its file reads, and every cell could be trained."""
    (text,) = blocks(read("docs/sweeps.md"), "toml")
    (tmp_path / "adaptation.toml").write_text(text, encoding="utf-8")
    plan = read_plan(tmp_path / "adaptation.toml")
    assert len(plan.cells) == 5
    check_cells(plan)


def test_both_commands_at_the_top_of_the_readme_are_in_the_makefile() -> None:
    makefile = read("Makefile")
    top = [line.split()[1] for line in blocks(README, "sh")[0].splitlines()]
    assert top == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in (*top, "docs"))


def test_the_chinese_readme_has_the_same_commands_figures_and_links() -> None:
    assert commands_of(CHINESE) == commands_of(README)
    links = re.compile(r"\]\(([^)]*)\)")
    assert sorted({*links.findall(CHINESE)} - {"README.md"}) == sorted({*links.findall(README)} - {"README.zh.md"})

    def cells(text: str) -> list[list[str]]:
        rows = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith("| ") and "0." in line]
        return [[cell.strip() for cell in row] for row in rows]

    assert cells(CHINESE) == cells(README) != []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        assert (ROOT / target).exists(), target

"""Commands and programs in README and documentation run: at small budgets, and in slow tests unchanged."""

import contextlib
import functools
import json
import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from common import kept_registries, short_evaluations
from documents import ROOT, SMALL_BUDGETS, Option, Text, argv_of, blocks, commands_of, read, small_argv, small_text
from hopplus.cli import fit as cli_fit
from hopplus.cli import train as cli_train
from hopplus.cli.main import COMMANDS as COMMANDS_BY_NAME
from hopplus.cli.main import PARSES_ITS_OWN_ARGV, main
from hopplus.cli.sweep import check_cells
from hopplus.games import make
from hopplus.sweeps.plan import read_plan
from memory import bound_memory

README, CHINESE = read("README.md"), read("README.zh.md")
COMMANDS, TUTORIAL = read("docs/commands.md"), read("docs/tutorial.md")
EXTENSIONS = [
    f"docs/extend/{name}.md" for name in ("game", "player", "algorithm", "planner", "goal_space", "opponent_model")
]
PICTURE = re.compile(r"Made by\*\n`(hopplus [^`]*)`")
(PICTURE_COMMAND,) = PICTURE.findall(README)
Budget = Callable[[str], list[str]]
pytestmark = pytest.mark.usefixtures("programs_made_once")
BUDGETS = [pytest.param(small_argv, id="small"), pytest.param(argv_of, id="full", marks=pytest.mark.slow)]
"""Arguments with which a command is run: those of the table in documents.py, or its own."""


def all_commands(text: str) -> list[str]:
    """All commands of a text."""
    return [line for block in commands_of(text) for line in block]


BLOCKS = commands_of(COMMANDS)
(TRAINING,) = (block for block in BLOCKS if any(line.startswith("hopplus train ppo") for line in block))
(WATCHING,) = (block for block in BLOCKS if any(line.startswith("hopplus watch --run") for line in block))
(BASELINES,) = (block for block in BLOCKS if any(line.startswith("hopplus crossplay") for line in block))
(MODELS,) = (block for block in BLOCKS if any(line.startswith("hopplus fit") for line in block))
"""Commands that depend on the files of the commands before them."""
OF_README = [PICTURE_COMMAND, *all_commands(README)]
OF_TUTORIAL = all_commands(TUTORIAL)
ALONE = [line for block in BLOCKS if block not in (TRAINING, WATCHING, BASELINES, MODELS) for line in block]


def run_all(commands: list[str], argv: Budget) -> None:
    """Run commands in order in the current directory, each with its plugins as in a process of its own."""
    with short_evaluations() if argv is small_argv else contextlib.nullcontext():
        for command in commands:
            with kept_registries():
                assert main(argv(command)) == 0, command
            bound_memory()


def write_programs(text: str, argv: Budget) -> list[Path]:
    """Write the Python files of a text into the current directory, under the names in their first lines."""
    paths = []
    for program in blocks(text, "python"):
        paths.append(Path(program.splitlines()[0].removeprefix("# ")))
        assert re.fullmatch(r"\w+\.py", str(paths[-1])), paths[-1]
        paths[-1].write_text(small_text(program) if argv is small_argv else program, encoding="utf-8")
    return paths


def run_program(path: Path) -> None:
    """Run a Python file as a program."""
    with kept_registries():
        runpy.run_path(str(path), run_name="__main__")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty directory."""
    monkeypatch.chdir(tmp_path)


# ---------------------------------------------------------------------------------------------- arguments and budgets


def idle(command: Callable[..., Any]) -> Callable[..., int]:
    """Command with the same options that does nothing."""

    @functools.wraps(command)
    def nothing(*_: Any, **__: Any) -> int:
        return 0

    return nothing


def check_algorithm(name: str, options: Any) -> int:
    """Check the settings of a training instead of training."""
    options.algorithm.check([make(options.training.game)])
    return 0


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands parse and check their arguments, and do nothing else."""
    monkeypatch.setattr(cli_train, "_start", check_algorithm)
    monkeypatch.setattr(cli_fit, "_start", idle(cli_fit._start))
    groups: list[dict[str, Any]] = [COMMANDS_BY_NAME, COMMANDS_BY_NAME["diagnose"]]
    for group in groups:
        for name, command in group.items():
            if callable(command) and command not in PARSES_ITS_OWN_ARGV:
                monkeypatch.setitem(group, name, idle(command))


@pytest.mark.usefixtures("nothing_computed")
def test_the_arguments_of_all_commands_are_valid() -> None:
    """Unchanged arguments, also of commands that are too slow for fast tests even at a small budget."""
    commands = {*OF_README, *OF_TUTORIAL, *(line for block in BLOCKS for line in block)}
    assert len(commands) > 40
    for command in commands - {line for line in commands if "--resume" in line}:
        assert main(argv_of(command)) == 0, command
    mistakes = (
        "evaluate runs/ppo --cats self",
        "adapt runs/ppo --trials many",
        "train hop --belief-samples x",
        "fit moa --x",
    )
    for mistake in mistakes:
        assert exit_code(mistake.split()) == 2, mistake


def exit_code(argv: Sequence[str]) -> int:
    """Exit code of a command."""
    try:
        return main(argv)
    except SystemExit as stop:
        return int(stop.code or 0)


def test_every_row_of_the_table_of_budgets_applies() -> None:
    used: set[Option | Text] = set()
    pages = [read(page) for page in EXTENSIONS]
    for command in [*OF_README, *ALONE, *TRAINING, *(line for page in pages for line in all_commands(page))]:
        small_argv(command, used)
    for page in (README, COMMANDS, *pages):
        for program in blocks(page, "python"):
            small_text(program, used)
    assert [row for row in SMALL_BUDGETS if row not in used] == []


def test_a_command_at_a_small_budget() -> None:
    assert small_argv("hopplus games") == ["games"]
    argv = small_argv("hopplus train --resume runs/mixed --steps 80000")
    assert argv == ["train", "--resume", "runs/mixed", "--steps", "128"]
    argv = small_argv("hopplus train ppo --target 2.8 --hidden 128 128 --steps 40000 --randomize-rewards")
    assert argv[: argv.index("--num-envs")] == [
        "train",
        "ppo",
        "--hidden",
        "8",
        "--steps",
        "64",
        "--randomize-rewards",
    ]


# ----------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("argv", BUDGETS)
@pytest.mark.parametrize("command", ALONE)
def test_commands(command: str, argv: Budget) -> None:
    run_all([command], argv)


@pytest.mark.parametrize("argv", BUDGETS)
def test_the_commands_of_the_readme(argv: Budget) -> None:
    """Commands that are also in docs/commands.md are run by `test_commands`."""
    Path("docs/images").mkdir(parents=True)
    assert len(OF_README) > 3
    run_all([command for command in OF_README if command not in ALONE], argv)
    assert Path("docs/images/hunt.gif").exists()
    assert Path("ppo.html").exists()


@pytest.mark.parametrize("argv", BUDGETS)
def test_training(argv: Budget) -> None:
    run_all(TRAINING, argv)
    final = json.loads(Path("runs/ppo/evaluation/final.json").read_text(encoding="utf-8"))
    if argv is argv_of:
        assert final["per_seed"][0]["reached"]["evaluation"] >= 2.8


@pytest.mark.slow
def test_hopplus() -> None:
    run_all(WATCHING, argv_of)
    final = json.loads(Path("runs/hopplus/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["mean_return"] > 2.7


@pytest.mark.slow
def test_the_baselines() -> None:
    run_all(BASELINES, argv_of)
    assert list(Path("runs/recurrent/evaluation").glob("crossplay-*.csv"))


@pytest.mark.slow
def test_the_models() -> None:
    run_all(MODELS, argv_of)
    final = json.loads(Path("runs/moa/evaluation/final.json").read_text(encoding="utf-8"))
    world = json.loads(Path("runs/world/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["share_of_ceiling"] > 0.98
    assert world["per_seed"][0]["impossible"] == 0


@pytest.mark.slow
def test_the_tutorial() -> None:
    run_all(OF_TUTORIAL, argv_of)
    (program,) = write_programs(TUTORIAL, argv_of)
    run_program(program)
    assert Path("figure.png").stat().st_size > 10_000
    rows = json.loads(Path("adapt.json").read_text(encoding="utf-8"))["rows"]
    score = {row["focal"]: row["score"]["mean"] for row in rows}
    assert set(score) == {"runs/ppo", "runs/hopplus"}
    assert score["runs/ppo"] < 0.4, "the tutorial states that PPO earns hardly anything with hare hunters"
    assert score["runs/hopplus"] > score["runs/ppo"]


@pytest.mark.parametrize("argv", BUDGETS)
def test_the_program_of_the_readme(argv: Budget, capsys: pytest.CaptureFixture[str]) -> None:
    """At the full budget its output is the one shown below it."""
    (program,) = blocks(README, "python")
    path = Path("program.py")
    path.write_text(small_text(program) if argv is small_argv else program, encoding="utf-8")
    run_program(path)
    output = capsys.readouterr().out
    assert output.count("\n") == 4
    assert argv is small_argv or output == blocks(README, "text")[0]


@pytest.mark.parametrize("argv", BUDGETS)
def test_the_program_for_python(argv: Budget, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks(COMMANDS, "python")
    path = Path("program.py")
    path.write_text(small_text(program) if argv is small_argv else program, encoding="utf-8")
    run_program(path)
    assert "[0. 5. 5. 0.] (4, 8, 8, 7)" in capsys.readouterr().out


@pytest.mark.parametrize("argv", BUDGETS)
@pytest.mark.parametrize("page", EXTENSIONS)
def test_the_examples_of_extending(page: str, argv: Budget) -> None:
    """A program without a main part is run as a plugin only."""
    commands = all_commands(read(page))
    programs = write_programs(read(page), argv)
    assert programs
    for program in programs:
        if "__main__" in program.read_text(encoding="utf-8"):
            run_program(program)
        assert any(f"--plugin {program}" in command for command in commands)
    run_all(commands, argv)


# --------------------------------------------------------------------------------------------------- texts and links


def test_the_example_of_a_sweep(tmp_path: Path) -> None:
    """The file can be read, and every cell could be trained."""
    (text,) = blocks(read("docs/sweeps.md"), "toml")
    (tmp_path / "adaptation.toml").write_text(text, encoding="utf-8")
    plan = read_plan(tmp_path / "adaptation.toml")
    assert len(plan.cells) == 5
    check_cells(plan)


def test_the_make_targets_of_the_readme_are_in_the_makefile() -> None:
    makefile = read("Makefile")
    lines = [line for block in blocks(README, "sh") for line in block.splitlines() if line.startswith("make ")]
    targets = [line.split()[1] for line in lines]
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in (*targets, "docs"))


def test_the_readme_is_short() -> None:
    assert max(len(text.splitlines()) for text in (README, CHINESE)) < 150


def test_the_chinese_readme_has_the_same_commands_figures_and_links() -> None:
    assert commands_of(CHINESE) == commands_of(README)
    links = re.compile(r"\]\(([^)]*)\)")
    assert sorted({*links.findall(CHINESE)} - {"README.md"}) == sorted({*links.findall(README)} - {"README.zh.md"})

    def cells(text: str) -> list[list[str]]:
        rows = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith("| ") and "0." in line]
        return [[cell.strip() for cell in row] for row in rows]

    assert cells(CHINESE) == cells(README) != []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "CONTRIBUTING.md"])
def test_links_have_a_target(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        assert (ROOT / target).exists(), target


def dead_links(page: Path) -> list[str]:
    """Links and images of a page whose file or heading does not exist."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for target, part in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        file = page.parent / target if target else page
        if not file.exists() or (part and part not in headings(file)):
            dead.append(f"{target}#{part}")
    return dead


def headings(page: Path) -> set[str]:
    """Anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_the_pages_of_the_documentation_have_a_target(tmp_path: Path) -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
    assert len(pages) > 20
    assert {page.name: dead for page in pages if (dead := dead_links(page))} == {}
    (tmp_path / "a.md").write_text("# A b\n[x](a.md#a-b) [y](a.md#c) [z](b.md) ![p](p.png)", encoding="utf-8")
    assert dead_links(tmp_path / "a.md") == ["a.md#c", "b.md#", "p.png#"]

"""The commands and programs in README and the documentation work: at small budgets, and in slow tests as they stand."""

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
from documents import ROOT, SMALL_BUDGETS, Option, Text, blocks, commands_of, read, small_text, small_words, words_of
from hopplus.cli import fit as cli_fit
from hopplus.cli import train as cli_train
from hopplus.cli.main import COMMANDS as COMMANDS_BY_NAME
from hopplus.cli.main import READS_ITS_OWN_WORDS, main
from hopplus.cli.sweep import check_cells
from hopplus.games import make
from hopplus.sweeps.plan import read_plan
from memory import bound_memory

README, CHINESE = read("README.md"), read("README.zh.md")
COMMANDS, TUTORIAL = read("docs/commands.md"), read("docs/tutorial.md")
EXTENSIONS = [f"docs/extend/{what}.md" for what in ("game", "player", "algorithm")]
PICTURE = re.compile(r"Made by\*\n`(hopplus [^`]*)`")
(PICTURE_COMMAND,) = PICTURE.findall(README)
Words = Callable[[str], list[str]]
pytestmark = pytest.mark.usefixtures("programs_made_once")
BUDGETS = [pytest.param(small_words, id="small"), pytest.param(words_of, id="full", marks=pytest.mark.slow)]
"""By which words a command is run: those of the table in documents.py, or its own."""


def all_commands(text: str) -> list[str]:
    return [line for block in commands_of(text) for line in block]


BLOCKS = commands_of(COMMANDS)
(TRAINING,) = (block for block in BLOCKS if any(line.startswith("hopplus train ppo") for line in block))
(THINKING,) = (block for block in BLOCKS if any(line.startswith("hopplus watch --run") for line in block))
(RIVALS,) = (block for block in BLOCKS if any(line.startswith("hopplus crossplay") for line in block))
(MODELS,) = (block for block in BLOCKS if any(line.startswith("hopplus fit") for line in block))
"""Commands that follow one another: they need what the ones before them made."""
OF_README = [PICTURE_COMMAND, *all_commands(README)]
OF_TUTORIAL = all_commands(TUTORIAL)
ALONE = [line for block in BLOCKS if block not in (TRAINING, THINKING, RIVALS, MODELS) for line in block]


def run_all(commands: list[str], words: Words) -> None:
    """Run commands one after the other in the current directory, each with plugins as in a process of its own."""
    with short_evaluations() if words is small_words else contextlib.nullcontext():
        for command in commands:
            with kept_registries():
                assert main(words(command)) == 0, command
            bound_memory()


def write_programs(text: str, words: Words) -> list[Path]:
    """Write a text's Python files, each under the name in its first line, into the current directory."""
    paths = []
    for program in blocks(text, "python"):
        paths.append(Path(program.splitlines()[0].removeprefix("# ")))
        assert re.fullmatch(r"\w+\.py", str(paths[-1])), paths[-1]
        paths[-1].write_text(small_text(program) if words is small_words else program, encoding="utf-8")
    return paths


def run_program(path: Path) -> None:
    """Run a Python file as a program."""
    with kept_registries():
        runpy.run_path(str(path), run_name="__main__")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# -------------------------------------------------------------------------------------------------- words and budgets


def idle(command: Callable[..., Any]) -> Callable[..., int]:
    """A command with the same options that does nothing."""

    @functools.wraps(command)
    def nothing(*_: Any, **__: Any) -> int:
        return 0

    return nothing


def check_recipe(name: str, options: Any) -> int:
    options.recipe.check([make(options.training.game)])
    return 0


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands read and check their words, and do nothing else."""
    monkeypatch.setattr(cli_train, "_train_anew", check_recipe)
    monkeypatch.setattr(cli_fit, "_fit_anew", idle(cli_fit._fit_anew))
    groups: list[dict[str, Any]] = [COMMANDS_BY_NAME, COMMANDS_BY_NAME["diagnose"]]
    for group in groups:
        for name, command in group.items():
            if callable(command) and command not in READS_ITS_OWN_WORDS:
                monkeypatch.setitem(group, name, idle(command))


@pytest.mark.usefixtures("nothing_computed")
def test_the_words_of_all_commands_are_understood() -> None:
    """As they stand; also of those that take too long to be run in every test, even at a small budget."""
    commands = {*OF_README, *OF_TUTORIAL, *(line for block in BLOCKS for line in block)}
    assert len(commands) > 40
    for command in commands - {line for line in commands if "--resume" in line}:
        assert main(words_of(command)) == 0, command
    mistakes = ("evaluate runs/ppo --cats self", "adapt runs/ppo --tables many", "train hop --draws x", "fit moa --x")
    for mistake in mistakes:
        assert exit_code(mistake.split()) == 2, mistake


def exit_code(words: Sequence[str]) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


def test_every_row_of_the_table_of_budgets_applies() -> None:
    used: set[Option | Text] = set()
    pages = [read(page) for page in EXTENSIONS]
    for command in [*OF_README, *ALONE, *TRAINING, *(line for page in pages for line in all_commands(page))]:
        small_words(command, used)
    for page in (COMMANDS, *pages):
        for program in blocks(page, "python"):
            small_text(program, used)
    assert [row for row in SMALL_BUDGETS if row not in used] == []


def test_a_command_at_a_small_budget() -> None:
    assert small_words("hopplus games") == ["games"]
    words = small_words("hopplus train --resume runs/mixed --steps 80000")
    assert words == ["train", "--resume", "runs/mixed", "--steps", "128"]
    words = small_words("hopplus train ppo --target 2.8 --hidden 128 128 --steps 40000 --tastes")
    assert words[: words.index("--environments")] == ["train", "ppo", "--hidden", "8", "--steps", "64", "--tastes"]


# ----------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("words", BUDGETS)
@pytest.mark.parametrize("command", ALONE)
def test_commands(command: str, words: Words) -> None:
    run_all([command], words)


@pytest.mark.parametrize("words", BUDGETS)
def test_the_commands_of_the_readme(words: Words) -> None:
    """Those that are in docs/commands.md, too, are run there."""
    Path("docs/images").mkdir(parents=True)
    assert len(OF_README) > 3
    run_all([command for command in OF_README if command not in ALONE], words)
    assert Path("docs/images/hunt.gif").exists()
    assert Path("ppo.html").exists()


@pytest.mark.parametrize("words", BUDGETS)
def test_training(words: Words) -> None:
    run_all(TRAINING, words)
    final = json.loads(Path("runs/ppo/evaluation/final.json").read_text(encoding="utf-8"))
    if words is words_of:
        assert final["per_seed"][0]["reached"]["evaluation"] >= 2.8


@pytest.mark.slow
def test_hopplus() -> None:
    run_all(THINKING, words_of)
    final = json.loads(Path("runs/hopplus/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["mean_return"] > 2.7


@pytest.mark.slow
def test_the_rivals() -> None:
    run_all(RIVALS, words_of)
    assert list(Path("runs/recurrent/evaluation").glob("crossplay-*.csv"))


@pytest.mark.slow
def test_the_models() -> None:
    run_all(MODELS, words_of)
    final = json.loads(Path("runs/moa/evaluation/final.json").read_text(encoding="utf-8"))
    world = json.loads(Path("runs/world/evaluation/final.json").read_text(encoding="utf-8"))
    assert final["per_seed"][0]["share_of_ceiling"] > 0.98
    assert world["per_seed"][0]["impossible"] == 0


@pytest.mark.slow
def test_the_tutorial() -> None:
    run_all(OF_TUTORIAL, words_of)
    (program,) = write_programs(TUTORIAL, words_of)
    run_program(program)
    assert Path("figure.png").stat().st_size > 10_000
    rows = json.loads(Path("adapt.json").read_text(encoding="utf-8"))["rows"]
    score = {row["focal"]: row["score"]["mean"] for row in rows}
    assert set(score) == {"runs/ppo", "runs/hopplus"}
    assert score["runs/ppo"] < 0.4, "the tutorial says that it hardly earns anything with hare hunters"
    assert score["runs/hopplus"] > score["runs/ppo"]


@pytest.mark.parametrize("words", BUDGETS)
def test_the_program_for_python(words: Words, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks(COMMANDS, "python")
    path = Path("program.py")
    path.write_text(small_text(program) if words is small_words else program, encoding="utf-8")
    run_program(path)
    assert "[0. 5. 5. 0.] (4, 8, 8, 7)" in capsys.readouterr().out


@pytest.mark.parametrize("words", BUDGETS)
@pytest.mark.parametrize("page", EXTENSIONS)
def test_the_examples_of_extending(page: str, words: Words) -> None:
    """A program without a main part of its own does the same as a plugin, and is run as one only."""
    commands = all_commands(read(page))
    programs = write_programs(read(page), words)
    assert len(programs) == 2
    for program in programs:
        if "__main__" in program.read_text(encoding="utf-8"):
            run_program(program)
        assert any(f"--plugin {program}" in command for command in commands)
    run_all(commands, words)


# --------------------------------------------------------------------------------------------------- texts and links


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


def dead_links(page: Path) -> list[str]:
    """The links and pictures of a page for which there is no file, or no such heading in it."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for target, part in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        file = page.parent / target if target else page
        if not file.exists() or (part and part not in headings(file)):
            found.append(f"{target}#{part}")
    return found


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_the_pages_of_the_documentation_lead_somewhere(tmp_path: Path) -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
    assert len(pages) > 20
    assert {page.name: dead for page in pages if (dead := dead_links(page))} == {}
    (tmp_path / "a.md").write_text("# A b\n[x](a.md#a-b) [y](a.md#c) [z](b.md) ![p](p.png)", encoding="utf-8")
    assert dead_links(tmp_path / "a.md") == ["a.md#c", "b.md#", "p.png#"]

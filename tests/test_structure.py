"""The house: who may import whom, and how fast it answers."""

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hopplus
from hopplus.settings import OPTIONS
from hopplus.training.recipes import RECIPES

SOURCE = Path(hopplus.__file__).parent
FOLDERS = (
    "games",
    "networks",
    "planning",
    "players",
    "play",
    "learning",
    "training",
    "evaluation",
    "diagnostics",
    "report",
    "adapters",
    "sitting",
    "sweeps",
    "server",
    "benchmarks",
    "cli",
)


def imported_folders(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "hopplus":
            modules += [f"hopplus.{alias.name}" for alias in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("hopplus.")}
    return found & set(FOLDERS)


@pytest.mark.parametrize("folder", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_a_folder_imports_only_from_folders_above_it(folder: str) -> None:
    above = FOLDERS[: FOLDERS.index(folder) + 1]
    for path in (SOURCE / folder).rglob("*.py"):
        assert imported_folders(path) <= set(above), path.name


def test_modules_beside_the_folders_import_none_of_them() -> None:
    for path in SOURCE.glob("*.py"):
        assert not imported_folders(path), path.name


@pytest.mark.parametrize(
    "words", [["train", "ppo", "--stpes", "5"], ["trian"], ["match", "msh-4x4-2h1s", "--csat", "ns"]]
)
def test_a_typo_is_answered_without_importing_jax(words: list[str]) -> None:
    code = "import sys, hopplus.cli.main as cli; sys.exit(cli.main(sys.argv[1:]) + ('jax' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code, *words]).returncode == 2


def test_the_options_of_a_recipe_are_its_fields() -> None:
    assert {*OPTIONS} == {*RECIPES}
    for name, options in OPTIONS.items():
        recipe: Any = RECIPES[name]
        declared, used = (
            [(field.name, field.default) for field in dataclasses.fields(one)] for one in (options, recipe)
        )
        assert declared == used, name


def strange_calls(path: Path) -> list[str]:
    """Calls that work on one system only: text in whatever encoding the system has, a shell, a rename that fails where
    the new name is taken."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        options = {keyword.arg for keyword in node.keywords}
        modes = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        binary = any("b" in mode for mode in modes if len(mode) <= 3)
        owner = ast.unparse(node.func).rpartition(".")[0]
        text = name in ("open", "read_text") and owner not in ("os", "Image") and not binary
        process = name in ("run", "Popen", "check_output") and options & {"shell", "text"}
        if (text and "encoding" not in options and "utf-8" not in modes) or process:
            found.append(f"{path.name}:{node.lineno}")
        if name in ("rename", "system", "popen") and owner != "platform":
            found.append(f"{path.name}:{node.lineno}")
    return found


def test_nothing_depends_on_one_systems_encoding_shell_or_names(tmp_path: Path) -> None:
    assert [call for path in SOURCE.rglob("*.py") for call in strange_calls(path)] == []
    for number, call in enumerate(
        ("open('x')", "p.read_text()", "subprocess.run('x', shell=True)", "run('x', text=True)", "os.rename('a', 'b')")
    ):
        (tmp_path / f"{number}.py").write_text(call, encoding="utf-8")
        assert strange_calls(tmp_path / f"{number}.py") == [f"{number}.py:1"], call

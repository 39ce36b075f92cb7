"""The house: who may import whom, and how fast it answers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hopplus

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


def test_help_does_not_import_jax() -> None:
    code = "import sys, hopplus.cli.main; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

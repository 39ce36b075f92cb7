"""The structure of the code base: imports, sizes, names and docstrings."""

import ast
import dataclasses
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import hopplus
from hopplus.algorithms import ALGORITHMS
from hopplus.configs import CONFIGS
from hopplus.core.settings import flatten

SOURCE = Path(hopplus.__file__).parent
TESTS = Path(__file__).parent.parent
FOLDERS = (
    "core",
    "configs",
    "games",
    "networks",
    "beliefs",
    "planning",
    "players",
    "rollouts",
    "models",
    "algorithms",
    "training",
    "fitting",
    "evaluation",
    "visualization",
    "human_play",
    "adapters",
    "sweeps",
    "benchmarks",
    "cli",
)
"""A folder imports only from itself and the folders above it."""
TOP_MODULES = ("__init__.py", "api.py")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
DIALECT = (
    "acquaintance",
    "acquainting",
    "anew",
    "begun",
    "found",
    "glance",
    "glances",
    "knows",
    "learnt",
    "lessons",
    "likeness",
    "lives",
    "rivals",
    "said",
    "shipped",
    "slips",
    "somebody",
    "strangers",
    "taste",
    "tastes",
    "told",
    "troupe",
    "whoever",
)
"""Identifiers that are not the field's words (docs/glossary.md has those)."""
RIDDLES = ("What", "Who", "Whom", "Whose", "How", "Where", "Which", "Whoever", "Whatever", "So many")
"""Openings of docstrings that do not name what they document."""
FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_folders(path: Path) -> set[str]:
    folders = set()
    for node in ast.walk(tree_of(path)):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "hopplus":
            modules += [f"hopplus.{alias.name}" for alias in node.names]
        folders |= {module.split(".")[1] for module in modules if module.startswith("hopplus.")}
    return folders & set(FOLDERS)


@pytest.mark.parametrize("folder", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_a_folder_imports_only_from_folders_above_it(folder: str) -> None:
    above = FOLDERS[: FOLDERS.index(folder) + 1]
    for path in (SOURCE / folder).rglob("*.py"):
        assert imported_folders(path) <= set(above), path.name


def test_only_the_api_is_beside_the_folders() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == sorted(TOP_MODULES)


def test_tests_mirror_the_source() -> None:
    own = {"integration", "slow", "experiments", "golden", "__pycache__"}
    folders = {path.name for path in TESTS.iterdir() if path.is_dir()} - own
    assert folders <= set(FOLDERS)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_file_and_no_function_is_too_long() -> None:
    long_files = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {name: lines for name, lines in long_files.items() if lines > MAX_FILE_LINES}
    lengths = {
        f"{name_of(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in functions(path)
    }
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES}


def test_no_public_class_name_is_used_twice() -> None:
    classes = [node.name for path in FILES for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]
    public = Counter(name for name in classes if not name.startswith("_"))
    assert not {name: number for name, number in public.items() if number > 1}


def class_bases() -> dict[str, set[str]]:
    """Names of the base classes of every class of the package."""
    bases: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    return bases


def undocumented(path: Path, bases: dict[str, set[str]]) -> list[str]:
    """Public classes, functions and methods without a docstring; methods of subclasses may inherit theirs."""
    missing = []
    for node in tree_of(path).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            missing.append(f"{name_of(path)}:{node.name}")
        methods = node.body if isinstance(node, ast.ClassDef) and not bases[node.name] else []
        missing += [
            f"{name_of(path)}:{node.name}.{method.name}"
            for method in methods
            if isinstance(method, ast.FunctionDef) and method.name[0] != "_" and ast.get_docstring(method) is None
        ]
    return missing


def test_everything_public_has_a_docstring() -> None:
    bases = class_bases()
    assert [name for path in FILES for name in undocumented(path, bases)] == []


def identifiers(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Name | ast.Attribute):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def test_identifiers_are_the_fields_words() -> None:
    used = {name_of(path): sorted(identifiers(path) & set(DIALECT)) for path in FILES}
    assert not {name: words for name, words in used.items() if words}


def docstrings(path: Path) -> Iterator[str]:
    """All docstrings of a module, those of fields and constants included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def test_docstrings_name_what_they_document() -> None:
    riddle = re.compile(rf"({'|'.join(RIDDLES)})\b")
    openings = {
        f"{name_of(path)}: {text.splitlines()[0]}" for path in FILES for text in docstrings(path) if riddle.match(text)
    }
    assert not openings


@pytest.mark.parametrize(
    "argv", [["train", "ppo", "--stpes", "5"], ["trian"], ["match", "msh-4x4-2h1s", "--csat", "ns"]]
)
def test_a_typo_is_answered_without_importing_jax(argv: list[str]) -> None:
    code = "import sys, hopplus.cli.main as cli; sys.exit(cli.main(sys.argv[1:]) + ('jax' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code, *argv]).returncode == 2


def test_the_options_of_an_algorithm_are_its_fields() -> None:
    assert {*CONFIGS} == {*ALGORITHMS}
    for name, config in CONFIGS.items():
        algorithm = ALGORITHMS[name]
        assert dataclasses.is_dataclass(algorithm)
        assert flatten(config()) == flatten(algorithm()), name


def strange_calls(path: Path) -> list[str]:
    """Calls that work on one system only: the system's encoding, a shell, a rename that fails on an existing file."""
    calls = []
    for node in ast.walk(tree_of(path)):
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
            calls.append(f"{path.name}:{node.lineno}")
        if name in ("rename", "system", "popen") and owner != "platform":
            calls.append(f"{path.name}:{node.lineno}")
    return calls


def test_nothing_depends_on_one_systems_encoding_shell_or_names(tmp_path: Path) -> None:
    assert [call for path in FILES for call in strange_calls(path)] == []
    for number, call in enumerate(
        ("open('x')", "p.read_text()", "subprocess.run('x', shell=True)", "run('x', text=True)", "os.rename('a', 'b')")
    ):
        (tmp_path / f"{number}.py").write_text(call, encoding="utf-8")
        assert strange_calls(tmp_path / f"{number}.py") == [f"{number}.py:1"], call


# ------------------------------------------------------------------------------------------------------- public names

COMMANDS = {"hopplus.cli", "hopplus.benchmarks"}
"""Packages that are documented as commands, not as a library."""


def packages() -> list[str]:
    """Returns the names of all packages."""
    walk = pkgutil.walk_packages(hopplus.__path__, "hopplus.")
    return ["hopplus", *(module.name for module in walk if module.ispkg)]


def exports(package: str) -> set[str]:
    """Modules that hold what a package exports: exported modules, and the origins of classes and functions."""
    module, modules = importlib.import_module(package), set()
    for name in module.__all__:
        if importlib.util.find_spec(f"{package}.{name}") is not None and not hasattr(module, name):
            modules.add(f"{package}.{name}")
            continue
        exported = getattr(module, name)
        if inspect.ismodule(exported):
            modules.add(exported.__name__)
        elif inspect.isclass(exported) or inspect.isfunction(exported):
            modules.add(exported.__module__)
    return modules


@pytest.mark.parametrize("package", packages())
def test_a_package_declares_its_exports(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert hasattr(module, name) or importlib.util.find_spec(f"{package}.{name}"), f"{package} has no {name}"


def test_the_api_reference_documents_what_the_packages_export() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (TESTS.parent / "docs" / "api").glob("*.md"))
    documented = set(re.findall(r"automodule:: (\S+)", pages))
    exported = {package: exports(package) for package in packages() if package not in COMMANDS}
    for package, modules in exported.items():
        assert package in documented or modules <= documented, f"{package}: {sorted(modules - documented)}"
    missing = [name for name in documented if importlib.util.find_spec(name) is None]
    assert not missing, f"documented, but not there: {sorted(missing)}"

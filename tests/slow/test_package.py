"""The wheel in empty environments: every supported Python, with the oldest and the newest dependencies."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hopplus.cli import main as command
from hopplus.core.formatting import file_name

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = (("3.11", "floor"), ("3.13", "floor"), ("3.11", "newest"), ("3.12", "newest"), ("3.13", "newest"))
MATCH = ("match", "msh-4x4-2h1s", "--cast", "ns,ns", "--episodes", "50")
TINY = ("--steps", "500", "--num-envs", "8", "--num-steps", "16", "--hidden", "8", "--iterations-per-call", "2")
IMPORTS = """
import importlib, pkgutil, hopplus
for module in pkgutil.walk_packages(hopplus.__path__, "hopplus."):
    if module.name != "hopplus.adapters.pettingzoo":  # which an optional extra is for
        importlib.import_module(module.name)
"""


def floors(requirements: list[str]) -> list[str]:
    """Constraints that pin every requirement to its lower bound."""
    matches = [re.fullmatch(r"([\w.-]+)>=([\w.]+),<[\w.]+", requirement) for requirement in requirements]
    missing = [text for text, bounds in zip(requirements, matches, strict=True) if bounds is None]
    if missing:
        raise ValueError(f"without a lower and an upper bound: {', '.join(missing)}")
    return [f"{bounds[1]}=={bounds[2]}" for bounds in matches if bounds is not None]


@functools.cache
def find_python(version: str) -> str | None:
    """Python of this version that can create environments, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = (sys.executable, shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python")))
    code = "import sys, ensurepip, venv; print('.'.join(map(str, sys.version_info[:2])))"
    for candidate in filter(None, named):
        answer = subprocess.run([candidate, "-c", code], capture_output=True, encoding="utf-8")
        if answer.stdout.strip() == version:
            return str(candidate)
    return None


def bound_by_permissions() -> list[str] | None:
    """Prefix of a command that makes permissions apply to root too, so that a read-only directory is read-only; None if
    there is no such prefix."""
    if os.name != "posix":
        return None
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search"] if setpriv else None


def test_floors_are_the_lower_bounds_and_every_dependency_has_both_bounds() -> None:
    assert floors(["jax>=0.7.2,<0.11", "scikit-learn>=1.6,<2"]) == ["jax==0.7.2", "scikit-learn==1.6"]
    with pytest.raises(ValueError, match="rich, numpy>=2"):
        floors(["rich", "jax>=0.7.2,<0.11", "numpy>=2"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(floors(project["dependencies"])) == len(project["dependencies"])


@pytest.mark.parametrize("text", ["msh-8x8-4h1s:T=50", "pool(ns,nh:then=stay)", 'a/b\\c*?"<>|', "self,noisy(ns,0.2)"])
def test_file_names_fit_every_system(text: str) -> None:
    assert not set(file_name(text, 80)) & set('<>:"/\\|?*')
    assert len(file_name(text * 20, 80)) == 80


def test_without_a_writable_cache_directory_there_is_no_compilation_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that is not a directory, or no home at all, does not stop a command."""
    (tmp_path / "file").touch()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setattr(command, "cache_directory", lambda: tmp_path / "file" / "hopplus")
    command.enable_compilation_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setattr(command, "cache_directory", lambda: tmp_path / "cache")
    command.enable_compilation_cache()
    assert os.environ.pop("JAX_COMPILATION_CACHE_DIR") == str(tmp_path / "cache" / "jax")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory)]
    subprocess.run([*pip, str(ROOT)], check=True)
    (path,) = directory.glob("hopplus-*.whl")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("version", "bounds"), ENVIRONMENTS)
def test_the_wheel_works_in_an_empty_environment(version: str, bounds: str, wheel: Path, tmp_path: Path) -> None:
    """It installs, prints its version, imports without warnings and plays, from a path with spaces. With the oldest
    dependencies it also trains and writes a report."""
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"there is no Python {version} with venv on this machine")
    directory = tmp_path / "a path with spaces"
    subprocess.run([interpreter, "-m", "venv", str(directory / "environment")], check=True)
    binaries = directory / "environment" / ("Scripts" if os.name == "nt" else "bin")
    python, hopplus = str(binaries / "python"), str(binaries / "hopplus")
    install = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel)]
    if bounds == "floor":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        (directory / "floors.txt").write_text("\n".join(floors(project["dependencies"])), encoding="utf-8")
        install += ["--constraint", str(directory / "floors.txt")]
    subprocess.run(install, check=True)

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=directory, capture_output=True, encoding="utf-8", timeout=900)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.fullmatch(r"hopplus \d+\.\d+\.\d+\n", run(hopplus, "--version"))
    run(python, "-W", "error", "-c", IMPORTS)
    checked = (python, "-W", "error", "-m", "hopplus.cli.main")
    assert "50 episodes" in run(*checked, *MATCH)
    if bounds == "floor":
        trained = run(*checked, "train", "ppo", "--game", "msh-4x4-2h1s", *TINY, "--out", "a run", "--no-report")
        assert 'hopplus evaluate "a run"' in trained
        assert "report.html" in run(*checked, "report", "a run")


@pytest.mark.slow
def test_commands_in_a_read_only_directory(tmp_path: Path) -> None:
    """Commands that do not write work without warnings; commands that must write end with an error."""
    prefix = bound_by_permissions()
    if prefix is None:
        pytest.skip("permissions do not apply to this user")
    directory = tmp_path / "read only"
    directory.mkdir()
    directory.chmod(0o555)
    environment = {**os.environ, "HOME": str(directory), "XDG_CACHE_HOME": str(directory)}
    environment.pop("JAX_COMPILATION_CACHE_DIR")

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-W", "error", "-m", "hopplus.cli.main", *argv]
        return subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, encoding="utf-8", timeout=900
        )

    played = run(*MATCH)
    assert (played.returncode, played.stderr.strip()) == (0, "")
    for argv in (
        ("train", "ppo", "--game", "msh-4x4-2h1s", *TINY),
        (*MATCH, "--json", "match.json"),
    ):
        refused = run(*argv)
        assert refused.returncode == 2
        message = r"hopplus: cannot (write|create the directory) .*: Permission denied"
        assert re.fullmatch(message, refused.stderr.strip())
    assert not list(directory.iterdir())

"""The package as others get it: the wheel, in empty environments, on every Python and with the oldest and the newest of
what it needs."""

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
from hopplus.notation import file_name

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = (("3.11", "floor"), ("3.13", "floor"), ("3.11", "newest"), ("3.12", "newest"), ("3.13", "newest"))
MATCH = ("match", "msh-4x4-2h1s", "--cast", "ns,ns", "--episodes", "50")
TINY = ("--steps", "500", "--environments", "8", "--rollout-steps", "16", "--hidden", "8", "--chunk", "2")
IMPORTS = """
import importlib, pkgutil, hopplus
for module in pkgutil.walk_packages(hopplus.__path__, "hopplus."):
    if module.name != "hopplus.adapters.pettingzoo":  # which an optional extra is for
        importlib.import_module(module.name)
"""


def floors(requirements: list[str]) -> list[str]:
    """Constraints that pin every requirement to its lower bound."""
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+),<[\w.]+", requirement) for requirement in requirements]
    missing = [given for given, bounds in zip(requirements, found, strict=True) if bounds is None]
    if missing:
        raise ValueError(f"without a lower and an upper bound: {', '.join(missing)}")
    return [f"{bounds[1]}=={bounds[2]}" for bounds in found if bounds is not None]


@functools.cache
def find_python(version: str) -> str | None:
    """A Python of this version that can make environments, if the machine has one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = (sys.executable, shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python")))
    code = "import sys, ensurepip, venv; print('.'.join(map(str, sys.version_info[:2])))"
    for candidate in filter(None, named):
        answer = subprocess.run([candidate, "-c", code], capture_output=True, encoding="utf-8")
        if answer.stdout.strip() == version:
            return str(candidate)
    return None


def bound_by_permissions() -> list[str] | None:
    """What to put before a command so that a read-only directory is one for it too, root being above permissions;
    None where that cannot be done."""
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


def test_where_nothing_can_be_kept_programs_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a home that is no directory nor the lack of one stops a command."""
    (tmp_path / "file").touch()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setattr(command, "cache_directory", lambda: tmp_path / "file" / "hopplus")
    command.keep_compiled_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setattr(command, "cache_directory", lambda: tmp_path / "cache")
    command.keep_compiled_programs()
    assert os.environ.pop("JAX_COMPILATION_CACHE_DIR") == str(tmp_path / "cache" / "jax")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory)]
    subprocess.run([*pip, str(ROOT)], check=True)
    (found,) = directory.glob("hopplus-*.whl")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("version", "bounds"), ENVIRONMENTS)
def test_the_wheel_works_in_an_empty_environment(version: str, bounds: str, wheel: Path, tmp_path: Path) -> None:
    """It installs, says its version, imports without a warning, and plays, from a path with spaces; with the oldest
    versions it trains and reports, too."""
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"there is no Python {version} with venv on this machine")
    place = tmp_path / "a path with spaces"
    subprocess.run([interpreter, "-m", "venv", str(place / "environment")], check=True)
    binaries = place / "environment" / ("Scripts" if os.name == "nt" else "bin")
    python, hopplus = str(binaries / "python"), str(binaries / "hopplus")
    install = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel)]
    if bounds == "floor":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        (place / "floors.txt").write_text("\n".join(floors(project["dependencies"])), encoding="utf-8")
        install += ["--constraint", str(place / "floors.txt")]
    subprocess.run(install, check=True)

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=place, capture_output=True, encoding="utf-8", timeout=900)
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
    """What need not write works, without a warning that nothing can be kept; what must write says that it cannot."""
    before = bound_by_permissions()
    if before is None:
        pytest.skip("permissions cannot be made to hold here")
    place = tmp_path / "read only"
    place.mkdir()
    place.chmod(0o555)
    environment = {**os.environ, "HOME": str(place), "XDG_CACHE_HOME": str(place)}
    environment.pop("JAX_COMPILATION_CACHE_DIR")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-W", "error", "-m", "hopplus.cli.main", *words]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8", timeout=900)

    played = run(*MATCH)
    assert (played.returncode, played.stderr.strip()) == (0, "")
    for words in (
        ("train", "ppo", "--game", "msh-4x4-2h1s", *TINY),
        (*MATCH, "--json", "match.json"),
    ):
        refused = run(*words)
        assert refused.returncode == 2
        assert re.fullmatch(r"hopplus: cannot (write|make the directory) .*: Permission denied", refused.stderr.strip())
    assert not list(place.iterdir())

"""The script that sets up a clone's environment: repair after an interruption, one-sentence errors."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "tools" / "environment.py"
Capture = pytest.CaptureFixture[str]


class Pip:
    """Fake of `venv.create` and pip: records calls, and returns or raises `end`."""

    def __init__(self, script: ModuleType) -> None:
        self.script, self.calls = script, list[str]()
        self.end: Any = SimpleNamespace(returncode=0, stderr="")

    def create(self, path: Path, **_: Any) -> None:
        self.calls.append("create")
        self.script.interpreter().parent.mkdir(parents=True)
        self.script.interpreter().touch()

    def run(self, command: list[str], **_: Any) -> Any:
        self.calls.append(command[-1])
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(module, "STATE", tmp_path / ".venv" / "hopplus.json")
    return module


@pytest.fixture
def pip(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Pip:
    fake = Pip(script)
    monkeypatch.setattr(script.venv, "create", fake.create)
    monkeypatch.setattr(subprocess, "run", fake.run)
    return fake


def test_a_complete_environment_is_left_alone_and_a_smaller_one_completed(script: ModuleType, pip: Pip) -> None:
    assert [script.main([level]) for level in ("run", "run", "test", "run", "all", "test")] == [0] * 6
    assert pip.calls == ["create", ".", ".[test]", ".[dev]"]


def test_changed_requirements_are_installed_at_the_level_that_is_there(
    script: ModuleType, pip: Pip, tmp_path: Path
) -> None:
    script.main(["test"])
    (tmp_path / "requirements.lock").write_text("2", encoding="utf-8")
    assert script.main(["run"]) == 0
    assert pip.calls == ["create", ".[test]", ".[test]"]


def test_an_interrupted_installation_begins_again_from_an_empty_environment(
    script: ModuleType, pip: Pip, tmp_path: Path
) -> None:
    assert script.main(["run"]) == 0
    pip.end = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        script.main(["test"])
    half_installed = tmp_path / ".venv" / "half"
    half_installed.touch()
    pip.calls.clear()
    pip.end = SimpleNamespace(returncode=0, stderr="")
    assert script.main(["run"]) == 0
    assert pip.calls == ["create", "."]
    assert not half_installed.exists()


def test_another_python_gets_an_environment_of_its_own(
    script: ModuleType, pip: Pip, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.main(["run"])
    monkeypatch.setattr(script, "python_version", lambda: "3.99")
    assert script.main(["run"]) == 0
    assert pip.calls == ["create", ".", "create", "."]


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        ("Retrying after connection broken by 'NewConnectionError'", "the package index does not answer"),
        ("ERROR: Could not build wheels", "pip could not install the packages"),
    ],
)
def test_a_failure_is_one_sentence_and_repaired_by_the_next_call(
    stderr: str, sentence: str, script: ModuleType, pip: Pip, capsys: Capture
) -> None:
    pip.end = SimpleNamespace(returncode=1, stderr=stderr)
    assert script.main(["run"]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    pip.end = SimpleNamespace(returncode=0, stderr="")
    assert script.main(["run"]) == 0
    assert pip.calls == ["create", ".", "create", "."]


def test_an_unsupported_python_and_an_unknown_level_are_refused(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert script.main(["everything"]) == 2
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    assert script.main(["run"]) == 2
    assert "Python 3.11 to 3.13" in capsys.readouterr().err

"""The mutation check: its table matches the sources and the tests, and its verdicts are right on a toy package."""

import json
from pathlib import Path

import pytest

import mutants
from mutants import Mutant, Outcome, Project, TableError

TOY = "def double(number: int) -> int:\n    return 2 * number\n\n\ndef idle() -> None:\n    pass\n"
TESTS = """
import toy


def test_double() -> None:
    assert toy.double(3) == 6


def test_broken() -> None:
    assert toy.double(3) == 7
"""


def row(old: str, new: str, test: str = "test_double", name: str = "one") -> str:
    """Row of a table, as TOML."""
    fields = {"id": name, "what": "doubling", "module": "__init__.py", "old": old, "new": new}
    fields["test"] = f"tests/test_toy.py::{test}"
    return "[[mutant]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A toy package with tests, whose processes load no plugins of pytest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in (("src/toy/__init__.py", TOY), ("tests/test_toy.py", TESTS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Project(tmp_path, "toy")


def check(project: Project, *rows: str, argv: tuple[str, ...] = ()) -> int:
    """Exit code of the mutation check with a table."""
    table = project.root / "mutants.toml"
    table.write_text("\n".join(rows), encoding="utf-8")
    return mutants.main(["--jobs", "2", *argv], project, table)


def test_every_row_fits_the_sources_and_the_tests() -> None:
    """A change that moves a snippet or renames a test must change the table with it: `tests/mutants.toml`."""
    table = mutants.read_table(mutants.TABLE)
    assert len(table) >= 40
    mutants.check_table(table, Project())


def test_the_page_is_that_of_the_table() -> None:
    """`python tests/mutants.py --table docs/mutants.md` writes it."""
    page = (mutants.ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert page == mutants.page(mutants.read_table(mutants.TABLE))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row("3 * number", "number")], "one: the snippet occurs 0 times in __init__.py, not once"),
        ([row("number", "other")], "one: the snippet occurs 2 times in __init__.py, not once"),
        ([row("2 * number", "2 *")], "one: __init__.py would not be Python any more"),
        ([row("2 * number", "2 *  number")], "one: the new snippet is the old one"),
        ([row("2 * number", "number", "test_triple")], "one: there is no test tests/test_toy.py::test_triple"),
        ([row("2 * number", "number")] * 2, "the id one occurs twice"),
        (["[[mutant]]\nid = 'one'\n"], "row 1 of mutants.toml must have exactly id, module, new, old, test, what"),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(
    project: Project, rows: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(project, *rows) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"mutants: {complaint}")
    assert message.count("\n") == 1


def test_an_unknown_id_is_refused(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(project, row("2 * number", "number"), argv=("--only", "two")) == 2
    assert capsys.readouterr().err == "mutants: there is no mutant two\n"


def test_a_killed_mutant_and_a_survivor(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    rows = row("2 * number", "3 * number", name="killed-one"), row("    pass", "    return", name="survivor")
    assert check(project, *rows, argv=("--json", str(project.root / "verdicts.json"))) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 1 failed"
    assert [line.split()[:2] for line in sorted(lines[1:-1])] == [["killed-one", "killed"], ["survivor", "survived"]]
    verdicts = json.loads((project.root / "verdicts.json").read_text(encoding="utf-8"))["mutants"]
    assert {row["id"]: row["why"] for row in verdicts} == {"killed-one": "assert 9 == 6", "survivor": ""}
    assert (project.source / "toy" / "__init__.py").read_text(encoding="utf-8") == TOY, "the sources are never changed"


def test_a_test_that_fails_without_the_error_proves_nothing(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(project, row("2 * number", "number", "test_broken")) == 1
    assert "do not all pass on the unchanged package" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(1, 1, 0, ""), "killed"),
        (Outcome(0, 0, 0, ""), "survived"),
        (Outcome(1, 0, 0, ""), "error"),  # an error while setting up
        (Outcome(0, 0, 1, ""), "error"),  # skipped
        (Outcome(2, 0, 0, ""), "error"),  # an error while collecting
        (Outcome(4, 0, 0, ""), "error"),  # no such test
        (Outcome(5, 0, 0, ""), "error"),  # nothing ran
        (Outcome(-1, 0, 0, ""), "error"),  # timeout
        (Outcome(mutants.WRONG_COPY, 0, 0, ""), "error"),
    ],
)
def test_only_a_test_that_ran_and_failed_kills(outcome: Outcome, verdict: str) -> None:
    assert outcome.verdict == verdict


def test_a_package_from_another_directory_is_detected(project: Project) -> None:
    """An installed package (here one of the standard library) must not be tested instead of its copy."""
    installed = Project(project.root, "json")
    outcome = mutants.run_tests(["tests/test_toy.py"], installed, project.source, project.root / "report.xml")
    assert outcome.code == mutants.WRONG_COPY
    assert outcome.verdict == "error"


def test_the_tests_of_a_file_are_in_one_share() -> None:
    tests = ["a::1", "b::1", "a::2", "a::1", "c::1"]
    assert mutants.shares_of(tests, 2) == [["a::1", "a::2"], ["b::1", "c::1"]]
    assert mutants.shares_of(["a::1"], 2) == [["a::1"]]


def test_rows_with_an_empty_replacement_are_read(project: Project) -> None:
    table = project.root / "mutants.toml"
    table.write_text(row("2 * ", ""), encoding="utf-8")
    (mutant,) = mutants.read_table(table)
    assert mutant == Mutant("one", "doubling", "__init__.py", "2 * ", "", "tests/test_toy.py::test_double")
    assert "return number" in mutants.mutated(mutant, project)
    with pytest.raises(TableError, match="no module"):
        mutants.mutated(Mutant("one", "", "other.py", "a", "b", "c"), project)

"""Results of a sweep as tables: means and intervals, differences from the reference, files."""

import csv
import json
from pathlib import Path

import pytest

from hopplus.cli.main import main
from hopplus.sweeps.results import Column, Results, Row, as_plain, from_plain
from hopplus.sweeps.tables import differences, escaped, latex, long_rows, markdown, table, write_all


def row(method: str, game: str, values: list[float], shares: list[float] | None = None) -> Row:
    columns = {"return": Column(values, "own reward", 3.0)}
    if shares is not None:
        columns["met: NH"] = Column(shares, "share of the oracle")
    curve = {"steps": [10, 20], "return": [[None, value] for value in values]}
    seeds = list(range(len(values)))
    return Row(
        {"method": method, "game": game}, game, seeds, 20, 60.0, ["hopplus train"], ["abc"], ["2"], columns, curve
    )


RESULTS = Results(
    "Two & two_",
    "ppo",
    [
        row("ppo", "hunt", [1.0, 1.1, 0.9], [0.5, 0.5, 0.5]),
        row("ours", "hunt", [2.0, 2.1, 1.9], [0.5, 0.6, 0.4]),
        row("ppo", "drift", [1.0, 1.0, 1.0]),
        row("ours", "drift", [1.0, 1.1, 0.9]),
    ],
    ["a-cell"],
)


def test_a_table_has_means_and_intervals_over_seeds() -> None:
    head, body = table(RESULTS)
    assert head == ["method", "game", "seeds", "return (of 3)", "met: NH"]
    assert body[0][:3] == ["ppo", "hunt", "3"]
    assert body[0][3].startswith("1.000 [0.7")  # Student's t of three seeds: 1 ± 4.303 * 0.1 / 3 ** 0.5 = 0.248
    assert body[2][3:] == ["1.000 [1.000, 1.000]", "-"]


def test_rows_are_compared_with_the_reference_of_the_same_game() -> None:
    table_of_differences = differences(RESULTS)
    assert table_of_differences is not None
    head, body = table_of_differences
    assert head == ["method", "game", "return", "met: NH"]
    assert [line[:2] for line in body] == [["ours", "hunt"], ["ours", "drift"]]
    assert body[0][2].startswith("**+1.000 [+0.7")
    assert body[0][3].startswith("+0.000 [-")
    assert body[1][2].startswith("+0.000 [-")
    assert body[1][3] == "-"
    assert differences(Results("", None, RESULTS.rows)) is None


def test_too_few_seeds_have_no_interval() -> None:
    few = Results("few", "ppo", [row("ppo", "hunt", [1.0]), row("ours", "hunt", [2.0])])
    assert [line[-1] for line in table(few)[1]] == ["1.000", "2.000"]
    table_of_differences = differences(few)
    assert table_of_differences is not None
    assert table_of_differences[1][0][-1] == "+1.000"
    assert "no interval: fewer than 3" in markdown(few)


def test_tables_can_be_written_again_from_the_json(tmp_path: Path) -> None:
    written = write_all(RESULTS, tmp_path)
    assert {path.name for path in written} == {
        *(f"results.{ending}" for ending in ("md", "csv", "tex", "json")),
        "curves.png",
        "curves.pdf",
    }
    before = {path.name: path.read_bytes() for path in written if path.suffix != ".pdf"}
    assert from_plain(json.loads(json.dumps(as_plain(RESULTS)))) == RESULTS
    assert main(["tables", str(tmp_path / "results.json"), "--out", str(tmp_path / "again")]) == 0
    assert {name: (tmp_path / "again" / name).read_bytes() for name in before} == before
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| ours | hunt | **+1.000" in text
    assert "Not finished, and not in the table: a-cell." in text
    rows = list(csv.DictReader((tmp_path / "results.csv").open(encoding="utf-8")))
    assert len(rows) == len(long_rows(RESULTS)) == 3 * 6
    assert {**rows[4], "value": "0.5"} == {
        "game": "hunt", "steps": "20", "figure": "met: NH", "unit": "share of the oracle", "method": "ppo",
        "seed": "1", "value": "0.5",
    }  # fmt: skip


def test_latex_is_escaped() -> None:
    assert escaped(r"a_b & 50% \x") == r"a\_b \& 50\% \textbackslash{}x"
    assert r"\begin{tabular}{llrrr}" in latex(RESULTS)
    assert latex(RESULTS).count(r"\\") == 5


@pytest.mark.parametrize("text", [None, "{}", "[1]", "no json"])
def test_files_without_results_are_rejected(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main(["tables", str(path)]) == 2
    assert ("there is no sweep" if text is None else "does not hold the results") in capsys.readouterr().err
    assert main(["tables", str(tmp_path)]) == 2
    assert "is not a sweep" in capsys.readouterr().err

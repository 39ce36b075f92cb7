"""What a sweep's file means, what is wrong with it, and how its results become tables."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.sweeps.directory import Sweep, open_sweep
from hopplus.sweeps.estimate import Speed, estimated_seconds, kind, seconds_left
from hopplus.sweeps.plan import Judge, Plan, from_description, make_plan, narrowed, options, read_plan, split_seeds
from hopplus.sweeps.results import Column, Results, Row, as_plain, from_plain
from hopplus.sweeps.tables import differences, escaped, latex, long_rows, markdown, table, write_all
from hopplus.sweeps.workers import Standing, cores_of, fitting_workers, own_cores

FILE = """
title = "Four and one"
reference = "ppo"

[common]
steps = 1_000
seeds = "0-4"
hidden = [8, 8]

[grid]
recipe = ["ppo", "hopplus"]
game = ["msh-4x4-4h1s", "msg-4x4"]

[[cells]]
name = "fast learner"
recipe = "ppo"
learning_rate = 1e-2
anneal = false
seeds = "7"

[[judge]]
name = "with NH"
command = "evaluate"
cast = "self,nh,nh,nh"
only = ["msh-4x4-4h1s"]

[resources]
cpus = 2
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "four.toml").write_text(FILE, encoding="utf-8")
    return read_plan(tmp_path / "four.toml")


def test_a_grid_is_every_combination_and_cells_stand_beside_it(plan: Plan) -> None:
    names = [cell.name for cell in plan.cells]
    games = ("msh-4x4-4h1s", "msg-4x4")
    assert names == [*(f"{recipe}-{game}" for recipe in ("ppo", "hopplus") for game in games), "fast_learner"]
    assert plan.cells[1].labels == {"recipe": "ppo", "game": "msg-4x4"}
    assert " ".join(plan.cells[1].words()) == "train ppo --steps 1000 --seeds 0-4 --hidden 8 8 --game msg-4x4"
    words = "train ppo --steps 1000 --seeds 7 --hidden 8 8 --learning-rate 0.01 --no-anneal"
    assert " ".join(plan.cells[4].words()) == words
    assert plan.cells[4].labels == {"recipe": "ppo", "game": "msh-4x4-4h1s", "name": "fast learner"}
    assert (plan.title, plan.cpus, plan.gpus, plan.reference) == ("Four and one", 2, 0, "ppo")


def test_a_judge_judges_the_cells_that_it_is_for(plan: Plan) -> None:
    (judge,) = plan.judges
    assert [cell.name for cell in plan.cells if judge.judges(cell)] == [
        "ppo-msh-4x4-4h1s",
        "hopplus-msh-4x4-4h1s",
        "fast_learner",
    ]
    assert judge.words(Path("runs/x")) == ["evaluate", "runs/x", "--cast", "self,nh,nh,nh"]


def test_a_judge_of_a_cell_judges_all_parts_of_it(plan: Plan) -> None:
    judge = Judge("one", "evaluate", {}, ("ppo-msg-4x4",))
    names = [cell.name for cell in split_seeds(plan, 2).cells if judge.judges(cell)]
    assert names == ["ppo-msg-4x4-seeds-0-1-2", "ppo-msg-4x4-seeds-3-4"]


def test_judges_of_different_cells_may_have_one_name() -> None:
    cells = [{"recipe": "ppo"}, {"recipe": "hop"}]
    judges = [{"name": "sampled", "episodes": 9, "only": ["ppo"]}, {"name": "sampled", "only": ["hop"]}]
    plan = make_plan({"cells": cells, "judge": judges}, "two")
    assert [judge.settings for judge in plan.judges if judge.judges(plan.cell("ppo"))] == [{"episodes": 9}]


def test_a_plan_can_be_narrowed_to_cells_by_their_names_and_labels(plan: Plan) -> None:
    assert narrowed(plan, []) == plan
    found = narrowed(plan, ["msg-4x4", "fast_learner"])
    assert [cell.name for cell in found.cells] == ["ppo-msg-4x4", "hopplus-msg-4x4", "fast_learner"]
    assert len(narrowed(split_seeds(plan, 5), ["ppo-msg-4x4"]).cells) == 5
    with pytest.raises(InputError, match=r"no cell of Four and one is called 'hoplus' \(did you mean 'hopplus'\?\)"):
        narrowed(plan, ["ppo", "hoplus"])


def test_only_some_cells_are_run_and_the_others_may_follow(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(sweep: Sweep, *_: Any) -> Standing:
        ran.append([cell.name for cell in sweep.plan.cells])
        return Standing(failed=dict.fromkeys(ran[-1], "not today"))

    monkeypatch.setattr("hopplus.sweeps.workers.run_here", run)
    command = ["sweep", str(tmp_path / "four.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main([*command, "--only", "hopplus-msg-4x4, fast_learner"]) == 1
    assert open_sweep(tmp_path / "out").plan == plan
    assert main(command) == 1
    assert ran == [["hopplus-msg-4x4", "fast_learner"], [cell.name for cell in plan.cells]]


def test_a_plan_is_kept_as_json(plan: Plan) -> None:
    assert from_description(json.loads(json.dumps(plan.described()))) == plan


def test_named_values_set_several_things_at_once_and_later_axes_win() -> None:
    found = {
        "common": {"recipe": "ppo"},
        "values": {"method": {"tastes": {"recipe": "hopplus", "tastes": True, "steps": 5}}},
        "grid": [
            {"board": [{"name": "small", "game": "msh-4x4-4h1s", "steps": 9}], "method": ["tastes"]},
            {"game": "msg-4x4", "hidden": [[8], [8, 8]]},
        ],
    }
    plan = make_plan(found, "named")
    assert [cell.name for cell in plan.cells] == ["small-tastes", "hidden-8", "hidden-8_8"]
    assert plan.cells[0].labels == {"board": "small", "method": "tastes"}
    assert plan.cells[0].words() == ["train", "hopplus", "--game", "msh-4x4-4h1s", "--steps", "5", "--tastes"]
    assert plan.cells[2].words() == ["train", "ppo", "--game", "msg-4x4", "--hidden", "8", "8"]


def test_options_are_written_as_a_person_would() -> None:
    given = {"guest_share": 0.5, "tastes": True, "anneal": False, "until": ["1:a=1", "2:b=2"]}
    assert options(given) == ["--guest-share", "0.5", "--tastes", "--no-anneal", "--until", "1:a=1", "2:b=2"]


def test_a_plugin_is_looked_for_beside_the_file(tmp_path: Path) -> None:
    found = {"common": {"recipe": "ppo", "plugin": "own.py"}, "cells": [{"name": "a"}], "judge": [{"episodes": 5}]}
    plan = make_plan(found, "own", tmp_path)
    assert plan.cells[0].settings["plugin"] == plan.judges[0].settings["plugin"] == str(tmp_path.resolve() / "own.py")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no cells": ({"common": {"recipe": "ppo"}}, "has no cells"),
    "an empty grid": ({"grid": {"recipe": []}}, "the grid is empty: recipe has no values"),
    "an unknown key": ({"gird": {}}, "a sweep has no 'gird' (did you mean 'grid'?)"),
    "no recipe": ({"grid": {"game": ["msg-4x4"]}}, "has no recipe"),
    "a setting of the sweep's": ({"common": {"out": "x"}, "cells": [{"recipe": "ppo"}]}, "'out' cannot be set"),
    "the same in a grid": ({"grid": {"recipe": ["ppo"], "resume": ["x"]}}, "'resume' cannot be set"),
    "two of a name": ({"cells": [{"recipe": "ppo"}, {"recipe": "ppo"}]}, "two cells are called 'ppo'"),
    "two of a name but for case": (
        {"cells": [{"recipe": "ppo", "name": "A"}, {"recipe": "ppo", "name": "a"}]},
        "two cells are called",
    ),
    "a table that is none": ({"grid": 3}, "grid must be a table"),
    "settings that are none": ({"common": 3}, "common must be a table"),
    "a value that is none": ({"cells": [{"recipe": "ppo", "steps": {"a": 1}}]}, "steps of the cell 'ppo' is not"),
    "an unknown value": (
        {"values": {"method": {"ppo": {}}}, "grid": {"method": ["pop"]}},
        "there is no [values.method.pop] (did you mean 'ppo'?)",
    ),
    "an unknown judge": ({"cells": [{"recipe": "ppo"}], "judge": [{"command": "rm"}]}, "evaluate, adapt, not 'rm'"),
    "a judge of nobody": ({"cells": [{"recipe": "ppo"}], "judge": [{"only": ["x"]}]}, "no cell is called so"),
    "a judge of its own file": ({"cells": [{"recipe": "ppo"}], "judge": [{"json": "x"}]}, "'json' cannot be set"),
    "two judges of a name": (
        {"cells": [{"recipe": "ppo"}], "judge": [{"name": "a"}, {"name": "A", "only": ["ppo"]}]},
        "two judges of the cell ppo are called 'A'",
    ),
    "seeds that are neither": ({"cells": [{"recipe": "ppo"}], "seeds_together": 1}, "must be true or false, not 1"),
    "unknown resources": ({"cells": [{"recipe": "ppo"}], "resources": {"gpu": 1}}, "did you mean 'gpus'"),
    "no cores": ({"cells": [{"recipe": "ppo"}], "resources": {"cpus": 0}}, "cpus must be a number, at least 1"),
    "an unknown reference": ({"cells": [{"recipe": "ppo"}], "reference": "liam"}, "no cell is called 'liam'"),
    "a title that is none": ({"cells": [{"recipe": "ppo"}], "title": 3}, "title must be a text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_in_one_sentence(mistake: str) -> None:
    found, sentence = MISTAKES[mistake]
    with pytest.raises(InputError) as error:
        make_plan(found, "wrong")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


COMMANDS = {
    "unknown setting": ('[[cells]]\nrecipe = "ppo"\nstpes = 5', [], "the cell ppo: hopplus train ppo has no option"),
    "a value that is none": ('[[cells]]\nrecipe = "ppo"\nsteps = "many"', [], "does not take"),
    "unknown recipe": ('[[cells]]\nrecipe = "pop"', [], "there is no recipe 'pop'"),
    "unknown game": ('[[cells]]\nrecipe = "ppo"\ngame = "chess"', [], "known: msg-4x4"),
    "unknown option of a judge": ('[[cells]]\nrecipe = "ppo"\n[[judge]]\ncats = "self"', [], "did you mean '--cast'"),
    "not TOML": ("[[cells]\n", [], "is not TOML"),
    "no workers": ('[[cells]]\nrecipe = "ppo"', ["--workers", "0"], "at least 1 worker"),
    "only unknown cells": ('[[cells]]\nrecipe = "ppo"', ["--only", "ppo,pop"], "no cell of wrong is called 'pop'"),
    "only nothing": ('[[cells]]\nrecipe = "ppo"', ["--only", ""], "no cell of wrong is called ''"),
    "negative retries": ('[[cells]]\nrecipe = "ppo"', ["--retries", "-1"], "retries must be at least 0"),
    "no cluster": ('[[cells]]\nrecipe = "ppo"', ["--on", "ray", "--address", "127.0.0.1:1"], "no Ray cluster answers"),
    "no address": ('[[cells]]\nrecipe = "ppo"', ["--on", "ray", "--address", "ray://h:1"], "is HOST:PORT or auto"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_sweep_that_cannot_be_run_leaves_nothing_behind(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray is not used before a cluster answers, so that an empty module stands in for it."""
    text, more, sentence = COMMANDS[mistake]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    (tmp_path / "wrong.toml").write_text(text, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "wrong.toml"), "--out", str(tmp_path / "out"), *more]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_without_ray_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "one.toml").write_text('[[cells]]\nrecipe = "ppo"', encoding="utf-8")
    assert main(["sweep", str(tmp_path / "one.toml"), "--on", "ray", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'hopplus[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_seeds_are_taken_apart_only_where_workers_would_have_nothing_to_do(plan: Plan) -> None:
    assert split_seeds(plan, 1) == plan
    several = split_seeds(plan, 2)
    assert [cell.name for cell in several.cells[:2]] == ["ppo-msh-4x4-4h1s-seeds-0-1-2", "ppo-msh-4x4-4h1s-seeds-3-4"]
    assert [cell.seeds for cell in several.cells] == [(0, 1, 2), (3, 4)] * 4 + [(7,)]
    assert several.cells[-1].name == "fast_learner"
    assert [cell.seeds for cell in split_seeds(plan, 9).cells[:5]] == [(0,), (1,), (2,), (3,), (4,)]
    together = replace(plan, seeds_together=True)
    assert split_seeds(together, 9) == together


# ------------------------------------------------------------------------------------------------------------- workers


def test_workers_share_no_core_as_long_as_there_are_enough() -> None:
    number = len(own_cores())
    assert sorted(core for place in range(fitting_workers(1)) for core in cores_of(place, 1)) == own_cores()
    assert fitting_workers(number + 1) == 1
    assert cores_of(0, number + 1) == own_cores()


def test_a_cell_is_trained_once_and_judged_once(plan: Plan, tmp_path: Path) -> None:
    sweep, cell = Sweep(tmp_path, plan, ""), plan.cells[0]
    run, (judge,) = sweep.run_path(cell), sweep.judges(cell)
    assert [words[0] for words in sweep.commands(cell)] == ["train", "evaluate"]
    assert "--resume" not in sweep.commands(cell)[0]
    (run / "evaluation").mkdir(parents=True)
    (run / "config.json").write_text("{}", encoding="utf-8")
    assert sweep.commands(cell)[0][:3] == ["train", "--resume", str(run)]
    (run / "evaluation" / "final.json").write_text("{}", encoding="utf-8")
    assert [words[0] for words in sweep.commands(cell)] == ["evaluate"]
    assert not sweep.is_done(cell)
    sweep.judged_path(cell, judge).parent.mkdir()
    sweep.judged_path(cell, judge).write_text("{}", encoding="utf-8")
    assert sweep.commands(cell) == []
    assert sweep.is_done(cell)


# ------------------------------------------------------------------------------------------------------------ estimates


def test_a_calibration_says_how_long_a_cell_takes(plan: Plan) -> None:
    speeds = {kind(cell): Speed(10.0, 100.0) for cell in plan.cells}
    assert estimated_seconds(plan.cells[0], speeds) == 10 + 5 * 1000 / 100
    assert estimated_seconds(plan.cells[4], speeds) == 10 + 1 * 1000 / 100


def test_the_time_left_comes_from_cells_of_the_same_kind(plan: Plan, tmp_path: Path) -> None:
    sweep, names = Sweep(tmp_path, plan, ""), [cell.name for cell in plan.cells]
    assert seconds_left(sweep, Standing(waiting=names), 2) is None
    # One of PPO on the stag hunt took 10 s, one of HOP+ there 40; what is left is one of HOP+ on MSG, not known yet.
    standing = Standing(waiting=[names[3]], done=names[:3], seconds={names[0]: 10.0, names[2]: 40.0})
    assert seconds_left(sweep, standing, 1) == pytest.approx(25)
    standing.seconds[names[3]] = 60.0
    assert seconds_left(sweep, standing, 2) == pytest.approx(30)


# --------------------------------------------------------------------------------------------------------------- tables


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
    found = differences(RESULTS)
    assert found is not None
    head, body = found
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
    found = differences(few)
    assert found is not None
    assert found[1][0][-1] == "+1.000"
    assert "no interval: fewer than 3" in markdown(few)


def test_everything_is_written_and_made_again_from_the_json(tmp_path: Path) -> None:
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
    assert "Not done, and not in the table: a-cell." in text
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
def test_what_holds_no_results_is_refused(text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main(["tables", str(path)]) == 2
    assert ("there is no sweep" if text is None else "does not hold the results") in capsys.readouterr().err
    assert main(["tables", str(tmp_path)]) == 2
    assert "is not a sweep" in capsys.readouterr().err


def test_a_plugin_is_run_once_however_many_cells_need_it(tmp_path: Path) -> None:
    from hopplus.cli.sweep import check_cells

    plugin = "from hopplus import games\ngames.register('own-hunt', lambda: games.make('msh-4x4-2h1s'))\n"
    (tmp_path / "own.py").write_text(plugin, encoding="utf-8")
    found = {"common": {"plugin": "own.py", "game": "own-hunt"}, "grid": {"recipe": ["ppo", "prosocial"]}}
    check_cells(make_plan(found, "own", tmp_path))

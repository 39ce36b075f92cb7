"""Sweep plans: cells and judges of a file, errors in it, the split of seeds, and estimates."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hopplus.cli.main import main
from hopplus.core.errors import InputError
from hopplus.sweeps.directory import Sweep, open_sweep
from hopplus.sweeps.estimate import Speed, cost_group, estimated_seconds, seconds_left
from hopplus.sweeps.plan import Judge, SweepPlan, from_description, make_plan, narrowed, options, read_plan, split_seeds
from hopplus.sweeps.workers import SweepStatus, cores_of, fitting_workers, own_cores

FILE = """
title = "Four and one"
reference = "ppo"

[common]
steps = 1_000
seeds = "0-4"
hidden = [8, 8]

[grid]
algorithm = ["ppo", "hopplus"]
game = ["msh-4x4-4h1s", "msg-4x4"]

[[cells]]
name = "fast learner"
algorithm = "ppo"
learning_rate = 1e-2
anneal_lr = false
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
def plan(tmp_path: Path) -> SweepPlan:
    (tmp_path / "four.toml").write_text(FILE, encoding="utf-8")
    return read_plan(tmp_path / "four.toml")


def test_a_grid_is_every_combination_and_cells_are_added_to_it(plan: SweepPlan) -> None:
    names = [cell.name for cell in plan.cells]
    games = ("msh-4x4-4h1s", "msg-4x4")
    assert names == [*(f"{algorithm}-{game}" for algorithm in ("ppo", "hopplus") for game in games), "fast_learner"]
    assert plan.cells[1].labels == {"algorithm": "ppo", "game": "msg-4x4"}
    assert " ".join(plan.cells[1].argv()) == "train ppo --steps 1000 --seeds 0-4 --hidden 8 8 --game msg-4x4"
    command = "train ppo --steps 1000 --seeds 7 --hidden 8 8 --learning-rate 0.01 --no-anneal-lr"
    assert " ".join(plan.cells[4].argv()) == command
    assert plan.cells[4].labels == {"algorithm": "ppo", "game": "msh-4x4-4h1s", "name": "fast learner"}
    assert (plan.title, plan.cpus, plan.gpus, plan.reference) == ("Four and one", 2, 0, "ppo")


def test_a_judge_judges_the_cells_that_it_is_for(plan: SweepPlan) -> None:
    (judge,) = plan.judges
    assert [cell.name for cell in plan.cells if judge.judges(cell)] == [
        "ppo-msh-4x4-4h1s",
        "hopplus-msh-4x4-4h1s",
        "fast_learner",
    ]
    assert judge.argv(Path("runs/x")) == ["evaluate", "runs/x", "--cast", "self,nh,nh,nh"]


def test_a_judge_of_a_cell_judges_all_parts_of_it(plan: SweepPlan) -> None:
    judge = Judge("one", "evaluate", {}, ("ppo-msg-4x4",))
    names = [cell.name for cell in split_seeds(plan, 2).cells if judge.judges(cell)]
    assert names == ["ppo-msg-4x4-seeds-0-1-2", "ppo-msg-4x4-seeds-3-4"]


def test_judges_of_different_cells_may_have_one_name() -> None:
    cells = [{"algorithm": "ppo"}, {"algorithm": "hop"}]
    judges = [{"name": "sampled", "episodes": 9, "only": ["ppo"]}, {"name": "sampled", "only": ["hop"]}]
    plan = make_plan({"cells": cells, "judge": judges}, "two")
    assert [judge.settings for judge in plan.judges if judge.judges(plan.cell("ppo"))] == [{"episodes": 9}]


def test_a_plan_can_be_narrowed_to_cells_by_their_names_and_labels(plan: SweepPlan) -> None:
    assert narrowed(plan, []) == plan
    narrow = narrowed(plan, ["msg-4x4", "fast_learner"])
    assert [cell.name for cell in narrow.cells] == ["ppo-msg-4x4", "hopplus-msg-4x4", "fast_learner"]
    assert len(narrowed(split_seeds(plan, 5), ["ppo-msg-4x4"]).cells) == 5
    with pytest.raises(InputError, match=r"no cell of Four and one is called 'hoplus' \(did you mean 'hopplus'\?\)"):
        narrowed(plan, ["ppo", "hoplus"])


def test_only_some_cells_are_run_and_the_others_may_follow(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(sweep: Sweep, *_: Any) -> SweepStatus:
        ran.append([cell.name for cell in sweep.plan.cells])
        return SweepStatus(failed=dict.fromkeys(ran[-1], "not today"))

    monkeypatch.setattr("hopplus.sweeps.workers.run_here", run)
    command = ["sweep", str(tmp_path / "four.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main([*command, "--only", "hopplus-msg-4x4, fast_learner"]) == 1
    assert open_sweep(tmp_path / "out").plan == plan
    assert main(command) == 1
    assert ran == [["hopplus-msg-4x4", "fast_learner"], [cell.name for cell in plan.cells]]


def test_a_plan_is_stored_as_json(plan: SweepPlan) -> None:
    assert from_description(json.loads(json.dumps(plan.described()))) == plan


def test_named_values_set_several_things_at_once_and_later_axes_win() -> None:
    description = {
        "common": {"algorithm": "ppo"},
        "values": {"method": {"randomize_rewards": {"algorithm": "hopplus", "randomize_rewards": True, "steps": 5}}},
        "grid": [
            {"board": [{"name": "small", "game": "msh-4x4-4h1s", "steps": 9}], "method": ["randomize_rewards"]},
            {"game": "msg-4x4", "hidden": [[8], [8, 8]]},
        ],
    }
    plan = make_plan(description, "named")
    assert [cell.name for cell in plan.cells] == ["small-randomize_rewards", "hidden-8", "hidden-8_8"]
    assert plan.cells[0].labels == {"board": "small", "method": "randomize_rewards"}
    assert plan.cells[0].argv() == [
        "train",
        "hopplus",
        "--game",
        "msh-4x4-4h1s",
        "--steps",
        "5",
        "--randomize-rewards",
    ]
    assert plan.cells[2].argv() == ["train", "ppo", "--game", "msg-4x4", "--hidden", "8", "8"]


def test_settings_become_command_line_options() -> None:
    settings = {"partner_share": 0.5, "randomize_rewards": True, "anneal_lr": False, "curriculum": ["1:a=1", "2:b=2"]}
    assert options(settings) == [
        "--partner-share",
        "0.5",
        "--randomize-rewards",
        "--no-anneal-lr",
        "--curriculum",
        "1:a=1",
        "2:b=2",
    ]


def test_a_plugin_is_looked_for_beside_the_file(tmp_path: Path) -> None:
    description = {
        "common": {"algorithm": "ppo", "plugin": "own.py"},
        "cells": [{"name": "a"}],
        "judge": [{"episodes": 5}],
    }
    plan = make_plan(description, "own", tmp_path)
    assert plan.cells[0].settings["plugin"] == plan.judges[0].settings["plugin"] == str(tmp_path.resolve() / "own.py")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no cells": ({"common": {"algorithm": "ppo"}}, "has no cells"),
    "an empty grid": ({"grid": {"algorithm": []}}, "the grid is empty: algorithm has no values"),
    "an unknown key": ({"gird": {}}, "a sweep has no 'gird' (did you mean 'grid'?)"),
    "no algorithm": ({"grid": {"game": ["msg-4x4"]}}, "has no algorithm"),
    "a reserved setting": ({"common": {"out": "x"}, "cells": [{"algorithm": "ppo"}]}, "'out' cannot be set"),
    "the same in a grid": ({"grid": {"algorithm": ["ppo"], "resume": ["x"]}}, "'resume' cannot be set"),
    "two of a name": ({"cells": [{"algorithm": "ppo"}, {"algorithm": "ppo"}]}, "two cells are called 'ppo'"),
    "two of a name but for case": (
        {"cells": [{"algorithm": "ppo", "name": "A"}, {"algorithm": "ppo", "name": "a"}]},
        "two cells are called",
    ),
    "a table that is none": ({"grid": 3}, "grid must be a table"),
    "settings that are none": ({"common": 3}, "common must be a table"),
    "a value that is none": ({"cells": [{"algorithm": "ppo", "steps": {"a": 1}}]}, "steps of the cell 'ppo' is not"),
    "an unknown value": (
        {"values": {"method": {"ppo": {}}}, "grid": {"method": ["pop"]}},
        "there is no [values.method.pop] (did you mean 'ppo'?)",
    ),
    "an unknown judge": ({"cells": [{"algorithm": "ppo"}], "judge": [{"command": "rm"}]}, "evaluate, adapt, not 'rm'"),
    "a judge of no cell": ({"cells": [{"algorithm": "ppo"}], "judge": [{"only": ["x"]}]}, "no cell is called so"),
    "a judge of its own file": ({"cells": [{"algorithm": "ppo"}], "judge": [{"json": "x"}]}, "'json' cannot be set"),
    "two judges of a name": (
        {"cells": [{"algorithm": "ppo"}], "judge": [{"name": "a"}, {"name": "A", "only": ["ppo"]}]},
        "two judges of the cell ppo are called 'A'",
    ),
    "seeds that are neither": ({"cells": [{"algorithm": "ppo"}], "seeds_together": 1}, "must be true or false, not 1"),
    "unknown resources": ({"cells": [{"algorithm": "ppo"}], "resources": {"gpu": 1}}, "did you mean 'gpus'"),
    "no cores": ({"cells": [{"algorithm": "ppo"}], "resources": {"cpus": 0}}, "cpus must be a number, at least 1"),
    "an unknown reference": ({"cells": [{"algorithm": "ppo"}], "reference": "liam"}, "no cell is called 'liam'"),
    "a title that is none": ({"cells": [{"algorithm": "ppo"}], "title": 3}, "title must be a text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_in_one_sentence(mistake: str) -> None:
    description, message = MISTAKES[mistake]
    with pytest.raises(InputError) as error:
        make_plan(description, "wrong")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


COMMANDS = {
    "unknown setting": ('[[cells]]\nalgorithm = "ppo"\nstpes = 5', [], "the cell ppo: hopplus train ppo has no option"),
    "a value that is none": ('[[cells]]\nalgorithm = "ppo"\nsteps = "many"', [], "does not accept"),
    "unknown algorithm": ('[[cells]]\nalgorithm = "pop"', [], "'pop' (did you mean 'ppo'?)"),
    "unknown game": ('[[cells]]\nalgorithm = "ppo"\ngame = "chess"', [], "known: msg-4x4"),
    "unknown option of a judge": (
        '[[cells]]\nalgorithm = "ppo"\n[[judge]]\ncats = "self"',
        [],
        "did you mean '--cast'",
    ),
    "not TOML": ("[[cells]\n", [], "is not TOML"),
    "no workers": ('[[cells]]\nalgorithm = "ppo"', ["--workers", "0"], "at least 1 worker"),
    "only unknown cells": ('[[cells]]\nalgorithm = "ppo"', ["--only", "ppo,pop"], "no cell of wrong is called 'pop'"),
    "only nothing": ('[[cells]]\nalgorithm = "ppo"', ["--only", ""], "no cell of wrong is called ''"),
    "negative retries": ('[[cells]]\nalgorithm = "ppo"', ["--retries", "-1"], "retries must be at least 0"),
    "no cluster": (
        '[[cells]]\nalgorithm = "ppo"',
        ["--on", "ray", "--address", "127.0.0.1:1"],
        "no Ray cluster answers",
    ),
    "no address": ('[[cells]]\nalgorithm = "ppo"', ["--on", "ray", "--address", "ray://h:1"], "is HOST:PORT or auto"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_sweep_that_cannot_be_run_leaves_nothing_behind(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray is not used before a cluster answers, so that an empty module can replace it."""
    text, options, message = COMMANDS[mistake]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    (tmp_path / "wrong.toml").write_text(text, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "wrong.toml"), "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "one.toml").write_text('[[cells]]\nalgorithm = "ppo"', encoding="utf-8")
    assert main(["sweep", str(tmp_path / "one.toml"), "--on", "ray", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'hopplus[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("format", "sentence"), [(2, "has format 2, and this version"), (None, "states no format")])
def test_a_sweep_of_another_format_is_rejected(
    format: int | None, sentence: str, plan: SweepPlan, tmp_path: Path
) -> None:
    described = {"format": format, "identity": "", "plan": plan.described()}
    (tmp_path / "sweep.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(InputError, match=sentence):
        open_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({**described, "format": 1}), encoding="utf-8")
    assert open_sweep(tmp_path).plan == plan


def test_seeds_are_split_only_where_workers_would_be_idle(plan: SweepPlan) -> None:
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


def test_a_cell_is_trained_once_and_judged_once(plan: SweepPlan, tmp_path: Path) -> None:
    sweep, cell = Sweep(tmp_path, plan, ""), plan.cells[0]
    run, (judge,) = sweep.run_path(cell), sweep.judges(cell)
    assert [argv[0] for argv in sweep.commands(cell)] == ["train", "evaluate"]
    assert "--resume" not in sweep.commands(cell)[0]
    (run / "evaluation").mkdir(parents=True)
    (run / "config.json").write_text("{}", encoding="utf-8")
    assert sweep.commands(cell)[0][:3] == ["train", "--resume", str(run)]
    (run / "evaluation" / "final.json").write_text("{}", encoding="utf-8")
    assert [argv[0] for argv in sweep.commands(cell)] == ["evaluate"]
    assert not sweep.is_done(cell)
    sweep.judged_path(cell, judge).parent.mkdir()
    sweep.judged_path(cell, judge).write_text("{}", encoding="utf-8")
    assert sweep.commands(cell) == []
    assert sweep.is_done(cell)


# ------------------------------------------------------------------------------------------------------------ estimates


def test_the_duration_of_a_cell_follows_from_a_calibration(plan: SweepPlan) -> None:
    speeds = {cost_group(cell): Speed(10.0, 100.0) for cell in plan.cells}
    assert estimated_seconds(plan.cells[0], speeds) == 10 + 5 * 1000 / 100
    assert estimated_seconds(plan.cells[4], speeds) == 10 + 1 * 1000 / 100


def test_the_time_left_is_estimated_from_similar_cells(plan: SweepPlan, tmp_path: Path) -> None:
    sweep, names = Sweep(tmp_path, plan, ""), [cell.name for cell in plan.cells]
    assert seconds_left(sweep, SweepStatus(waiting=names), 2) is None
    # A PPO cell on the stag hunt took 10 s, a HOP+ cell there 40 s; a HOP+ cell on MSG is left, without similar cells.
    status = SweepStatus(waiting=[names[3]], done=names[:3], seconds={names[0]: 10.0, names[2]: 40.0})
    assert seconds_left(sweep, status, 1) == pytest.approx(25)
    status.seconds[names[3]] = 60.0
    assert seconds_left(sweep, status, 2) == pytest.approx(30)


def test_a_plugin_of_several_cells_is_run_once(tmp_path: Path) -> None:
    from hopplus.cli.sweep import check_cells

    plugin = "from hopplus import games\ngames.register('own-hunt', lambda: games.make('msh-4x4-2h1s'))\n"
    (tmp_path / "own.py").write_text(plugin, encoding="utf-8")
    description = {"common": {"plugin": "own.py", "game": "own-hunt"}, "grid": {"algorithm": ["ppo", "prosocial"]}}
    check_cells(make_plan(description, "own", tmp_path))

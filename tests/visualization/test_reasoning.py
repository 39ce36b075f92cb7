"""Reasoning of planners: as descriptions, terminal text, pictures and JSON."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from decisions import (
    ACTIONS,
    BASE_PLANS,
    BY_POLICY,
    CHOICE_REASONING,
    GOALS,
    HUNT,
    HUNT_WITH_CHOICE,
    RATIONALITIES,
    REASONING,
    SEARCHING,
)
from hopplus.algorithms import make_algorithm
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.hopplus import HopPlus
from hopplus.algorithms.hopplus.acting import make_moa
from hopplus.cli.main import main
from hopplus.games import make
from hopplus.training.policies import Policy
from hopplus.visualization import Frame, as_image, as_svg, as_text, describe, picture_of
from hopplus.visualization.reasoning import Belief, FrameReasoning, Reasoning, portions
from hopplus.visualization.shapes import Rectangle, Shape, ShapeGroup, Text
from hopplus.visualization.style import font, goal_colour, seat_colour

PLACES = tuple(f"drift at {divmod(cell, 8)}" for cell in range(64))


def reasoning_about(goals: dict[str, float], actions: tuple[str, ...] = ACTIONS) -> FrameReasoning:
    """Returns the reasoning of one player with these beliefs about one other."""
    belief = Belief(1, goals, dict.fromkeys(actions, 1 / len(actions)))
    return FrameReasoning(
        tuple(goals), actions, {0: Reasoning(dict.fromkeys(actions, 1 / len(actions)), 0.0, (belief,))}
    )


def groups(frame: Frame) -> dict[str, ShapeGroup]:
    return {shape.label: shape for shape in picture_of(frame).shapes if isinstance(shape, ShapeGroup)}


def texts(frame: Frame) -> list[Text]:
    def inside(shapes: tuple[Shape, ...]) -> list[Text]:
        parts = [inside(shape.shapes) if isinstance(shape, ShapeGroup) else [shape] for shape in shapes]
        return [shape for part in parts for shape in part if isinstance(shape, Text)]

    return inside(picture_of(frame).shapes)


def block_of(text: str, seat: int) -> str:
    """Returns the part of the text about the reasoning of one player."""
    return re.split(r"\n(?=\d plans|goals:)", text[text.index(f"\n{seat} plans") + 1 :])[0]


# ------------------------------------------------------------------------------------------------- from arrays


def test_a_decision_is_converted_to_names_and_seats() -> None:
    assert [belief.about for belief in SEARCHING.beliefs] == [3, 0, 1]
    assert SEARCHING.beliefs[0].goals == pytest.approx({"nothing": 0.1, "stag": 0.2, "hare": 0.7})
    assert max(SEARCHING.beliefs[1].actions, key=SEARCHING.beliefs[1].actions.__getitem__) == "HARE"
    assert SEARCHING.plan is not None
    assert SEARCHING.plan.visits == {"DOWN": 4, "LEFT": 12, "STAY": 0}
    assert SEARCHING.action_probabilities == pytest.approx({"DOWN": 0.2, "LEFT": 0.7, "STAY": 0.1})
    assert SEARCHING.expected_return == pytest.approx(1.9)


def test_without_planning_the_policy_is_the_plan_and_absent_players_have_no_beliefs() -> None:
    assert BY_POLICY.plan is None
    assert [belief.about for belief in BY_POLICY.beliefs] == [2, 3]
    assert BY_POLICY.beliefs[0].goals == pytest.approx({"nothing": 0, "stag": 1, "hare": 0})
    assert BY_POLICY.action_probabilities == pytest.approx({"DOWN": 0.6, "LEFT": 0.3, "STAY": 0.1})
    assert BY_POLICY.expected_return == 1.25


@pytest.mark.parametrize("whole", [1, 7, 10])
def test_portions_are_whole_and_nearly_in_proportion(whole: int) -> None:
    drawn = np.random.default_rng(whole).dirichlet(np.full(6, 0.3), 50)
    for row in drawn:
        probabilities = {str(number): value for number, value in enumerate(row)}
        parts = portions(probabilities, whole)
        assert sum(parts.values()) == whole
        assert all(abs(parts.get(name, 0) - whole * value) < 1 for name, value in probabilities.items())
    assert portions({}, whole) == {}


def test_of_many_goals_only_likely_ones_are_shown_separately() -> None:
    few = reasoning_about({"stag": 0.99, "hare": 0.01})
    assert few.shown_goals == ("stag", "hare")
    probabilities = dict.fromkeys(PLACES, 0.1 / 62) | {PLACES[3]: 0.6, PLACES[9]: 0.3}
    many = reasoning_about(probabilities)
    assert many.shown_goals == (PLACES[3], PLACES[9], "others")
    belief = many.reasonings[0].beliefs[0]
    assert many.shown(belief) == pytest.approx({PLACES[3]: 0.6, PLACES[9]: 0.3, "others": 0.1})
    assert reasoning_about({"any 0": 1.0}).shown(Belief(1, {"any 0": 1.0}, {})) == {}


# -------------------------------------------------------------------------------------------------------- text


def test_the_text_shows_the_reasoning_of_all_planners() -> None:
    text = as_text(HUNT, colour=False)
    searching = block_of(text, 2)
    assert searching.startswith("2 plans ← LEFT 70%, expects 1.9, search depth 2.5\n")
    assert re.search(r"3 hare 70% +·SShhhhhhh  next ← LEFT 83%", searching)
    assert re.search(r"0 stag 100% +SSSSSSSSSS  next HARE 83%", searching)
    assert re.search(r"│ +UP +DOWN +LEFT +RIGHT +STAY +STAG +HARE\n", searching)
    assert re.search(r"│ value +· +0.25 +2.50 +· +-1.00 +· +·\n", searching)
    assert re.search(r"│ visits +· +4 +12 +· +0 +· +·", searching)
    by_policy = block_of(text, 0)
    assert by_policy.startswith("0 plans ↓ DOWN 60%, expects 1.25\n")
    assert re.search(r"│ policy +· +60% +30% +· +10% +· +·", by_policy)
    assert "\n  1 " not in by_policy
    assert "goals:  · nothing  S stag  h hare" in text


def test_reasoning_fits_into_100_columns_and_colour_changes_nothing() -> None:
    goals = dict.fromkeys(PLACES, 1 / 64)
    wide = replace(HUNT, reasoning=reasoning_about(goals, (*ACTIONS, "JUMP_OVER_A_BLOCK", "WAIT_FOR_THE_OTHERS")))
    likely = replace(HUNT, reasoning=reasoning_about(dict.fromkeys(PLACES[:16], 1 / 16)))
    for frame in (HUNT, wide, likely):
        plain = as_text(frame, colour=False)
        assert re.sub(r"\x1b\[[0-9;]*m", "", as_text(frame, colour=True)) == plain
        assert max(map(len, plain.splitlines())) <= 100
    assert "----------" in as_text(wide, colour=False)
    assert as_text(likely, colour=False).count("drift at") == 17


def test_with_one_goal_only_actions_are_predicted() -> None:
    frame = replace(HUNT, reasoning=reasoning_about({"any 0": 1.0}))
    assert "any 0" not in as_text(frame, colour=False) + as_svg(frame) + describe(frame)
    assert re.search(r"\n  1 next ↑ UP 14% ", as_text(frame, colour=False))


def test_without_planners_there_is_no_reasoning() -> None:
    over = replace(HUNT, reasoning=FrameReasoning(GOALS, ACTIONS, {0: None, 2: None}))
    assert as_text(over) == as_text(replace(HUNT, reasoning=None))
    assert describe(over) == describe(replace(HUNT, reasoning=None))
    assert over.figures()["reasoning"] == replace(HUNT, reasoning=None).figures()["reasoning"] == []


def test_the_description_has_a_sentence_for_each_planner() -> None:
    assert (
        "Seat 2 plans LEFT 70% and expects 1.9; of seat 3 it believes goal hare 70%, next action LEFT 83%, "
        "rationality random 93%; of seat 0 it believes goal stag 100%, next action HARE 83%, "
        "rationality tremble 0.25: 71%; of seat 1 it believes goal nothing 50%, next action STAY 83%." in describe(HUNT)
    )


# ---------------------------------------------------------------------------------------------------- pictures


def test_the_picture_has_a_bar_for_each_belief_in_the_colours_of_the_goals() -> None:
    shown = groups(HUNT)
    about = [label for label in shown if " about seat " in label]
    assert [label.split(":")[0] for label in about] == [
        "seat 0 about seat 2",
        "seat 0 about seat 3",
        "seat 2 about seat 3",
        "seat 2 about seat 0",
        "seat 2 about seat 1",
    ]
    bar = [shape for shape in shown[about[2]].shapes if isinstance(shape, Rectangle)]
    *parts, outline = bar
    assert [part.fill for part in parts] == [goal_colour(goal, place) for place, goal in enumerate(GOALS)]
    assert [part.width / outline.width for part in parts] == pytest.approx([0.1, 0.2, 0.7])
    assert [part.x for part in parts[1:]] == pytest.approx([part.x + part.width for part in parts[:-1]])


def test_the_picture_marks_the_plan_and_shows_values_and_visits() -> None:
    shown = [text.text for text in texts(HUNT)]
    assert {"plans", "LEFT 70%", "DOWN 60%", "2.50", "-1.00", "12", "60%", *GOALS} <= set(shown)
    framed = [
        label
        for label, group in groups(HUNT).items()
        if any(isinstance(shape, Rectangle) and shape.fill is None and shape.radius for shape in group.shapes)
    ]
    assert framed == ["seat 0, action DOWN: probability 60%", "seat 2, action LEFT: value 2.50, visits 12"]
    pixels = np.asarray(as_image(HUNT)).reshape(-1, 3)
    for colour in (seat_colour(2), goal_colour("stag", 1), goal_colour("hare", 2)):
        assert (pixels == list(bytes.fromhex(colour[1:]))).all(-1).sum() > 50


@pytest.mark.parametrize(
    "reasoning",
    [
        REASONING,
        CHOICE_REASONING,
        replace(CHOICE_REASONING, actions=("DOWN", "LEFT", "STAY")),
        reasoning_about(dict.fromkeys(PLACES[:16], 1 / 16)),
        reasoning_about(
            {"a goal with a name that goes on and on": 0.9, "b": 0.1}, ("JUMP_OVER_ALL_BLOCKS_AT_ONCE", "UP")
        ),
    ],
)
def test_no_text_exceeds_the_picture(reasoning: FrameReasoning) -> None:
    frame = replace(HUNT, reasoning=reasoning)
    picture = picture_of(frame)
    for text in texts(frame):
        length = font(text.size).getlength(text.text)
        left = text.x - {"start": 0, "middle": length / 2, "end": length}[text.anchor]
        assert left >= 0, text
        assert left + length <= picture.width, text
        assert text.y + text.size / 2 < picture.height, text


def test_all_pictures_of_an_episode_have_the_same_size() -> None:
    later = replace(HUNT, reasoning=replace(REASONING, by_seat={0: None, 2: SEARCHING}))
    over = replace(HUNT, reasoning=replace(REASONING, by_seat={0: None, 2: None}))
    assert as_image(HUNT).size == as_image(later).size == as_image(over).size
    assert as_image(HUNT).height > as_image(replace(HUNT, reasoning=None)).height
    ended = replace(CHOICE_REASONING, by_seat={2: None, 3: None})
    assert as_image(HUNT_WITH_CHOICE).size == as_image(replace(HUNT, reasoning=ended)).size


# ----------------------------------------------------------------------------------------------------- figures


def test_figures_have_the_documented_keys() -> None:
    figures = json.loads(json.dumps(HUNT.figures()))
    assert set(figures) == {"time", "players", "things", "last_actions", "rewards", "totals", "reasoning"}
    by_policy, searching = figures["reasoning"]
    keys = {"seat", "likeliest_action", "probability", "policy", "value", "beliefs", "plan"}
    assert set(by_policy) == set(searching) == keys
    assert (by_policy["seat"], by_policy["likeliest_action"], by_policy["plan"]) == (0, "DOWN", None)
    assert (searching["seat"], searching["likeliest_action"]) == (2, "LEFT")
    assert searching["probability"] == pytest.approx(0.7)
    assert set(searching["plan"]) == {"values", "errors", "visits", "policy", "value", "depth", "choice"}
    assert searching["plan"]["errors"] is searching["plan"]["choice"] is None
    belief = searching["beliefs"][0]
    named = {"likeliest_goal", "likeliest_action", "likely_rationality"}
    assert set(belief) == {"about", "goals", "actions", "rationality", *named}
    assert (belief["about"], *(belief[key] for key in sorted(named))) == (3, "LEFT", "hare", "random")
    assert set(belief["goals"]) == set(GOALS)
    assert set(belief["rationality"]) == set(RATIONALITIES)


def test_figures_have_the_choice_among_base_plans() -> None:
    _, choosing = json.loads(json.dumps(HUNT_WITH_CHOICE.figures()))["reasoning"]
    assert set(choosing["plan"]["errors"]) == {"DOWN", "LEFT"}, "one simulation of STAY has no standard error"
    choice = choosing["plan"]["choice"]
    assert set(choice) == {"plan", "replaced", "reference", "challenger", "advantage", "base_plans"}
    assert (choice["plan"], choice["replaced"]) == ("hares", True)
    assert (choice["reference"]["action"], choice["reference"]["plan"]) == ("DOWN", "neutral")
    assert (choice["challenger"]["action"], choice["challenger"]["plan"]) == ("LEFT", "hares")
    assert choice["challenger"]["result"] == {"value": 1.0, "error": 0.0}
    assert choice["advantage"] == pytest.approx({"value": 0.8, "error": 0.12})
    assert list(choice["base_plans"]) == list(BASE_PLANS)
    assert choice["base_plans"]["stags"] == pytest.approx({"value": 0.1, "error": 0.08})


# ----------------------------------------------------------------------------------------------------- command

SETTINGS = {
    "goals": "prey",
    "simulations": 2,
    "belief_samples": 1,
    "reply_samples": 1,
    "rollouts": 8,
    "rounds": 1,
    "randomize_rewards": True,
    "hidden": [8],
    "moa_hidden": [8],
}


@dataclass(frozen=True)
class UntrainedRun:
    """Stand-in for a run directory: an untrained planner."""

    policy: Policy

    @property
    def config(self) -> dict[str, Any]:
        return {"training": {"game": self.policy.game}}

    def policies(self) -> list[Policy]:
        return [self.policy]

    def seated(self, policies: list[Policy], seat: int) -> Policy:
        return policies[0]


def open_untrained(monkeypatch: pytest.MonkeyPatch, planner: str) -> None:
    """Replaces every opened run by an untrained one."""
    name, settings = "msh-4x4-4h1s:T=3", {**SETTINGS, "planner": planner}
    game, algorithm = make(name), make_algorithm("hopplus", settings)
    assert isinstance(algorithm, HopPlus)

    @jax.jit
    def init_params(key: jax.Array) -> dict[str, Any]:
        policy = initial_params(algorithm.network(game), game, key)
        return {"policy": policy, "moa": make_moa(algorithm).init_params(key, game)}

    params = init_params(jax.random.key(0))
    run = UntrainedRun(Policy("hopplus", settings, name, 0, 0, params))
    monkeypatch.setattr("hopplus.training.run.open_run", lambda path: run)


def test_watch_shows_the_reasoning_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_untrained(monkeypatch, planner="off")
    cast = "self,nh,noisy(self,0.5),pool(self,ns)"
    png, file = str(tmp_path / "reasoning.png"), str(tmp_path / "reasoning.json")
    assert main(["watch", "--run", "runs/untrained", "--cast", cast, "--png", png, "--at", "0", "--json", file]) == 0
    assert capsys.readouterr().out.splitlines() == [png, f"figures: {file}"]
    figures = json.loads(Path(file).read_text(encoding="utf-8"))
    assert set(figures) == {"game", "version", "cast", "seed", "steps"}
    first, *_, last = figures["steps"]
    assert [entry["seat"] for entry in first["reasoning"]] == [0, 2]
    assert last["reasoning"] == []
    for entry in first["reasoning"]:
        assert [belief["about"] for belief in entry["beliefs"]] == [(entry["seat"] + 1 + n) % 4 for n in range(3)]
        assert all(sum(belief["goals"].values()) == pytest.approx(1) for belief in entry["beliefs"])
        assert entry["plan"] is None
    for now, then in zip(figures["steps"], figures["steps"][1:], strict=False):
        legal = {entry["seat"]: set(entry["policy"]) for entry in now["reasoning"]}
        assert all(then["last_actions"][seat] in actions for seat, actions in legal.items())


def test_watch_seats_a_run_in_every_seat_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_untrained(monkeypatch, planner="tree")
    assert main(["watch", "--run", "runs/untrained", "--greedy", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["cast"] == ["hopplus"] * 4
    assert [entry["seat"] for entry in figures["steps"][0]["reasoning"]] == [0, 1, 2, 3]
    for now, then in zip(figures["steps"], figures["steps"][1:], strict=False):
        for entry in now["reasoning"]:
            assert sum(entry["plan"]["visits"].values()) == 2
            assert then["last_actions"][entry["seat"]] == entry["likeliest_action"]


def test_watch_shows_the_plans_of_belief_rollouts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_untrained(monkeypatch, planner="rollouts")
    argv = ["watch", "--run", "runs/untrained", "--cast", "self,nh,nh,nh"]
    assert main([*argv, "--json"]) == 0
    steps = [step for step in json.loads(capsys.readouterr().out)["steps"] if step["reasoning"]]
    names = [preference.name for preference in make("msh-4x4-4h1s").preferences]
    for number, step in enumerate(steps):
        (entry,) = step["reasoning"]
        choice = entry["plan"]["choice"]
        assert list(choice["base_plans"]) == names
        assert choice["plan"] == choice["challenger" if choice["replaced"] else "reference"]["plan"]
        followed = steps[number - 1]["reasoning"][0]["plan"]["choice"]["plan"] if number else names[0]
        assert choice["reference"]["plan"] == followed, "a plan is followed until another replaces it"
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert text.count("\n  plan: ") == text.count("\n  base plans, first estimates:") == len(steps)


@pytest.mark.parametrize("argv", [[], ["msh-4x4-4h1s"], ["--cast", "ns,ns,ns,ns"]])
def test_watch_names_missing_options(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *argv]) == 2
    assert "needs a GAME and --cast, or else --run" in capsys.readouterr().err

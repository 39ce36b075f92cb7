"""What a planner thinks can be watched: in words, as text and pictures, and as figures."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.cli.main import main
from hopplus.games import make
from hopplus.planning.search import Plan
from hopplus.players.planner import Thought
from hopplus.report import Frame, as_image, as_svg, as_text, describe, picture_of
from hopplus.report.shapes import Group, Rectangle, Shape, Text
from hopplus.report.style import font, goal_colour, seat_colour
from hopplus.report.thoughts import Belief, Reasoning, Thinking, portions, reasoning_of
from hopplus.training.policies import Policy
from hopplus.training.recipe import initial_params
from hopplus.training.recipes import make_recipe
from hopplus.training.recipes.hopplus import HopPlus

ACTIONS = ("UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE")
GOALS = ("nothing", "stag", "hare")
LEGAL = np.array([0, 1, 1, 0, 1, 0, 0], bool)
PLAN = Plan(
    values=jnp.array([0, 0.25, 2.5, 0, -1, 0, 0]),
    visits=jnp.array([0, 4.0, 12.0, 0, 0, 0, 0]),
    policy=jnp.array([0, 0.2, 0.7, 0, 0.1, 0, 0]),
    value=jnp.float32(1.9),
    depth=jnp.float32(2.5),
)
THOUGHT = Thought(
    meant=jnp.int32(2),
    log_probability=jnp.float32(0),
    value=jnp.float32(1.25),
    features=(),
    belief=jnp.array([[0.1, 0.2, 0.7], [0, 1, 0], [0.5, 0.3, 0.2]]),
    expected=jnp.eye(7)[jnp.array([2, 6, 4])] * 0.8 + 0.2 / 7,
    policy=jnp.array([0, 0.6, 0.3, 0, 0.1, 0, 0]),
    plan=PLAN,
    mind=(),
    goals=(),
)
SEARCHING = reasoning_of(THOUGHT, 2, GOALS, ACTIONS, LEGAL, [True, True, True, True])
BY_POLICY = reasoning_of(replace(THOUGHT, plan=()), 0, GOALS, ACTIONS, LEGAL, [True, False, True, True])
THINKING = Thinking(GOALS, ACTIONS, {0: BY_POLICY, 2: SEARCHING})
HUNT = Frame(
    height=4,
    width=5,
    players=((0, 0), None, (2, 3), (3, 3)),
    things={"block": (), "stag": ((2, 3),), "hare": ((3, 0),)},
    last_actions=("UP", "HARE", "STAY", "LEFT"),
    rewards=(0.0, 0.0, 0.0, 0.0),
    totals=(0.0, 1.0, 0.0, 0.0),
    time=7,
    deadline=35,
    player_names=("hopplus", "nh", "hop", "ns"),
    title="hunt",
    thinking=THINKING,
)
PLACES = tuple(f"drift at {divmod(cell, 8)}" for cell in range(64))


def thinking_about(goals: dict[str, float], actions: tuple[str, ...] = ACTIONS) -> Thinking:
    """One player who thinks this of one other."""
    belief = Belief(1, goals, dict.fromkeys(actions, 1 / len(actions)))
    return Thinking(tuple(goals), actions, {0: Reasoning(dict.fromkeys(actions, 1 / len(actions)), 0.0, (belief,))})


def groups(frame: Frame) -> dict[str, Group]:
    return {shape.label: shape for shape in picture_of(frame).shapes if isinstance(shape, Group)}


def texts(frame: Frame) -> list[Text]:
    def inside(shapes: tuple[Shape, ...]) -> list[Text]:
        parts = [inside(shape.shapes) if isinstance(shape, Group) else [shape] for shape in shapes]
        return [shape for part in parts for shape in part if isinstance(shape, Text)]

    return inside(picture_of(frame).shapes)


def block_of(text: str, seat: int) -> str:
    """What the text says of one player's thoughts."""
    return re.split(r"\n(?=\d plans|goals:)", text[text.index(f"\n{seat} plans") + 1 :])[0]


# ------------------------------------------------------------------------------------------------- from arrays


def test_a_thought_is_told_by_names_and_seats() -> None:
    assert [belief.about for belief in SEARCHING.beliefs] == [3, 0, 1]
    assert SEARCHING.beliefs[0].goals == pytest.approx({"nothing": 0.1, "stag": 0.2, "hare": 0.7})
    assert max(SEARCHING.beliefs[1].actions, key=SEARCHING.beliefs[1].actions.__getitem__) == "HARE"
    assert SEARCHING.search is not None
    assert SEARCHING.search.visits == {"DOWN": 4, "LEFT": 12, "STAY": 0}
    assert SEARCHING.chances == pytest.approx({"DOWN": 0.2, "LEFT": 0.7, "STAY": 0.1})
    assert SEARCHING.expects == pytest.approx(1.9)


def test_without_a_search_the_policy_is_the_plan_and_who_has_left_is_not_thought_about() -> None:
    assert BY_POLICY.search is None
    assert [belief.about for belief in BY_POLICY.beliefs] == [2, 3]
    assert BY_POLICY.beliefs[0].goals == pytest.approx({"nothing": 0, "stag": 1, "hare": 0})
    assert BY_POLICY.chances == pytest.approx({"DOWN": 0.6, "LEFT": 0.3, "STAY": 0.1})
    assert BY_POLICY.expects == 1.25


@pytest.mark.parametrize("whole", [1, 7, 10])
def test_portions_are_whole_and_nearly_in_proportion(whole: int) -> None:
    drawn = np.random.default_rng(whole).dirichlet(np.full(6, 0.3), 50)
    for row in drawn:
        chances = {str(number): value for number, value in enumerate(row)}
        parts = portions(chances, whole)
        assert sum(parts.values()) == whole
        assert all(abs(parts.get(name, 0) - whole * chance) < 1 for name, chance in chances.items())
    assert portions({}, whole) == {}


def test_of_many_goals_only_likely_ones_are_told_apart() -> None:
    few = thinking_about({"stag": 0.99, "hare": 0.01})
    assert few.shown_goals == ("stag", "hare")
    chances = dict.fromkeys(PLACES, 0.1 / 62) | {PLACES[3]: 0.6, PLACES[9]: 0.3}
    many = thinking_about(chances)
    assert many.shown_goals == (PLACES[3], PLACES[9], "others")
    own = many.reasonings[0]
    assert many.shown(own.beliefs[0]) == pytest.approx({PLACES[3]: 0.6, PLACES[9]: 0.3, "others": 0.1})
    assert thinking_about({"any 0": 1.0}).shown(Belief(1, {"any 0": 1.0}, {})) == {}


# -------------------------------------------------------------------------------------------------------- text


def test_the_text_says_what_everybody_thinks() -> None:
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
    assert re.search(r"│ chance +· +60% +30% +· +10% +· +·", by_policy)
    assert "\n  1 " not in by_policy
    assert "goals:  · nothing  S stag  h hare" in text


def test_thoughts_fit_into_100_columns_and_colour_changes_nothing() -> None:
    chances = dict.fromkeys(PLACES, 1 / 64)
    wide = replace(HUNT, thinking=thinking_about(chances, (*ACTIONS, "JUMP_OVER_A_BLOCK", "WAIT_FOR_THE_OTHERS")))
    likely = replace(HUNT, thinking=thinking_about(dict.fromkeys(PLACES[:16], 1 / 16)))
    for frame in (HUNT, wide, likely):
        plain = as_text(frame, colour=False)
        assert re.sub(r"\x1b\[[0-9;]*m", "", as_text(frame, colour=True)) == plain
        assert max(map(len, plain.splitlines())) <= 100
    assert "----------" in as_text(wide, colour=False)
    assert as_text(likely, colour=False).count("drift at") == 17


def test_where_there_is_one_goal_only_actions_are_foreseen() -> None:
    frame = replace(HUNT, thinking=thinking_about({"any 0": 1.0}))
    assert "any 0" not in as_text(frame, colour=False) + as_svg(frame) + describe(frame)
    assert re.search(r"\n  1 next ↑ UP 14% ", as_text(frame, colour=False))


def test_nothing_is_said_of_thoughts_where_nobody_thinks() -> None:
    over = replace(HUNT, thinking=Thinking(GOALS, ACTIONS, {0: None, 2: None}))
    assert as_text(over) == as_text(replace(HUNT, thinking=None))
    assert describe(over) == describe(replace(HUNT, thinking=None))
    assert over.figures()["thoughts"] == replace(HUNT, thinking=None).figures()["thoughts"] == []


def test_the_description_has_a_sentence_for_each_that_thinks() -> None:
    assert (
        "Seat 2 plans LEFT 70% and expects 1.9; of seat 3 it believes goal hare 70%, next action LEFT 83%; "
        "of seat 0 it believes goal stag 100%, next action HARE 83%" in describe(HUNT)
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
    written = [text.text for text in texts(HUNT)]
    assert {"plans", "LEFT 70%", "DOWN 60%", "2.50", "-1.00", "12", "60%", *GOALS} <= set(written)
    framed = [
        label
        for label, group in groups(HUNT).items()
        if any(isinstance(shape, Rectangle) and shape.fill is None and shape.radius for shape in group.shapes)
    ]
    assert framed == ["seat 0, action DOWN: chance 60%", "seat 2, action LEFT: worth 2.50, visits 12"]
    pixels = np.asarray(as_image(HUNT)).reshape(-1, 3)
    for colour in (seat_colour(2), goal_colour("stag", 1), goal_colour("hare", 2)):
        assert (pixels == list(bytes.fromhex(colour[1:]))).all(-1).sum() > 50


@pytest.mark.parametrize(
    "thinking",
    [
        THINKING,
        thinking_about(dict.fromkeys(PLACES[:16], 1 / 16)),
        thinking_about(
            {"a goal with a name that goes on and on": 0.9, "b": 0.1}, ("JUMP_OVER_ALL_BLOCKS_AT_ONCE", "UP")
        ),
    ],
)
def test_nothing_is_written_beyond_the_picture(thinking: Thinking) -> None:
    frame = replace(HUNT, thinking=thinking)
    picture = picture_of(frame)
    for text in texts(frame):
        length = font(text.size).getlength(text.text)
        left = text.x - {"start": 0, "middle": length / 2, "end": length}[text.anchor]
        assert left >= 0, text
        assert left + length <= picture.width, text
        assert text.y + text.size / 2 < picture.height, text


def test_all_pictures_of_an_episode_have_the_same_size() -> None:
    later = replace(HUNT, thinking=replace(THINKING, by_seat={0: None, 2: SEARCHING}))
    over = replace(HUNT, thinking=replace(THINKING, by_seat={0: None, 2: None}))
    assert as_image(HUNT).size == as_image(later).size == as_image(over).size
    assert as_image(HUNT).height > as_image(replace(HUNT, thinking=None)).height


# ----------------------------------------------------------------------------------------------------- figures


def test_figures_have_the_documented_keys() -> None:
    figures = json.loads(json.dumps(HUNT.figures()))
    assert set(figures) == {"time", "players", "things", "last_actions", "rewards", "totals", "thoughts"}
    by_policy, searching = figures["thoughts"]
    keys = {"seat", "plans", "probability", "policy", "value", "beliefs", "search"}
    assert set(by_policy) == set(searching) == keys
    assert (by_policy["seat"], by_policy["plans"], by_policy["search"]) == (0, "DOWN", None)
    assert (searching["seat"], searching["plans"], searching["probability"]) == (2, "LEFT", pytest.approx(0.7))
    assert set(searching["search"]) == {"values", "visits", "policy", "value", "depth"}
    belief = searching["beliefs"][0]
    assert set(belief) == {"about", "goals", "actions", "likeliest_goal", "likeliest_action"}
    assert (belief["about"], belief["likeliest_goal"], belief["likeliest_action"]) == (3, "hare", "LEFT")
    assert set(belief["goals"]) == set(GOALS)


# ----------------------------------------------------------------------------------------------------- command

SETTINGS = {"goals": "prey", "simulations": 2, "draws": 1, "replies": 1, "hidden": [8], "moa_hidden": [8]}


@dataclass(frozen=True)
class UntrainedRun:
    """Stands for a run directory: a planner that has learnt nothing."""

    policy: Policy

    @property
    def config(self) -> dict[str, Any]:
        return {"training": {"game": self.policy.game}}

    def policies(self) -> list[Policy]:
        return [self.policy]

    def seated(self, policies: list[Policy], seat: int) -> Policy:
        return policies[0]


def let_open(monkeypatch: pytest.MonkeyPatch, search: str) -> None:
    """Have every run that is opened be an untrained one."""
    name, settings = "msh-4x4-4h1s:T=3", {**SETTINGS, "search": search}
    game, recipe = make(name), make_recipe("hopplus", settings)
    assert isinstance(recipe, HopPlus)

    @jax.jit
    def fresh(key: jax.Array) -> dict[str, Any]:
        return {"policy": initial_params(recipe.network(game), game, key), "moa": recipe.moa().fresh(key, game)}

    params = fresh(jax.random.key(0))
    run = UntrainedRun(Policy("hopplus", settings, name, 0, 0, params))
    monkeypatch.setattr("hopplus.training.run.open_run", lambda path: run)


def test_a_run_is_watched_as_it_thinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_open(monkeypatch, search="off")
    cast = "self,nh,noisy(self,0.5),pool(self,ns)"
    png, file = str(tmp_path / "thinking.png"), str(tmp_path / "thinking.json")
    assert main(["watch", "--run", "runs/untrained", "--cast", cast, "--png", png, "--at", "0", "--json", file]) == 0
    assert capsys.readouterr().out.splitlines() == [png, f"figures: {file}"]
    figures = json.loads(Path(file).read_text(encoding="utf-8"))
    assert set(figures) == {"game", "version", "cast", "seed", "steps"}
    first, *_, last = figures["steps"]
    assert [thought["seat"] for thought in first["thoughts"]] == [0, 2]
    assert last["thoughts"] == []
    for thought in first["thoughts"]:
        assert [belief["about"] for belief in thought["beliefs"]] == [(thought["seat"] + 1 + n) % 4 for n in range(3)]
        assert all(sum(belief["goals"].values()) == pytest.approx(1) for belief in thought["beliefs"])
        assert thought["search"] is None
    for now, then in zip(figures["steps"], figures["steps"][1:], strict=False):
        legal = {thought["seat"]: set(thought["policy"]) for thought in now["thoughts"]}
        assert all(then["last_actions"][seat] in allowed for seat, allowed in legal.items())


def test_a_run_sits_in_every_seat_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_open(monkeypatch, search="on")
    assert main(["watch", "--run", "runs/untrained", "--greedy", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["cast"] == ["hopplus"] * 4
    assert [thought["seat"] for thought in figures["steps"][0]["thoughts"]] == [0, 1, 2, 3]
    for now, then in zip(figures["steps"], figures["steps"][1:], strict=False):
        for thought in now["thoughts"]:
            assert sum(thought["search"]["visits"].values()) == 2
            assert then["last_actions"][thought["seat"]] == thought["plans"]


@pytest.mark.parametrize("words", [[], ["msh-4x4-4h1s"], ["--cast", "ns,ns,ns,ns"]])
def test_watch_says_what_it_needs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 2
    assert "needs a GAME and --cast, or else --run" in capsys.readouterr().err

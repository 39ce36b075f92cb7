"""Texts about plans and rationality: the same words in the terminal, in pictures and on pages."""

import re
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

from decisions import (
    ACTIONS,
    ALL_ALIVE,
    BASE_PLANS,
    CHOICE,
    CHOOSING,
    DECISION,
    DOWN,
    HARES,
    HUNT,
    HUNT_WITH_CHOICE,
    LEFT,
    LEGAL,
    NAMES,
    NEUTRAL,
    RATIONALITIES,
    ROLLOUT_PLAN,
    SEARCHING,
)
from hopplus.visualization import as_text, describe, picture_of
from hopplus.visualization.plan_summary import ChoiceSummary
from hopplus.visualization.reasoning import Belief, player_reasoning
from hopplus.visualization.replay import for_viewer
from hopplus.visualization.shapes import ShapeGroup, Text
from hopplus.visualization.text import describe_base_plans, describe_choice, describe_rationality

REPLACED = "plan: hares (replaced neutral: 1.00 ± 0.00 against 0.20 ± 0.10, difference 0.80 ± 0.12)"
ESTIMATES = "base plans, first estimates: neutral 0.25 ± 0.15; stags 0.10 ± 0.08; hares 1.00 ± 0.00"


def choice_of(**changes: Any) -> ChoiceSummary:
    """Returns the choice made by hand, with changes."""
    plan = replace(ROLLOUT_PLAN, choice=replace(CHOICE, **changes))
    summary = player_reasoning(replace(DECISION, plan=plan), 3, NAMES, LEGAL, ALL_ALIVE).plan
    assert summary is not None
    assert summary.choice is not None
    return summary.choice


KEPT = {"plan": jnp.int32(NEUTRAL), "replaced": jnp.bool_(False), "values": jnp.array([1.1, 0.95])}
SAME_PLAN = {"challenger": jnp.array([LEFT, NEUTRAL])}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, REPLACED),
        (KEPT, "plan: neutral, kept (best other: hares 0.95 ± 0.00 against 1.10 ± 0.10)"),
        (
            {"plan": jnp.int32(NEUTRAL), **SAME_PLAN},
            "plan: neutral, first action LEFT (replaced DOWN: 1.00 ± 0.00 against 0.20 ± 0.10, difference 0.80 ± 0.12)",
        ),
        (
            {**KEPT, **SAME_PLAN},
            "plan: neutral, kept (best other first action: LEFT 0.95 ± 0.00 against 1.10 ± 0.10)",
        ),
        (
            {"values": jnp.array([0.999, 1.0]), "advantage": jnp.float32(0.001)},
            "plan: hares (replaced neutral: the same 1.00 ± 0.00, but sooner)",
        ),
        (
            {**KEPT, "challenger": jnp.array([DOWN, NEUTRAL])},
            "plan: neutral, without alternative (1.10 ± 0.10)",
        ),
    ],
    ids=["replaced", "kept", "another action of the plan", "kept action", "sooner", "one candidate"],
)
def test_the_plan_is_described_with_the_comparison_that_decided(changes: dict[str, Any], text: str) -> None:
    assert describe_choice(choice_of(**changes)) == text


def test_a_plan_changes_only_if_another_plan_replaces_it() -> None:
    assert choice_of().changes_plan
    assert not choice_of(**KEPT).changes_plan
    assert not choice_of(plan=jnp.int32(NEUTRAL), **SAME_PLAN).changes_plan


def test_every_base_plan_has_a_value_and_an_error() -> None:
    assert describe_base_plans(choice_of()) == ESTIMATES
    fewer = choice_of(plan_values=jnp.array([0.25]), plan_errors=jnp.array([0.15]), **KEPT)
    assert list(fewer.base_plans) == [BASE_PLANS[NEUTRAL]], "only the neutral plan was simulated"
    assert choice_of().plan == BASE_PLANS[HARES]


@pytest.mark.parametrize(
    ("rationality", "text"),
    [
        ({"tremble 0.02": 0.07, "random": 0.93}, "random 93%"),
        ({"tremble 0.02": 0.29, "tremble 0.25": 0.71}, "tremble 0.25: 71%"),
        ({"tremble 0.02": 0.49, "tremble 0.25": 0.26, "random": 0.25}, ""),
        ({"tremble 0.02": 1.0}, ""),
        ({}, ""),
    ],
    ids=["random", "tremble", "none is likely", "one hypothesis", "unknown"],
)
def test_rationality_is_described_if_one_of_several_hypotheses_is_likely(
    rationality: dict[str, float], text: str
) -> None:
    belief = Belief(1, {"stag": 1.0}, {"STAY": 1.0}, rationality)
    assert describe_rationality(belief) == text
    assert (belief.likely_rationality is not None) == bool(text)


def test_trembles_of_one_preference_are_shown_together() -> None:
    names = replace(NAMES, rationalities=("tremble 0.02", "preference hares", "preference hares"))
    belief = player_reasoning(DECISION, 2, names, LEGAL, ALL_ALIVE).beliefs[2]
    assert belief.rationality == pytest.approx({"tremble 0.02": 0.4, "preference hares": 0.6})
    assert describe_rationality(belief) == "preference hares 60%"


# ---------------------------------------------------------------------------------------------------- where it is shown


def test_the_terminal_shows_plan_errors_and_rationality() -> None:
    text = as_text(HUNT_WITH_CHOICE, colour=False)
    block = text[text.index("\n3 plans") + 1 :]
    assert block.startswith(f"3 plans ← LEFT 100%, expects 1, simulations of 6.75 steps\n  {REPLACED}\n")
    assert "\n  base plans, first estimates:  neutral 0.25 ± 0.15  stags 0.10 ± 0.08  hares 1.00 ± 0.00\n" in block
    assert re.search(r"│ value +· +0.25 +1.00 +· +0.50 +· +·\n", block)
    assert re.search(r"│ error +· +±0.15 +±0.00 +· +· +· +·\n", block), "STAY was simulated once"
    assert re.search(r"│ rollouts +· +20 +40 +· +1 +· +·\n", block)
    assert "\n  rationality:  0 random 93%  1 tremble 0.25: 71%\n" in block
    assert max(map(len, text.splitlines())) <= 100


def test_long_plans_are_wrapped_in_the_terminal() -> None:
    names = ("a hunter of stags that never gives up on them", "b" * 40, "c" * 40)
    player = player_reasoning(
        replace(DECISION, plan=ROLLOUT_PLAN), 3, replace(NAMES, base_plans=names), LEGAL, ALL_ALIVE
    )
    reasoning = replace(HUNT_WITH_CHOICE.reasoning, by_seat={3: player}) if HUNT_WITH_CHOICE.reasoning else None
    text = as_text(replace(HUNT, reasoning=reasoning), colour=False)
    assert max(map(len, text.splitlines())) <= 100
    assert "difference 0.80 ± 0.12" in re.sub(r"\s+", " ", text)


def test_the_picture_shows_plan_errors_and_rationality() -> None:
    groups = {shape.label: shape for shape in picture_of(HUNT_WITH_CHOICE).shapes if isinstance(shape, ShapeGroup)}
    assert f"seat 3, {REPLACED}" in groups
    assert f"seat 3, {ESTIMATES}" in groups
    assert "seat 3, action LEFT: value 1.00 ±0.00, rollouts 40" in groups
    assert "seat 3, action STAY: value 0.50, rollouts 1" in groups
    assert "seat 2, action LEFT: value 2.50, visits 12" in groups, "tree search has no errors"
    about = groups["seat 3 about seat 1: goal stag 100%, next action HARE 83%, rationality tremble 0.25: 71%"]
    assert [shape.text for shape in about.shapes if isinstance(shape, Text)][-1] == "tremble 0.25: 71%"


def test_the_description_has_plan_and_rationality() -> None:
    text = describe(HUNT_WITH_CHOICE)
    assert f"Seat 3 plans LEFT 100% and expects 1; {REPLACED}; {ESTIMATES}; of seat 0 it believes" in text
    assert "next action LEFT 83%, rationality random 93%" in text


def test_the_viewer_gets_the_texts_of_the_plans_by_seat() -> None:
    (step,) = for_viewer([HUNT_WITH_CHOICE])["steps"]
    assert step["plan_texts"] == {3: [REPLACED, ESTIMATES]}
    (step,) = for_viewer([HUNT])["steps"]
    assert step["plan_texts"] == {}


def test_values_have_errors_only_if_the_planner_has_them() -> None:
    assert SEARCHING.plan is not None
    assert (SEARCHING.plan.errors, SEARCHING.plan.choice) == (None, None)
    assert CHOOSING.plan is not None
    assert CHOOSING.plan.errors == pytest.approx({"DOWN": 0.15, "LEFT": 0.0})
    assert set(CHOOSING.beliefs[0].rationality) == set(RATIONALITIES)
    assert set(CHOOSING.beliefs[0].actions) == set(ACTIONS)

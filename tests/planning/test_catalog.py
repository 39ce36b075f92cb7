"""Planners by name: registration, selection by settings, and the method that a player acts and learns by."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from common import kept_registries
from hopplus.algorithms import make_algorithm
from hopplus.algorithms.hopplus import HopPlus
from hopplus.beliefs.belief_tracker import BeliefTracker
from hopplus.configs import PlanningConfig
from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.planning import catalog
from hopplus.planning.catalog import PlannerSetup
from hopplus.planning.plan import Plan
from hopplus.planning.rollouts import RolloutPlanner
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.simulator import Simulator
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from planners import known_opponents, uniform_policy

GAME = make("msh-4x4-2h1s")


class Stubborn:
    """Always the last action."""

    def __init__(self, setup: PlannerSetup) -> None:
        self.actions = setup.simulation.game.num_actions

    def plan(self, key: Any, params: Any, beliefs: Any, observation: Any) -> Plan:
        policy = jax.nn.one_hot(self.actions - 1, self.actions)
        one = jnp.float32(1)
        return Plan(values=policy, errors=None, visits=policy, policy=policy, value=one, depth=one)


def algorithm(**settings: Any) -> HopPlus:
    made = make_algorithm("hopplus", {"hidden": (8,), "moa_hidden": (8,), **settings})
    assert isinstance(made, HopPlus)
    return made


def setup_of(**settings: Any) -> PlannerSetup:
    tracker = BeliefTracker(known_opponents(GAME, "ns"), inter="off")
    simulation = BeliefSimulator(Simulator(GAME), tracker, uniform_policy)
    return PlannerSetup("tree", PlanningConfig(**settings), 5.0, 0.9, simulation)


def test_the_tree_search_has_the_settings_of_the_config() -> None:
    settings: dict[str, Any] = {
        "belief_samples": 2,
        "simulations": 7,
        "reply_samples": 3,
        "q_scale": 3.0,
        "q_floor": 0.3,
        "temperature": 0.5,
        "hypotheses": "tree",
        "cover_root": False,
        "leaf": "rollout",
    }
    planner = catalog.make(setup_of(**settings))
    assert isinstance(planner, TreePlanner)
    assert planner.search == SearchConfig(**settings, exploration=0.4 * 5.0, gamma=0.9)
    planner = catalog.make(setup_of(exploration=1.5))
    assert isinstance(planner, TreePlanner)
    assert planner.search.exploration == 1.5


def test_unknown_and_repeated_names_are_rejected() -> None:
    with pytest.raises(InputError, match=r"there is no planner 'tre' \(did you mean 'tree'\?\)"):
        algorithm(planner="tre").check([GAME])
    with pytest.raises(InputError, match="there is no planner 'stubborn'"):
        algorithm(planner="stubborn").player(GAME, "x")
    for name in ("tree", "rollouts", "off"):
        with pytest.raises(InputError, match="already known"):
            catalog.register(name, Stubborn)


@pytest.mark.parametrize(
    ("settings", "acting", "training"),
    [
        ({}, "rollouts", None),
        ({"planner": "off"}, None, None),
        ({"planner": "tree"}, "tree", None),
        ({"planner": "off", "learn": "expert"}, None, "tree"),
        ({"planner": "stubborn"}, "stubborn", None),
        ({"planner": "stubborn", "learn": "expert"}, "stubborn", "stubborn"),
    ],
)
def test_the_planner_of_players(settings: dict[str, Any], acting: str | None, training: str | None) -> None:
    with kept_registries():
        catalog.register("stubborn", Stubborn)
        chosen = [algorithm(**settings).player(GAME, "x", learns=learns).planning for learns in (False, True)]
    assert [choice and choice.name for choice in chosen] == [acting, training]


def test_planned_targets_come_from_the_planner() -> None:
    with kept_registries():
        catalog.register("stubborn", Stubborn)
        assert isinstance(algorithm(learn="both", planner="stubborn").planning_method(GAME), Stubborn)
    assert isinstance(algorithm(learn="both").planning_method(GAME), RolloutPlanner)
    assert isinstance(algorithm(learn="both", planner="off").planning_method(GAME), TreePlanner)


def test_players_with_planners_are_static_arguments() -> None:
    """Equal players share one compiled program."""
    first, second = (algorithm(planner="tree").player(GAME, "x") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != replace(first, planning=None)

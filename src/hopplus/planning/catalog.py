"""Planning methods by name: belief rollouts, tree search, and those that a user's file registers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.configs import PlanningConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.specs import nearest
from hopplus.games import Observation
from hopplus.planning.plan import Plan
from hopplus.planning.rollouts import RolloutPlanner
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.tree_search import Params, SearchConfig, TreePlanner

OFF = "off"
"""Value of the setting `planner` without a planning method."""
ROLLOUTS = "rollouts"
"""Name of belief rollouts."""
DEFAULT = "tree"
"""Planning method of a training that plans although the setting is off (`learn=expert|both`)."""
EXPLORATION = 0.4
"""Default PUCT constant, per maximum return of one player."""


class PlanningMethod(Protocol):
    """Planning of one decision, as a pure function."""

    def plan(self, key: Key, params: Params, beliefs: CoPlayerBeliefs, observation: Observation) -> Plan:
        """Returns values and an improved policy for the ego's observation; `params` are {policy, moa, world}."""
        ...


@dataclass(frozen=True)
class PlannerChoice:
    """Name and settings of a planning method, without the player that it plans for."""

    name: str
    config: PlanningConfig
    value_scale: float
    """Maximum return of one player, the unit of values."""
    gamma: float
    """Discount factor."""


@dataclass(frozen=True)
class PlannerSetup(PlannerChoice):
    """Inputs of a factory: the choice, and the player's models, policy and value."""

    simulation: BeliefSimulator
    """Game, simulator of steps, beliefs about co-players, policy and value of the player."""


Factory = Callable[[PlannerSetup], PlanningMethod]


def tree(setup: PlannerSetup) -> TreePlanner:
    """Tree search with the settings of the config."""
    config = setup.config
    search = SearchConfig(
        belief_samples=config.belief_samples,
        simulations=config.simulations,
        reply_samples=config.reply_samples,
        exploration=EXPLORATION * setup.value_scale if config.exploration is None else config.exploration,
        q_scale=config.q_scale,
        q_floor=config.q_floor,
        temperature=config.temperature,
        gamma=setup.gamma,
        hypotheses=config.hypotheses,
        cover_root=config.cover_root,
        leaf=config.leaf,
    )
    return TreePlanner(search, setup.simulation)


def rollouts(setup: PlannerSetup) -> RolloutPlanner:
    """Belief rollouts with the settings of the config."""
    return RolloutPlanner(setup.config, setup.simulation)


_PLANNERS: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Registers a planning method under a new name, for the setting `planner` and all commands."""
    if name in (*_PLANNERS, OFF):
        raise InputError(f"the planner {name!r} is already known: choose another name")
    _PLANNERS[name] = factory


def names() -> list[str]:
    """Returns the names of all registered planning methods."""
    return list(_PLANNERS)


def check(name: str) -> None:
    """Raises InputError unless the name is `off` or a registered planning method."""
    known = (OFF, *_PLANNERS)
    if name not in known:
        raise InputError(f"there is no planner {name!r}{nearest(name, known)}")


def make(setup: PlannerSetup) -> PlanningMethod:
    """Makes the planning method that a setup names."""
    if setup.name not in _PLANNERS:
        raise InputError(f"there is no planner {setup.name!r}{nearest(setup.name, _PLANNERS)}")
    return _PLANNERS[setup.name](setup)


register(ROLLOUTS, rollouts)
register("tree", tree)

"""Tree search at the root: it can overrule the policy, covers all actions, and does not know the co-players' goals."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from common import floats
from hopplus.beliefs.rationality import EXACT
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, make
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from planners import (
    CertainPolicy,
    KnownOpponents,
    known_opponents,
    make_tree_planner,
    plan_in,
)
from toy_games import ToyGame

MSH, MSG = make("msh-4x4-4h1s"), make("msg-4x4")
STAY, HARE = 4, 6
REMOVE = MSG.action_names.index("REMOVE")
KNOWN: dict[str, Any] = {"inter": "off", "rationality": EXACT, "goal_switch_probability": 0.0}
"""Beliefs in exact, constant opponent models."""


def last_step_on_a_hare() -> Any:
    """Returns a state in which only HARE pays: 1."""
    corner = (3, 3)
    return MSH.from_layout([(1, 1), corner, corner, corner], stags=[(0, 3)], hares=[(1, 1)], time=MSH.last_step - 1)


def last_step_on_a_drift() -> Any:
    """Returns a state in which only REMOVE pays: the benefit of one drift less its cost."""
    corner = (3, 3)
    return MSG.from_layout([(1, 1), corner, corner, corner], drifts=[(1, 1)], time=MSG.last_step - 1)


# ----------------------------------------------------------------------------------------------------------- overruling


@pytest.mark.parametrize(
    ("game", "state", "better", "gain"),
    [(MSH, last_step_on_a_hare(), HARE, 1.0), (MSG, last_step_on_a_drift(), REMOVE, 2.0)],
    ids=["hare", "drift"],
)
def test_the_search_overrules_a_policy_that_is_sure_of_a_worse_action(
    game: Game[Any], state: Any, better: int, gain: float
) -> None:
    """The gain is a small share of the maximum return: 5 and 36."""
    planner = make_tree_planner(known_opponents(game, "stay"), SearchConfig(), CertainPolicy(STAY, 0.999), **KNOWN)
    plan = plan_in(planner, state)
    assert plan.values[better] - plan.values[STAY] == pytest.approx(gain)
    assert plan.policy[better] > 0.9


def test_the_search_leaves_a_policy_that_is_sure_of_the_best_action() -> None:
    planner = make_tree_planner(known_opponents(MSH, "stay"), SearchConfig(), CertainPolicy(HARE, 0.999), **KNOWN)
    assert plan_in(planner, last_step_on_a_hare()).policy[HARE] > 0.999


@partial(jax.jit, static_argnames="planner")
def improved_policy(values: Any, legal: Any, visited: Any, planner: TreePlanner) -> Array:
    """Returns the improved policy of a uniform policy."""
    return planner.improved_policy(jnp.where(legal, 0.0, -1e9), values, legal, visited)


def log_odds(search: SearchConfig, values: Any, visited: Any = None) -> float:
    """Returns the log-odds of action 1 against action 0, of which only two are legal."""
    planner = make_tree_planner(known_opponents(MSH, "ns"), search, inter="off")
    legal = np.arange(7) < len(values)
    values = floats([*values, *[9.0] * (7 - len(values))])
    visited = legal if visited is None else np.isin(np.arange(7), visited)
    policy = np.asarray(improved_policy(values, legal, visited, planner))
    assert not policy[~legal].any(), "illegal actions have probability 0, whatever their value"
    return float(np.log(policy[1] / policy[0]))


def test_a_small_difference_does_not_become_a_certain_target() -> None:
    """Differences are measured by the spread of the values, or by its floor of 0.1 of the maximum return, 5."""
    search = SearchConfig(q_scale=10.0, q_floor=0.1)
    assert log_odds(search, [1.0, 1.0001]) == pytest.approx(10 * 1e-4 / 0.5, rel=1e-2)
    assert log_odds(search, [1.0, 1.1]) == pytest.approx(10 * 0.1 / 0.5, rel=1e-4)
    assert log_odds(search, [1.0, 1.6]) == pytest.approx(10, rel=1e-4)
    assert log_odds(search, [1.0, 2.0, 5.0]) == pytest.approx(10 / 4, rel=1e-4)
    assert log_odds(search, [1.0, 2.0, 5.0], visited=[0, 1]) == pytest.approx(10, rel=1e-4)
    assert log_odds(SearchConfig(temperature=0.5), [1.0, 2.0]) == pytest.approx(2, rel=1e-4)


# ------------------------------------------------------------------------------------------------------------- coverage


def visits_of(search: SearchConfig) -> np.ndarray:
    """Returns the visits of the six legal actions by a search whose policy gives all but one a probability of 0."""
    planner = make_tree_planner(known_opponents(MSH, "stay"), search, CertainPolicy(STAY, 1.0), **KNOWN)
    plan = plan_in(planner, last_step_on_a_hare())
    assert not plan.visits[5], "STAG is illegal"
    return np.asarray(plan.visits)[[0, 1, 2, 3, 4, 6]]


def test_every_legal_root_action_is_visited() -> None:
    assert visits_of(SearchConfig(belief_samples=1, simulations=32, reply_samples=4)).min() >= 4
    assert visits_of(SearchConfig(belief_samples=3, simulations=32, reply_samples=4)).min() >= 4
    assert visits_of(SearchConfig(belief_samples=1, simulations=13, reply_samples=4)).min() == 2
    assert visits_of(SearchConfig(belief_samples=1, simulations=6, reply_samples=4)).tolist() == [1] * 6
    fewer = visits_of(SearchConfig(belief_samples=1, simulations=2, reply_samples=4))
    assert fewer[4] == 1, "the likeliest action is visited first"
    assert fewer.max() == 1
    assert visits_of(SearchConfig(belief_samples=1, simulations=32, cover_root=False)).min() == 0


# ------------------------------------------------------------------------------------------------------ strategy fusion


@struct
class SignalState:
    """State of the signal game."""

    entered: Bool[Array, ""]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Signal(ToyGame[SignalState]):
    """Two players, two steps. At first the ego takes 0.7 (OUT), or enters (IN). If it has entered, it then earns 1 for
    the co-player's action, and nothing for another."""

    name: str = "test-signal"
    action_names: ClassVar[tuple[str, ...]] = ("IN", "OUT")
    last_step: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 1.0, "player": 1.0}

    def draw(self, key: Key) -> tuple[SignalState, Bool[Array, ""]]:
        return SIGNAL_START, jnp.bool_(True)

    def transition(self, key: Key, state: SignalState, actions: Int[Array, " n"]) -> Any:
        out = jnp.where(actions[0] == 1, 0.7, 0.0)
        guess = jnp.where(state.entered & (actions[0] == actions[1]), 1.0, 0.0)
        reward = jnp.stack([jnp.where(state.time == 0, out, guess), 0.0])[:, None]
        after = SignalState(actions[0] == 0, state.time + 1, actions)
        return after, reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1)

    def observe(self, state: SignalState) -> Observation:
        return self.observed(state, jnp.broadcast_to(state.entered, (2, 2)).astype(jnp.int8))

    def restore(self, observation: Observation) -> SignalState:
        return SignalState(observation.view[0] > 0, observation.time, observation.last_actions)

    def permute(self, state: SignalState, order: Any) -> SignalState:
        return state


SIGNAL, SIGNAL_START = Signal(), SignalState(jnp.bool_(False), jnp.int32(0), jnp.zeros(2, jnp.int32))


@dataclass(frozen=True)
class Sender(KnownOpponents):
    """Opponent model of two types: type k takes action k in the second step, and in the first one too if it reveals its
    type."""

    reveals: bool = False

    def policies(self, params: Any, features: Any, particles: Any = None) -> Float[Array, "1 2 2"]:
        is_silent = (features.time[0] == 0) & (not self.reveals)
        return jnp.where(is_silent, jnp.array([[1.0, 0.0]] * 2), jnp.eye(2))[None]


def value_of_entering(reveals: bool, intra: bool = True, **settings: Any) -> float:
    """Returns the mean value of IN over 16 searches, with equal beliefs in both types."""
    search = SearchConfig(belief_samples=2, simulations=600, exploration=1.0, gamma=1.0, **settings)
    opponent_model = Sender(SIGNAL, "codes", None, 2, reveals=reveals)  # pyright: ignore[reportArgumentType]
    planner = make_tree_planner(opponent_model, search, intra=intra, **KNOWN)
    return float(np.mean([plan_in(planner, SIGNAL_START, seed).values[0] for seed in range(16)]))


def test_the_search_does_not_know_the_co_players_goals() -> None:
    """Without a signal, IN is worth 0.5, less than OUT. A tree that knows the type values it by 1 (strategy fusion)."""
    assert value_of_entering(reveals=False) == pytest.approx(0.5, abs=0.12)
    assert value_of_entering(reveals=False, leaf="rollout") == pytest.approx(0.5, abs=0.12)
    assert value_of_entering(reveals=False, hypotheses="tree") > 0.75


@pytest.mark.parametrize("intra", [True, False])
def test_co_players_keep_their_goals_along_a_path(intra: bool) -> None:
    """A signal tells the type, so that IN is worth 1, whether or not the ego's policy sees updated beliefs."""
    assert value_of_entering(reveals=True, intra=intra) > 0.85

"""Playouts at the leaves of a tree search: exact expectations on a small board, and random keys."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.beliefs.rationality import EXACT
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Observation, make, one_seat
from hopplus.planning.playout import playout_value
from hopplus.planning.simulation import BeliefSimulator, SimulatedStep
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from planners import KnownOpponents, initial_beliefs, known_opponents, make_tree_planner, params_of
from toy_games import ToyGame

GAME = make("msh-4x4-2h1s", T=3)
TYPES = ("ns", "nh", "random")
BELIEF = np.array([0.5, 0.3, 0.2])
GAMMA = 0.5


# -------------------------------------------------------------------------------------------------- exact expectations


@partial(jax.jit, static_argnames="agent_type")
def all_steps(state: Any, agent_type: int) -> tuple[Any, Array, Array, Array, Array]:
    """Returns, for all pairs [49] of the ego's and the co-player's action, the next state, the ego's reward, whether
    its game goes on, and the probability of the pair: a uniform policy and an agent type."""
    observations = GAME.observe(state)
    legal = observations.legal[0, 0]
    player = known_opponents(GAME, *TYPES).agent_types[agent_type]
    reply_probs = player.probabilities((), player.init(jax.random.key(0), ()), one_seat(observations, 1))
    own, reply = jnp.divmod(jnp.arange(49), 7)
    step = jax.vmap(lambda own, reply: GAME.step(jax.random.key(0), state, jnp.stack([own, reply])))
    states, outcome = step(own, reply)
    goes_on = ~outcome.over & ~outcome.left[:, 0]
    return states, outcome.reward[:, 0], goes_on, (legal / legal.sum())[own] * reply_probs[reply], own


def exact_moments(state: Any, agent_type: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first two moments [2] of the return of a uniform policy beside an agent type, and those of each
    action [2, A] with this policy after it."""
    states, reward, goes_on, probability, own = jax.tree.map(np.asarray, all_steps(state, agent_type))
    moments = np.stack([reward, reward**2]).astype(np.float64)
    for pair in np.flatnonzero((probability > 0) & goes_on):
        after = jax.tree.map(lambda leaf, pair=pair: leaf[pair], states)
        mean, square = exact_moments(after, agent_type)[0]
        moments[:, pair] += GAMMA * mean, 2 * reward[pair] * GAMMA * mean + GAMMA**2 * square
    weighted = np.stack([np.bincount(own, probability * moment, 7) for moment in moments])
    return weighted.sum(-1), weighted / np.maximum(np.bincount(own, probability, 7), 1e-12)


def test_values_of_rollout_leaves_are_exact_expectations() -> None:
    """Trees of one simulation estimate each action's value without bias: the reward, and one playout after it."""
    state = GAME.from_layout([(1, 1), (1, 2)], stags=[(1, 2)], hares=[(0, 1), (2, 2)])
    by_type = np.stack([exact_moments(state, agent_type)[1] for agent_type in range(len(TYPES))])
    assert np.ptp(by_type[:, 0], axis=0).max() > 0.2, "the co-player's type matters"
    exact, square = np.tensordot(BELIEF, by_type, 1)
    search = SearchConfig(belief_samples=20_000, simulations=1, reply_samples=1, gamma=GAMMA, leaf="rollout")
    known: dict[str, Any] = {"inter": "off", "rationality": EXACT, "goal_switch_probability": 0.0}
    planner = make_tree_planner(known_opponents(GAME, *TYPES), search, **known)
    observation, beliefs = initial_beliefs(planner, state, BELIEF[None])
    plan = jax.jit(lambda key: planner.plan(key, params_of(len(TYPES)), beliefs, observation))(jax.random.key(0))
    visited = np.asarray(plan.visits) > 0
    assert visited.sum() >= 5
    errors = np.sqrt(np.maximum(square - exact**2, 0) / np.maximum(plan.visits, 1))
    assert 0 < errors[visited].max() < 0.03
    difference = np.abs(np.asarray(plan.values) - exact)
    np.testing.assert_array_less(difference[visited], 4 * errors[visited] + 1e-5)


# ----------------------------------------------------------------------------------------------------------------- keys


@struct
class ClockState:
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True, eq=False)
class Spy(ToyGame[ClockState]):
    """A game without rewards that records the keys of its steps."""

    name: str = "test-spy"
    keys: Any = None
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE")
    last_step: ClassVar[int] = 4  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 1.0, "player": 1.0}

    def draw(self, key: Key) -> tuple[ClockState, Bool[Array, ""]]:
        return ClockState(jnp.int32(0), jnp.zeros(2, jnp.int32)), jnp.bool_(True)

    def transition(self, key: Key, state: ClockState, actions: Int[Array, " n"]) -> Any:
        jax.debug.callback(lambda data: self.keys.append(tuple(np.asarray(data).tolist())), jax.random.key_data(key))
        after = ClockState(state.time + 1, actions)
        return after, jnp.zeros((2, 1)), jnp.zeros(2, jnp.int32), jnp.full(2, -1)

    def observe(self, state: ClockState) -> Observation:
        return self.observed(state, jnp.zeros((2, 1), jnp.int8))

    def restore(self, observation: Observation) -> ClockState:
        return ClockState(observation.time, observation.last_actions)

    def permute(self, state: ClockState, order: Any) -> ClockState:
        return state


@dataclass(frozen=True, eq=False)
class CoinPlayer(KnownOpponents):
    """Opponent model of a co-player that tosses a coin."""

    def policies(self, params: Any, features: Any, particles: Any = None) -> Any:
        return jnp.full((1, 1, 2), 0.5)


def spying_planner(search: SearchConfig) -> tuple[Spy, TreePlanner, Observation, CoPlayerBeliefs]:
    """Returns a new game, a planner, and its inputs in the first state."""
    game = Spy(keys=[])
    opponent_model = CoinPlayer(game, "codes", None, 1)  # pyright: ignore[reportArgumentType]
    planner = make_tree_planner(opponent_model, search, inter="off")
    return game, planner, *initial_beliefs(planner, game.draw(jax.random.key(0))[0])


class Paying(BeliefSimulator):
    """Simulator that pays 1 in every step, even after the end, as a learnt world model might."""

    def step(self, *args: Any, **kwargs: Any) -> SimulatedStep:
        return replace(super().step(*args, **kwargs), reward=jnp.float32(1), components=None)


def test_a_playout_ends_with_the_episode() -> None:
    """Playouts of one batch may begin after the end, and end at different times."""
    _, planner, observation, beliefs = spying_planner(SearchConfig())
    simulation = Paying(**vars(planner.simulation))

    @jax.jit
    @jax.vmap
    def value(time: Array) -> Array:
        state = simulation.simulator.from_observation(replace(observation, time=time))
        zero = jnp.int32(0)
        start = simulation.step(jax.random.key(0), params_of(1), state, beliefs, zero, zero[None])
        return playout_value(simulation, jax.random.key(1), params_of(1), start, zero[None], GAMMA)

    np.testing.assert_allclose(value(jnp.arange(4)), [1 + GAMMA + GAMMA**2, 1 + GAMMA, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("leaf", ["value", "rollout"])
def test_no_simulated_step_has_the_key_of_another_or_of_the_game(leaf: Any) -> None:
    """The environment may derive its keys from the one that the planner receives, by any small number."""
    search = SearchConfig(belief_samples=2, simulations=12, reply_samples=2, leaf=leaf)
    game, planner, observation, beliefs = spying_planner(search)
    key = jax.random.key(3)
    game.keys.clear()
    jax.block_until_ready(planner.plan(key, params_of(1), beliefs, observation))
    jax.effects_barrier()
    assert len(game.keys) >= 24 * (2 if leaf == "rollout" else 1)
    assert len(set(game.keys)) == len(game.keys)
    derived = jax.vmap(lambda number: jax.random.fold_in(fast(key), number))(jnp.arange(1000))
    known = {
        tuple(np.asarray(jax.random.key_data(other)).tolist()) for other in (key, *derived, *jax.random.split(key))
    }
    assert known.isdisjoint(game.keys)

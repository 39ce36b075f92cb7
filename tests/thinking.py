"""Planners for tests: models of others whose laws are known, instead of learnt ones."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.games import Game, Observation, one_seat
from hopplus.planning.acquaintance import Acquainting, Mind
from hopplus.planning.goals import Others
from hopplus.planning.search import Plan, Planning, Search
from hopplus.planning.simulator import Simulator
from hopplus.players import Player, make


@dataclass(frozen=True)
class KnownOthers(Others):
    """Co-players who are one of several scripted players: a goal is which of them, and their true laws are known."""

    kinds: tuple[Player, ...] = ()

    def features(self, everybody: Observation) -> Any:
        return jax.tree.map(lambda leaf: leaf[1:], everybody)

    def policies(self, params: Any, features: Any, particles: Any = ()) -> jax.Array:
        def one(seen: Observation) -> jax.Array:
            laws = [kind.probabilities((), kind.init(jax.random.key(0), ()), seen) for kind in self.kinds]
            return jnp.stack(laws)

        return jax.vmap(one)(features)


def known_others(game: Game[Any], *names: str) -> KnownOthers:
    """Co-players of these kinds."""
    return KnownOthers(game, "codes", None, len(names), kinds=tuple(make(name, game) for name in names))  # pyright: ignore[reportArgumentType]


def params_of(goals: int) -> dict[str, Any]:
    """What a planner without anything learnt has."""
    return {"policy": (), "moa": {"network": (), "prior": np.zeros(goals, np.float32)}}


def know_nothing(params: Any, observation: Observation, mind: Mind) -> tuple[jax.Array, jax.Array]:
    """A uniform policy and a value of 0."""
    return jnp.where(observation.legal[0], 0.0, -1e9), jnp.float32(0)


def planning_of(others: Others, search: Search, **settings: Any) -> Planning:
    """A search with the rules, and without any network."""
    return Planning(search, Simulator(others.game), Acquainting(others, **settings), know_nothing)


@partial(jax.jit, static_argnames=("knows", "world"))
def _seen_and_mind(state: Any, knows: Acquainting, world: Simulator) -> tuple[Observation, Mind]:
    params = params_of(knows.others.number)["moa"]
    seen = one_seat(world.game.observe(state), 0)
    situation = world.at(seen)
    memory = knows.meet(jax.random.key(0), params)
    return seen, knows.expect(params, memory, seen, world.observe(situation), situation.state)[1]


def first_mind(planning: Planning, state: Any, belief: Any = None) -> tuple[Observation, Mind]:
    """The observation of seat 0 in a state, and its mind: of co-players just met, or with this belief [n-1, K]. Equal
    models of co-players are compiled once, whatever the search."""
    seen, mind = _seen_and_mind(state, planning.acquainting, planning.simulator)
    if belief is None:
        return seen, mind
    return seen, replace(mind, belief=jnp.asarray(np.log(np.asarray(belief, np.float32) + np.float32(1e-30))))


@partial(jax.jit, static_argnames="planning")
def _plan(key: jax.Array, mind: Mind, seen: Observation, planning: Planning) -> Plan:
    return planning.plan(key, params_of(planning.acquainting.others.number), mind, seen)


def plan_in(planning: Planning, state: Any, seed: int = 0, belief: Any = None) -> Plan:
    """The plan of seat 0 in a state; equal plannings are compiled once."""
    seen, mind = first_mind(planning, state, belief)
    return jax.tree.map(np.asarray, _plan(jax.random.key(seed), mind, seen, planning))


def certain(goal: int, planning: Planning) -> np.ndarray:
    """The belief [n-1, K] that every co-player has this goal."""
    others = planning.acquainting.others
    return np.tile(np.eye(others.number)[goal], (others.game.num_players - 1, 1))

"""Planners for tests: models of others whose laws are known, instead of learnt ones."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.games import Game, Observation
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
    return {"policy": (), "moa": {"network": (), "prior": jnp.zeros(goals)}}


def know_nothing(params: Any, observation: Observation, mind: Mind) -> tuple[jax.Array, jax.Array]:
    """A uniform policy and a value of 0."""
    return jnp.where(observation.legal[0], 0.0, -1e9), jnp.float32(0)


def planning_of(others: Others, search: Search, **settings: Any) -> Planning:
    """A search with the rules, and without any network."""
    return Planning(search, Simulator(others.game), Acquainting(others, **settings), know_nothing)


def first_mind(planning: Planning, observation: Observation, belief: Any = None) -> Mind:
    """What is made of co-players who have just been met, or of whom this is believed [n-1, K]."""
    knows, world = planning.acquainting, planning.simulator
    params = params_of(knows.others.number)["moa"]
    memory = knows.meet(jax.random.key(0), params)
    situation = world.at(observation)
    _, mind = knows.expect(params, memory, observation, world.observe(situation), situation.state)
    return mind if belief is None else replace(mind, belief=jnp.log(jnp.asarray(belief) + 1e-30))


@partial(jax.jit, static_argnames="planning")
def _plan(key: jax.Array, mind: Mind, seen: Observation, planning: Planning) -> Plan:
    return planning.plan(key, params_of(planning.acquainting.others.number), mind, seen)


def plan_in(planning: Planning, state: Any, seed: int = 0, belief: Any = None) -> Plan:
    """The plan of seat 0 in a state; equal plannings are compiled once."""
    seen = jax.tree.map(lambda leaf: leaf[0], planning.simulator.game.observe(state))
    plan = _plan(jax.random.key(seed), first_mind(planning, seen, belief), seen, planning)
    return jax.tree.map(np.asarray, plan)

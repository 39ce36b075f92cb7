"""Policy, planners and decisions of the benchmark of planning."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, environment_keys
from hopplus.core.struct import struct
from hopplus.games import Game, GridGame, Observation, init_batch, make, one_seat
from hopplus.models.world.loss import init_params_online
from hopplus.models.world.model import WorldModel
from hopplus.planning.catalog import PlanningMethod
from hopplus.planning.simulator import Simulator, World
from hopplus.players import Params
from hopplus.players.planner import Planner
from hopplus.training.policies import Policy, load_policy
from hopplus.training.pretrained import is_pretrained, load_pretrained


@struct
class Decisions:
    """Decisions [D] of seat 0 at the start of a trial, in fresh games."""

    key: Key
    beliefs: CoPlayerBeliefs
    observation: Observation


@dataclass(frozen=True)
class Setup:
    """A policy that plans, and its game."""

    game: Game[Any]
    policy: Policy
    world: World

    def player(self, planner: str) -> Planner:
        """Returns the player with a planner, by name and settings."""
        player = self.policy.with_planner(planner).player(self.game, "bench")
        assert isinstance(player, Planner)
        if player.planning is None:
            raise InputError(f"bench planning needs a planner, and {planner!r} is none")
        return replace(player, simulator=Simulator(self.game, self._world_model))

    def method(self, planner: str) -> PlanningMethod:
        """Returns the planning method of the player."""
        player = self.player(planner)
        assert player.planning is not None
        return player.planning_method(player.planning)

    def params(self) -> Params:
        """Returns the parameters of the policy; those of a learned world model are random."""
        params = jax.tree.map(jnp.asarray, dict(self.policy.params))
        if self._world_model is not None and isinstance(self.game, GridGame):
            params["world"] = init_params_online(jax.random.key(0), self._world_model, self.game)
        return params

    @property
    def _world_model(self) -> Any:
        is_learned = self.world == "learned" and isinstance(self.game, GridGame)
        return WorldModel().network(self.game) if is_learned else None

    def decisions(self, planner: str, params: Params, number: int) -> Decisions:
        """Returns decisions, the same for every planner; decision i does not depend on their number."""
        player, keys = self.player(planner), environment_keys(jax.random.key(0), number)

        @jax.jit
        def observed(keys: Key) -> Decisions:
            observations = jax.vmap(lambda state: one_seat(self.game.observe(state), 0))(init_batch(self.game, keys))
            memories = jax.vmap(lambda key: player.init(key, params))(keys)
            views = jax.vmap(lambda memory, observation: player.view(params, memory, observation).beliefs)
            return Decisions(keys, views(memories, observations), observations)

        return observed(keys)


def make_setup(game: str, policy: str, world: World) -> Setup:
    """Returns the setup of a game with a pretrained policy, a policy file or a run directory."""
    played = make(game)
    loaded = load_pretrained(policy, played) if is_pretrained(policy) else load_policy(policy)
    if world == "learned" and not isinstance(played, GridGame):
        raise InputError(f"a learned world model needs a game on a grid, and {game} is not one: --world rules")
    return Setup(played, loaded, world)

"""Populations: players of several agent types, and recorded episodes in which they were seated at random."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from hopplus.core.keys import Key, environment_keys, fast
from hopplus.games import Game
from hopplus.players import Cast, FixedMember, Params, Player, PoolParams
from hopplus.rollouts.cast_distribution import CastDistribution
from hopplus.rollouts.rollout import first_memories, play_episodes
from hopplus.rollouts.trajectory import Trajectory

CASTS, MEMORIES, PLAY = range(3)
"""Purposes of a batch's key."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded whole episodes with the agent type of each seat."""

    trajectory: Trajectory
    """[T, E, ...]; no player is alive in the steps after an episode's end."""
    agent_types: Int[np.ndarray, "E n"]

    @property
    def played(self) -> Bool[np.ndarray, "T E"]:
        """Mask of the steps that took place."""
        return np.asarray(np.asarray(self.trajectory.alive).any(-1))

    def select(self, episodes: np.ndarray) -> "Recorded":
        """Returns a subset of the episodes, by index."""
        by_time = {name: value for name, value in vars(self.trajectory).items() if name not in ("last_state", "info")}
        chosen = jax.tree.map(lambda leaf: leaf[:, episodes], by_time)
        last_state = jax.tree.map(lambda leaf: leaf[episodes], self.trajectory.last_state)
        return Recorded(Trajectory(**chosen, info=(), last_state=last_state), self.agent_types[episodes])


@dataclass(frozen=True, eq=False)
class Population:
    """Players that may sit in each seat, with their parameters: by seat, then by agent type."""

    players: tuple[tuple[Player, ...], ...]
    params: tuple[tuple[Params, ...], ...]

    def of_type(self, agent_type: int) -> tuple[Cast, list[Params]]:
        """Returns a cast with the same agent type in every seat, and its parameters."""
        cast = Cast(tuple(members[agent_type] for members in self.players))
        return cast, [members[agent_type] for members in self.params]

    def cast(self) -> Cast:
        """Returns a cast whose seats can each be assigned any agent type."""
        return Cast(tuple(FixedMember(members) for members in self.players))

    def cast_params(self) -> tuple[PoolParams, ...]:
        """Returns the parameters of `cast`, by seat."""
        weights = jnp.ones(len(self.params[0])) / len(self.params[0])
        return tuple(PoolParams(weights, members) for members in self.params)


def play_casts(
    key: Key, game: Game[Any], population: Population, cast_distribution: CastDistribution, episodes: int
) -> Recorded:
    """Plays whole episodes, with a cast sampled for each."""
    key, cast, params = fast(key), population.cast(), population.cast_params()
    agent_types = cast_distribution.draw(jax.random.fold_in(key, CASTS), episodes)
    keys = environment_keys(jax.random.fold_in(key, MEMORIES), episodes)
    memories = tuple(
        replace(memory, member=jnp.asarray(agent_types[:, np.array(group.seats)], jnp.int32))
        for group, memory in zip(cast.groups, first_memories(keys, game, cast, params), strict=True)
    )
    _, trajectory = play_episodes(jax.random.fold_in(key, PLAY), game, cast, episodes, params, memories)
    return Recorded(jax.device_get(Trajectory(**{**vars(trajectory), "info": ()})), agent_types)

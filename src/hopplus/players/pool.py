"""Pools: one of several players per episode or trial, sampled at random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, Observation
from hopplus.players.player import Info, Memory, Params, Player

DRAW = 0
"""Key purpose of the sampling of a member; member m acts with purpose m + 1."""


@struct
class PoolParams:
    """Params of a pool."""

    weights: Float[Array, " members"]
    """Sampling weights of the members; need not be normalised."""
    members: tuple[Params, ...]
    """Params of the members."""


@struct
class PoolMemory:
    """Memory of a pool."""

    member: Int[Array, ""]
    """Index of the member that acts; -1 before its first action."""
    trial_weights: Float[Array, " members"]
    """Factors on the members' weights in this trial."""
    members: tuple[Memory, ...]
    """Memories of the members."""


@struct
class PoolInfo:
    """Info of a pool."""

    member: Int[Array, ""]
    """Index of the member that acted."""
    members: tuple[Info, ...]
    """Info of all members, as if each had acted."""


@dataclass(frozen=True)
class Pool(Player):
    """One member per episode, sampled at the first step with the weights in the params. All members watch."""

    members: tuple[Player, ...]
    name: str = "pool"
    fixed_per_trial: bool = False
    """The member that is sampled first plays all episodes of the trial."""
    shared_weights: bool = False
    """All seats of a trial share random weights, so that every composition is equally likely (if weights are equal).
    Independent sampling makes compositions of a single member rare."""

    @property
    def shares_params(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return all(member.shares_params for member in self.members)

    def default_params(self) -> PoolParams:
        return PoolParams(
            jnp.ones(len(self.members)) / len(self.members), tuple(member.default_params() for member in self.members)
        )

    def bind(self, sources: Mapping[str, Params]) -> PoolParams:
        return PoolParams(self.default_params().weights, tuple(member.bind(sources) for member in self.members))

    def init(self, key: Key, params: PoolParams) -> PoolMemory:
        memories = tuple(
            member.init(jax.random.fold_in(key, number + 1), member_params)
            for number, (member, member_params) in enumerate(zip(self.members, params.members, strict=True))
        )
        return PoolMemory(jnp.int32(-1), jnp.ones(len(self.members)), memories)

    def meet(self, key: Key, memory: PoolMemory) -> PoolMemory:
        weights = composition_weights(jax.random.fold_in(key, DRAW), len(self.members))
        memories = tuple(
            member.meet(key, member_memory) for member, member_memory in zip(self.members, memory.members, strict=True)
        )
        return PoolMemory(memory.member, weights if self.shared_weights else memory.trial_weights, memories)

    def begin(self, memory: PoolMemory) -> PoolMemory:
        member = memory.member if self.fixed_per_trial else jnp.full_like(memory.member, -1)
        return PoolMemory(member, memory.trial_weights, self._each("begin", memory.members))

    def act(
        self, key: Key, params: PoolParams, memory: PoolMemory, observation: Observation
    ) -> tuple[Int[Array, ""], PoolMemory, PoolInfo]:
        weights = params.weights * memory.trial_weights
        sampled = draw_member(jax.random.uniform(jax.random.fold_in(key, DRAW)), weights)
        index = jnp.where(memory.member < 0, sampled, memory.member)
        results = [
            member.act(jax.random.fold_in(key, number + 1), member_params, member_memory, observation)
            for number, (member, member_params, member_memory) in enumerate(
                zip(self.members, params.members, memory.members, strict=True)
            )
        ]
        actions, memories, infos = zip(*results, strict=True)
        return jnp.stack(actions)[index], PoolMemory(index, memory.trial_weights, memories), PoolInfo(index, infos)

    def probabilities(self, params: PoolParams, memory: PoolMemory, observation: Observation) -> Float[Array, " A"]:
        by_member = jnp.stack(
            [
                member.probabilities(member_params, member_memory, observation)
                for member, member_params, member_memory in zip(
                    self.members, params.members, memory.members, strict=True
                )
            ]
        )
        weights = params.weights * memory.trial_weights
        mixture = weights / weights.sum()
        return jnp.where(memory.member < 0, mixture @ by_member, by_member[memory.member])

    def watch(self, params: PoolParams, memory: PoolMemory, observation: Observation) -> PoolMemory:
        memories = tuple(
            member.watch(member_params, member_memory, observation)
            for member, member_params, member_memory in zip(self.members, params.members, memory.members, strict=True)
        )
        return PoolMemory(memory.member, memory.trial_weights, memories)

    def end(self, memory: PoolMemory) -> PoolMemory:
        return PoolMemory(memory.member, memory.trial_weights, self._each("end", memory.members))

    def _each(self, method: str, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        return tuple(getattr(member, method)(memory) for member, memory in zip(self.members, memories, strict=True))


@dataclass(frozen=True)
class FixedMember(Pool):
    """A pool whose member is fixed: the caller writes the member's index into the memory before play."""

    name: str = "assigned"
    fixed_per_trial: bool = True


def composition_weights(key: Key, number: int) -> Float[Array, " members"]:
    """Samples weights of `number` members.

    If several seats sample with the same weights, every composition of members is equally likely.
    """
    return jax.random.exponential(key, (number,))


def draw_member(uniform: Float[Array, ""], weights: Float[Array, " members"]) -> Int[Array, ""]:
    """Returns the index that a uniform number selects in proportion to the weights.

    An index of weight 0 is never selected.
    """
    bounds = jnp.stack([weights[: end + 1].sum() for end in range(weights.shape[0])])
    return jnp.minimum((uniform * bounds[-1] >= bounds).sum(), weights.shape[0] - 1).astype(jnp.int32)


def pool(game: Game[Any], *players: Player) -> Player:
    """One of the players in each episode, each equally likely."""
    return _pool("pool", players, shared_weights=False)


def mix(game: Game[Any], *players: Player) -> Player:
    """One of the players in each episode, such that all compositions of the seats with this pool are equally likely."""
    return _pool("mix", players, shared_weights=True)


def _pool(name: str, players: Sequence[Player], shared_weights: bool) -> Pool:
    if len(players) < 2 or not all(isinstance(player, Player) for player in players):
        raise InputError(f"a {name} needs at least two players, as in '{name}(ns,nh)'")
    full_name = f"{name}({','.join(player.name for player in players)})"
    return Pool(tuple(players), full_name, shared_weights=shared_weights)

"""A seat that one of several players takes, drawn anew for every episode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.keys import Key
from hopplus.players.player import Info, Memory, Params, Player
from hopplus.struct import struct

DRAW = 0
"""The purpose of a key for the draw of a member; member m acts with the purpose m + 1."""


@struct
class PoolParams:
    """How likely each member is, and what each has learnt."""

    weights: Float[Array, " members"]
    members: tuple[Params, ...]


@struct
class PoolMemory:
    """Who plays this episode, and what everyone remembers."""

    member: Int[Array, ""]
    """-1 before the episode's first choice."""
    leaning: Float[Array, " members"]
    """How much likelier than by its weight each member is at this table."""
    members: tuple[Memory, ...]


@struct
class PoolInfo:
    """Who chose, and what each member would have said."""

    member: Int[Array, ""]
    members: tuple[Info, ...]


@dataclass(frozen=True)
class Pool(Player):
    """One of its members in each episode, drawn at its first step with the weights in its params; all watch."""

    members: tuple[Player, ...]
    name: str = "pool"
    stays: bool = False
    """Whether who was drawn at first plays all episodes, until nobody has met anybody again."""
    together: bool = False
    """Whether the seats of a table lean to the same members, so that every composition of it is equally likely (where
    weights are equal), rather than drawing by themselves, which makes tables of one kind rare."""

    @property
    def shares_params(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return all(member.shares_params for member in self.members)

    def default_params(self) -> PoolParams:
        return PoolParams(
            jnp.ones(len(self.members)) / len(self.members), tuple(member.default_params() for member in self.members)
        )

    def init(self, key: Key, params: PoolParams) -> PoolMemory:
        memories = tuple(
            member.init(jax.random.fold_in(key, number + 1), own)
            for number, (member, own) in enumerate(zip(self.members, params.members, strict=True))
        )
        return PoolMemory(jnp.int32(-1), jnp.ones(len(self.members)), memories)

    def meet(self, key: Key, memory: PoolMemory) -> PoolMemory:
        drawn = even_weights(jax.random.fold_in(key, DRAW), len(self.members))
        memories = tuple(member.meet(key, own) for member, own in zip(self.members, memory.members, strict=True))
        return PoolMemory(memory.member, drawn if self.together else memory.leaning, memories)

    def begin(self, memory: PoolMemory) -> PoolMemory:
        member = memory.member if self.stays else jnp.full_like(memory.member, -1)
        return PoolMemory(member, memory.leaning, self._each("begin", memory.members))

    def act(
        self, key: Key, params: PoolParams, memory: PoolMemory, observation: Observation
    ) -> tuple[Int[Array, ""], PoolMemory, PoolInfo]:
        weights = params.weights * memory.leaning
        drawn = draw_member(jax.random.uniform(jax.random.fold_in(key, DRAW)), weights)
        chosen = jnp.where(memory.member < 0, drawn, memory.member)
        results = [
            member.act(jax.random.fold_in(key, number + 1), own, remembered, observation)
            for number, (member, own, remembered) in enumerate(
                zip(self.members, params.members, memory.members, strict=True)
            )
        ]
        actions, memories, infos = zip(*results, strict=True)
        return jnp.stack(actions)[chosen], PoolMemory(chosen, memory.leaning, memories), PoolInfo(chosen, infos)

    def probabilities(self, params: PoolParams, memory: PoolMemory, observation: Observation) -> Float[Array, " A"]:
        by_member = jnp.stack(
            [
                member.probabilities(own, remembered, observation)
                for member, own, remembered in zip(self.members, params.members, memory.members, strict=True)
            ]
        )
        weights = params.weights * memory.leaning
        undrawn = weights / weights.sum()
        return jnp.where(memory.member < 0, undrawn @ by_member, by_member[memory.member])

    def watch(self, params: PoolParams, memory: PoolMemory, observation: Observation) -> PoolMemory:
        watched = tuple(
            member.watch(own, remembered, observation)
            for member, own, remembered in zip(self.members, params.members, memory.members, strict=True)
        )
        return PoolMemory(memory.member, memory.leaning, watched)

    def end(self, memory: PoolMemory) -> PoolMemory:
        return PoolMemory(memory.member, memory.leaning, self._each("end", memory.members))

    def _each(self, stage: str, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        return tuple(getattr(member, stage)(memory) for member, memory in zip(self.members, memories, strict=True))


@dataclass(frozen=True)
class Assigned(Pool):
    """One of its members for good: whoever starts the play writes into its memory who it is."""

    name: str = "assigned"
    stays: bool = True


def even_weights(key: Key, number: int) -> Float[Array, " members"]:
    """Weights of so many members such that, if several seats draw by the same ones, every composition of them is
    equally likely."""
    return jax.random.exponential(key, (number,))


def draw_member(uniform: Float[Array, ""], weights: Float[Array, " members"]) -> Int[Array, ""]:
    """An index with probabilities in proportion to the weights; one of weight 0 is never drawn."""
    bounds = jnp.stack([weights[: end + 1].sum() for end in range(weights.shape[0])])
    return jnp.minimum((uniform * bounds[-1] >= bounds).sum(), weights.shape[0] - 1).astype(jnp.int32)


def pool(game: Game[Any], *players: Player) -> Player:
    """One of the players in each episode, each equally likely."""
    return _pool("pool", players, together=False)


def mix(game: Game[Any], *players: Player) -> Player:
    """One of the players in each episode, such that all mixtures of the seats that have it are equally likely."""
    return _pool("mix", players, together=True)


def _pool(name: str, players: Sequence[Player], together: bool) -> Pool:
    if len(players) < 2 or not all(isinstance(player, Player) for player in players):
        raise InputError(f"a {name} needs at least two players, as in '{name}(ns,nh)'")
    return Pool(tuple(players), f"{name}({','.join(player.name for player in players)})", together=together)

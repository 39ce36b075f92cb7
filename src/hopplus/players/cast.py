"""Casts: one player per seat, computed together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.specs import Spec, parse, split_top_level
from hopplus.games import Game, Observation
from hopplus.players.catalog import build
from hopplus.players.player import Info, Memory, Params, Player


@dataclass(frozen=True)
class PlayerGroup:
    """Equal players and their seats, which are computed together along an array axis."""

    player: Player
    seats: tuple[int, ...]

    def each(self, function: Callable[..., Any], *params: Params) -> Callable[..., Any]:
        """Maps a function over the group's seats.

        With params, maps `function(params, ...)` over each seat's params or over the params that all seats share.
        """
        if not params:
            return jax.vmap(function, axis_size=len(self.seats))
        axis = None if self.player.shares_params else 0

        def over_seats(*arguments: Any) -> Any:
            axes = (axis, *(0 for _ in arguments))
            return jax.vmap(function, in_axes=axes, axis_size=len(self.seats))(*params, *arguments)

        return over_seats


@dataclass(frozen=True)
class Cast:
    """One player per seat.

    Memories and info of a cast are tuples with one entry per group, with seats along axis 0. Params are the same, but
    groups with shared params have no seat axis.
    """

    players: tuple[Player, ...]

    @cached_property
    def groups(self) -> tuple[PlayerGroup, ...]:
        """Groups of equal players, in the order of their first seats."""
        distinct = dict.fromkeys(self.players)
        seats = {player: tuple(i for i, other in enumerate(self.players) if other == player) for player in distinct}
        return tuple(PlayerGroup(player, seats[player]) for player in distinct)

    @property
    def names(self) -> tuple[str, ...]:
        """Players' names by seat."""
        return tuple(player.name for player in self.players)

    def stack(self, params: Sequence[Params] | None) -> tuple[Params, ...]:
        """Converts params by seat to params by group: stacked over seats, or one shared set. None: default params."""
        by_seat = [player.default_params() for player in self.players] if params is None else params
        if len(by_seat) != len(self.players):
            raise InputError(f"a cast of {len(self.players)} players needs as many parameter sets, not {len(by_seat)}")
        return tuple(
            by_seat[group.seats[0]]
            if group.player.shares_params
            else jax.tree.map(lambda *leaves: jnp.stack(leaves), *(by_seat[seat] for seat in group.seats))
            for group in self.groups
        )

    def init(self, keys: Key, common: Key, params: tuple[Params, ...]) -> tuple[Memory, ...]:
        """Initialises the memories of a trial, from keys [n] by seat and one common key."""

        def init_seat(params: Params, key: Key, player: Player) -> Memory:
            return player.meet(common, player.init(key, params))

        return tuple(
            group.each(partial(init_seat, player=group.player), group_params)(keys[np.array(group.seats)])
            for group, group_params in zip(self.groups, params, strict=True)
        )

    def begin(self, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        """Returns all memories at the start of an episode."""
        return tuple(
            group.each(group.player.begin)(memory) for group, memory in zip(self.groups, memories, strict=True)
        )

    def act(
        self, keys: Key, params: tuple[Params, ...], memories: tuple[Memory, ...], observation: Observation
    ) -> tuple[Int[Array, " n"], tuple[Memory, ...], tuple[Info, ...]]:
        """Returns all seats' actions, memories and info, from keys [n] by seat and all seats' observations."""
        results = []
        for group, group_params, memory in zip(self.groups, params, memories, strict=True):
            seats = np.array(group.seats)
            act = group.each(lambda params, key, *rest, group=group: group.player.act(key, params, *rest), group_params)
            results.append(act(keys[seats], memory, observation_of(observation, seats)))
        seats = np.concatenate([group.seats for group in self.groups])
        actions = jnp.concatenate([action for action, _, _ in results])[np.argsort(seats)]
        return actions, tuple(memory for _, memory, _ in results), tuple(info for _, _, info in results)

    def watch(
        self, params: tuple[Params, ...], memories: tuple[Memory, ...], observation: Observation
    ) -> tuple[Memory, ...]:
        """Returns all memories after observing the result of a step."""
        return tuple(
            group.each(group.player.watch, group_params)(memory, observation_of(observation, np.array(group.seats)))
            for group, group_params, memory in zip(self.groups, params, memories, strict=True)
        )

    def end(self, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        """Returns all memories at the end of an episode."""
        return tuple(group.each(group.player.end)(memory) for group, memory in zip(self.groups, memories, strict=True))


def observation_of(observation: Observation, seats: np.ndarray | Array) -> Observation:
    """Selects the observations of some seats, in their order along axis 0."""
    return jax.tree.map(lambda values: values[seats], observation)


def info_of(cast: Cast, info: tuple[Info, ...], player: int) -> Info:
    """Selects one player's info, with fields [T, E, ...], from info [T, E, seats, ...] by group."""
    number, group = next((number, group) for number, group in enumerate(cast.groups) if player in group.seats)
    index = group.seats.index(player)
    return jax.tree.map(lambda leaf: leaf[:, :, index], info[number])


@dataclass(frozen=True)
class CastSpec:
    """A parsed cast: the names of the players with their options, by seat."""

    players: tuple[Spec, ...]

    @property
    def text(self) -> str:
        """Text form: `ns,nh:then=stay,noisy(ns,0.2),random`."""
        return ",".join(player.text() for player in self.players)

    def make(self, game: Game[Any], make_player: Callable[[int, Spec], Player]) -> Cast:
        """Makes the players, each with `make_player(seat, player)`. Raises InputError unless there is one per seat."""
        if len(self.players) != game.num_players:
            seats, named = game.num_players, len(self.players)
            raise InputError(f"{game.name} has {seats} seats, but the cast {self.text!r} names {named} players")
        return Cast(tuple(make_player(seat, player) for seat, player in enumerate(self.players)))


def make_cast(text: str, game: Game[Any]) -> Cast:
    """Returns a cast of players of the catalogue, one per seat: `ns,nh:then=stay,noisy(ns,0.2),random`."""
    spec = CastSpec(tuple(map(parse, split_top_level(text))))
    return spec.make(game, lambda seat, player: build(player, game))

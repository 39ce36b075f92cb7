"""A cast: one player a seat, and how all seats act at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.keys import Key
from hopplus.players.catalog import make
from hopplus.players.player import Info, Memory, Params, Player
from hopplus.specs import split_top_level


@dataclass(frozen=True)
class Group:
    """Equal players and the seats they sit in: they are computed together, seats being an array axis."""

    player: Player
    seats: tuple[int, ...]

    def each(self, function: Callable[..., Any], *params: Params) -> Callable[..., Any]:
        """The function over the seats of the group; with params, `function(params, ...)` for the params of each seat,
        or those that all of them share."""
        if not params:
            return jax.vmap(function, axis_size=len(self.seats))
        axis = None if self.player.shares_params else 0

        def over_seats(*arguments: Any) -> Any:
            axes = (axis, *(0 for _ in arguments))
            return jax.vmap(function, in_axes=axes, axis_size=len(self.seats))(*params, *arguments)

        return over_seats


@dataclass(frozen=True)
class Cast:
    """One player a seat. Memories and info of a cast are tuples with one entry a group, seats first; so are params, but
    for groups that share theirs."""

    players: tuple[Player, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The distinct players in the order of their first seats."""
        distinct = dict.fromkeys(self.players)
        seats = {player: tuple(i for i, other in enumerate(self.players) if other == player) for player in distinct}
        return tuple(Group(player, seats[player]) for player in distinct)

    @property
    def names(self) -> tuple[str, ...]:
        """The players' names by seat."""
        return tuple(player.name for player in self.players)

    def stack(self, params: Sequence[Params] | None) -> tuple[Params, ...]:
        """Params by seat as params by group: seats stacked, or the one set that they share; None: nobody learnt any."""
        by_seat = [player.default_params() for player in self.players] if params is None else params
        if len(by_seat) != len(self.players):
            raise InputError(f"a cast of {len(self.players)} needs as many parameter sets, not {len(by_seat)}")
        return tuple(
            by_seat[group.seats[0]]
            if group.player.shares_params
            else jax.tree.map(lambda *leaves: jnp.stack(leaves), *(by_seat[seat] for seat in group.seats))
            for group in self.groups
        )

    def init(self, keys: Key, common: Key, params: tuple[Params, ...]) -> tuple[Memory, ...]:
        """Memories of players who have met nobody yet, from keys [n] by seat and one that they have in common."""

        def one(own: Params, key: Key, player: Player) -> Memory:
            return player.meet(common, player.init(key, own))

        return tuple(
            group.each(partial(one, player=group.player), own)(keys[np.array(group.seats)])
            for group, own in zip(self.groups, params, strict=True)
        )

    def begin(self, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        """All memories at the start of an episode."""
        return tuple(
            group.each(group.player.begin)(memory) for group, memory in zip(self.groups, memories, strict=True)
        )

    def act(
        self, keys: Key, params: tuple[Params, ...], memories: tuple[Memory, ...], observation: Observation
    ) -> tuple[Int[Array, " n"], tuple[Memory, ...], tuple[Info, ...]]:
        """Everybody's action, from keys [n] by seat and the observations of all seats."""
        results = []
        for group, own, memory in zip(self.groups, params, memories, strict=True):
            seats = np.array(group.seats)
            seen = observation_of(observation, seats)
            act = group.each(lambda own, key, *rest, group=group: group.player.act(key, own, *rest), own)
            results.append(act(keys[seats], memory, seen))
        seats = np.concatenate([group.seats for group in self.groups])
        actions = jnp.concatenate([action for action, _, _ in results])[np.argsort(seats)]
        return actions, tuple(memory for _, memory, _ in results), tuple(info for _, _, info in results)

    def watch(
        self, params: tuple[Params, ...], memories: tuple[Memory, ...], observation: Observation
    ) -> tuple[Memory, ...]:
        """All memories after seeing what a step led to."""
        return tuple(
            group.each(group.player.watch, own)(memory, observation_of(observation, np.array(group.seats)))
            for group, own, memory in zip(self.groups, params, memories, strict=True)
        )

    def end(self, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        """All memories at the end of an episode."""
        return tuple(group.each(group.player.end)(memory) for group, memory in zip(self.groups, memories, strict=True))


def observation_of(observation: Observation, seats: np.ndarray | Array) -> Observation:
    """The observations of some seats, axis 0 in their order."""
    return jax.tree.map(lambda values: values[seats], observation)


def info_of(cast: Cast, info: tuple[Info, ...], player: int) -> Info:
    """What one player of a cast said, from info [T, E, seats, ...] by group: fields [T, E, ...]."""
    number, group = next((number, group) for number, group in enumerate(cast.groups) if player in group.seats)
    place = group.seats.index(player)
    return jax.tree.map(lambda leaf: leaf[:, :, place], info[number])


def make_cast(text: str, game: Game[Any], make_player: Callable[[int, str], Player] | None = None) -> Cast:
    """A cast as people type it, one player a seat: `ns,nh:then=stay,noisy(ns,0.2),random`.

    `make_player(seat, name)` makes each of them, where others may sit than the catalogue's.
    """
    names = split_top_level(text)
    if len(names) != game.num_players:
        raise InputError(f"{game.name} has {game.num_players} seats, and the cast {text!r} names {len(names)}")
    if make_player is None:
        return Cast(tuple(make(name, game) for name in names))
    return Cast(tuple(make_player(seat, name) for seat, name in enumerate(names)))

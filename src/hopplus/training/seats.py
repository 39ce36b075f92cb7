"""Who sits where in a training: seats that learn, scripted players, frozen ones, and guests who make room in time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.play import Episode
from hopplus.players import Cast, Factory, NetworkPlayer, Params, Player, Pool, PoolParams, make, make_cast, names
from hopplus.players.cast import info_of
from hopplus.players.likeness import Likeness
from hopplus.players.person import YOU
from hopplus.players.planner import Optimist, Planner
from hopplus.players.player import Memory
from hopplus.players.scripted import Noisy, Switching
from hopplus.training.likeness import load_likeness
from hopplus.training.policies import Policy, is_policy, load_policy
from hopplus.training.shipped import load_shipped, shipped_words

LEARNER = "learner"
OWN_GUESTS = ("optimist",)
"""Guests made of the learner's own model of others."""
SELF_PLAY = "self-play"
SAVED_RUN = "run"
SAVED = (SAVED_RUN, "likeness")
"""Players made of what is in a directory: a run, recorded games."""


@dataclass(frozen=True)
class Hosted(Pool):
    """The learner, and in a share of episodes that the training decides a guest in its place."""


@dataclass(frozen=True)
class Seats:
    """A cast in which some seats learn."""

    cast: Cast
    learners: tuple[int, ...]
    """The seats that learn, also those in which the learner sits only in some episodes."""
    shared: bool
    """One parameter set for all of them, or one each."""

    def params(self, learnt: Params, frozen: Mapping[str, Params], guest_share: Array | float = 0.0) -> list[Params]:
        """The params by seat, from the learner's parameter sets [P, ...] and those of frozen players by source."""

        def of(player: Player, seat: int) -> Params:
            if isinstance(player, NetworkPlayer | Likeness) and player.source not in (LEARNER, *OWN_GUESTS):
                return frozen[player.source]
            if isinstance(player, NetworkPlayer):
                own = 0 if self.shared else self.learners.index(seat)
                return jax.tree.map(lambda leaf: leaf[own], learnt)
            if isinstance(player, Pool):
                weights = player.default_params().weights
                if isinstance(player, Hosted):
                    weights = jnp.stack([1.0 - jnp.asarray(guest_share), jnp.asarray(guest_share)])
                return PoolParams(weights, tuple(of(member, seat) for member in player.members))
            if isinstance(player, Switching):
                return of(player.first, seat), of(player.second, seat)
            return of(player.player, seat) if isinstance(player, Noisy) else player.default_params()

        return [of(player, seat) for seat, player in enumerate(self.cast.players)]

    def choices(self, episode: Episode) -> tuple[Any, Bool[Array, "T E L"]]:
        """What the learner said at each of its seats (a `Choice` or a `Thought`), fields [T, E, L], and whether it was
        the one who chose."""
        said, acted = [], []
        for seat in self.learners:
            info, player = info_of(self.cast, episode.info, seat), self.cast.players[seat]
            if isinstance(player, Pool):
                member = _learners_place(player)
                said.append(info.members[member])
                acted.append(info.member == member)
            else:
                said.append(info)
                acted.append(jnp.ones(episode.over.shape, bool))
        stack = jax.tree.map(lambda *leaves: jnp.stack(leaves, 2), *said)
        return stack, jnp.stack(acted, -1)

    def remembered(self, memories: tuple[Memory, ...]) -> Memory:
        """What the learner remembers at each of its seats, [E, L, ...], of memories [E, seats, ...] by group."""
        found = []
        for seat in self.learners:
            number, group = next((n, group) for n, group in enumerate(self.cast.groups) if seat in group.seats)
            place = group.seats.index(seat)
            own = jax.tree.map(lambda leaf, place=place: leaf[:, place], memories[number])
            player = self.cast.players[seat]
            found.append(own.members[_learners_place(player)] if isinstance(player, Pool) else own)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *found)


def make_seats(
    text: str,
    game: Game[Any],
    learner: NetworkPlayer,
    guest: str | None = None,
    kept: Mapping[str, Policy] | None = None,
    stays: bool = False,
) -> tuple[Seats, dict[str, Policy]]:
    """The seats of a cast as people type it, and the frozen policies in it by source.

    `self-play` is a learner in every seat. A seat may name a saved run, as a path or `run(path,seed=1,trained_at=2)`,
    what comes with the package (`hopplus`), or recorded games, as `likeness(path,kind=you)`; one that is among the
    policies `kept`, by source, is taken from there. Where the players of a table stay together for several episodes,
    so does whoever was drawn from a pool (`stays`).
    """
    frozen: dict[str, Policy] = dict(kept or {})
    written = ",".join([LEARNER] * game.num_players) if text == SELF_PLAY else text
    cast = make_cast(written, game, _with_runs(game, frozen, lambda seat: {LEARNER: lambda game: learner}))
    learners = tuple(seat for seat, player in enumerate(cast.players) if _learns(player))
    if not learners:
        raise InputError(f"nobody learns in the cast {text!r}: write 'learner' for a seat that does, or 'self-play'")
    if stays:
        kept_players = (replace(player, stays=True) if isinstance(player, Pool) else player for player in cast.players)
        cast = Cast(tuple(kept_players))
    if guest is not None:
        host = Hosted((learner, _guest(guest, game, learner)), f"learner or {guest}", stays)
        cast = Cast(tuple(host if player == learner else player for player in cast.players))
    return Seats(cast, learners, learner.shares_params), frozen


def _guest(name: str, game: Game[Any], learner: NetworkPlayer) -> Player:
    if name not in OWN_GUESTS:
        return make(name, game)
    if not isinstance(learner, Planner) or learner.knows.others.space != "prey":
        raise InputError(f"the guest {name!r} is made of a model of others' prey: hopplus train hopplus --goals prey")
    others = learner.knows.others
    return Optimist(learner.network, name, shares_params=learner.shares_params, name=name, others=others)


@dataclass(frozen=True)
class Seated:
    """A cast for play and evaluation, and the policies of those in it who have learnt something, by source."""

    cast: Cast
    policies: Mapping[str, Policy]
    own: tuple[int, ...] = ()
    """The seats of `self`."""

    def params(self) -> list[Params]:
        """The params by seat."""
        params = {source: policy.params for source, policy in self.policies.items()}
        return Seats(self.cast, (), shared=True).params((), params)


def seat_cast(
    text: str,
    game: Game[Any],
    own: Callable[[int], Policy] | None = None,
    greedy: bool = False,
    extra: Mapping[str, Factory] | None = None,
) -> Seated:
    """A cast in which saved runs and what comes with the package may sit; `self` in seat i is the policy own(i), and
    `extra` are names known here only."""
    policies: dict[str, Policy] = {}
    own_seats: list[int] = []

    def self_at(seat: int) -> dict[str, Factory]:
        def make_self(game: Game[Any]) -> Player:
            assert own is not None
            policy = own(seat)
            source = f"self, trained at seat {policy.seat}"
            policies[source] = policy
            own_seats.append(seat)
            return policy.player(game, source, greedy)

        return {**(extra or {}), **({"self": make_self} if own else {})}

    cast = make_cast(text, game, _with_runs(game, policies, self_at, greedy))
    return Seated(cast, policies, tuple(own_seats))


def _with_runs(
    game: Game[Any],
    policies: dict[str, Policy],
    extra: Callable[[int], dict[str, Factory]],
    greedy: bool = False,
) -> Callable[[int, str], Player]:
    """Makes the players of a cast, saved runs, likenesses and what comes with the package among them, whose policies it
    puts into `policies` by source; one that is there is taken from there, whatever has become of where it was."""

    def make_player(seat: int, name: str) -> Player:
        def run(
            game: Game[Any],
            path: str,
            *,
            seed: int | None = None,
            trained_at: int | None = None,
            search: str | None = None,
        ) -> Player:
            how = "" if search is None else f",search={search}"
            source = f"run({path},seed={seed},trained_at={trained_at}{how}) in seat {seat}"
            if source not in policies:
                policies[source] = load_policy(str(path), seed, trained_at, seat).searching(search)
            return policies[source].player(game, source, greedy)

        def likeness(game: Game[Any], path: str, *, kind: str = YOU) -> Player:
            source = f"likeness({path},kind={kind})"
            if source not in policies:
                policies[source] = load_likeness(str(path), str(kind))
            return policies[source].player(game, source)

        if any(source.startswith(f"run({name},") for source in policies) or is_policy(name):
            return run(game, name)
        saved = {SAVED_RUN: run, "likeness": likeness}
        return make(name, game, {**_shipped_players(policies, greedy), **saved, **extra(seat)})

    return make_player


def _shipped_players(policies: dict[str, Policy], greedy: bool) -> dict[str, Factory]:
    """What the words for policies that come with the package stand for, wherever they sit; a player that somebody has
    registered by such a name goes first."""

    def factory(name: str) -> Factory:
        def make_shipped(game: Game[Any], *, search: str | None = None) -> Player:
            source = name if search is None else f"{name}:search={search}"
            if source not in policies:
                policies[source] = load_shipped(name, game).searching(search)
            return policies[source].player(game, source, greedy)

        return make_shipped

    return {name: factory(name) for name in shipped_words() if name not in names()}


def _learns(player: Player) -> bool:
    if isinstance(player, NetworkPlayer):
        return player.source == LEARNER
    inner = player.members if isinstance(player, Pool) else [getattr(player, name, None) for name in WRAPPED]
    found = [member for member in inner if isinstance(member, Player) and _learns(member)]
    if found and not (isinstance(player, Pool) and found[0] in player.members and len(found) == 1):
        raise InputError(f"{player.name!r}: the learner may sit in a seat itself or in a pool, not in another player")
    if found and not isinstance(found[0], NetworkPlayer):
        raise InputError(f"{player.name!r}: the learner may sit in a pool, not in a pool in a pool")
    return bool(found)


WRAPPED = ("player", "first", "second")
"""Where wrappers keep the players that they wrap."""


def _learners_place(pool: Pool) -> int:
    return next(number for number, member in enumerate(pool.members) if _learns(member))

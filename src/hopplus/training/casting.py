"""Casts from text: learners, scripted players, saved runs, pretrained policies, clones and curriculum partners."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hopplus.algorithms.seats import LEARNER, OWN_PARTNERS, PartnerPool, Seats, is_learner
from hopplus.core.errors import InputError
from hopplus.games import Game
from hopplus.players import Cast, Factory, Params, Player, PolicyPlayer, Pool, make, make_cast, names
from hopplus.players.human import YOU
from hopplus.players.planner import Optimist, Planner
from hopplus.training.cloning import load_clone
from hopplus.training.policies import Policy, is_policy, load_policy
from hopplus.training.pretrained import load_pretrained, pretrained_specs

SELF_PLAY = "self-play"
SAVED_RUN = "run"
SAVED = (SAVED_RUN, "clone")
"""Players made from a directory: a run, recorded games."""


def make_seats(
    text: str,
    game: Game[Any],
    learner: PolicyPlayer,
    partner: str | None = None,
    kept: Mapping[str, Policy] | None = None,
    stays: bool = False,
) -> tuple[Seats, dict[str, Policy]]:
    """Returns the seats of a cast and its frozen policies by source.

    Args:
        text: `self-play`, or one player per seat: `learner`, a scripted player, a saved run (a path, or
            `run(path,seed=1,trained_at=2)`), a pretrained policy (`hopplus`), or a clone (`clone(path,kind=you)`).
        partner: Curriculum partner that replaces learners in a share of the episodes.
        kept: Frozen policies by source that are used instead of those on disk.
        stays: Members of pools stay the same for a whole trial.
    """
    frozen: dict[str, Policy] = dict(kept or {})
    players = ",".join([LEARNER] * game.num_players) if text == SELF_PLAY else text
    cast = make_cast(players, game, _with_runs(game, frozen, lambda seat: {LEARNER: lambda game: learner}))
    learners = tuple(seat for seat, player in enumerate(cast.players) if is_learner(player))
    if not learners:
        raise InputError(f"no seat learns in the cast {text!r}: write 'learner' for a seat, or 'self-play'")
    if stays:
        kept_players = (
            replace(player, fixed_per_trial=True) if isinstance(player, Pool) else player for player in cast.players
        )
        cast = Cast(tuple(kept_players))
    if partner is not None:
        pool = PartnerPool((learner, _partner(partner, game, learner)), f"learner or {partner}", stays)
        cast = Cast(tuple(pool if player == learner else player for player in cast.players))
    return Seats(cast, learners, learner.shares_params), frozen


def _partner(name: str, game: Game[Any], learner: PolicyPlayer) -> Player:
    """A curriculum partner by name."""
    if name not in OWN_PARTNERS:
        return make(name, game)
    if not isinstance(learner, Planner) or learner.tracker.opponent_model.labelled is None:
        raise InputError(
            f"the partner {name!r} needs an opponent model with labelled goals: hopplus train hopplus --goals prey"
        )
    model = learner.tracker.opponent_model
    return Optimist(learner.network, name, shares_params=learner.shares_params, name=name, opponent_model=model)


@dataclass(frozen=True)
class SeatedCast:
    """A cast for play and evaluation, and the policies of its trained players by source."""

    cast: Cast
    policies: Mapping[str, Policy]
    own: tuple[int, ...] = ()
    """Seats of `self`."""

    def params(self) -> list[Params]:
        """Parameters by seat."""
        sources = {source: policy.params for source, policy in self.policies.items()}
        return [player.bind(sources) for player in self.cast.players]


def seat_cast(
    text: str,
    game: Game[Any],
    own: Callable[[int], Policy] | None = None,
    greedy: bool = False,
    extra: Mapping[str, Factory] | None = None,
) -> SeatedCast:
    """Returns a cast of scripted players, saved runs, pretrained policies and clones.

    Args:
        own: Policy of `self` by seat.
        greedy: Trained players take the most probable action.
        extra: Further players by name.
    """
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
    return SeatedCast(cast, policies, tuple(own_seats))


def _with_runs(
    game: Game[Any],
    policies: dict[str, Policy],
    extra: Callable[[int], dict[str, Factory]],
    greedy: bool = False,
) -> Callable[[int, str], Player]:
    """Returns a factory of players by seat and name, saved runs, clones and pretrained policies included.

    Loaded policies are added to `policies` by source; those already there are not loaded again.
    """

    def make_player(seat: int, name: str) -> Player:
        def run(
            game: Game[Any],
            path: str,
            *,
            seed: int | None = None,
            trained_at: int | None = None,
            planner: str | None = None,
        ) -> Player:
            how = "" if planner is None else f",planner={planner}"
            source = f"run({path},seed={seed},trained_at={trained_at}{how}) in seat {seat}"
            if source not in policies:
                policies[source] = load_policy(str(path), seed, trained_at, seat).with_planner(planner)
            return policies[source].player(game, source, greedy)

        def clone(game: Game[Any], path: str, *, kind: str = YOU) -> Player:
            source = f"clone({path},kind={kind})"
            if source not in policies:
                policies[source] = load_clone(str(path), str(kind))
            return policies[source].player(game, source)

        if any(source.startswith(f"run({name},") for source in policies) or is_policy(name):
            return run(game, name)
        saved = {SAVED_RUN: run, "clone": clone}
        return make(name, game, {**_pretrained_players(policies, greedy), **saved, **extra(seat)})

    return make_player


def _pretrained_players(policies: dict[str, Policy], greedy: bool) -> dict[str, Factory]:
    """Factories of pretrained policies by name; players registered under the same name take precedence."""

    def factory(name: str) -> Factory:
        def make_shipped(game: Game[Any], *, planner: str | None = None) -> Player:
            source = name if planner is None else f"{name}:planner={planner}"
            if source not in policies:
                policies[source] = load_pretrained(name, game).with_planner(planner)
            return policies[source].player(game, source, greedy)

        return make_shipped

    return {name: factory(name) for name in pretrained_specs() if name not in names()}

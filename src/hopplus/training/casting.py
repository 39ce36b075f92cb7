"""Casts from text: learners, scripted players, saved runs, pretrained policies, clones and curriculum partners."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hopplus.algorithms.seats import LEARNER, OWN_PARTNERS, PartnerPool, Seats, is_learner
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, parse, split_top_level
from hopplus.games import Game
from hopplus.players import Cast, CastSpec, Factory, Params, Player, PolicyPlayer, Pool, build, names
from hopplus.players.human import YOU
from hopplus.players.planner import Optimist, Planner
from hopplus.training.cloning import load_clone
from hopplus.training.policies import Policy, is_policy, load_policy
from hopplus.training.pretrained import load_pretrained, pretrained_specs

SELF_PLAY = "self-play"
SAVED_RUN = "run"
SAVED = (SAVED_RUN, "clone")
"""Players made from a directory: a run, recorded games."""


def parse_player(text: str, kept: Iterable[str] = ()) -> Spec:
    """Parses the name of a player; the path of a saved run or policy file may contain any characters.

    Args:
        text: Name with options, or path.
        kept: Sources of frozen policies whose paths need not exist any more.
    """
    return Spec(text) if is_policy(text) or _is_kept(text, kept) else parse(text)


def parse_cast(text: str, kept: Iterable[str] = ()) -> CastSpec:
    """Parses a cast, once, where the text is typed or read from a file.

    Args:
        text: `self-play`, or one player per seat: `learner`, `self`, a scripted player, a saved run (a path, or
            `run(path,seed=1,trained_at=2)`), a pretrained policy (`hopplus`), or a clone (`clone(path,kind=you)`).
        kept: Sources of frozen policies whose paths need not exist any more.
    """
    return CastSpec(tuple(parse_player(name, kept) for name in split_top_level(text)))


def _is_kept(name: str, sources: Iterable[str]) -> bool:
    return any(source.startswith(f"run({name},") for source in sources)


def make_seats(
    spec: CastSpec,
    game: Game[Any],
    learner: PolicyPlayer,
    partner: Spec | None = None,
    kept: Mapping[str, Policy] | None = None,
    stays: bool = False,
) -> tuple[Seats, dict[str, Policy]]:
    """Returns the seats of a cast and its frozen policies by source.

    Args:
        spec: The cast, with `learner` in some seats, or `self-play`.
        partner: Curriculum partner that replaces learners in a share of the episodes.
        kept: Frozen policies by source that are used instead of those on disk.
        stays: Members of pools stay the same for a whole trial.
    """
    frozen: dict[str, Policy] = dict(kept or {})
    seated = with_learners(spec, LEARNER, game)
    cast = seated.make(game, _with_runs(game, frozen, lambda seat: {LEARNER: lambda game: learner}))
    learners = tuple(seat for seat, player in enumerate(cast.players) if is_learner(player))
    if not learners:
        raise InputError(f"no seat learns in the cast {spec.text!r}: write 'learner' for a seat, or 'self-play'")
    if stays:
        kept_players = (
            replace(player, fixed_per_trial=True) if isinstance(player, Pool) else player for player in cast.players
        )
        cast = Cast(tuple(kept_players))
    if partner is not None:
        pool = PartnerPool((learner, _partner(partner, game, learner)), f"learner or {partner.text()}", stays)
        cast = Cast(tuple(pool if player == learner else player for player in cast.players))
    return Seats(cast, learners, learner.shares_params), frozen


def count_learners(spec: CastSpec, game: Game[Any]) -> int:
    """Returns the number of seats in which a learner plays, at least as a member of a pool."""

    def learns(player: Spec) -> bool:
        return player.name == LEARNER or any(map(learns, player.arguments))

    return sum(map(learns, with_learners(spec, LEARNER, game).players))


def with_learners(spec: CastSpec, name: str, game: Game[Any]) -> CastSpec:
    """Returns a training cast with a player of this name in place of every learner, `self-play` included."""

    def renamed(player: Spec) -> Spec:
        changed = name if player.name == LEARNER else player.name
        return replace(player, name=changed, arguments=tuple(map(renamed, player.arguments)))

    if spec.players == (Spec(SELF_PLAY),):
        return CastSpec((Spec(name),) * game.num_players)
    return CastSpec(tuple(map(renamed, spec.players)))


def _partner(partner: Spec, game: Game[Any], learner: PolicyPlayer) -> Player:
    """Makes a curriculum partner."""
    name = partner.text()
    if name not in OWN_PARTNERS:
        return build(partner, game)
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
    spec: CastSpec,
    game: Game[Any],
    own: Callable[[int], Policy] | None = None,
    greedy: bool = False,
    extra: Mapping[str, Factory] | None = None,
) -> SeatedCast:
    """Makes the players of a cast: scripted players, saved runs, pretrained policies and clones.

    Args:
        spec: The parsed cast.
        game: Game to play.
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

    cast = spec.make(game, _with_runs(game, policies, self_at, greedy))
    return SeatedCast(cast, policies, tuple(own_seats))


def _with_runs(
    game: Game[Any],
    policies: dict[str, Policy],
    extra: Callable[[int], dict[str, Factory]],
    greedy: bool = False,
) -> Callable[[int, Spec], Player]:
    """Returns a factory of players by seat and parsed name, saved runs, clones and pretrained policies included.

    Loaded policies are added to `policies` by source; those already there are not loaded again.
    """

    def make_player(seat: int, player: Spec) -> Player:
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

        if _is_kept(player.text(), policies) or is_policy(player.text()):
            return run(game, player.text())
        saved = {SAVED_RUN: run, "clone": clone}
        return build(player, game, {**_pretrained_players(policies, greedy), **saved, **extra(seat)})

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

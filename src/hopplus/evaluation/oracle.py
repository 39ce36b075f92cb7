"""Oracles: the mean return of a best response to given co-players, whose policies it knows.

The value is exact where dynamic programming applies. Elsewhere it is a lower bound: the realised mean return of the
best of scripts, trained best responses, and look-ahead from either. The oracles of the named sets of co-players are
packaged; others are computed on request and stored in the user's cache.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import erfc, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.files import cache_directory, make_directory, write_text
from hopplus.core.specs import Spec, parse
from hopplus.evaluation.co_player_sets import CoPlayers
from hopplus.evaluation.oracle_opponents import OracleOpponents
from hopplus.evaluation.oracle_value import Effort, Progress, compute_value
from hopplus.games import Game, make
from hopplus.players import CastSpec

PACKAGED = Path(__file__).parent / "oracles.json"
"""Oracles of the named sets, written by `python experiments/evaluation.py oracles`."""
TOO_GOOD = 4.0
"""Standard errors above an oracle beyond which a return proves the oracle wrong."""
UNSEEN_EVENTS = -log(erfc(TOO_GOOD / sqrt(2)) / 2)
"""Expected number of events whose absence from a sample is as unlikely as a deviation of TOO_GOOD standard errors."""


@dataclass(frozen=True)
class Oracle:
    """Mean return of a best response; `as_dict` has the keys that commands print with --json."""

    game: str
    version: str
    against: tuple[str, ...]
    """Co-players by name, sorted: their seats do not matter."""
    value: float
    standard_error: float
    exact: bool
    """True for an exact value (up to its error, if layouts were sampled), False for a lower bound."""
    method: str
    units: int
    """Layouts or episodes in the mean."""
    effort: Effort
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return asdict(self)


def lookup(game: Game[Any], against: Sequence[Spec]) -> Oracle | None:
    """Returns the stored or packaged oracle against co-players that do not switch, or None."""
    return _load(OracleOpponents.of(game, against).key(game))


def oracle(
    game: Game[Any],
    game_name: str,
    against: Sequence[Spec],
    effort: Effort | None = None,
    candidates: Sequence[Spec] = (),
    again: bool = False,
    progress: Progress = lambda done: None,
) -> Oracle:
    """Returns the oracle against co-players that do not switch, computing and storing it where needed.

    Args:
        game: The game.
        game_name: Its name with settings, as typed.
        against: The co-players, one for every seat but one.
        effort: Sample sizes and training budget; a stored oracle of another effort is replaced. None accepts any.
        candidates: Players or runs that a lower bound tries in addition to its own.
        again: Recompute a stored oracle.
        progress: Called with the completed fraction.
    """
    opponents = OracleOpponents.of(game, against)
    key = opponents.key(game)
    stored = _load(key)
    if stored is not None and not again and effort in (None, stored.effort):
        return stored
    effort, started = effort or Effort(), time.perf_counter()
    result = compute_value(game, game_name, opponents, effort, candidates, progress)
    computed = Oracle(
        game=game_name,
        version=game.version,
        against=opponents.names,
        value=result.value,
        standard_error=result.standard_error,
        exact=result.exact,
        method=result.method,
        units=result.units,
        effort=effort,
        seconds=time.perf_counter() - started,
    )
    write_text(make_directory(_cache()) / f"{key}.json", json.dumps(computed.as_dict(), indent=2) + "\n")
    return computed


def phases(co_players: CoPlayers) -> list[tuple[Spec, ...]]:
    """Returns the co-players of each episode until they repeat; a single entry where none switches."""
    return [tuple(sorted(co_players.at_episode(episode), key=Spec.text)) for episode in range(co_players.period)]


def mean_of(oracles: Sequence[Oracle], weights: Sequence[float] | None = None) -> Oracle:
    """Returns the mean oracle of co-players that switch, weighted by episodes (equally by default)."""
    total: dict[Oracle, float] = {}
    for part, weight in zip(oracles, weights or [1.0] * len(oracles), strict=True):
        if weight:
            total[part] = total.get(part, 0.0) + weight
    distinct, shares = list(total), np.array(list(total.values())) / sum(total.values())
    if len(distinct) == 1:
        return distinct[0]
    seats = zip(*(part.against for part in distinct), strict=True)
    return replace(
        distinct[0],
        against=tuple(" or ".join(dict.fromkeys(names)) for names in seats),
        value=float(shares @ [part.value for part in distinct]),
        standard_error=float(np.linalg.norm(shares * [part.standard_error for part in distinct])),
        exact=all(part.exact for part in distinct),
        method="mean of those against " + " and ".join(",".join(part.against) for part in distinct),
        units=min(part.units for part in distinct),
        seconds=sum(part.seconds for part in distinct),
    )


def unseen_loss(game: Game[Any], units: int) -> float:
    """Returns the loss of mean return from rare events that a sample of independent units may have missed.

    A standard error that is estimated from the sample does not include it: it is 0 where all returns are equal. An
    event with an expected count of UNSEEN_EVENTS in the sample is missed with the probability of a deviation of
    TOO_GOOD standard errors, and costs at most the highest return of a player.
    """
    return UNSEEN_EVENTS * game.ceilings["player"] / units


def share(best: Oracle, value: float, error: float, unseen: float) -> float:
    """Returns a mean return as a share of the oracle's.

    Args:
        best: The oracle.
        value: Mean return.
        error: Its standard error.
        unseen: Loss from rare events that the sample may have missed, from `unseen_loss`.

    Raises:
        InputError: If the return exceeds the oracle's by more than chance allows, so that the oracle is wrong.
    """
    allowed = TOO_GOOD * float(np.hypot(error, best.standard_error)) + unseen
    if value > best.value + allowed + 1e-6:
        remedy = "wrong" if best.exact else "too weak: hopplus oracle --candidates RUN --again tries your run too"
        raise InputError(
            f"a return of {value:.3f} beats the oracle's {best.value:.3f} against {','.join(best.against)} by more"
            f" than chance allows: this oracle ({best.method}) is {remedy}"
        )
    return value / best.value if best.value else 1.0


def seat_shares(
    game: Game[Any],
    cast: CastSpec,
    means: Sequence[float],
    errors: Sequence[float],
    units: int,
    trial_episodes: int = 1,
    own: Sequence[int] = (),
) -> list[float | None]:
    """Returns the mean return of each seat as a share of the oracle's against the rest of the cast.

    Args:
        game: The game.
        cast: The cast.
        means: Mean return by seat, over the first `trial_episodes` episodes of trials.
        errors: Standard errors of the means.
        units: Independent trials in the means.
        trial_episodes: Episodes of a trial.
        own: Seats of policies that are not named in the cast; no oracle against them is known.

    Returns:
        Shares by seat; None where the oracle is unknown.
    """
    shares = []
    for seat, (mean, error) in enumerate(zip(means, errors, strict=True)):
        co_players = CoPlayers("", tuple(player for other, player in enumerate(cast.players) if other != seat), "own")
        oracles: list[Oracle | None] = []
        if not set(own) - {seat}:
            by_episode = phases(co_players)
            oracles = [lookup(game, by_episode[episode % len(by_episode)]) for episode in range(trial_episodes)]
        known = [best for best in oracles if best is not None]
        is_known = known and len(known) == len(oracles)
        shares.append(share(mean_of(known), mean, error, unseen_loss(game, units)) if is_known else None)
    return shares


# ---------------------------------------------------------------------------------------------------------- storage


def _cache() -> Path:
    return cache_directory() / "oracle"


def _load(key: str) -> Oracle | None:
    file = _cache() / f"{key}.json"
    if file.exists():
        try:
            return _from_dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"the oracle stored in {file} is damaged ({error}): delete it") from None
    return _packaged().get(key)


@cache
def _packaged() -> dict[str, Oracle]:
    """Returns the packaged oracles by key."""
    if not PACKAGED.exists():
        return {}
    oracles = [_from_dict(saved) for saved in json.loads(PACKAGED.read_text(encoding="utf-8"))]
    games = {name: make(name) for name in dict.fromkeys(known.game for known in oracles)}
    return {
        OracleOpponents.of(games[known.game], tuple(map(parse, known.against))).key(games[known.game]): known
        for known in oracles
    }


def _from_dict(saved: dict[str, Any]) -> Oracle:
    return Oracle(**{**saved, "against": tuple(saved["against"]), "effort": Effort(**saved["effort"])})

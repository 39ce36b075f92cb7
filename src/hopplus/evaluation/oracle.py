"""The oracle: how much the best response to given co-players earns, who are known to it with all their ways.

Exact where dynamic programming reaches; elsewhere a lower bound: the realised mean return of the best of scripts, a
trained best response, and looking ahead from the better of them. Those of the named sets come with the package; what
is computed anew is kept in the user's cache.
"""

import contextlib
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hopplus.errors import InputError
from hopplus.evaluation import exact
from hopplus.evaluation.match import BATCH, match
from hopplus.evaluation.sets import CoPlayers
from hopplus.files import cache_directory, make_directory, write_text
from hopplus.games import Game, StagHunt, make
from hopplus.players import Cast, Params, Player, names
from hopplus.players import make as make_player
from hopplus.players.lookahead import Lookahead
from hopplus.specs import split_top_level
from hopplus.statistics import standard_error
from hopplus.training.policies import checksum
from hopplus.training.recipes.ppo import PPO
from hopplus.training.run import new_run
from hopplus.training.seats import LEARNER, seat_cast
from hopplus.training.trainer import Training, describe, prepare, train

SHIPPED = Path(__file__).parent / "oracles.json"
"""Those of the named sets, by key; `python docs/results/evaluation.py oracles` makes it."""
ALL = 2_000
"""Up to so many layouts are all computed."""
WITH_OPTIONS = ("ns:then=hare", "nh:then=stag")
"""Scripts worth trying beside those without options."""
TRAINED = (0, 1, 2)
"""Seeds of a trained best response, of which the best counts."""
LOOKAHEAD_BATCH = 256
"""Episodes at once where every step is looked ahead from; and those that decide whether that is worth it."""
CHEAPER = 8
"""How many times as many episodes are played where nobody looks ahead."""
TOO_GOOD = 4.0
"""Standard errors by which nobody can be better than an oracle."""
FORMAT = 1
"""Changes when the way in which oracles are computed does."""


@dataclass(frozen=True)
class Effort:
    """How exactly an oracle is computed."""

    layouts: int = 200
    """Layouts of prey that are drawn where there are too many to compute them all."""
    steps: int = 600_000
    """Environment steps for which each of three seeds of a best response is trained; 0: none is."""
    episodes: int = 1_024
    """Episodes in which a lower bound is measured; those that choose between candidates are others."""
    seed: int = 0


@dataclass(frozen=True)
class Oracle:
    """What the best response earns; `as_dict` has the keys that commands print with --json."""

    game: str
    version: str
    against: tuple[str, ...]
    """The co-players by name, sorted: their seats do not matter."""
    value: float
    standard_error: float
    exact: bool
    """Whether this is the value (up to its error, if layouts were drawn) or a lower bound of it."""
    method: str
    units: int
    """Layouts or episodes of which it is the mean."""
    effort: Effort
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


Progress = Callable[[float], None]
"""Called with the share that is done."""


@dataclass(frozen=True, eq=False)
class Company:
    """Co-players made ready, sorted by name."""

    names: tuple[str, ...]
    players: tuple[Player, ...]
    params: tuple[Params, ...]

    @classmethod
    def of(cls, game: Game[Any], against: Sequence[str]) -> "Company":
        if len(against) != game.num_players - 1:
            raise InputError(
                f"{game.name} has {game.num_players} seats, so that the oracle meets {game.num_players - 1} others,"
                f" not {len(against)}"
            )
        written = tuple(sorted(against))
        seated = seat_cast(",".join(["stay", *written]), game)
        return cls(written, seated.cast.players[1:], tuple(seated.params()[1:]))

    @property
    def has_learnt(self) -> bool:
        return bool(jax.tree.leaves(self.params))

    def key(self, game: Game[Any]) -> str:
        """What an oracle depends on: the game with all its settings and its version, and who the co-players are."""
        who = [re.sub(r"source='[^']*'", "", repr(player)) for player in self.players]  # not where from, but what
        what = (FORMAT, repr(game), game.version, who, [checksum(params) for params in self.params])
        return hashlib.sha256(repr(what).encode()).hexdigest()[:24]


def known(game: Game[Any], against: Sequence[str]) -> Oracle | None:
    """The oracle against co-players who do not switch, if it has been computed: by this user, or for the package."""
    return _kept(Company.of(game, against).key(game))


def oracle(
    game: Game[Any],
    game_name: str,
    against: Sequence[str],
    effort: Effort | None = None,
    candidates: Sequence[str] = (),
    again: bool = False,
    progress: Progress = lambda done: None,
) -> Oracle:
    """The oracle against co-players who do not switch, as they are typed; kept for the next time.

    What is kept is taken instead, but `again`, or where it was computed with another effort than asked for.
    `candidates` are players or runs that a lower bound tries beside its own.
    """
    company = Company.of(game, against)
    key = company.key(game)
    kept = _kept(key)
    if kept is not None and not again and effort in (None, kept.effort):
        return kept
    effort, started = effort or Effort(), time.perf_counter()
    try:
        if company.has_learnt:
            raise InputError("the laws of those who have learnt are in no table")
        found = _exactly(exact.check_exact(game), company.players, effort, progress)
    except InputError:
        found = _at_least(game, game_name, company, effort, candidates, progress)
    value, error, is_exact, method, units = found
    result = Oracle(
        game=game_name,
        version=game.version,
        against=company.names,
        value=value,
        standard_error=error,
        exact=is_exact,
        method=method,
        units=units,
        effort=effort,
        seconds=time.perf_counter() - started,
    )
    write_text(make_directory(_cache()) / f"{key}.json", json.dumps(result.as_dict(), indent=2) + "\n")
    return result


def phases(co_players: CoPlayers) -> list[tuple[str, ...]]:
    """The tables that co-players form, episode by episode, until they repeat: one where nobody switches."""
    return [tuple(sorted(co_players.at_episode(episode))) for episode in range(co_players.period)]


def mean_of(found: Sequence[Oracle], weights: Sequence[float] | None = None) -> Oracle:
    """The oracle of co-players who are now these, now those: in equally many episodes, or by weight."""
    total: dict[Oracle, float] = {}
    for one, weight in zip(found, weights or [1.0] * len(found), strict=True):
        if weight:
            total[one] = total.get(one, 0.0) + weight
    distinct, shares = list(total), np.array(list(total.values())) / sum(total.values())
    if len(distinct) == 1:
        return distinct[0]
    return replace(
        distinct[0],
        against=tuple(" or ".join(dict.fromkeys(who)) for who in zip(*(one.against for one in distinct), strict=True)),
        value=float(shares @ [one.value for one in distinct]),
        standard_error=float(np.linalg.norm(shares * [one.standard_error for one in distinct])),
        exact=all(one.exact for one in distinct),
        method="mean of those against " + " and ".join(",".join(one.against) for one in distinct),
        units=min(one.units for one in distinct),
        seconds=sum(one.seconds for one in distinct),
    )


def share(found: Oracle, value: float, error: float) -> float:
    """A return as a share of the oracle's. Whoever is better than an oracle proves it wrong: that is an error."""
    allowed = TOO_GOOD * float(np.hypot(error, found.standard_error))
    if value > found.value + allowed + 1e-6:
        remedy = "wrong" if found.exact else "too weak: hopplus oracle --candidates RUN --again tries your run too"
        raise InputError(
            f"a return of {value:.3f} beats the oracle's {found.value:.3f} against {','.join(found.against)} by more"
            f" than chance allows: this oracle ({found.method}) is {remedy}"
        )
    return value / found.value if found.value else 1.0


def seat_shares(
    game: Game[Any],
    cast: str,
    means: Sequence[float],
    errors: Sequence[float],
    episodes: int = 1,
    own: Sequence[int] = (),
) -> list[float | None]:
    """Every seat's mean return as a share of the oracle's against the others of a cast, as it is typed, in their first
    episodes together; None where that is not known. Of those in their `own` seats nobody else knows the ways."""
    names, found = split_top_level(cast), []
    for seat, (mean, error) in enumerate(zip(means, errors, strict=True)):
        others = CoPlayers("", tuple(name for other, name in enumerate(names) if other != seat), "own")
        oracles = []
        if not set(own) - {seat}:
            tables = phases(others)
            oracles = [known(game, tables[episode % len(tables)]) for episode in range(episodes)]
        every = [one for one in oracles if one is not None]
        found.append(share(mean_of(every), mean, error) if every and len(every) == len(oracles) else None)
    return found


# ------------------------------------------------------------------------------------------------------- two ways to it

Found = tuple[float, float, bool, str, int]


def _exactly(game: StagHunt, co_players: tuple[Player, ...], effort: Effort, progress: Progress) -> Found:
    """The mean over layouts of prey and all first cells."""
    every = exact.all_layouts(game)
    chosen = every
    if len(every) > ALL:
        drawn = np.random.default_rng(effort.seed).choice(len(every), min(effort.layouts, len(every)), replace=False)
        chosen = every[drawn]
    means = []
    for number, layout in enumerate(chosen):
        means.append(exact.best_response(game, co_players, layout[None]).mean(dtype=np.float64))
        progress((number + 1) / len(chosen))
    values = np.array(means)
    error = 0.0 if len(chosen) == len(every) else float(standard_error(values))
    which = f"all {len(chosen)}" if len(chosen) == len(every) else f"{len(chosen)} drawn"
    return float(values.mean()), error, True, f"dynamic programming, {which} layouts", len(chosen)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Somebody who may be the best response."""

    name: str
    player: Player
    params: Params
    looks_ahead: bool = False

    def earns(self, game: Game[Any], company: Company, episodes: int, seed: int) -> tuple[float, float]:
        """Mean return and its standard error."""
        cast, params = Cast((self.player, *company.players)), [self.params, *company.params]
        batch = LOOKAHEAD_BATCH if self.looks_ahead else BATCH
        row = match(game, cast, episodes, seed, params=params, batch=batch).per_seat[0]
        return row.mean, row.standard_error

    def looking_ahead(self, game: Game[Any], company: Company) -> "Candidate":
        """The same, but looking ahead with the others' true ways."""
        player = Lookahead(game, self.player, company.players)
        return Candidate(f"looking ahead from {self.name}", player, (self.params, *company.params), looks_ahead=True)


def _at_least(
    game: Game[Any],
    game_name: str,
    company: Company,
    effort: Effort,
    extra: Sequence[str],
    progress: Progress,
) -> Found:
    """The best of the candidates in some episodes, measured in others: more of them if it does not look ahead, since
    they cost little then."""

    def best(candidates: Sequence[Candidate], episodes: int, seed: int) -> Candidate:
        def surely(one: Candidate) -> float:
            mean, error = one.earns(game, company, episodes, seed)
            return mean - error  # luck is likelier where returns scatter more

        return max(candidates, key=surely)

    learnt = _named(game, extra)
    if effort.steps:
        learnt += _trained(game, game_name, company, effort, lambda done: progress(0.5 * done))
    plain = [best(kind, effort.episodes, effort.seed + 1) for kind in (_scripts(game), learnt) if kind]
    progress(0.6)
    ahead = [one.looking_ahead(game, company) for one in plain]
    chosen = best([*plain, *ahead], min(effort.episodes, LOOKAHEAD_BATCH), effort.seed + 2)
    progress(0.8)
    episodes = effort.episodes if chosen.looks_ahead else CHEAPER * effort.episodes
    return *chosen.earns(game, company, episodes, effort.seed), False, chosen.name, episodes


def _scripts(game: Game[Any]) -> list[Candidate]:
    """The scripted players that know the game."""
    found = []
    for name in (*names(), *WITH_OPTIONS):
        with contextlib.suppress(InputError):
            player = make_player(name, game)
            found.append(Candidate(name, player, player.default_params()))
    return found


def _named(game: Game[Any], extra: Sequence[str]) -> list[Candidate]:
    """Whom the user would like to be tried."""
    found = []
    for name in extra:
        seated = seat_cast(",".join([name, *["stay"] * (game.num_players - 1)]), game, greedy=True)
        found.append(Candidate(name, seated.cast.players[0], seated.params()[0]))
    return found


def _trained(game: Game[Any], game_name: str, company: Company, effort: Effort, progress: Progress) -> list[Candidate]:
    """Best responses that PPO has learnt with these very co-players, greedy ones and those that draw."""
    cast, seeds = ",".join([LEARNER, *company.names]), ",".join(map(str, TRAINED))
    setup = prepare(Training(game_name, cast, seeds, effort.steps), PPO(environments=256))
    with tempfile.TemporaryDirectory() as directory, new_run(Path(directory) / "run", describe(setup)) as run:
        train(run, setup, watch=lambda lines, _: progress(min(line["steps"] for line in lines) / effort.steps))
        policies = [(seed, run.policies(seed)[0]) for seed in TRAINED]
    return [
        Candidate(
            f"PPO trained for {effort.steps:,} steps" + (", greedy" if greedy else ""),
            policy.player(game, f"best response {seed}", greedy),
            policy.params,
        )
        for seed, policy in policies
        for greedy in (False, True)
    ]


# ------------------------------------------------------------------------------------------------------------- on disk


def _cache() -> Path:
    return cache_directory() / "oracle"


def _kept(key: str) -> Oracle | None:
    file = _cache() / f"{key}.json"
    if file.exists():
        try:
            return _from_dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"the oracle kept in {file} is damaged ({error}): delete it") from None
    return _shipped().get(key)


@cache
def _shipped() -> dict[str, Oracle]:
    """Those that came with the package, by key."""
    if not SHIPPED.exists():
        return {}
    found = [_from_dict(saved) for saved in json.loads(SHIPPED.read_text(encoding="utf-8"))]
    games = {name: make(name) for name in dict.fromkeys(one.game for one in found)}
    return {Company.of(games[one.game], one.against).key(games[one.game]): one for one in found}


def _from_dict(saved: dict[str, Any]) -> Oracle:
    return Oracle(**{**saved, "against": tuple(saved["against"]), "effort": Effort(**saved["effort"])})

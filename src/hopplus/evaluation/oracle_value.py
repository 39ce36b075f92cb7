"""Computation of an oracle's value: exact by dynamic programming, else a lower bound by search and training."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from hopplus.algorithms.ppo import PPO
from hopplus.algorithms.seats import LEARNER
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec
from hopplus.core.statistics import standard_error
from hopplus.evaluation import exact_best_response
from hopplus.evaluation.match import BATCH
from hopplus.evaluation.oracle_opponents import OracleOpponents
from hopplus.games import Game, GridGame, StagHunt
from hopplus.players import Cast, CastSpec, Params, Player, names
from hopplus.players import make as make_player
from hopplus.players.deadline import Deadline
from hopplus.players.lookahead import Lookahead
from hopplus.players.scripted import Seeker
from hopplus.rollouts import play_episodes
from hopplus.training.casting import seat_cast
from hopplus.training.experiment import describe, prepare
from hopplus.training.run import new_run
from hopplus.training.trainer import train

ALL = 2_000
"""Largest number of layouts that are all computed; of more, a sample is."""
WITH_OPTIONS = ("ns:then=hare", "nh:then=stag")
"""Scripts with options that are tried in addition to those without."""
TRAINED = (0, 1, 2)
"""Training seeds of a best response; the best seed counts."""
LOOKAHEAD_BATCH = 256
"""Batch size with look-ahead, and the number of episodes that decide whether look-ahead pays."""
BASES = 2
"""Scripts, the best ones, between which look-ahead chooses at every step."""
CHEAPER = 8
"""Factor by which more episodes are played without look-ahead."""

Returns = Float[np.ndarray, " episodes"]
"""Return of the ego in each episode."""
Progress = Callable[[float], None]
"""Called with the completed fraction."""


@dataclass(frozen=True)
class Effort:
    """Sample sizes and training budget of an oracle."""

    layouts: int = 200
    """Layouts of items in the sample, where there are too many to compute all."""
    steps: int = 600_000
    """Environment steps of training for each of three seeds of a best response; 0: no training."""
    episodes: int = 1_024
    """Episodes that measure a lower bound; candidates are compared in other episodes."""
    lookahead: bool = True
    """Try candidates with look-ahead, which take most of the time where episodes are long."""
    seed: int = 0


@dataclass(frozen=True)
class OracleValue:
    """Mean return of a best response."""

    value: float
    standard_error: float
    exact: bool
    method: str
    units: int
    """Layouts or episodes in the mean."""


def compute_value(
    game: Game[Any],
    game_name: str,
    opponents: OracleOpponents,
    effort: Effort,
    candidates: Sequence[Spec],
    progress: Progress,
) -> OracleValue:
    """Returns the exact value where dynamic programming applies, else a lower bound."""
    try:
        if opponents.is_trained:
            raise InputError("trained co-players have no table of action probabilities")
        return exact_value(exact_best_response.check_exact(game), opponents.players, effort, progress)
    except InputError:
        return lower_bound(game, game_name, opponents, effort, candidates, progress)


def exact_value(game: GridGame, co_players: tuple[Player, ...], effort: Effort, progress: Progress) -> OracleValue:
    """Returns the mean value over layouts of items and all first cells, by dynamic programming."""
    layouts = exact_best_response.all_layouts(game)
    chosen = layouts
    if len(layouts) > ALL:
        size = min(effort.layouts, len(layouts))
        chosen = layouts[np.random.default_rng(effort.seed).choice(len(layouts), size, replace=False)]
    means = []
    for number, layout in enumerate(chosen):
        means.append(exact_best_response.best_response(game, co_players, layout[None]).mean(dtype=np.float64))
        progress((number + 1) / len(chosen))
    values = np.array(means)
    is_sample = len(chosen) < len(layouts)
    error = float(standard_error(values)) if is_sample else 0.0
    which = f"{len(chosen)} drawn" if is_sample else f"all {len(chosen)}"
    return OracleValue(float(values.mean()), error, True, f"dynamic programming, {which} layouts", len(chosen))


@dataclass(frozen=True, eq=False)
class Candidate:
    """Candidate for the best response."""

    name: str
    player: Player
    params: Params
    looks_ahead: bool = False

    def returns(self, game: Game[Any], opponents: OracleOpponents, episodes: int, seed: int) -> Returns:
        """Returns the return of each episode of `match`; in a batch of one seed all candidates have the same states."""
        cast, params = Cast((self.player, *opponents.players)), [self.params, *opponents.params]
        batch = min(LOOKAHEAD_BATCH if self.looks_ahead else BATCH, episodes)
        by_batch = []
        for number in range(-(-episodes // batch)):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), 0)
            by_batch.append(np.asarray(play_episodes(key, game, cast, batch, params)[1].returns[:, 0], np.float64))
        return np.concatenate(by_batch)[:episodes]

    def mean_return(self, game: Game[Any], opponents: OracleOpponents, episodes: int, seed: int) -> tuple[float, float]:
        """Returns the mean return and its standard error."""
        returns = self.returns(game, opponents, episodes, seed)
        return float(returns.mean()), float(standard_error(returns))


def with_lookahead(game: Game[Any], bases: Sequence[Candidate], opponents: OracleOpponents) -> Candidate:
    """Returns a candidate that looks ahead, on the true policies of the co-players, from several candidates at once."""
    player = Lookahead(game, tuple(base.player for base in bases), opponents.players)
    params = (*(base.params for base in bases), *opponents.params)
    return Candidate(f"looking ahead from {' or '.join(base.name for base in bases)}", player, params, looks_ahead=True)


def lower_bound(
    game: Game[Any],
    game_name: str,
    opponents: OracleOpponents,
    effort: Effort,
    extra: Sequence[Spec],
    progress: Progress,
) -> OracleValue:
    """Returns the mean return of the best candidate, in other episodes than those that selected it.

    Look-ahead must pay by more than two standard errors. A candidate without it is measured in more episodes, because
    they cost little.
    """

    def ranked(candidates: Sequence[Candidate], episodes: int, seed: int) -> list[Candidate]:
        """Returns the candidates, best first; of those with equal returns, which behave alike, only one."""
        by_estimate: dict[float, Candidate] = {}
        for candidate in candidates:
            mean, error = candidate.mean_return(game, opponents, episodes, seed)
            by_estimate.setdefault(mean - error, candidate)  # luck is likelier where returns scatter more
        return [by_estimate[estimate] for estimate in sorted(by_estimate, reverse=True)]

    policies = _named(game, extra)
    if effort.steps:
        policies += _trained(game, game_name, opponents, effort, lambda done: progress(0.5 * done))
    scripted, trained = (ranked(group, effort.episodes, effort.seed + 1) for group in (scripts(game), policies))
    progress(0.6)
    compared = min(effort.episodes, LOOKAHEAD_BATCH), effort.seed + 2
    plain = ranked([*scripted[:1], *trained[:1]], *compared)[0]

    def certain_gain(candidate: Candidate) -> float:
        """Returns the mean advantage over the best candidate without look-ahead, less two standard errors."""
        gains = candidate.returns(game, opponents, *compared) - plain.returns(game, opponents, *compared)
        return float(gains.mean() - 2 * standard_error(gains))

    bases = [base for base in (scripted[:BASES], trained[:1]) if base and effort.lookahead]
    ahead = [with_lookahead(game, base, opponents) for base in bases]
    gains = [certain_gain(candidate) for candidate in ahead]
    chosen = ahead[int(np.argmax(gains))] if max(gains, default=0.0) > 0 else plain
    progress(0.8)
    episodes = effort.episodes if chosen.looks_ahead else CHEAPER * effort.episodes
    mean, error = chosen.mean_return(game, opponents, episodes, effort.seed)
    return OracleValue(mean, error, False, chosen.name, episodes)


def scripts(game: Game[Any]) -> list[Candidate]:
    """Returns the scripted players that can play the game, and a hunter of stags that takes a hare in time."""
    candidates = []
    for name in (*names(), *WITH_OPTIONS):
        with contextlib.suppress(InputError):
            player = make_player(name, game)
            candidates.append(Candidate(name, player, player.default_params()))
    if isinstance(game, StagHunt):
        candidates.append(_in_time(game))
    return candidates


def _in_time(game: StagHunt) -> Candidate:
    """Returns a hunter of stags that takes a hare in the last steps."""
    stag_hunter, hare_hunter = (make_player(name, game) for name in ("ns:then=hare", "nh"))
    assert isinstance(hare_hunter, Seeker)
    return Candidate("ns with a hare in time", Deadline(stag_hunter, hare_hunter), ())


def _named(game: Game[Any], extra: Sequence[Spec]) -> list[Candidate]:
    """Returns the user's candidates, greedy."""
    candidates = []
    for player in extra:
        seated = seat_cast(CastSpec((player, *[Spec("stay")] * (game.num_players - 1))), game, greedy=True)
        candidates.append(Candidate(player.text(), seated.cast.players[0], seated.params()[0]))
    return candidates


def _trained(
    game: Game[Any], game_name: str, opponents: OracleOpponents, effort: Effort, progress: Progress
) -> list[Candidate]:
    """Returns PPO policies trained with these co-players, greedy and sampling."""
    cast, seeds = CastSpec((Spec(LEARNER), *opponents.specs)).text, ",".join(map(str, TRAINED))
    experiment = prepare(TrainingConfig(game_name, cast, seeds, effort.steps), PPO(num_envs=256))
    with tempfile.TemporaryDirectory() as directory, new_run(Path(directory) / "run", describe(experiment)) as run:
        train(run, experiment, watch=lambda lines, _: progress(min(line["steps"] for line in lines) / effort.steps))
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

"""Computation of an oracle's value: exact by dynamic programming, else a lower bound by search and training."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.algorithms.ppo import PPO
from hopplus.algorithms.seats import LEARNER
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec
from hopplus.core.statistics import standard_error
from hopplus.evaluation import exact_best_response
from hopplus.evaluation.match import BATCH, match
from hopplus.evaluation.oracle_opponents import OracleOpponents
from hopplus.games import Game, GridGame
from hopplus.players import Cast, CastSpec, Params, Player, names
from hopplus.players import make as make_player
from hopplus.players.lookahead import Lookahead
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
CHEAPER = 8
"""Factor by which more episodes are played without look-ahead."""

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

    def mean_return(self, game: Game[Any], opponents: OracleOpponents, episodes: int, seed: int) -> tuple[float, float]:
        """Returns the mean return and its standard error."""
        cast, params = Cast((self.player, *opponents.players)), [self.params, *opponents.params]
        batch = LOOKAHEAD_BATCH if self.looks_ahead else BATCH
        row = match(game, cast, episodes, seed, params=params, batch=batch).per_seat[0]
        return row.mean, row.standard_error

    def with_lookahead(self, game: Game[Any], opponents: OracleOpponents) -> "Candidate":
        """Returns the candidate with look-ahead on the true policies of the co-players."""
        player = Lookahead(game, self.player, opponents.players)
        return Candidate(f"looking ahead from {self.name}", player, (self.params, *opponents.params), looks_ahead=True)


def lower_bound(
    game: Game[Any],
    game_name: str,
    opponents: OracleOpponents,
    effort: Effort,
    extra: Sequence[Spec],
    progress: Progress,
) -> OracleValue:
    """Returns the mean return of the best candidate, in other episodes than those that selected it.

    A candidate without look-ahead is measured in more episodes, because they cost little.
    """

    def best(candidates: Sequence[Candidate], episodes: int, seed: int) -> Candidate:
        def lower_estimate(candidate: Candidate) -> float:
            mean, error = candidate.mean_return(game, opponents, episodes, seed)
            return mean - error  # luck is likelier where returns scatter more

        return max(candidates, key=lower_estimate)

    policies = _named(game, extra)
    if effort.steps:
        policies += _trained(game, game_name, opponents, effort, lambda done: progress(0.5 * done))
    plain = [best(group, effort.episodes, effort.seed + 1) for group in (scripts(game), policies) if group]
    progress(0.6)
    ahead = [candidate.with_lookahead(game, opponents) for candidate in plain]
    chosen = best([*plain, *ahead], min(effort.episodes, LOOKAHEAD_BATCH), effort.seed + 2)
    progress(0.8)
    episodes = effort.episodes if chosen.looks_ahead else CHEAPER * effort.episodes
    mean, error = chosen.mean_return(game, opponents, episodes, effort.seed)
    return OracleValue(mean, error, False, chosen.name, episodes)


def scripts(game: Game[Any]) -> list[Candidate]:
    """Returns the scripted players that can play the game."""
    candidates = []
    for name in (*names(), *WITH_OPTIONS):
        with contextlib.suppress(InputError):
            player = make_player(name, game)
            candidates.append(Candidate(name, player, player.default_params()))
    return candidates


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

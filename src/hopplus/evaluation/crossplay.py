"""Cross-play: mean returns of each row player with co-players of each column, at every seat."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.core.errors import InputError
from hopplus.core.statistics import FEWEST, estimate
from hopplus.evaluation.match import match
from hopplus.evaluation.protocol import Focal, check_distinct, game_of
from hopplus.games import Game
from hopplus.players import Cast, CastSpec, Params, Player
from hopplus.players.reseating import ReseatableCast
from hopplus.training.casting import seat_cast

OTHER_SEEDS = "itself, other seeds"
"""Column of a run with the policies of another of its training seeds."""


def common_game(focals: Sequence[Focal], game: str | None = None) -> Game[Any]:
    """Returns the game of all runs, or `game` if given. Raises InputError for runs of several games or versions."""
    runs = [focal.run for focal in focals if focal.run]
    if not runs:
        raise InputError("cross-play needs at least one run: use hopplus match for players by name alone")
    first = runs[0]
    first_game, first_version = first.config["training"]["game"], first.config.get("game_version")
    for run in runs[1:]:
        run_game, version = run.config["training"]["game"], run.config.get("game_version")
        for relation, expected, actual in (("on", first_game, run_game), ("on version", first_version, version)):
            if actual != expected and (game is None or relation != "on"):
                raise InputError(
                    f"{first.path} was trained {relation} {expected} and {run.path} {relation} {actual}: one matrix is"
                    " of one game"
                )
    return game_of(focals, game)


def crossplay(
    rows: Sequence[Focal],
    columns: Sequence[Focal],
    game: Game[Any],
    episodes: int = 500,
    trial_episodes: int = 1,
    greedy: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Returns the mean returns of each row player with co-players of each column.

    Training seeds are paired in order. The column of the run itself is self-play; a further column pairs each of its
    seeds with the next one.

    Args:
        rows: Row players.
        columns: Co-players.
        game: The game.
        episodes: Episodes at every seat.
        trial_episodes: Episodes per trial.
        greedy: Take the likeliest action instead of sampling.
        seed: Random seed.
        progress: Called with the completed fraction.

    Returns:
        game, version, episodes, trial_episodes, greedy, planner, seed, rows, columns, and cells (row, column, seeds,
        mean, low, high, interval, per_seat, per_seed, others_mean).
    """
    for focals in (rows, columns):
        check_distinct(focals)
        for focal in focals:
            focal.check(game, update_weights=False)
    has_shift = any(len(row.seeds) > 1 for row in rows if row.run)
    jobs = [(row, column, 0) for row in rows for column in columns]
    jobs += [(row, row, 1) for row in rows if row.run and len(row.seeds) > 1]
    cells = []
    for number, (row, column, shift) in enumerate(jobs):

        def advance(done: float, number: int = number) -> None:
            progress((number + done) / len(jobs))

        cells.append(_cell(row, column, shift, game, episodes, trial_episodes, greedy, seed, advance))
    return {
        "game": game.name,
        "version": game.version,
        "episodes": episodes,
        "trial_episodes": trial_episodes,
        "greedy": greedy,
        "planner": rows[0].planner,
        "seed": seed,
        "rows": [row.name for row in rows],
        "columns": [*(column.name for column in columns), *([OTHER_SEEDS] if has_shift else [])],
        "cells": cells,
    }


def _cell(
    row: Focal,
    column: Focal,
    shift: int,
    game: Game[Any],
    episodes: int,
    trial_episodes: int,
    greedy: bool,
    seed: int,
    progress: Callable[[float], None],
) -> dict[str, Any]:
    pairs = paired(row, column, shift)
    row_returns, column_returns = [], []
    for number, (row_seed, column_seed) in enumerate(pairs):
        seeds = (row_seed, column_seed)
        by_seat = _by_seat(row, column, seeds, game, episodes, trial_episodes, greedy, seed + number)
        row_returns.append(by_seat[0])
        column_returns.append(by_seat[1])
        progress((number + 1) / len(pairs))
    per_seed = np.array(row_returns).mean(1)
    too_few = f"mean of {len(pairs)} training seeds: an interval needs {FEWEST}"
    interval = estimate(per_seed[:, None]) if len(pairs) >= FEWEST else None
    return {
        "row": row.name,
        "column": OTHER_SEEDS if shift else column.name,
        "seeds": [list(pair) for pair in pairs],
        "mean": float(per_seed.mean()),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "interval": interval.meaning if interval else too_few,
        "per_seat": np.array(row_returns).mean(0).tolist(),
        "per_seed": per_seed.tolist(),
        "others_mean": float(np.mean(column_returns)),
    }


def paired(row: Focal, column: Focal, shift: int = 0) -> list[tuple[int, int]]:
    """Returns pairs of seeds in order, the column's rotated by `shift`; a player by name is paired with all seeds."""
    row_seeds, column_seeds = row.seeds, (*column.seeds[shift:], *column.seeds[:shift])
    if row.run and column.run:
        return list(zip(row_seeds, column_seeds, strict=False))
    if row.run:
        return [(seed, column_seeds[0]) for seed in row_seeds]
    return [(row_seeds[0], seed) for seed in column_seeds]


def _by_seat(
    row: Focal,
    column: Focal,
    seeds: tuple[int, int],
    game: Game[Any],
    episodes: int,
    trial_episodes: int,
    greedy: bool,
    seed: int,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Returns the mean returns of the row player and of its co-players, by seat of the row player."""
    n, means = game.num_players, []
    row_seed, column_seed = seeds
    if row.name == column.name and row_seed == column_seed:
        cast, params = _players_of(row, row_seed, range(n), "self", game, greedy)
        played = match(game, Cast(cast), episodes, seed, trial_episodes, params=params)
        row_returns = np.array([result.mean for result in played.per_seat])
        return row_returns, (row_returns.sum() - row_returns) / (n - 1)
    for seat in range(n):
        seats = (seat, *(other for other in range(n) if other != seat))
        row_players, row_params = _players_of(row, row_seed, seats[:1], "row", game, greedy)
        co_players, co_params = _players_of(column, column_seed, seats[1:], "column", game, greedy)
        played = match(
            game,
            ReseatableCast((*row_players, *co_players)),
            episodes,
            seed,
            trial_episodes,
            params=[*row_params, *co_params],
            seats=seats,
        )
        returns = np.array([result.mean for result in played.per_seat])
        means.append((returns[seat], np.delete(returns, seat).mean()))
    row_returns, co_returns = np.array(means).T
    return row_returns, co_returns


def _players_of(
    focal: Focal, seed: int, seats: Sequence[int], source: str, game: Game[Any], greedy: bool
) -> tuple[tuple[Player, ...], list[Params]]:
    """Returns the players and parameters of a training seed for some seats.

    Seats with different parameters are different players, named by position, so that other weights and seats reuse the
    compiled program.
    """
    if focal.run is None:
        seated = seat_cast(CastSpec((focal.player,) * game.num_players), game, greedy=greedy)
        return tuple(seated.cast.players[seat] for seat in seats), [seated.params()[seat] for seat in seats]
    policies = focal.policies(seed)
    chosen = [focal.run.seated(policies, seat) for seat in seats]
    sources = [source if len(policies) == 1 else f"{source} {place}" for place in range(len(seats))]
    players = tuple(policy.player(game, name, greedy) for policy, name in zip(chosen, sources, strict=True))
    return players, [policy.params for policy in chosen]

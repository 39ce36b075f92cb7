"""Cross-play: everybody with everybody else, one at a table of others, at every seat."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.errors import InputError
from hopplus.evaluation.match import match
from hopplus.evaluation.statistics import FEWEST, estimate
from hopplus.evaluation.tables import Focal, check_distinct
from hopplus.games import Game, make
from hopplus.players import Cast, Params, Player
from hopplus.players.movable import Movable
from hopplus.training.seats import seat_cast

OTHER_SEEDS = "itself, other seeds"
"""The column in which a run meets what another of its seeds has learnt."""


def game_of(focals: Sequence[Focal], game: str | None = None) -> Game[Any]:
    """The one game of all runs, or another that fits them; InputError where they are of several games or versions."""
    runs = [focal.run for focal in focals if focal.run]
    if not runs:
        raise InputError("cross-play needs at least one run: players by name alone meet in hopplus match")
    first = runs[0]
    for run in runs[1:]:
        for what, told in (("on", run.config["training"]["game"]), ("on version", run.config.get("game_version"))):
            ours = first.config["training"]["game"] if what == "on" else first.config.get("game_version")
            if told != ours and (game is None or what != "on"):
                raise InputError(
                    f"{first.path} was trained {what} {ours} and {run.path} {what} {told}: one matrix is of one game"
                )
    return make(first.config["training"]["game"] if game is None else game)


def crossplay(
    rows: Sequence[Focal],
    columns: Sequence[Focal],
    game: Game[Any],
    episodes: int = 500,
    acquaintance: int = 1,
    greedy: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """What each of the rows earns at a table of each of the columns, at every seat, so many episodes at each.

    Seeds are paired in order: the first seed of a run meets the first of another. A run's own column is its self-play,
    and it has another, in which each of its seeds meets the next one. Keys: game, version, episodes, acquaintance,
    greedy, search, seed, rows, columns, cells (row, column, seeds, mean, low, high, interval, per_seat, per_seed,
    others_mean).
    """
    for focals in (rows, columns):
        check_distinct(focals)
        for focal in focals:
            focal.check(game, update_weights=False)
    shift = any(len(row.seeds) > 1 for row in rows if row.run)
    jobs = [(row, column, 0) for row in rows for column in columns]
    jobs += [(row, row, 1) for row in rows if row.run and len(row.seeds) > 1]
    cells = []
    for number, (row, column, turn) in enumerate(jobs):

        def advance(done: float, number: int = number) -> None:
            progress((number + done) / len(jobs))

        cells.append(_cell(row, column, turn, game, episodes, acquaintance, greedy, seed, advance))
    return {
        "game": game.name,
        "version": game.version,
        "episodes": episodes,
        "acquaintance": acquaintance,
        "greedy": greedy,
        "search": rows[0].search,
        "seed": seed,
        "rows": [row.name for row in rows],
        "columns": [*(column.name for column in columns), *([OTHER_SEEDS] if shift else [])],
        "cells": cells,
    }


def _cell(
    row: Focal,
    column: Focal,
    turn: int,
    game: Game[Any],
    episodes: int,
    acquaintance: int,
    greedy: bool,
    seed: int,
    progress: Callable[[float], None],
) -> dict[str, Any]:
    pairs = paired(row, column, turn)
    own, others = [], []
    for number, (ours, theirs) in enumerate(pairs):
        alike = row.name == column.name and ours == theirs
        found = _by_seat(row, column, ours, theirs, alike, game, episodes, acquaintance, greedy, seed + number)
        own.append(found[0])
        others.append(found[1])
        progress((number + 1) / len(pairs))
    per_seed = np.array(own).mean(1)
    few = f"mean of {len(pairs)} training seeds: an interval needs {FEWEST}"
    sure = estimate(per_seed[:, None]) if len(pairs) >= FEWEST else None
    return {
        "row": row.name,
        "column": OTHER_SEEDS if turn else column.name,
        "seeds": [list(pair) for pair in pairs],
        "mean": float(per_seed.mean()),
        "low": sure.low if sure else None,
        "high": sure.high if sure else None,
        "interval": sure.meaning if sure else few,
        "per_seat": np.array(own).mean(0).tolist(),
        "per_seed": per_seed.tolist(),
        "others_mean": float(np.mean(others)),
    }


def paired(row: Focal, column: Focal, turn: int = 0) -> list[tuple[int, int]]:
    """Seeds that meet: in order, those of the column moved on by `turn`; a player by name meets all of them."""
    ours, theirs = row.seeds, (*column.seeds[turn:], *column.seeds[:turn])
    if row.run and column.run:
        return list(zip(ours, theirs, strict=False))
    return [(one, theirs[0]) for one in ours] if row.run else [(ours[0], other) for other in theirs]


def _by_seat(
    row: Focal,
    column: Focal,
    ours: int,
    theirs: int,
    alike: bool,
    game: Game[Any],
    episodes: int,
    acquaintance: int,
    greedy: bool,
    seed: int,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """By seat of the row's player, what it and the mean of the others earned."""
    n, means = game.num_players, []
    if alike:
        cast, params = _together(row, ours, range(n), "self", game, greedy)
        every = match(game, Cast(cast), episodes, seed, acquaintance, params=params)
        own = np.array([one.mean for one in every.per_seat])
        return own, (own.sum() - own) / (n - 1)
    for seat in range(n):
        seats = (seat, *(other for other in range(n) if other != seat))
        one, learnt = _together(row, ours, seats[:1], "row", game, greedy)
        more, learnt_more = _together(column, theirs, seats[1:], "column", game, greedy)
        played = match(
            game,
            Movable((*one, *more)),
            episodes,
            seed,
            acquaintance,
            params=[*learnt, *learnt_more],
            seats=seats,
        )
        earned = np.array([one.mean for one in played.per_seat])
        means.append((earned[seat], np.delete(earned, seat).mean()))
    own, others = np.array(means).T
    return own, others


def _together(
    focal: Focal, seed: int, seats: Sequence[int], source: str, game: Game[Any], greedy: bool
) -> tuple[tuple[Player, ...], list[Params]]:
    """The player of a training seed in some seats, and what it has learnt for each; seats of different parameters are
    different players, named by their places, so that other weights and seats are no other program."""
    if focal.run is None:
        seated = seat_cast(",".join([focal.name] * game.num_players), game, greedy=greedy)
        return tuple(seated.cast.players[seat] for seat in seats), [seated.params()[seat] for seat in seats]
    policies = focal.policies(seed)
    chosen = [focal.run.seated(policies, seat) for seat in seats]
    sources = [source if len(policies) == 1 else f"{source} {place}" for place in range(len(seats))]
    players = tuple(one.player(game, own, greedy) for one, own in zip(chosen, sources, strict=True))
    return players, [policy.params for policy in chosen]

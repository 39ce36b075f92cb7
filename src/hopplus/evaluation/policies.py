"""Evaluation of a run's policies with frozen weights."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.statistics import standard_error
from hopplus.evaluation.match import MatchResult, match
from hopplus.evaluation.oracle import seat_shares
from hopplus.games import Game, make
from hopplus.players import CastSpec
from hopplus.training.casting import seat_cast, with_learners
from hopplus.training.run import Run


def evaluate(
    run: Run,
    cast: CastSpec | None = None,
    game: str | None = None,
    episodes: int = 2000,
    greedy: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
    planner: str | None = None,
) -> dict[str, Any]:
    """Evaluates every training seed of a run in a cast.

    Training seeds are the units of standard errors, or episodes where there is only one seed.

    Args:
        run: The run.
        cast: The cast; `self` is the run's policy for that seat. None: the cast of the training, with `self` in the
            learning seats.
        game: The game; None: the game of the training.
        episodes: Episodes per training seed.
        greedy: Take the likeliest action instead of sampling.
        seed: Random seed of play.
        progress: Called with the number of episodes played so far.
        planner: Planning before acting: off, tree or a registered planner; None: as in training.
    """
    trained_on = run.config["training"]["game"]
    spec = with_learners(run.cast, "self", make(trained_on)) if cast is None else cast
    the_game = make(trained_on if game is None else game)
    results, own = [], ()
    for number, training_seed in enumerate(run.seeds):
        policies = [policy.with_planner(planner) for policy in run.policies(training_seed)]
        seated = seat_cast(spec, the_game, lambda seat, policies=policies: run.seated(policies, seat), greedy)
        own = seated.own
        if planner is not None and not own:
            raise InputError(f"--planner is for the run's own policy, but the cast {spec.text!r} has no seat 'self'")

        def advance(done: int, number: int = number) -> None:
            progress(number * episodes + done)

        results.append(match(the_game, seated.cast, episodes, seed + number, 1, advance, seated.params()))
    return {**_summary(run, the_game, spec, results, own, greedy), "planner": planner}


def _summary(
    run: Run, game: Game[Any], cast: CastSpec, results: list[MatchResult], own: tuple[int, ...], greedy: bool
) -> dict[str, Any]:
    first = results[0]
    means = np.array([[row.mean for row in result.per_seat] for result in results])
    errors = [row.standard_error for row in first.per_seat] if len(results) == 1 else standard_error(means)
    seat_means = means[:, list(own)].mean(1) if own else None
    mean = float(means.mean())
    noise = np.linalg.norm([[row.standard_error for row in result.per_seat] for result in results], axis=0)
    play_errors, units = (noise / len(results)).tolist(), sum(result.episodes for result in results)
    shares = seat_shares(game, cast, means.mean(0).tolist(), play_errors, units, own=own)
    return {
        "run": str(run.path),
        "game": first.game,
        "version": first.version,
        "cast": cast.text,
        "greedy": greedy,
        "seeds": run.seeds,
        "episodes": first.episodes,
        "mean_return": mean,
        "standard_error": first.standard_error if len(results) == 1 else float(standard_error(means.mean(1))),
        "share_of_ceiling": float(np.mean([result.share_of_ceiling for result in results])),
        "own_return": None if seat_means is None else float(seat_means.mean()),
        "own_standard_error": _own_error(results, own, seat_means),
        "per_seat": [
            {
                "seat": row.seat,
                "player": row.player,
                "mean": float(means[:, seat].mean()),
                "standard_error": float(errors[seat]),
                "share_of_oracle": shares[seat],
                "length": float(np.mean([result.per_seat[seat].length for result in results])),
                "taken": {
                    kind: float(np.mean([result.per_seat[seat].taken[kind] for result in results]))
                    for kind in row.taken
                },
            }
            for seat, row in enumerate(first.per_seat)
        ],
        "per_seed": [
            {
                "seed": training_seed,
                "mean_return": result.mean_return,
                "own_return": None if seat_means is None else float(seat_means[number]),
            }
            for number, (training_seed, result) in enumerate(zip(run.seeds, results, strict=True))
        ],
    }


def _own_error(results: list[MatchResult], own: tuple[int, ...], seat_means: np.ndarray | None) -> float | None:
    if seat_means is None:
        return None
    if len(seat_means) > 1:
        return float(standard_error(seat_means))
    first = results[0]
    return first.standard_error if len(own) == len(first.per_seat) else first.per_seat[own[0]].standard_error

"""Command `hopplus match`."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from hopplus.cli.output import GameName, Json, Plugin, progress_bar, run_plugin, show
from hopplus.core.formatting import percent

if TYPE_CHECKING:
    from hopplus.evaluation import MatchResult
    from hopplus.players import CastSpec


def match(
    game: GameName,
    cast: str,
    episodes: int = 10_000,
    trial_episodes: int = 1,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Play many episodes with a cast and report returns and prey taken per seat.

    For example: hopplus match msh-4x4-4h1s --cast ns,ns,nh,random

    Args:
        cast: One player per seat: ns,nh:then=stay,noisy(ns,0.2),random, or a run directory.
        episodes: Number of episodes, from fresh states.
        trial_episodes: Consecutive episodes with the same players, who keep their memory.
        seed: Seed of the match.
    """
    from hopplus.evaluation import match as play_match
    from hopplus.games import make
    from hopplus.training.casting import parse_cast, seat_cast

    run_plugin(plugin)
    the_game, spec = make(game), parse_cast(cast)
    seated = seat_cast(spec, the_game)
    with progress_bar("episodes", episodes) as advance:
        result = play_match(the_game, seated.cast, episodes, seed, trial_episodes, advance, seated.params())
    result = _with_shares(the_game, spec, result)
    show(result.as_dict(), match_table(result), json)


def _with_shares(game: Any, cast: "CastSpec", result: "MatchResult") -> "MatchResult":
    """Add shares of the oracle's return for the seats whose oracle is known."""
    from dataclasses import replace

    from hopplus.evaluation.oracle import seat_shares

    means, errors = zip(*((row.mean, row.standard_error) for row in result.per_seat), strict=True)
    shares = seat_shares(game, cast, means, errors, result.trial_episodes)
    rows = (replace(row, share_of_oracle=share) for row, share in zip(result.per_seat, shares, strict=True))
    return replace(result, per_seat=tuple(rows))


def match_table(result: "MatchResult") -> Table:
    """Table of a match: one row per seat, and the mean over all seats."""
    prey = list(result.per_seat[0].taken)
    caption = f"{result.episodes} episodes of {result.episode_length:.1f} steps, seed {result.seed}"
    table = Table("seat", "player", "mean return", "± s.e.", "of oracle", "steps", *(f"{name}s" for name in prey))
    table.title, table.caption = result.game, caption
    for row in result.per_seat:
        figures = (f"{row.mean:.3f}", f"{row.standard_error:.3f}", percent(row.share_of_oracle), f"{row.length:.1f}")
        table.add_row(str(row.seat), row.player, *figures, *(f"{row.taken[name]:.3f}" for name in prey))
    table.add_section()
    share = f"{100 * result.share_of_ceiling:.1f}% of the ceiling"
    table.add_row("all", share, f"{result.mean_return:.3f}", f"{result.standard_error:.3f}")
    return table

"""Summary at the end of `hopplus train`: returns in self-play, and scores with held-out co-players."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hopplus.cli.adapt import run_jobs, save_figures
from hopplus.core.formatting import percent

if TYPE_CHECKING:
    from hopplus.training.run import Run

SUMMARY_SETS = 3
"""Number of held-out sets of the summary: cooperators, defectors and random players in the stag hunt."""
SUMMARY_TRIALS = 2
"""Trials of ten episodes per focal seat and held-out set in the summary, of all training seeds together."""


def held_out_figures(run: "Run") -> list[dict[str, Any]]:
    """Evaluate a run with the first held-out sets of its game, and save the figures with it; returns one row per set.

    There are none if the game has no such sets for its number of players, or if not every seat learnt.
    """
    from hopplus.evaluation.co_player_sets import sets_of
    from hopplus.evaluation.protocol import Focal
    from hopplus.games import make

    game = make(run.config["training"]["game"])
    held_out = [co_players for co_players in sets_of(game).values() if co_players.split == "held-out"]
    sets = [co_players for co_players in held_out if len(co_players.players) == game.num_players - 1][:SUMMARY_SETS]
    if not sets or len(run.config["learners"]) < game.num_players:
        return []
    focal = Focal.of(str(run.path))
    trials = max(SUMMARY_TRIALS // len(run.seeds), 1)
    rows = run_jobs([(co_players, "one", focal) for co_players in sets], game, trials=trials)
    for row in rows:
        save_figures([focal], [row], row["set"])
    return rows


def summary_table(summary: dict[str, Any], held_out: Sequence[dict[str, Any]] = ()) -> Table:
    """Table of a training's final evaluation: one row per seat, the mean over all seats and over the learners.

    Args:
        held_out: Figures of `hopplus adapt` with held-out co-players, one row per set.
    """
    seeds = summary["seeds"]
    unit = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    title = f"{summary['algorithm']} on {summary['game']}, {unit}"
    table = Table("seat", "player", "mean return", "± s.e.", title=title)
    roles = dict.fromkeys(summary["learners"], "learner")
    for row in summary["per_seat"]:
        role = roles.get(row["seat"], "co-player")
        table.add_row(str(row["seat"]), role, f"{row['mean']:.3f}", f"{row['standard_error']:.3f}")
    table.add_section()
    share = f"{100 * summary['share_of_ceiling']:.1f}% of the ceiling"
    table.add_row("all", share, f"{summary['mean_return']:.3f}")
    table.add_row("own", "learners' seats", f"{summary['own_return']:.3f}")
    reached = [row["reached"] for row in summary["per_seed"] if row["reached"]]
    caption = f"{summary['episodes']} greedy episodes per seed after {max(summary['steps']):,} steps"
    caption += f" and {summary['seconds']:.1f} s"
    caption += f"; target reached by {len(reached)} of {len(seeds)}" if reached else ""
    if held_out:
        table.add_section()
        caption += f"; with held-out co-players: sampled, {held_out[0]['trials']} trials per seed, episodes 6 to 10"
    for row in held_out:
        score = row["score"]
        share = score["share_of_oracle"]
        of_oracle = "" if share is None else f": {percent(share)} of the oracle"
        table.add_row("one", f"with {row['set']}{of_oracle}", f"{score['mean']:.3f}", f"{score['standard_error']:.3f}")
    table.caption = caption
    return table

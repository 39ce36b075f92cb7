"""Command `hopplus adapt`."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from hopplus.cli.output import Json, Plugin, Runs, console, progress_bar, run_plugin, show
from hopplus.core.errors import InputError
from hopplus.core.files import make_directory
from hopplus.core.formatting import file_name, percent, with_interval

if TYPE_CHECKING:
    from hopplus.evaluation.co_player_sets import CoPlayers
    from hopplus.evaluation.protocol import Focal, Protocol, SeatingMode
    from hopplus.games import Game

EPISODES = 10
SEATINGS: "dict[str, tuple[SeatingMode, ...]]" = {"one": ("one",), "three": ("three",), "both": ("one", "three")}


def adapt(
    runs: Runs,
    against: str = "held-out",
    episodes: int = EPISODES,
    protocol: Literal["few-shot", "hop"] = "few-shot",
    seating: Literal["one", "three", "both"] = "one",
    update_weights: bool = False,
    seeds: str | None = None,
    game: str | None = None,
    trials: int = 8,
    greedy: bool = False,
    planner: str | None = None,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Measure how fast runs adapt to unseen co-players over the episodes of a trial.

    For example: hopplus adapt runs/ppo --against cooperators

    Args:
        runs: Run directories, or players by name; the first is compared with each of the others.
        against: Co-players: cooperators, held-out (all held-out sets), validation, learned(RUN), or ns,nh,random.
        episodes: Episodes per trial; the score is the mean return of episodes 6 to 10.
        protocol: few-shot; or hop: 2,400 environment steps, the last 600 of which are scored (ignores --episodes).
        seating: one focal player with the whole set, three with one member of it, or both.
        update_weights: Continue learning during each trial instead of with frozen weights; same steps for every run.
        seeds: Training seeds of the runs, as in 0-4 or 0,3; by default all.
        game: Another game than the run's own, with the same board and actions.
        trials: Trials per focal seat.
        greedy: Take the most probable action instead of sampling.
        planner: off, tree or a registered planner; by default as in training. (hop, hopplus; frozen weights only)
        seed: Seed of the trials.
    """
    from hopplus.evaluation.co_player_sets import make_sets
    from hopplus.evaluation.protocol import HOP, Focal, check_distinct, few_shot, game_of
    from hopplus.training.experiment import parse_seeds

    run_plugin(plugin)
    if trials < 1:
        raise InputError(f"trials must be at least 1, not {trials}")
    if greedy and update_weights:
        raise InputError("--greedy and --update-weights exclude each other: learning needs sampled actions")
    chosen = HOP if protocol == "hop" else few_shot(episodes)
    focals = [Focal.of(run, None if seeds is None else parse_seeds(seeds), planner) for run in runs]
    check_distinct(focals)
    the_game = game_of(focals, game)
    chosen.check(the_game)
    for focal in focals:
        focal.check(the_game, update_weights)
    sets = make_sets(against, the_game)
    jobs = list(itertools.product(sets, SEATINGS[seating], focals))
    figures = run_jobs(jobs, the_game, trials, seed, chosen, update_weights, greedy)
    comparisons = _comparisons(figures, [focal.name for focal in focals])
    files = save_figures(focals, figures, against)
    show({"rows": figures, "comparisons": comparisons}, _table(figures, the_game.name), json)
    if json != "-":
        _print_remarks(figures, comparisons, files, against, the_game.name)


def run_jobs(
    jobs: "Sequence[tuple[CoPlayers, SeatingMode, Focal]]",
    game: "Game[Any]",
    trials: int,
    seed: int = 0,
    protocol: "Protocol | None" = None,
    update_weights: bool = False,
    greedy: bool = False,
) -> list[dict[str, Any]]:
    """Run the trials of every job, with one progress bar; returns one row of figures per job.

    Args:
        jobs: Set of co-players, seating and focal player of each job. One compiled program serves all sets.
        game: Game of all jobs.
        trials: Trials per focal seat.
        seed: Seed of the trials.
        protocol: Length of a trial; by default ten episodes.
        update_weights: Keep learning in each trial.
        greedy: Take the most probable action.
    """
    from hopplus.evaluation.adaptation import adapt as adapt_run
    from hopplus.evaluation.co_player_sets import distinct_players
    from hopplus.evaluation.protocol import few_shot

    protocol = protocol or few_shot(EPISODES)
    agent_types = distinct_players([co_players for co_players, _, _ in jobs])
    names = dict.fromkeys(co_players.name for co_players, _, _ in jobs)
    figures = []
    with progress_bar(f"trials with {', '.join(names)}", 100 * len(jobs)) as advance:
        for number, (co_players, seating, focal) in enumerate(jobs):

            def show_share(done: float, number: int = number) -> None:
                advance(round(100 * (number + done)))

            settings = (protocol, update_weights, trials, greedy, seed)
            figures.append(adapt_run(focal, game, co_players, seating, *settings, show_share, agent_types))
    return figures


def save_figures(focals: Sequence["Focal"], figures: Sequence[dict[str, Any]], against: str) -> list[Path]:
    """Write each run's figures into its directory and a chart of all into that of the first; returns the paths."""
    from hopplus.visualization.adaptation import draw_adaptation

    paths = []
    name = "adapt-" + file_name(against, 80)
    name += "-updating" if figures[0]["update_weights"] else ""
    name += "-greedy" if figures[0]["greedy"] else ""
    name += "" if figures[0]["protocol"] == "few-shot" else f"-{figures[0]['protocol']}"
    name += "" if focals[0].planner is None else f"-planner-{focals[0].planner}"
    for focal in focals:
        if focal.run:
            rows = [row for row in figures if row["focal"] == focal.name]
            paths.append(focal.run.write_evaluation(name, {"rows": rows}))
    if paths:
        directory = make_directory(paths[0].parent.parent / "figures")
        draw_adaptation(directory / f"{name}.png", figures)
        paths.append(directory / f"{name}.png")
    return paths


def _comparisons(figures: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Score differences between the first focal player and each of the others, per set and seating."""
    from dataclasses import asdict

    import numpy as np

    from hopplus.core.statistics import compare

    comparisons = []
    for row in figures:
        if row["focal"] == names[0]:
            continue
        same = ("set", "seating")
        reference = next(
            first for first in figures if first["focal"] == names[0] and all(first[key] == row[key] for key in same)
        )
        ours, theirs = (np.array(figure["score"]["per_seed"])[:, None] for figure in (reference, row))
        comparison = {"set": row["set"], "seating": row["seating"], "ours": names[0], "theirs": row["focal"]}
        comparisons.append(comparison | asdict(compare(ours, theirs)))
    return comparisons


def _table(figures: Sequence[dict[str, Any]], game: str) -> Table:
    first = figures[0]
    weights = "weights updated" if first["update_weights"] else "weights frozen"
    blocks = first["blocks"]
    shown = [blocks[0], first["score"], blocks[-1]] if first["score"] != blocks[-1] else [blocks[0], first["score"]]
    columns = [f"{block['first']}-{block['last']}" for block in shown]
    table = Table("focal", "with", "regime", title=f"adaptation on {game}, {first['protocol']}, {weights}")
    for block, column in zip(shown, columns, strict=True):
        is_score = block == first["score"]
        table.add_column(f"score: {first['score']['unit']} {column}" if is_score else column, justify="right")
    table.add_column("of oracle", justify="right")
    table.add_column("of ceiling", justify="right")
    for row in figures:
        by_place = {(block["first"], block["last"]): block for block in row["blocks"]}
        numbers = [with_interval(by_place[block["first"], block["last"]]) for block in shown]
        name = row["set"] if row["seating"] == "one" else f"two more and one of {row['set']}"
        regime = f"{row['regime']}, met {','.join(row['met_before'])}" if row["met_before"] else row["regime"]
        shares = (percent(row["score"][share]) for share in ("share_of_oracle", "share_of_ceiling"))
        table.add_row(row["focal"], name, regime, *numbers, *shares)
    table.caption = f"own reward; {first['score']['interval']}"
    return table


def _print_remarks(
    figures: Sequence[dict[str, Any]],
    comparisons: Sequence[dict[str, Any]],
    files: Sequence[Path],
    against: str,
    game: str,
) -> None:
    """Print leaks between training and held-out sets, comparisons, unknown oracles and the files written."""
    output = console()
    for row in figures:
        if row["met_before"] and row["split"] == "held-out" and row["seating"] == "one":
            met = ", ".join(row["met_before"])
            output.print(f"{row['set']} is not held out for {row['focal']}: trained with {met}", soft_wrap=True)
    for name in dict.fromkeys(row["focal"] for row in figures if not row["has_memory"] and not row["update_weights"]):
        output.print(f"{name} has no memory between episodes, so it cannot adapt with frozen weights", soft_wrap=True)
    for row in comparisons:
        difference, improvement = row["difference"], row["probability_of_improvement"]
        verdict = "outside the noise" if row["outside_noise"] else "within the noise"
        interval = with_interval({**difference, "mean": difference["value"]})
        co_players = row["set"] if row["seating"] == "one" else f"one of {row['set']}"
        output.print(
            f"{co_players}: {row['ours']} - {row['theirs']} = {interval}, {verdict};"
            f" probability of improvement {improvement['value']:.2f} ({difference['meaning']})",
            soft_wrap=True,
        )
    if any(row["score"]["share_of_oracle"] is None and row["seating"] == "one" for row in figures):
        command = f"hopplus oracle --game {game} --against {against}"
        output.print(f"to compute the unknown oracles: {command}", soft_wrap=True)
    for path in files:
        output.print(f"written: {path}", soft_wrap=True)

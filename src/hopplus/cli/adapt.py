"""`hopplus adapt`"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from hopplus.cli.output import Json, Plugin, Runs, console, progress_bar, run_plugin, show
from hopplus.errors import InputError
from hopplus.files import make_directory
from hopplus.notation import file_name, percent, with_interval

if TYPE_CHECKING:
    from hopplus.evaluation.tables import Focal

SEATINGS = {"one": ("one",), "three": ("three",), "both": ("one", "three")}


def adapt(
    runs: Runs,
    against: str = "held-out",
    episodes: int = 50,
    protocol: Literal["few-shot", "hop"] = "few-shot",
    seating: Literal["one", "three", "both"] = "both",
    update_weights: bool = False,
    seeds: str | None = None,
    game: str | None = None,
    tables: int = 64,
    greedy: bool = False,
    search: Literal["on", "off"] | None = None,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Let runs meet players whom they have not met, again and again, and tell how fast they adapt.

    For example: hopplus adapt runs/ppo --against cooperators

    Args:
        runs: Run directories, the first of which is compared with each of the others; or players by name.
        against: Whom they meet: cooperators, held-out (all those sets), validation, learned(RUN), or ns,nh,random.
        episodes: Episodes of every table; the score is the mean return of episodes 6 to 10.
        protocol: few-shot, or hop: 2,400 environment steps, the last 600 of which are scored, whatever --episodes says.
        seating: One focal player with the whole set, three with one of it, or both.
        update_weights: Go on learning at each table, instead of with frozen weights; as many steps for every run.
        seeds: Which of the runs' training seeds: 0-4 or 0,3; by default all.
        game: Another game than the run's own, of the same board and actions.
        tables: Independent tables for every seat that the focal player sits in.
        greedy: Take the likeliest action instead of drawing one.
        search: Whether they search before they act; by default as they were trained to. (hop, hopplus; with frozen
            weights)
        seed: Of the play.
    """
    from hopplus.evaluation.adaptation import adapt as adapt_run
    from hopplus.evaluation.sets import kinds, make_sets
    from hopplus.evaluation.tables import HOP, Focal, check_distinct, few_shot
    from hopplus.games import make
    from hopplus.training.trainer import parse_seeds

    run_plugin(plugin)
    if tables < 1:
        raise InputError(f"tables must be at least 1, not {tables}")
    if greedy and update_weights:
        raise InputError("--greedy and --update-weights exclude each other: whoever learns has to try things")
    chosen = HOP if protocol == "hop" else few_shot(episodes)
    focals = [Focal.of(run, None if seeds is None else parse_seeds(seeds), search) for run in runs]
    check_distinct(focals)
    the_game = make(_game_of(focals) if game is None else game)
    chosen.check(the_game)
    for focal in focals:
        focal.check(the_game, update_weights)
    sets = make_sets(against, the_game)
    among = kinds(sets)
    jobs = [(focal, one, where) for one in sets for where in SEATINGS[seating] for focal in focals]
    figures = []
    with progress_bar("percent", 100 * len(jobs)) as advance:
        for number, (focal, one, where) in enumerate(jobs):

            def show_share(done: float, number: int = number) -> None:
                advance(round(100 * (number + done)))

            figures.append(
                adapt_run(focal, the_game, one, where, chosen, update_weights, tables, greedy, seed, show_share, among)
            )
    comparisons = _comparisons(figures, [focal.name for focal in focals])
    kept = keep_figures(focals, figures, against)
    show({"rows": figures, "comparisons": comparisons}, _table(figures, the_game.name), json)
    if json != "-":
        _say_more(figures, comparisons, kept, against, the_game.name)


def _game_of(focals: Sequence["Focal"]) -> str:
    """The game of the first run; the others must fit it."""
    games = [focal.run.config["training"]["game"] for focal in focals if focal.run]
    if not games:
        raise InputError("players by name have no game of their own: say which one with --game")
    return games[0]


def keep_figures(focals: Sequence["Focal"], figures: Sequence[dict[str, Any]], against: str) -> list[Path]:
    """Figures of every run in its directory, and a picture of all in that of the first."""
    from hopplus.report.adaptation import draw_adaptation

    paths = []
    name = "adapt-" + file_name(against, 80)
    name += "-updating" if figures[0]["update_weights"] else ""
    name += "-greedy" if figures[0]["greedy"] else ""
    name += "" if figures[0]["protocol"] == "few-shot" else f"-{figures[0]['protocol']}"
    name += "" if focals[0].search is None else f"-search-{focals[0].search}"
    for focal in focals:
        if focal.run:
            own = [row for row in figures if row["focal"] == focal.name]
            paths.append(focal.run.write_evaluation(name, {"rows": own}))
    if paths:
        directory = make_directory(paths[0].parent.parent / "figures")
        draw_adaptation(directory / f"{name}.png", figures)
        paths.append(directory / f"{name}.png")
    return paths


def _comparisons(figures: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The first against each of the others, set by set: the difference of scores, and whether it is noise."""
    from dataclasses import asdict

    import numpy as np

    from hopplus.evaluation.statistics import compare

    found = []
    for row in figures:
        if row["focal"] == names[0]:
            continue
        same = ("set", "seating")
        ours = next(own for own in figures if own["focal"] == names[0] and all(own[key] == row[key] for key in same))
        scores, others = (np.array(one["score"]["per_seed"])[:, None] for one in (ours, row))
        found.append({"set": row["set"], "seating": row["seating"], "ours": names[0], "theirs": row["focal"]})
        found[-1] |= asdict(compare(scores, others))
    return found


def _table(figures: Sequence[dict[str, Any]], game: str) -> Table:
    first = figures[0]
    how = "weights updated" if first["update_weights"] else "weights frozen"
    blocks = first["blocks"]
    shown = [blocks[0], first["score"], blocks[-1]] if first["score"] != blocks[-1] else [blocks[0], first["score"]]
    columns = [f"{block['first']}-{block['last']}" for block in shown]
    table = Table("focal", "with", "regime", title=f"adaptation on {game}, {first['protocol']}, {how}")
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


def _say_more(
    figures: Sequence[dict[str, Any]],
    comparisons: Sequence[dict[str, Any]],
    kept: Sequence[Path],
    against: str,
    game: str,
) -> None:
    """Leaks, comparisons, oracles that are not known, and where the files are."""
    said = console()
    for row in figures:
        if row["met_before"] and row["split"] == "held-out" and row["seating"] == "one":
            met = ", ".join(row["met_before"])
            said.print(f"{row['set']} is not held out for {row['focal']}: it has met {met} in training", soft_wrap=True)
    for name in dict.fromkeys(row["focal"] for row in figures if not row["remembers"] and not row["update_weights"]):
        said.print(
            f"{name} keeps nothing between episodes: every episode is its first with these players", soft_wrap=True
        )
    for row in comparisons:
        difference, improvement = row["difference"], row["probability_of_improvement"]
        verdict = "outside the noise" if row["outside_noise"] else "within the noise"
        interval = with_interval({**difference, "mean": difference["value"]})
        where = row["set"] if row["seating"] == "one" else f"one of {row['set']}"
        said.print(
            f"{where}: {row['ours']} - {row['theirs']} = {interval}, {verdict};"
            f" probability of improvement {improvement['value']:.2f} ({difference['meaning']})",
            soft_wrap=True,
        )
    if any(row["score"]["share_of_oracle"] is None and row["seating"] == "one" for row in figures):
        said.print(f"unknown oracles can be computed: hopplus oracle --game {game} --against {against}", soft_wrap=True)
    for path in kept:
        said.print(f"kept: {path}", soft_wrap=True)

"""Command `hopplus crossplay`."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, Runs, console, progress_bar, run_plugin, show
from hopplus.core.files import make_directory
from hopplus.core.formatting import file_name, short_names, with_interval
from hopplus.core.specs import split_top_level


def crossplay(
    runs: Runs,
    with_: Annotated[str | None, tyro.conf.arg(name="with")] = None,
    episodes: int = 500,
    trial_episodes: int = 1,
    seeds: str | None = None,
    game: str | None = None,
    greedy: bool = False,
    planner: str | None = None,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Evaluate cross-play: each run with co-players from each other run, at every seat.

    For example: hopplus crossplay runs/ppo runs/hopplus --with ns,nh,random

    Args:
        runs: Run directories.
        with_: Further co-players by name: ns,nh,random.
        episodes: Episodes per pair of training seeds and seat; seeds are paired in order.
        trial_episodes: Consecutive episodes with the same players, who keep their memory.
        seeds: Training seeds of the runs, as in 0-4 or 0,3; by default all.
        game: Another game than the runs' own, with the same board and actions.
        greedy: Take the most probable action instead of sampling.
        planner: Planning before acting, for all but scripted players; by default as in training. (hop, hopplus)
        seed: Seed of the episodes.
    """
    from hopplus.evaluation.crossplay import common_game
    from hopplus.evaluation.crossplay import crossplay as play_all
    from hopplus.evaluation.protocol import Focal, is_trainable
    from hopplus.training.experiment import parse_seeds
    from hopplus.training.run import open_run

    run_plugin(plugin)
    for run in runs:
        open_run(Path(run))
    chosen = None if seeds is None else parse_seeds(seeds)
    rows = [Focal.of(run, chosen, planner) for run in runs]
    more_names = split_top_level(with_) if with_ else []
    columns = [
        *rows,
        *(
            Focal.of(name, chosen if Path(name).is_dir() else None, planner if is_trainable(name) else None)
            for name in more_names
        ),
    ]
    the_game = common_game(columns, game)
    with progress_bar("percent", 100) as advance:
        figures = play_all(
            rows, columns, the_game, episodes, trial_episodes, greedy, seed, lambda done: advance(round(100 * done))
        )
    files = _save(rows[0], figures, [with_, game, seeds and f"seeds {seeds}"])
    show(figures, _table(figures), json)
    if json != "-":
        for sentence in _remarks(figures):
            console().print(sentence, soft_wrap=True)
        console().print("written: " + ", ".join(map(str, files)), soft_wrap=True)


def _save(first: Any, figures: dict[str, Any], more: list[str | None]) -> list[Path]:
    """Write the figures as JSON and CSV, and a chart, into the directory of the first run; returns the paths."""
    from hopplus.visualization.crossplay import draw_crossplay, write_csv

    names = "-".join([*(Path(row).name for row in figures["rows"]), *(part for part in more if part)])
    name = "crossplay-" + file_name(names, 80) + ("-greedy" if figures["greedy"] else "")
    name += "" if figures["planner"] is None else f"-planner-{figures['planner']}"
    name += "" if figures["trial_episodes"] == 1 else f"-trial-{figures['trial_episodes']}"
    name += "" if figures["seed"] == 0 else f"-seed-{figures['seed']}"
    path = first.run.write_evaluation(name, figures)
    write_csv(path.with_suffix(".csv"), figures)
    directory = make_directory(path.parent.parent / "figures")
    draw_crossplay(directory / f"{name}.png", figures)
    return [path, path.with_suffix(".csv"), directory / f"{name}.png"]


def _table(figures: dict[str, Any]) -> Table:
    together = "" if figures["trial_episodes"] == 1 else f", {figures['trial_episodes']} in a row with the same players"
    long_names = list(dict.fromkeys([*figures["rows"], *figures["columns"]]))
    names = dict(zip(long_names, short_names(long_names), strict=True))
    columns = (names[column] for column in figures["columns"])
    table = Table("focal, with", *columns, title=f"cross-play on {figures['game']}")
    table.caption = f"focal return, {figures['episodes']} episodes per pair of seeds and seat{together}"
    cells = {(cell["row"], cell["column"]): with_interval(cell, digits=2) for cell in figures["cells"]}
    for row in figures["rows"]:
        table.add_row(
            names[row],
            *(cells.get((row, column), "-") for column in figures["columns"]),
        )
    return table


def _remarks(figures: dict[str, Any]) -> list[str]:
    """Descriptions of the intervals in the table."""
    return list(dict.fromkeys(cell["interval"] for cell in figures["cells"]))

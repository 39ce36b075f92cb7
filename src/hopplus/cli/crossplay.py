"""`hopplus crossplay`"""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, Runs, console, progress_bar, run_plugin, show
from hopplus.files import make_directory
from hopplus.notation import file_name, short_names, with_interval
from hopplus.specs import split_top_level


def crossplay(
    runs: Runs,
    with_: Annotated[str | None, tyro.conf.arg(name="with")] = None,
    episodes: int = 500,
    acquaintance: int = 1,
    seeds: str | None = None,
    game: str | None = None,
    greedy: bool = False,
    search: Literal["on", "off"] | None = None,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Let everybody play with everybody else: one at a table of the others, at every seat.

    For example: hopplus crossplay runs/ppo runs/hopplus --with ns,nh,random

    Args:
        runs: Run directories.
        with_: Players by name whom the runs also meet: ns,nh,random.
        episodes: Episodes of every two training seeds that meet, at every seat; seeds meet in order.
        acquaintance: Episodes that the same players play in a row and remember.
        seeds: Which of the runs' training seeds: 0-4 or 0,3; by default all.
        game: Another game than the runs' own, of the same board and actions.
        greedy: Take the likeliest action instead of drawing one.
        search: Whether all but scripted players search before they act; by default as they were trained to. (hop,
            hopplus)
        seed: Of the play.
    """
    from hopplus.evaluation.crossplay import crossplay as play_all
    from hopplus.evaluation.crossplay import game_of
    from hopplus.evaluation.tables import Focal, can_have_learnt
    from hopplus.training.run import open_run
    from hopplus.training.trainer import parse_seeds

    run_plugin(plugin)
    for run in runs:
        open_run(Path(run))
    chosen = None if seeds is None else parse_seeds(seeds)
    rows = [Focal.of(run, chosen, search) for run in runs]
    others = split_top_level(with_) if with_ else []
    columns = [
        *rows,
        *(
            Focal.of(name, chosen if Path(name).is_dir() else None, search if can_have_learnt(name) else None)
            for name in others
        ),
    ]
    the_game = game_of(columns, game)
    with progress_bar("percent", 100) as advance:
        figures = play_all(
            rows, columns, the_game, episodes, acquaintance, greedy, seed, lambda done: advance(round(100 * done))
        )
    kept = _keep(rows[0], figures, [with_, game, seeds and f"seeds {seeds}"])
    show(figures, _table(figures), json)
    if json != "-":
        for sentence in _remarks(figures):
            console().print(sentence, soft_wrap=True)
        console().print("kept: " + ", ".join(map(str, kept)), soft_wrap=True)


def _keep(first: Any, figures: dict[str, Any], more: list[str | None]) -> list[Path]:
    """The figures, as JSON and CSV, and a picture of them, in the directory of the first run."""
    from hopplus.report.crossplay import draw_crossplay, write_csv

    names = "-".join([*(Path(row).name for row in figures["rows"]), *(word for word in more if word)])
    name = "crossplay-" + file_name(names, 80) + ("-greedy" if figures["greedy"] else "")
    name += "" if figures["search"] is None else f"-search-{figures['search']}"
    name += "" if figures["acquaintance"] == 1 else f"-acquaintance-{figures['acquaintance']}"
    name += "" if figures["seed"] == 0 else f"-seed-{figures['seed']}"
    path = first.run.write_evaluation(name, figures)
    write_csv(path.with_suffix(".csv"), figures)
    directory = make_directory(path.parent.parent / "figures")
    draw_crossplay(directory / f"{name}.png", figures)
    return [path, path.with_suffix(".csv"), directory / f"{name}.png"]


def _table(figures: dict[str, Any]) -> Table:
    together = "" if figures["acquaintance"] == 1 else f", {figures['acquaintance']} in a row with the same players"
    every = list(dict.fromkeys([*figures["rows"], *figures["columns"]]))
    names = dict(zip(every, short_names(every), strict=True))
    columns = (names[column] for column in figures["columns"])
    table = Table("earns, with", *columns, title=f"cross-play on {figures['game']}")
    table.caption = f"own reward, {figures['episodes']} episodes a pair of seeds and seat{together}"
    cells = {(cell["row"], cell["column"]): with_interval(cell, digits=2) for cell in figures["cells"]}
    for row in figures["rows"]:
        table.add_row(
            names[row],
            *(cells.get((row, column), "-") for column in figures["columns"]),
        )
    return table


def _remarks(figures: dict[str, Any]) -> list[str]:
    """What a reader has to know of the intervals."""
    return list(dict.fromkeys(cell["interval"] for cell in figures["cells"]))

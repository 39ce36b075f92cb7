"""`hopplus collect` and `hopplus dataset`"""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, progress_bar, run_plugin, show
from hopplus.errors import InputError

Directory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Directories = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")]


def collect(
    directory: Directory,
    game: str = "msh-4x4-4h1s",
    casts: tuple[str, ...] = ("all:ns,nh",),
    steps: int = 107_000,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Let players play, and write whole episodes as a dataset to learn models from.

    For example: hopplus collect data/mixed --casts all:ns,nh --steps 107000

    Args:
        directory: Where the dataset goes, a new directory.
        game: The game by name.
        casts: Who plays, drawn for every episode: one player a seat (ns,nh,runs/ppo,random), several such casts, each
            equally likely, or all:ns,nh, every mixture of these (0 to 4 ns equally likely, the others nh, seats
            shuffled).
        steps: Environment steps at least; the last episode is played to its end.
        seed: The same seed gives the same episodes.
    """
    from hopplus.games import make
    from hopplus.play.casting import parse_casts
    from hopplus.play.dataset import collect as write
    from hopplus.play.dataset import describe
    from hopplus.training.run import provenance
    from hopplus.training.troupe import make_troupe

    run_plugin(plugin)
    the_game = make(game)
    troupe = make_troupe(the_game, parse_casts(casts, the_game.num_players).kinds)
    with progress_bar("steps", steps) as advance:
        found = write(directory, the_game, troupe, casts, steps, seed, provenance(), advance)
    figures = describe(found)
    show(figures, _table(figures), json)


def dataset(
    directories: Directories,
    join: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Describe a dataset: rows, share of each action, returns, lengths. Every file is checked first.

    For example: hopplus dataset games/monday games/tuesday --join games/both

    Args:
        directories: The dataset; or several of the same game, to be joined.
        join: Join them into one, which goes into this new directory, and describe that.
    """
    from hopplus.play.dataset import describe, join_datasets, open_dataset
    from hopplus.training.run import provenance

    run_plugin(plugin)
    if join is not None:
        found = join_datasets(join, directories, provenance())
    elif len(directories) == 1:
        found = open_dataset(directories[0])
    else:
        raise InputError("one dataset is described at a time; several are joined into a new one by --join OUT")
    figures = describe(found)
    show(figures, _table(figures), json)


def _table(figures: dict[str, Any]) -> Table:
    seed = "" if figures["seed"] is None else f", seed {figures['seed']}"
    title = f"{figures['dataset']}: {figures['game']}, {', '.join(figures['casts'])}{seed}"
    table = Table("what", "", "", title=title)
    for name in ("episodes", "steps", "rows"):
        table.add_row(name, f"{figures[name]:,}")
    table.add_section()
    for name, action in figures["actions"].items():
        table.add_row(f"action {name}", f"{action['count']:,}", f"{100 * action['share']:.1f}% of rows")
    table.add_section()
    seats = ", ".join(f"{value:.3f}" for value in figures["return_by_seat"])
    table.add_row("mean return", f"{figures['mean_return']:.3f}", f"by seat {seats}")
    table.add_row("episode length", f"{figures['episode_length']:.2f}")
    table.add_section()
    for kind, row in figures["kinds"].items():
        said = f"{row['length']:.2f} steps, {100 * row['took_something']:.1f}% took something"
        table.add_row(f"{kind}, return", f"{row['return']:.3f}", said)
    table.caption = "a row is one step of one player who is still in the game"
    return table

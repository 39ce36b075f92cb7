"""Commands `hopplus collect` and `hopplus dataset`."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, progress_bar, run_plugin, show
from hopplus.core.errors import InputError

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
    """Collect whole episodes as a dataset for fitting models.

    For example: hopplus collect data/mixed --casts all:ns,nh --steps 107000

    Args:
        directory: New directory for the dataset.
        game: Name of the game.
        casts: Distribution over casts, sampled for every episode: one player per seat (ns,nh,runs/ppo,random); several
            such casts, uniformly; or all:ns,nh, every mixture of these (0 to 4 ns uniformly, the rest nh, seats
            shuffled).
        steps: Minimum number of environment steps; the last episode is completed.
        seed: Seed of the episodes.
    """
    from hopplus.games import make
    from hopplus.rollouts.cast_distribution import parse_casts
    from hopplus.rollouts.dataset import collect as write
    from hopplus.rollouts.dataset import describe
    from hopplus.training.population import make_population
    from hopplus.training.run import provenance

    run_plugin(plugin)
    the_game = make(game)
    cast_distribution = parse_casts(casts, the_game.num_players)
    population = make_population(the_game, cast_distribution.agent_types)
    with progress_bar("steps", steps) as advance:
        collected = write(directory, the_game, population, cast_distribution, steps, seed, provenance(), advance)
    figures = describe(collected)
    show(figures, _table(figures), json)


def dataset(
    directories: Directories,
    join: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Describe a dataset (rows, action frequencies, returns, episode lengths) after checking all its files.

    For example: hopplus dataset games/monday games/tuesday --join games/both

    Args:
        directories: Directory of the dataset, or several datasets of the same game with --join.
        join: New directory for the joined dataset, which is then described.
    """
    from hopplus.rollouts.dataset import describe, join_datasets, open_dataset
    from hopplus.training.run import provenance

    run_plugin(plugin)
    if join is not None:
        opened = join_datasets(join, directories, provenance())
    elif len(directories) == 1:
        opened = open_dataset(directories[0])
    else:
        raise InputError("hopplus dataset describes one dataset; join several into a new one with --join OUT")
    figures = describe(opened)
    show(figures, _table(figures), json)


def _table(figures: dict[str, Any]) -> Table:
    seed = "" if figures["seed"] is None else f", seed {figures['seed']}"
    title = f"{figures['dataset']}: {figures['game']}, {', '.join(figures['casts'])}{seed}"
    table = Table("statistic", "", "", title=title)
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
    for agent_type, row in figures["agent_types"].items():
        text = f"{row['length']:.2f} steps, {100 * row['took_something']:.1f}% took something"
        table.add_row(f"{agent_type}, return", f"{row['return']:.3f}", text)
    table.caption = "a row is one step of one player that is still in the game"
    return table

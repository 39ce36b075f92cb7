"""`hopplus runs`"""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hopplus.cli.output import Json, show
from hopplus.errors import InputError


def runs(
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"), json: Json = None
) -> None:
    """List the runs below a directory: what was trained, how far, and how good it is.

    Args:
        directory: Where to look.
    """
    from hopplus.training.overview import describe

    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}")
    found = [describe(path.parent) for path in sorted(directory.rglob("config.json"))]
    table = Table("run", "recipe", "game", "cast", "seeds", "steps", "return", "of ceiling", "state")
    for row in found:
        steps = "-" if row["steps"] is None else f"{row['steps']:,}"
        result = "-" if row["own_return"] is None else f"{row['own_return']:.3f}"
        share = "-" if row["share_of_ceiling"] is None else f"{100 * row['share_of_ceiling']:.1f}%"
        seeds = str(len(row["seeds"]))
        table.add_row(row["run"], row["recipe"], row["game"], row["cast"], seeds, steps, result, share, row["state"])
    table.caption = f"{len(found)} runs" if found else "no runs here: hopplus train ppo"
    show(found, table, json)

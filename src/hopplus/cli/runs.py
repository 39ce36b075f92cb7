"""Command `hopplus runs`."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hopplus.cli.output import Json, show
from hopplus.core.errors import InputError


def runs(
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"), json: Json = None
) -> None:
    """List the runs below a directory: algorithm, game, progress and final return.

    Args:
        directory: Directory of the runs.
    """
    from hopplus.training.run_list import describe

    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}")
    rows = [describe(path.parent) for path in sorted(directory.rglob("config.json"))]
    table = Table("run", "algorithm", "game", "cast", "seeds", "steps", "return", "of ceiling", "state")
    for row in rows:
        steps = "-" if row["steps"] is None else f"{row['steps']:,}"
        result = "-" if row["own_return"] is None else f"{row['own_return']:.3f}"
        share = "-" if row["share_of_ceiling"] is None else f"{100 * row['share_of_ceiling']:.1f}%"
        seeds = str(len(row["seeds"]))
        table.add_row(row["run"], row["algorithm"], row["game"], row["cast"], seeds, steps, result, share, row["state"])
    table.caption = f"{len(rows)} runs" if rows else "no runs yet: hopplus train ppo"
    show(rows, table, json)

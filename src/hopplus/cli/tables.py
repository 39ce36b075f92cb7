"""Command `hopplus tables`."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hopplus.cli.output import console


def tables(
    sweep: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SWEEP")],
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
) -> None:
    """Write the results of a sweep as Markdown, CSV and LaTeX tables, and its learning curves as figures.

    For example: hopplus tables runs/adaptation

    Args:
        sweep: Directory of a sweep, finished or not, or a saved results.json.
        out: Directory for the tables; by default tables/ in the sweep's directory, or that of the file.
    """
    from hopplus.sweeps.results import read_results
    from hopplus.sweeps.tables import differences, table, write_all

    results = read_results(sweep)
    written = write_all(results, out or (sweep / "tables" if sweep.is_dir() else sweep.parent))
    header, body = table(results)
    result_table = Table(*header, title=results.title)
    for line in body:
        result_table.add_row(*line)
    console().print(result_table)
    comparison = differences(results)
    if comparison is not None:
        difference_table = Table(*comparison[0], title=f"difference from {results.reference}")
        for line in comparison[1]:
            difference_table.add_row(*(cell.strip("*") + (" *" if cell.startswith("**") else "") for cell in line))
        difference_table.caption = "* the 95% interval excludes 0"
        console().print(difference_table)
    if results.missing:
        console().print(f"unfinished, not in the table: {', '.join(results.missing)}", soft_wrap=True)
    console().print("written: " + ", ".join(map(str, written)), soft_wrap=True)

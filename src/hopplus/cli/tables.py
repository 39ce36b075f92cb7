"""`hopplus tables`"""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hopplus.cli.output import console


def tables(
    sweep: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SWEEP")],
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
) -> None:
    """Write what came of a sweep as Markdown, CSV and LaTeX, and its curves as figures.

    For example: hopplus tables runs/adaptation

    Args:
        sweep: The directory of a sweep, finished or not; or a results.json that was kept of one.
        out: Where to; by default tables/ in the sweep's directory, or beside the file.
    """
    from hopplus.sweeps.results import read_results
    from hopplus.sweeps.tables import differences, table, write_all

    results = read_results(sweep)
    written = write_all(results, out or (sweep / "tables" if sweep.is_dir() else sweep.parent))
    head, body = table(results)
    shown = Table(*head, title=results.title)
    for line in body:
        shown.add_row(*line)
    console().print(shown)
    beside = differences(results)
    if beside is not None:
        shown = Table(*beside[0], title=f"more than {results.reference}")
        for line in beside[1]:
            shown.add_row(*(cell.strip("*") + (" *" if cell.startswith("**") else "") for cell in line))
        shown.caption = "* the 95% interval leaves out 0"
        console().print(shown)
    if results.missing:
        console().print(f"not done yet, and not in the table: {', '.join(results.missing)}", soft_wrap=True)
    console().print("written: " + ", ".join(map(str, written)), soft_wrap=True)

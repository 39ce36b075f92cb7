"""`hopplus report`"""

from pathlib import Path

from hopplus.cli.output import Plugin, Runs, console, run_plugin
from hopplus.errors import InputError


def report(runs: Runs = (), out: Path | None = None, replay: bool = True, plugin: Plugin = None) -> None:
    """Write one page about a run, or about several side by side, that opens from the disk and needs no network.

    For example: hopplus report runs/hopplus; hopplus report runs/ppo runs/hopplus --out compared.html

    Args:
        runs: Run directories, of trainings or fits.
        out: The file; by default report.html in the run's directory, or, of several runs, here.
        replay: Play some episodes and put them on the page, to be looked at step by step.
    """
    from hopplus.report.page import NAME, write_report
    from hopplus.report.replay import SETS
    from hopplus.training.run import read_run

    run_plugin(plugin)
    if not runs:
        raise InputError("hopplus report needs at least one run directory, as in hopplus report runs/hopplus")
    found = [read_run(Path(run)) for run in runs]
    path = out or (found[0].path / NAME if len(found) == 1 else Path(NAME))
    write_report(found, path, SETS if replay else None)
    console().print(f"report: {path}", soft_wrap=True)

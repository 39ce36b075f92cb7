"""Command `hopplus report`."""

from pathlib import Path

from hopplus.cli.output import Plugin, Runs, console, run_plugin
from hopplus.core.errors import InputError


def report(runs: Runs = (), out: Path | None = None, replay: bool = True, plugin: Plugin = None) -> None:
    """Write a self-contained HTML report of one run, or of several runs side by side.

    For example: hopplus report runs/hopplus; hopplus report runs/ppo runs/hopplus --out compared.html

    Args:
        runs: Run directories of trainings or fits.
        out: File of the report; by default report.html in the run's directory, or in this one for several runs.
        replay: Play some episodes and add step-by-step replays to the report.
    """
    from hopplus.training.run import read_run
    from hopplus.visualization.replay import SETS
    from hopplus.visualization.report import NAME, write_report

    run_plugin(plugin)
    if not runs:
        raise InputError("hopplus report needs at least one run directory, as in hopplus report runs/hopplus")
    opened = [read_run(Path(run)) for run in runs]
    path = out or (opened[0].path / NAME if len(opened) == 1 else Path(NAME))
    write_report(opened, path, SETS if replay else None)
    console().print(f"report: {path}", soft_wrap=True)

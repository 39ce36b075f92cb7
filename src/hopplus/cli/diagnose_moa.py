"""`hopplus diagnose moa`"""

from typing import Any

from rich.table import Table

from hopplus.cli.output import FitRun, Json, OtherDataset, Plugin, console, run_plugin, show


def diagnose_moa(
    run: FitRun, dataset: OtherDataset = None, seed: int | None = None, json: Json = None, plugin: Plugin = None
) -> None:
    """Does a model predict what another player does? Per action, step, kind and goal, beside what is possible.

    Writes tables (CSV), arrays (NPZ) and pictures of every epoch into RUN/diagnostics/moa.

    Args:
        seed: Which of the fit's seeds; the first, unless you name one.
    """
    from hopplus.diagnostics.moa import diagnose
    from hopplus.report.figures import save_figure
    from hopplus.report.moa import epoch_figure, summary_figure
    from hopplus.report.tables import write_csv, write_npz
    from hopplus.training.fits import open_fit

    run_plugin(plugin)
    fitted = open_fit(run)
    found = diagnose(fitted, fitted.dataset(dataset), seed)
    directory = fitted.run.diagnostics("moa")
    for epoch in found.epochs:
        stem = directory / f"epoch-{epoch.number:02d}"
        write_csv(stem.with_suffix(".csv"), epoch.actions)
        write_npz(stem.with_suffix(".npz"), {"confusion": epoch.confusion})
        picture = epoch_figure(epoch.number, epoch.actions, epoch.confusion, found.figures["ceilings"])
        save_figure(stem.with_suffix(".png"), picture)
    for name in ("by_time", "by_kind", "by_goal", "calibration"):
        if found.figures[name]:
            write_csv(directory / f"{name}.csv", found.figures[name])
    best = {f"confusion_{which}": matrix for which, matrix in found.ceilings.items()}
    write_npz(directory / "rows.npz", {"predictions": found.predictions, "actions": found.actions, **best})
    save_figure(directory / "summary.png", summary_figure(found.figures))
    show(found.figures, _table(found.figures), json)
    if json != "-":
        console().print(f"tables and pictures: {directory}", soft_wrap=True)


def _table(figures: dict[str, Any]) -> Table:
    """The last epoch, action by action; the best predictors' recall beside the model's."""
    title = f"{figures['goals']} goals on {figures['game']}: {figures['rows']:,} held-out rows"
    ceilings = figures["ceilings"]
    best = [f"recall, best by {which}" for which in ceilings]
    table = Table("action", "count", "share", "precision", "recall", "F1", *best, title=title)
    for number, row in enumerate(figures["epochs"][-1]["actions"]):
        numbers = (f"{row[name]:.3f}" for name in ("share", "precision", "recall", "f1"))
        recalls = (f"{one['actions'][number]['recall']:.3f}" for one in ceilings.values())
        table.add_row(row["action"], f"{row['count']:,}", *numbers, *recalls)
    table.add_section()
    for name, said in (("top1", "top-1"), ("top3", "top-3"), ("cross_entropy", "cross-entropy")):
        limits = (f"{one['expected'][name]:.4f}" for one in ceilings.values())
        table.add_row(said, "", "", "", f"{figures[name]:.4f}", "", *limits)
    if figures["given_goal"]:
        table.caption = f"given the goal in hindsight (not a prediction): top-1 {figures['given_goal']['top1']:.4f}"
    return table

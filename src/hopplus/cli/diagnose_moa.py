"""Command `hopplus diagnose moa`."""

from typing import Any

from rich.table import Table

from hopplus.cli.output import FitRun, Json, OtherDataset, Plugin, console, run_plugin, show


def diagnose_moa(
    run: FitRun, dataset: OtherDataset = None, seed: int | None = None, json: Json = None, plugin: Plugin = None
) -> None:
    """Diagnose an opponent model: accuracy per action, step, agent type and goal, next to the exact ceilings.

    Writes tables (CSV), arrays (NPZ) and figures of every epoch into RUN/diagnostics/moa.

    Args:
        seed: Seed of the fit; by default the first.
    """
    from hopplus.fitting.diagnose_moa import diagnose
    from hopplus.training.fitted import open_fit
    from hopplus.visualization.export import write_csv, write_npz
    from hopplus.visualization.figures import save_figure
    from hopplus.visualization.moa import epoch_figure, summary_figure

    run_plugin(plugin)
    fitted = open_fit(run)
    diagnosis = diagnose(fitted, fitted.dataset(dataset), seed)
    directory = fitted.run.diagnostics("moa")
    for epoch in diagnosis.epochs:
        stem = directory / f"epoch-{epoch.number:02d}"
        write_csv(stem.with_suffix(".csv"), epoch.actions)
        write_npz(stem.with_suffix(".npz"), {"confusion": epoch.confusion})
        figure = epoch_figure(epoch.number, epoch.actions, epoch.confusion, diagnosis.figures["ceilings"])
        save_figure(stem.with_suffix(".png"), figure)
    for name in ("by_time", "by_agent_type", "by_goal", "calibration"):
        if diagnosis.figures[name]:
            write_csv(directory / f"{name}.csv", diagnosis.figures[name])
    best = {f"confusion_{which}": matrix for which, matrix in diagnosis.ceilings.items()}
    write_npz(directory / "rows.npz", {"predictions": diagnosis.predictions, "actions": diagnosis.actions, **best})
    save_figure(directory / "summary.png", summary_figure(diagnosis.figures))
    show(diagnosis.figures, _table(diagnosis.figures), json)
    if json != "-":
        console().print(f"tables and figures: {directory}", soft_wrap=True)


def _table(figures: dict[str, Any]) -> Table:
    """Table of the last epoch: one row per action, with the model's recall and that of the exact predictors."""
    title = f"{figures['goals']} goals on {figures['game']}: {figures['rows']:,} held-out rows"
    ceilings = figures["ceilings"]
    best = [f"recall, best by {which}" for which in ceilings]
    table = Table("action", "count", "share", "precision", "recall", "F1", *best, title=title)
    for number, row in enumerate(figures["epochs"][-1]["actions"]):
        numbers = (f"{row[name]:.3f}" for name in ("share", "precision", "recall", "f1"))
        recalls = (f"{ceiling['actions'][number]['recall']:.3f}" for ceiling in ceilings.values())
        table.add_row(row["action"], f"{row['count']:,}", *numbers, *recalls)
    table.add_section()
    for name, label in (("top1", "top-1"), ("top3", "top-3"), ("cross_entropy", "cross-entropy")):
        limits = (f"{ceiling['expected'][name]:.4f}" for ceiling in ceilings.values())
        table.add_row(label, "", "", "", f"{figures[name]:.4f}", "", *limits)
    if figures["given_goal"]:
        table.caption = f"given the goal in hindsight (not a prediction): top-1 {figures['given_goal']['top1']:.4f}"
    return table

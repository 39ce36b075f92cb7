"""`hopplus diagnose subgoals`"""

from typing import Any

from rich.table import Table

from hopplus.cli.output import FitRun, Json, OtherDataset, Plugin, console, run_plugin, show


def diagnose_subgoals(
    run: FitRun, dataset: OtherDataset = None, seed: int | None = None, json: Json = None, plugin: Plugin = None
) -> None:
    """What do learnt subgoals mean? Who a player is, what it will take, and whether the goal changes its actions.

    Writes tables (CSV), arrays (NPZ) and pictures into RUN/diagnostics/subgoals.

    Args:
        seed: Which of the fit's seeds; the first, unless you name one.
    """
    from hopplus.diagnostics.subgoals import diagnose
    from hopplus.report.figures import save_figure
    from hopplus.report.subgoals import embedding_figure, meaning_figure
    from hopplus.report.tables import write_csv, write_npz
    from hopplus.training.fits import open_fit

    run_plugin(plugin)
    fitted = open_fit(run)
    data = fitted.dataset(dataset)
    found = diagnose(fitted, data, seed)
    directory, drawn, figures = fitted.run.diagnostics("subgoals"), found.drawn, found.figures
    write_csv(directory / "by_time.csv", figures["by_time"])
    points = {name: getattr(drawn, name) for name in ("space", "cluster", "kind", "prey", "time")}
    write_npz(directory / "points.npz", {**points, **found.embeddings, "policies": found.policies})
    labels = {"kind of player": (drawn.kind, figures["kinds"]), "prey taken": (drawn.prey, figures["prey"])}
    save_figure(directory / "points.png", embedding_figure(found.embeddings, labels, drawn.time))
    save_figure(directory / "meaning.png", meaning_figure(figures, found.policies, data.game.action_names))
    show(figures, _table(figures), json)
    if json != "-":
        console().print(f"tables and pictures: {directory}", soft_wrap=True)


def _table(figures: dict[str, Any]) -> Table:
    title = f"{figures['subgoals']} on {figures['game']}: {figures['rows']:,} held-out rows"
    table = Table("what", "subgoals", "exact, alone", "exact, together", title=title)
    for row in figures["by_time"]:
        best = (f"{row[name]:.3f}" if name in row else "" for name in ("exact_alone", "exact"))
        table.add_row(f"kind told right after {row['step']} actions", f"{row['kind_told']:.3f}", *best)
    table.add_section()
    table.add_row("purity by kind", f"{figures['purity_kind']:.3f}")
    table.add_row("purity by prey", f"{figures['purity_prey']:.3f}")
    table.add_row("prey told right", f"{figures['prey_accuracy']:.3f}", f"commonest: {figures['prey_commonest']:.3f}")
    visited = figures["visited_later"]
    if visited:
        table.add_row("subgoal visited later", f"{visited['share']:.3f}", f"by chance: {visited['by_chance']:.3f}")
    swap = figures["interventions"]
    table.add_row("goal swapped: total variation", f"{swap['total_variation']:.3f}")
    table.add_row("goal swapped: likeliest action changes", f"{swap['likeliest_action_changes']:.3f}")
    return table

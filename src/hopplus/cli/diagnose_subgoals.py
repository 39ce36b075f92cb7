"""Command `hopplus diagnose subgoals`."""

from typing import Any

from rich.table import Table

from hopplus.cli.output import FitRun, Json, OtherDataset, Plugin, console, run_plugin, show


def diagnose_subgoals(
    run: FitRun, dataset: OtherDataset = None, seed: int | None = None, json: Json = None, plugin: Plugin = None
) -> None:
    """Diagnose learned subgoals: information about agent type and next prey, and effect on predicted actions.

    Writes tables (CSV), arrays (NPZ) and figures into RUN/diagnostics/subgoals.

    Args:
        seed: Seed of the fit; by default the first.
    """
    from hopplus.fitting.diagnose_subgoals import diagnose
    from hopplus.training.fitted import open_fit
    from hopplus.visualization.export import write_csv, write_npz
    from hopplus.visualization.figures import save_figure
    from hopplus.visualization.subgoals import embedding_figure, meaning_figure

    run_plugin(plugin)
    fitted = open_fit(run)
    data = fitted.dataset(dataset)
    diagnosis = diagnose(fitted, data, seed)
    directory, drawn, figures = fitted.run.diagnostics("subgoals"), diagnosis.drawn, diagnosis.figures
    write_csv(directory / "by_time.csv", figures["by_time"])
    points = {name: getattr(drawn, name) for name in ("space", "cluster", "agent_type", "prey", "time")}
    write_npz(directory / "points.npz", {**points, **diagnosis.embeddings, "policies": diagnosis.policies})
    labels = {"agent type": (drawn.agent_type, figures["agent_types"]), "prey taken": (drawn.prey, figures["prey"])}
    save_figure(directory / "points.png", embedding_figure(diagnosis.embeddings, labels, drawn.time))
    save_figure(directory / "meaning.png", meaning_figure(figures, diagnosis.policies, data.game.action_names))
    show(figures, _table(figures), json)
    if json != "-":
        console().print(f"tables and figures: {directory}", soft_wrap=True)


def _table(figures: dict[str, Any]) -> Table:
    title = f"{figures['subgoals']} on {figures['game']}: {figures['rows']:,} held-out rows"
    table = Table("measure", "subgoals", "exact, alone", "exact, together", title=title)
    for row in figures["by_time"]:
        best = (f"{row[name]:.3f}" if name in row else "" for name in ("exact_alone", "exact"))
        table.add_row(f"agent type accuracy after {row['step']} actions", f"{row['agent_type_accuracy']:.3f}", *best)
    table.add_section()
    table.add_row("purity by agent type", f"{figures['purity_agent_type']:.3f}")
    table.add_row("purity by prey", f"{figures['purity_prey']:.3f}")
    table.add_row("prey accuracy", f"{figures['prey_accuracy']:.3f}", f"majority: {figures['prey_commonest']:.3f}")
    visited = figures["visited_later"]
    if visited:
        table.add_row("subgoal visited later", f"{visited['share']:.3f}", f"by chance: {visited['by_chance']:.3f}")
    swap = figures["interventions"]
    table.add_row("goal swapped: total variation", f"{swap['total_variation']:.3f}")
    table.add_row("goal swapped: most probable action changes", f"{swap['likeliest_action_changes']:.3f}")
    return table

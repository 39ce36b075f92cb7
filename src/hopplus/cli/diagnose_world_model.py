"""Command `hopplus diagnose world-model`."""

from typing import Any

from rich.table import Table

from hopplus.cli.output import FitRun, Json, OtherDataset, Plugin, console, run_plugin, show
from hopplus.core.errors import InputError


def diagnose_world_model(
    run: FitRun,
    dataset: OtherDataset = None,
    seed: int | None = None,
    examples: int = 4,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Diagnose a world model one to ten steps ahead: errors, exact predictions, impossible transitions.

    Writes tables (CSV), arrays (NPZ) and figures into RUN/diagnostics/world-model.

    Args:
        seed: Seed of the fit; by default the first.
        examples: Transitions to draw: before, predicted and true, with the values in the cells.
    """
    from hopplus.fitting.diagnose_world_model import diagnose
    from hopplus.training.fitted import open_fit
    from hopplus.visualization.export import write_csv, write_npz
    from hopplus.visualization.figures import save_figure
    from hopplus.visualization.world_model import example_figure, summary_figure

    run_plugin(plugin)
    if examples < 0:
        raise InputError(f"examples must be a number of at least 0, not {examples}")
    fitted = open_fit(run)
    data = fitted.dataset(dataset)
    diagnosis = diagnose(fitted, data, seed, examples)
    directory, names = fitted.run.diagnostics("world-model"), diagnosis.channel_names
    write_csv(directory / "ahead.csv", diagnosis.figures["ahead"])
    for row in diagnosis.figures["epochs"]:
        write_csv(directory / f"epoch-{row['epoch']:02d}.csv", [row])
    save_figure(directory / "summary.png", summary_figure(diagnosis.figures))
    for number, example in enumerate(diagnosis.examples):
        stem = directory / f"example-{number:02d}"
        write_npz(stem.with_suffix(".npz"), {name: value for name, value in vars(example).items() if name != "why"})
        save_figure(stem.with_suffix(".png"), example_figure(example, names, data.game.action_names))
    show(diagnosis.figures, _table(diagnosis.figures), json)
    if json != "-":
        console().print(f"tables and figures: {directory}", soft_wrap=True)


def _table(figures: dict[str, Any]) -> Table:
    from hopplus.models.world.metrics import IMPOSSIBLE

    title = f"{figures['kind']} world model of {figures['game']}: {figures['ahead'][0]['predictions']:,} held-out steps"
    names = ("MSE", "PSNR, dB", "reward MSE", "exact", "legal", "left", "over", "impossible")
    table = Table("ahead", "steps", *names, title=title)
    for row in figures["ahead"]:
        errors = (f"{row['observation_mse']:.3g}", f"{row['psnr']:.1f}", f"{row['reward_mse']:.3g}")
        shares = (f"{row[name]:.3%}" for name in ("exact", "exact_legal", "exact_left", "exact_over"))
        table.add_row(str(row["ahead"]), f"{row['predictions']:,}", *errors, *shares, f"{row['impossible']:,}")
    by_channel = ", ".join(f"{name} {error:.2g}" for name, error in figures["ahead"][0]["channel_mse"].items())
    counts = {name: sum(row["impossible_by_kind"][name] for row in figures["ahead"]) for name in IMPOSSIBLE}
    by_type = ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items() if number)
    table.caption = f"MSE one step ahead: {by_channel}\n"
    table.caption += f"impossible: {figures['impossible']:,} of {figures['transitions']:,} transitions"
    table.caption += f" ({by_type})" if by_type else ""
    return table

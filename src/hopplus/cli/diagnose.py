"""Command `hopplus diagnose`."""

from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from hopplus.cli.output import Json, Plugin, console, progress_bar, run_plugin, show


def diagnose_seats(
    game: str = "msh-4x4-4h1s",
    train: bool = False,
    seeds: str = "0-4",
    steps: int = 400_000,
    episodes: int = 2_000,
    figure: Path = Path("seats.png"),
    fault: Literal["rows-from-seat-0"] | None = None,
    json: Json = None,
    plugin: Plugin = None,
) -> int:
    """Test that all seats are equivalent, for casts of equal scripted players and, with --train, for learners.

    Exit code 1 if they are not. For example: hopplus diagnose seats --game msh-4x4-4h1s --train

    Args:
        game: Name of the game.
        train: Also train PPO in self-play, and PPO with scripted co-players at each seat in turn (some minutes).
        seeds: Seeds of the trainings: the unit of their tests.
        steps: Environment steps of each self-play training; the other trainings have half.
        episodes: Episodes of each unit of the scripted casts, and of each trained seed.
        figure: File for the chart of the trainings.
        fault: Inject a known fault into the trainings, to check that the diagnosis detects it.
    """
    from hopplus.evaluation.seat_symmetry import diagnose

    run_plugin(plugin)
    with progress_bar("experiments", 1) as advance:
        figures, pictures = diagnose(game, train, episodes, seeds, steps, fault, advance)
    show(figures, _table(figures), json)
    if train:
        from hopplus.visualization.seat_symmetry import save_seats_figure

        save_seats_figure(figure, figures, pictures)
        if json != "-":
            console().print(f"figure: {figure}", soft_wrap=True)
    return 0 if figures["passed"] else 1


def _table(figures: dict[str, Any]) -> Table:
    verdict = "all seats are equivalent" if figures["passed"] else "SEATS DIFFER"
    table = Table("check", "", "p", "details", title=f"{figures['game']}: {verdict}")
    for check in figures["checks"]:
        p_value = "exact" if check["p_value"] is None else f"{check['p_value']:.4f}"
        table.add_row(check["name"], "ok" if check["passed"] else "FAILED", p_value, check["detail"])
    level = figures["false_alarm_rate"] / figures["tests"]
    table.caption = f"{figures['tests']} tests at {level:.1e}: a correct system fails with probability"
    table.caption += f" {figures['false_alarm_rate']:g}"
    return table

"""`hopplus diagnose`"""

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
    """Are all seats alike? Tables of equal scripted players and, with --train, learners at every seat.

    Exit code 1 where they are not. For example: hopplus diagnose seats --game msh-4x4-4h1s --train

    Args:
        game: The game by name.
        train: Also train PPO in self-play, and one PPO with scripted co-players at each seat in turn (some minutes).
        seeds: Seeds of the trainings: the unit of their tests.
        steps: Environment steps of each self-play training; the others have half.
        episodes: Episodes of each unit of the scripted tables, and of each trained seed.
        figure: Where the picture of the trainings goes.
        fault: Put a known fault into the trainings, to see that the diagnosis notices it.
    """
    from hopplus.diagnostics.seats import diagnose

    run_plugin(plugin)
    with progress_bar("experiments", 1) as advance:
        figures, pictures = diagnose(game, train, episodes, seeds, steps, fault, advance)
    show(figures, _table(figures), json)
    if train:
        from hopplus.report.seats import save_seats_figure

        save_seats_figure(figure, figures, pictures)
        if json != "-":
            console().print(f"picture: {figure}", soft_wrap=True)
    return 0 if figures["passed"] else 1


def _table(figures: dict[str, Any]) -> Table:
    verdict = "all seats are alike" if figures["passed"] else "SEATS DIFFER"
    table = Table("check", "", "p", "what was found", title=f"{figures['game']}: {verdict}")
    for check in figures["checks"]:
        p_value = "exact" if check["p_value"] is None else f"{check['p_value']:.4f}"
        table.add_row(check["name"], "ok" if check["passed"] else "FAILED", p_value, check["detail"])
    level = figures["false_alarm_rate"] / figures["tests"]
    table.caption = f"{figures['tests']} tests at {level:.1e}: a sound system fails with probability"
    table.caption += f" {figures['false_alarm_rate']:g}"
    return table

"""Command `hopplus evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, progress_bar, run_plugin, show
from hopplus.core.formatting import file_name, percent


def evaluate(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    cast: str | None = None,
    game: str | None = None,
    episodes: int = 2_000,
    greedy: bool = False,
    planner: str | None = None,
    seed: int = 0,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Evaluate the policies of a run, weights frozen, in any cast.

    For example: hopplus evaluate runs/ppo --cast self,ns,ns,ns --greedy

    Args:
        run: Run directory.
        cast: One player per seat, `self` for the run's policy; by default the cast of the training.
        game: Another game than the run's own, with the same board and actions.
        episodes: Episodes per training seed.
        greedy: Take the most probable action instead of sampling.
        planner: Planning before acting: off, tree or a registered planner; by default as in training. (hop, hopplus)
        seed: Seed of the episodes.
    """
    from hopplus.evaluation.policies import evaluate as evaluate_run
    from hopplus.training.casting import parse_cast
    from hopplus.training.run import open_run

    run_plugin(plugin)
    the_run, spec = open_run(run), None if cast is None else parse_cast(cast)
    with progress_bar("episodes", episodes * len(the_run.seeds)) as advance:
        figures = evaluate_run(the_run, spec, game, episodes, greedy, seed, advance, planner)
    name = f"{figures['cast']}{'-greedy' if greedy else ''}{'' if game is None else '-' + game}"
    name += "" if planner is None else f"-planner-{planner}"
    path = the_run.write_evaluation(file_name(name, 100), figures)
    show(figures, _table(figures), json)
    if json != "-":
        print(f"written: {path}")


def _table(figures: dict[str, Any]) -> Table:
    actions = "greedy" if figures["greedy"] else "sampled"
    columns = ("seat", "player", "mean return", "± s.e.", "of oracle", "steps")
    table = Table(*columns, title=f"{figures['run']} on {figures['game']}")
    seeds = figures["seeds"]
    table.caption = f"{figures['episodes']} {actions} episodes for each of {len(seeds)} trained seeds"
    for row in figures["per_seat"]:
        numbers = (f"{row['mean']:.3f}", f"{row['standard_error']:.3f}", percent(row["share_of_oracle"]))
        table.add_row(str(row["seat"]), row["player"], *numbers, f"{row['length']:.1f}")
    table.add_section()
    share = f"{100 * figures['share_of_ceiling']:.1f}% of the ceiling"
    table.add_row("all", share, f"{figures['mean_return']:.3f}", f"{figures['standard_error']:.3f}")
    if figures["own_return"] is not None:
        table.add_row("self", "own seats", f"{figures['own_return']:.3f}", f"{figures['own_standard_error']:.3f}")
    return table

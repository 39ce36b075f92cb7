"""`hopplus oracle`"""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from hopplus.cli.output import Json, Plugin, progress_bar, run_plugin, show

if TYPE_CHECKING:
    from hopplus.evaluation.oracle import Effort, Oracle


def oracle(
    against: str,
    game: str = "msh-4x4-4h1s",
    layouts: int | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    candidates: tuple[str, ...] = (),
    again: bool = False,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Tell how much the best response to given co-players earns: exactly where that can be computed.

    For example: hopplus oracle --game msh-4x4-4h1s --against ns,ns,ns

    Args:
        against: The co-players, one for every seat but one: ns,nh,noisy(ns,0.2); or a set: cooperators, held-out.
        game: The game by name, with settings if you like.
        layouts: Layouts of prey that are drawn where there are too many to compute them all; by default 200.
        steps: Steps for which a best response is trained, where there is no exact value; by default 600,000.
        episodes: Episodes in which a lower bound is measured, if it looks ahead; else eight times as many.
        seed: Of everything random.
        candidates: Players or runs that a lower bound tries beside its own.
        again: Compute it anew instead of taking what is known.
    """
    from hopplus.evaluation import oracle as oracles
    from hopplus.evaluation.sets import make_sets
    from hopplus.games import make

    run_plugin(plugin)
    the_game = make(game)
    effort = _effort({"layouts": layouts, "steps": steps, "episodes": episodes, "seed": seed})
    sets = make_sets(against, the_game)
    tables = list(dict.fromkeys(table for one in sets for table in oracles.phases(one)))
    found: dict[tuple[str, ...], Oracle] = {}
    with progress_bar("percent", 100 * len(tables)) as advance:
        for number, table in enumerate(tables):

            def show_share(done: float, number: int = number) -> None:
                advance(round(100 * (number + done)))

            found[table] = oracles.oracle(the_game, game, table, effort, candidates, again, show_share)
    by_set = {one.name: oracles.mean_of([found[table] for table in oracles.phases(one)]) for one in sets}
    ceiling = the_game.ceilings["player"]
    figures = [
        {"set": name, **one.as_dict(), "share_of_ceiling": one.value / ceiling if ceiling else 0.0}
        for name, one in by_set.items()
    ]
    show(figures, _table(game, figures), json)


def _effort(given: dict[str, int | None]) -> "Effort | None":
    """None where whatever is known will do."""
    from hopplus.errors import InputError
    from hopplus.evaluation.oracle import Effort

    chosen = {name: value for name, value in given.items() if value is not None}
    for name, least in (("layouts", 1), ("episodes", 2), ("steps", 0), ("seed", 0)):
        if chosen.get(name, least) < least:
            raise InputError(f"{name} must be at least {least}, not {chosen[name]}")
    return Effort(**chosen) if chosen else None


def _table(game: str, figures: list[dict[str, Any]]) -> Table:
    table = Table("against", "best response", "± s.e.", "of a player's ceiling", "how", title=f"oracle of {game}")
    for row in figures:
        numbers = (f"{row['standard_error']:.4f}", f"{100 * row['share_of_ceiling']:.1f}%")
        value = f"{'' if row['exact'] else '≥ '}{row['value']:.4f}"
        table.add_row(row["set"], value, *numbers, row["method"])
    if not all(row["exact"] for row in figures):
        table.caption = "≥ is a lower bound: the realised mean return of the best that was found"
    return table

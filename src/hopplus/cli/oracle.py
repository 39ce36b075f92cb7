"""Command `hopplus oracle`."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from hopplus.cli.output import Json, Plugin, progress_bar, run_plugin, show

if TYPE_CHECKING:
    from hopplus.core.specs import Spec
    from hopplus.evaluation.oracle import Oracle
    from hopplus.evaluation.oracle_value import Effort


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
    """Compute the return of the best response to given co-players, exactly where possible.

    For example: hopplus oracle --game msh-4x4-4h1s --against ns,ns,ns

    Args:
        against: Co-players for all seats but one: ns,nh,noisy(ns,0.2); or a set: cooperators, held-out.
        game: Name of the game, optionally with settings.
        layouts: Sampled layouts of prey, if there are too many to compute them all; by default 200.
        steps: Training steps of a best response, if there is no exact value; by default 600,000.
        episodes: Episodes that measure a lower bound by lookahead; other lower bounds use eight times as many.
        seed: Seed of the computation.
        candidates: Further players or runs that a lower bound tries.
        again: Ignore the stored value and compute a new one.
    """
    from hopplus.evaluation import oracle as oracles
    from hopplus.evaluation.co_player_sets import make_sets
    from hopplus.games import make
    from hopplus.training.casting import parse_player

    run_plugin(plugin)
    the_game = make(game)
    effort = _effort({"layouts": layouts, "steps": steps, "episodes": episodes, "seed": seed})
    sets, more = make_sets(against, the_game), [parse_player(name) for name in candidates]
    casts = list(dict.fromkeys(cast for co_players in sets for cast in oracles.phases(co_players)))
    by_cast: dict[tuple[Spec, ...], Oracle] = {}
    with progress_bar("percent", 100 * len(casts)) as advance:
        for number, cast in enumerate(casts):

            def show_share(done: float, number: int = number) -> None:
                advance(round(100 * (number + done)))

            by_cast[cast] = oracles.oracle(the_game, game, cast, effort, more, again, show_share)
    by_set = {
        co_players.name: oracles.mean_of([by_cast[cast] for cast in oracles.phases(co_players)]) for co_players in sets
    }
    ceiling = the_game.ceilings["player"]
    figures = [
        {"set": name, **result.as_dict(), "share_of_ceiling": result.value / ceiling if ceiling else 0.0}
        for name, result in by_set.items()
    ]
    show(figures, _table(game, figures), json)


def _effort(options: dict[str, int | None]) -> "Effort | None":
    """Effort of the computation, or None if no option is set, so that any stored value is used."""
    from hopplus.core.errors import InputError
    from hopplus.evaluation.oracle_value import Effort

    chosen = {name: value for name, value in options.items() if value is not None}
    for name, least in (("layouts", 1), ("episodes", 2), ("steps", 0), ("seed", 0)):
        if chosen.get(name, least) < least:
            raise InputError(f"{name} must be at least {least}, not {chosen[name]}")
    return Effort(**chosen) if chosen else None  # pyright: ignore[reportArgumentType]


def _table(game: str, figures: list[dict[str, Any]]) -> Table:
    table = Table("against", "best response", "± s.e.", "of a player's ceiling", "method", title=f"oracle of {game}")
    for row in figures:
        numbers = (f"{row['standard_error']:.4f}", f"{100 * row['share_of_ceiling']:.1f}%")
        value = f"{'' if row['exact'] else '≥ '}{row['value']:.4f}"
        table.add_row(row["set"], value, *numbers, row["method"])
    if not all(row["exact"] for row in figures):
        table.caption = "≥ is a lower bound: the realised mean return of the best candidate"
    return table

"""`hopplus demo`"""

from pathlib import Path
from typing import Any

from rich.table import Table

from hopplus.cli.output import STANDARD_OUTPUT, Json, console, progress_bar, show
from hopplus.errors import InputError

GAMES_AND_CASTS = {
    "msh-4x4-4h1s": ("ns,ns,ns,ns", "nh,nh,nh,nh", "ns,ns,nh,nh", "ns,nh,nh,nh", "random,random,random,random"),
    "msh-8x8-4h1s": ("ns,ns,ns,ns", "ns,ns,nh,nh", "nh,nh,nh,nh"),
    "msg-4x4": ("cleaner,cleaner,cleaner,cleaner", "cleaner,cleaner,exploiter,exploiter"),
}
SHOWN_GAME, SHOWN_CAST = "msh-8x8-4h1s", "ns,ns,nh,random"


def demo(episodes: int = 2_000, seed: int = 0, out: Path = Path("demo"), json: Json = None) -> None:
    """Play mixed casts of scripted players, show one episode and a table of what everybody earned.

    Args:
        episodes: How many episodes each cast plays.
        seed: Of everything random.
        out: The directory for the animated picture.
    """
    from hopplus.evaluation import match
    from hopplus.games import make
    from hopplus.players import make_cast
    from hopplus.report import as_text, save_gif
    from hopplus.report.replay import episodes_of
    from hopplus.training.seats import seat_cast

    quiet = json == STANDARD_OUTPUT
    game = make(SHOWN_GAME)
    (frames,) = episodes_of(game, seat_cast(SHOWN_CAST, game), seed)
    if not quiet:
        for frame in (frames[0], frames[-1]):
            print(as_text(frame, colour=console().is_terminal))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {out}: {error.strerror}") from None
    save_gif(out / "episode.gif", frames)

    pairs = [(name, cast) for name, casts in GAMES_AND_CASTS.items() for cast in casts]
    results: list[Any] = []
    with progress_bar("casts", len(pairs)) as advance:
        for name, cast in pairs:
            results.append(match(make(name), make_cast(cast, make(name)), episodes, seed))
            advance(len(results))
    show([result.as_dict() for result in results], _table(results, episodes, seed), json)
    if not quiet:
        console().print(f"one episode as a moving picture: {out / 'episode.gif'}", soft_wrap=True)


def _table(results: list[Any], episodes: int, seed: int) -> Table:
    table = Table("game", "cast", "mean return by seat", "mean", "± s.e.", "of ceiling", title="Who earns what")
    table.caption = f"{episodes} episodes each, seed {seed}"
    for result in results:
        by_seat = "  ".join(f"{row.mean:6.2f}" for row in result.per_seat)
        figures = (f"{result.mean_return:.2f}", f"{result.standard_error:.2f}", f"{100 * result.share_of_ceiling:.0f}%")
        table.add_row(result.game, ",".join(result.cast), by_seat, *figures)
    return table

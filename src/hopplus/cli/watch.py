"""Command `hopplus watch`."""

import json as json_module
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from hopplus.cli.output import GAME_HELP, STANDARD_OUTPUT, Json, Plugin, run_plugin
from hopplus.core.errors import InputError
from hopplus.core.files import write_text

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.training.casting import SeatedCast
    from hopplus.visualization import Frame

OptionalGame = Annotated[
    str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[GAME]", help=f"{GAME_HELP} By default that of --run.")
]


def watch(
    game: OptionalGame = None,
    cast: str | None = None,
    run: Path | None = None,
    greedy: bool = False,
    seed: int = 0,
    delay: float = 0.4,
    gif: Path | None = None,
    svg: Path | None = None,
    png: Path | None = None,
    at: int | None = None,
    json: Json = None,
    plugin: Plugin = None,
) -> None:
    """Show one episode in the terminal or as images, with the beliefs and plans of players that have them.

    For example: hopplus watch msh-8x8-4h1s --cast ns,ns,nh,random --gif hunt.gif; hopplus watch --run runs/hopplus

    Args:
        cast: One player per seat: ns,nh:then=stay,noisy(ns,0.2),random, or a run directory; `self` is the --run.
        run: Run directory; the policy of its first seed takes every seat, or with --cast the seats named `self`.
        greedy: Let runs take the most probable action instead of sampling.
        seed: Seed of the episode.
        delay: Seconds between steps, in a terminal and in the GIF.
        gif: Write the episode as an animated GIF to this file.
        svg: Write the board as SVG to this file.
        png: Write the board as PNG to this file.
        at: Step after which the SVG and PNG show the board; by default the last, which has no beliefs or plans.
    """
    from hopplus.visualization.replay import episodes_of

    run_plugin(plugin)
    if delay <= 0:
        raise InputError(f"the delay must be more than 0 seconds, not {delay}")
    if at is not None and svg is None and png is None:
        raise InputError("--at chooses the board of --svg and --png: add one of them")
    the_game, seated = seat_players(game, cast, run, greedy)
    (frames,) = episodes_of(the_game, seated, seed)
    if at is not None and not 0 <= at < len(frames):
        raise InputError(f"this episode has the steps 0 to {len(frames) - 1}, so there is no board after step {at}")
    pictures = save_pictures(frames, frames[-1 if at is None else at], delay, gif, svg, png)
    if json == STANDARD_OUTPUT:
        print(json_module.dumps(figures_of(the_game, seated, seed, frames), indent=2))
        return
    if not pictures:
        show_frames(frames, delay)
    for path in pictures:
        print(path)
    if json is not None:
        write_text(json, json_module.dumps(figures_of(the_game, seated, seed, frames), indent=2) + "\n")
        print(f"figures: {json}")


def save_pictures(
    frames: "list[Frame]", chosen: "Frame", delay: float, gif: Path | None, svg: Path | None, png: Path | None
) -> list[Path]:
    """Write the images that have a path; returns these paths."""
    from hopplus.visualization import save_gif, save_png, save_svg

    if gif is not None:
        save_gif(gif, frames, seconds_per_frame=delay)
    if png is not None:
        save_png(png, chosen)
    if svg is not None:
        save_svg(svg, chosen)
    return [path for path in (gif, svg, png) if path is not None]


def seat_players(game: str | None, cast: str | None, run: Path | None, greedy: bool) -> "tuple[Game[Any], SeatedCast]":
    """Game and cast from the command's options; a run provides the default game and the player `self`."""
    from hopplus.core.specs import Spec
    from hopplus.games import make
    from hopplus.players import CastSpec
    from hopplus.training.casting import parse_cast, seat_cast
    from hopplus.training.run import open_run

    if run is None:
        if game is None or cast is None:
            raise InputError("hopplus watch needs a GAME and --cast, or else --run (see hopplus watch --help)")
        the_game = make(game)
        return the_game, seat_cast(parse_cast(cast), the_game, greedy=greedy)
    the_run = open_run(run)
    policies = the_run.policies()
    the_game = make(the_run.config["training"]["game"] if game is None else game)
    spec = parse_cast(cast) if cast else CastSpec((Spec("self"),) * the_game.num_players)
    seated = seat_cast(spec, the_game, lambda seat: the_run.seated(policies, seat), greedy)
    return the_game, seated


def figures_of(game: "Game[Any]", seated: "SeatedCast", seed: int, frames: "list[Frame]") -> dict[str, Any]:
    """Episode for JSON.

    Returns:
        Dictionary with `game`, `version`, `cast` (the players' names), `seed` and `steps`: the initial frame and the
        frame after each step, with the keys of `Frame.figures`. Beliefs and plans are those for the next step.
    """
    steps = [frame.figures() for frame in frames]
    return {"game": game.name, "version": game.version, "cast": seated.cast.names, "seed": seed, "steps": steps}


def show_frames(frames: "list[Frame]", delay: float) -> None:
    """Print the frames: in place on a terminal, below each other elsewhere."""
    from hopplus.visualization import as_text

    animated = sys.stdout.isatty()
    for frame in frames:
        print(("\x1b[2J\x1b[H" if animated else "") + as_text(frame, colour=animated), flush=True)
        if animated:
            time.sleep(delay)

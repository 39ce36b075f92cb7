"""`hopplus watch`"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopplus.cli.output import GameName, Plugin, run_plugin
from hopplus.errors import InputError

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.report import Frame
    from hopplus.training.seats import Seated


def watch(
    game: GameName,
    cast: str,
    seed: int = 0,
    delay: float = 0.4,
    gif: Path | None = None,
    svg: Path | None = None,
    png: Path | None = None,
    at: int | None = None,
    plugin: Plugin = None,
) -> None:
    """Show one episode on the board, in the terminal or as pictures.

    For example: hopplus watch msh-8x8-4h1s --cast ns,ns,nh,random --gif hunt.gif

    Args:
        cast: One player a seat: ns,nh:then=stay,noisy(ns,0.2),random, or a run directory.
        seed: Of everything random.
        delay: Seconds between steps on a terminal and in the GIF.
        gif: Write the episode as an animated GIF to this file.
        svg: Write the board as SVG to this file.
        png: Write the board as PNG to this file.
        at: The step after which the SVG and PNG show the board; without it, the last.
    """
    from hopplus.games import make
    from hopplus.report import save_gif, save_png, save_svg
    from hopplus.training.seats import seat_cast

    run_plugin(plugin)
    if delay <= 0:
        raise InputError(f"the delay must be more than 0 seconds, not {delay}")
    the_game = make(game)
    frames = episode_frames(the_game, seat_cast(cast, the_game), seed)
    if at is not None and not 0 <= at < len(frames):
        raise InputError(f"this episode has the steps 0 to {len(frames) - 1}, so there is no board after step {at}")
    if gif is None and svg is None and png is None:
        show_frames(frames, delay)
        return
    chosen = frames[-1 if at is None else at]
    if gif is not None:
        save_gif(gif, frames, seconds_per_frame=delay)
    if png is not None:
        save_png(png, chosen)
    if svg is not None:
        save_svg(svg, chosen)
    for path in filter(None, (gif, svg, png)):
        print(path)


def show_frames(frames: "list[Frame]", delay: float) -> None:
    """Frame after frame: in place on a terminal, below each other elsewhere."""
    from hopplus.report import as_text

    animated = sys.stdout.isatty()
    for frame in frames:
        print(("\x1b[2J\x1b[H" if animated else "") + as_text(frame, colour=animated), flush=True)
        if animated:
            time.sleep(delay)


def episode_frames(game: "Game[Any]", seated: "Seated", seed: int) -> "list[Frame]":
    """One episode as pictures: the first state, and the state after each step until the game is over."""
    import jax
    import numpy as np

    from hopplus.play import play_episodes
    from hopplus.report import frame_of

    _, episode = play_episodes(jax.random.key(seed), game, seated.cast, 1, seated.params())
    episode = jax.tree.map(np.asarray, episode)
    steps = int(np.argmax(episode.over[:, 0])) + 1
    frames = []
    for step in range(steps + 1):
        if step < len(episode.over):
            state = jax.tree.map(lambda leaf, step=step: leaf[step, 0], episode.state)
        else:
            state = jax.tree.map(lambda leaf: leaf[0], episode.last_state)
        rewards = episode.reward[step - 1, 0] if step else np.zeros(game.num_players)
        totals = episode.total_reward[step - 1, 0] if step else np.zeros(game.num_players)
        frames.append(
            frame_of(game, state, rewards=rewards, totals=totals, player_names=seated.cast.names, title=game.name)
        )
    return frames

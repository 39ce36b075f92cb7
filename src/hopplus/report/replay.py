"""Episodes to look at step by step: played anew by what a run has learnt, and made ready for a page."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hopplus.report.frame import Frame, frame_of
from hopplus.report.picture import board_of
from hopplus.report.style import goal_colour, seat_colour
from hopplus.report.svg import shapes_as_svg
from hopplus.report.thoughts import thinking_of
from hopplus.report.words import describe

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.training.policies import Policy
    from hopplus.training.run import Run
    from hopplus.training.seats import Seated

SETS = 3
"""Beside itself, a run is shown with so many of the held-out sets."""
IN_A_ROW = 3
"""So many episodes with the same players, so that one sees what is kept between them."""


def episodes_of(game: "Game[Any]", seated: "Seated", seed: int, number: int = 1) -> list[list[Frame]]:
    """Episodes in a row of the same players, each as pictures: the first state, and the state after each step until
    the game is over."""
    import jax
    import numpy as np

    episodes = _series_program()(jax.random.key(seed), game, seated.cast, number, seated.params())
    episodes = jax.tree.map(np.asarray, episodes)
    return [
        _frames(game, seated, jax.tree.map(lambda leaf, count=count: leaf[count], episodes)) for count in range(number)
    ]


@functools.cache
def _series_program() -> Any:
    """The program that plays some episodes in a row of one environment [number, T, 1, ...], compiled quickly."""
    import jax
    import jax.numpy as jnp

    from hopplus.compiling import quick_options
    from hopplus.play import play_episodes, start

    def play(key: Any, game: "Game[Any]", cast: Any, number: int, params: Any) -> Any:
        keys = jnp.stack([key, *(jax.random.fold_in(key, count) for count in range(1, number))])
        memories = start(key, game, cast, 1, params).memories
        return jax.lax.scan(lambda kept, own: play_episodes(own, game, cast, 1, params, kept), memories, keys)[1]

    return jax.jit(play, static_argnames=("game", "cast", "number"), compiler_options=quick_options())


def _frames(game: "Game[Any]", seated: "Seated", episode: Any) -> list[Frame]:
    import jax
    import numpy as np

    frames = []
    for step in range(int(np.argmax(episode.over[:, 0])) + 2):
        if step < len(episode.over):
            state = jax.tree.map(lambda leaf, step=step: leaf[step, 0], episode.state)
        else:
            state = jax.tree.map(lambda leaf: leaf[0], episode.last_state)
        rewards = episode.reward[step - 1, 0] if step else np.zeros(game.num_players)
        totals = episode.total_reward[step - 1, 0] if step else np.zeros(game.num_players)
        thinking = thinking_of(game, seated.cast, episode, step)
        said = {"rewards": rewards, "totals": totals, "player_names": seated.cast.names, "thinking": thinking}
        frames.append(frame_of(game, state, title=game.name, **said))
    return frames


def replays(run: "Run", sets: int) -> list[dict[str, Any]]:
    """What the page's viewer shows of a run's first seed: self-play, and acquaintances with held-out players."""
    from hopplus.games import make

    game, policies = make(run.config["training"]["game"]), run.policies()
    return [
        {"title": f"{title}, episode {number}", **for_viewer(frames)}
        for title, seated in _casts(game, lambda seat: run.seated(policies, seat), sets)
        for number, frames in enumerate(_series(game, seated), start=1)
    ]


def compile_replays(run: "Run", params: Any, sets: int) -> None:
    """Compiles what `replays` plays, while the run still trains; `params` of a seed [P, ...] need only have the
    shapes of the learnt ones."""
    from hopplus.games import make

    game, policies = make(run.config["training"]["game"]), run.policies_of(params)
    for _, seated in _casts(game, lambda seat: run.seated(policies, seat), sets):
        _series(game, seated)


def _series(game: "Game[Any]", seated: "Seated") -> list[list[Frame]]:
    return episodes_of(game, seated, seed=1, number=IN_A_ROW)


def _casts(game: "Game[Any]", policy: "Callable[[int], Policy]", sets: int) -> "Iterator[tuple[str, Seated]]":
    """Self-play, and one seat beside each of the first held-out sets, with titles."""
    from hopplus.evaluation.sets import sets_of
    from hopplus.training.seats import seat_cast

    beside = game.num_players - 1
    fitting = [one for one in sets_of(game).values() if one.split == "held-out" and len(one.players) == beside]
    casts = {"with itself": ("self",) * beside, **{f"with {one.name}": one.players for one in fitting[:sets]}}
    for title, players in casts.items():
        yield title, seat_cast(",".join(["self", *players]), game, policy)


def for_viewer(frames: Sequence[Frame]) -> dict[str, Any]:
    """An episode as plain values. Keys: `players` (names, colours), `goals` (names, colours), `steps`: a list with
    those of `Frame.figures` and `board`, a drawing, and `words`, the same in sentences."""
    first = frames[0]
    goals = first.thinking.goals if first.thinking else ()
    return {
        "players": [{"name": name, "colour": seat_colour(seat)} for seat, name in enumerate(first.player_names)],
        "goals": [{"name": name, "colour": goal_colour(name, number)} for number, name in enumerate(goals)],
        "steps": [
            {**_rounded(frame.figures()), "board": shapes_as_svg(board_of(frame), "Board"), "words": describe(frame)}
            for frame in frames
        ],
    }


def _rounded(value: Any) -> Any:
    """Numbers with as many digits as a page shows."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value

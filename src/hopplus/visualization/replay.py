"""Replays: episodes played by the policies of a run, as frames and as data for the replay viewer of a page."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hopplus.visualization.frame import Frame, frame_of
from hopplus.visualization.picture import board_of
from hopplus.visualization.reasoning import frame_reasoning
from hopplus.visualization.style import goal_colour, seat_colour
from hopplus.visualization.svg import shapes_as_svg
from hopplus.visualization.text import describe, describe_base_plans, describe_choice

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.training.casting import SeatedCast
    from hopplus.training.policies import Policy
    from hopplus.training.run import Run

SETS = 3
"""Held-out sets in the replays of a run, beside self-play."""
TRIAL_EPISODES = 3
"""Consecutive episodes with the same players, which show what players remember between episodes."""


def episodes_of(game: "Game[Any]", seated: "SeatedCast", seed: int, number: int = 1) -> list[list[Frame]]:
    """Plays consecutive episodes with the same players.

    Returns:
        The frames of each episode: the first state, and the state after each step until the game is over.
    """
    import jax
    import numpy as np

    trajectories = _trial_program()(jax.random.key(seed), game, seated.cast, number, seated.params())
    trajectories = jax.tree.map(np.asarray, trajectories)
    return [
        _frames(game, seated, jax.tree.map(lambda leaf, index=index: leaf[index], trajectories))
        for index in range(number)
    ]


@functools.cache
def _trial_program() -> Any:
    """Returns the program that plays consecutive episodes of one environment [number, T, 1, ...].

    It is compiled for a short compile time.
    """
    import jax
    import jax.numpy as jnp

    from hopplus.core.compilation import quick_options
    from hopplus.rollouts import init_rollout, play_episodes

    def play(key: Any, game: "Game[Any]", cast: Any, number: int, params: Any) -> Any:
        keys = jnp.stack([key, *(jax.random.fold_in(key, index) for index in range(1, number))])
        memories = init_rollout(key, game, cast, 1, params).memories

        def episode(memories: Any, episode_key: Any) -> Any:
            return play_episodes(episode_key, game, cast, 1, params, memories)

        return jax.lax.scan(episode, memories, keys)[1]

    return jax.jit(play, static_argnames=("game", "cast", "number"), compiler_options=quick_options())


def _frames(game: "Game[Any]", seated: "SeatedCast", trajectory: Any) -> list[Frame]:
    import jax
    import numpy as np

    frames = []
    for step in range(int(np.argmax(trajectory.over[:, 0])) + 2):
        if step < len(trajectory.over):
            state = jax.tree.map(lambda leaf, step=step: leaf[step, 0], trajectory.state)
        else:
            state = jax.tree.map(lambda leaf: leaf[0], trajectory.last_state)
        frame = frame_of(
            game,
            state,
            title=game.name,
            rewards=trajectory.reward[step - 1, 0] if step else np.zeros(game.num_players),
            totals=trajectory.total_reward[step - 1, 0] if step else np.zeros(game.num_players),
            player_names=seated.cast.names,
            reasoning=frame_reasoning(game, seated.cast, trajectory, step),
        )
        frames.append(frame)
    return frames


def replays(run: "Run", sets: int) -> list[dict[str, Any]]:
    """Returns replays of the first seed of a run for the viewer: self-play, and trials with held-out co-players."""
    from hopplus.games import make

    game, policies = make(run.config["training"]["game"]), run.policies()
    return [
        {"title": f"{title}, episode {number}", **for_viewer(frames)}
        for title, seated in _casts(game, lambda seat: run.seated(policies, seat), sets)
        for number, frames in enumerate(_play_trial(game, seated), start=1)
    ]


def compile_replays(run: "Run", params: Any, sets: int) -> None:
    """Compiles the programs of `replays`, while the run still trains.

    Args:
        run: Run in training.
        params: Parameters of a seed [P, ...]; only their shapes matter.
        sets: Held-out sets, as in `replays`.
    """
    from hopplus.games import make

    game, policies = make(run.config["training"]["game"]), run.policies_of(params)
    for _, seated in _casts(game, lambda seat: run.seated(policies, seat), sets):
        _play_trial(game, seated)


def _play_trial(game: "Game[Any]", seated: "SeatedCast") -> list[list[Frame]]:
    return episodes_of(game, seated, seed=1, number=TRIAL_EPISODES)


def _casts(game: "Game[Any]", policy: "Callable[[int], Policy]", sets: int) -> "Iterator[tuple[str, SeatedCast]]":
    """Yields titled casts: self-play, and the policy in one seat with each of the first held-out sets."""
    from hopplus.core.specs import Spec
    from hopplus.evaluation.co_player_sets import sets_of
    from hopplus.players import CastSpec
    from hopplus.training.casting import seat_cast

    size = game.num_players - 1
    held_out = [
        co_players
        for co_players in sets_of(game).values()
        if co_players.split == "held-out" and len(co_players.players) == size
    ]
    casts = {"with itself": (Spec("self"),) * size}
    casts |= {f"with {co_players.name}": co_players.players for co_players in held_out[:sets]}
    for title, players in casts.items():
        yield title, seat_cast(CastSpec((Spec("self"), *players)), game, policy)


def for_viewer(frames: Sequence[Frame]) -> dict[str, Any]:
    """Returns an episode as plain values for the replay viewer.

    Returns:
        `players` and `goals`, each with `name` and `colour`; `steps`, a list with the keys of `Frame.figures`, `board`
        (SVG), `description` (text) and `plan_texts`, two lines about the base plan of each planner that chose one, by
        seat.
    """
    first = frames[0]
    goals = first.reasoning.goals if first.reasoning else ()
    return {
        "players": [{"name": name, "colour": seat_colour(seat)} for seat, name in enumerate(first.player_names)],
        "goals": [{"name": name, "colour": goal_colour(name, number)} for number, name in enumerate(goals)],
        "steps": [
            {
                **_rounded(frame.figures()),
                "board": shapes_as_svg(board_of(frame), "Board"),
                "description": describe(frame),
                "plan_texts": _plan_texts(frame),
            }
            for frame in frames
        ],
    }


def _plan_texts(frame: Frame) -> dict[int, list[str]]:
    reasonings = frame.reasoning.reasonings if frame.reasoning else {}
    return {
        seat: [describe_choice(reasoning.plan.choice), describe_base_plans(reasoning.plan.choice)]
        for seat, reasoning in reasonings.items()
        if reasoning.plan and reasoning.plan.choice
    }


def _rounded(value: Any) -> Any:
    """Rounds all floats to the digits that a page shows."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value

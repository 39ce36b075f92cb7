"""Behaviour clones from recorded games: the parameters of a `BehaviorClone`."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.core.errors import InputError
from hopplus.games import GridGame
from hopplus.players.cast import observation_of
from hopplus.players.clone import BehaviorClone, clone_features
from hopplus.players.human import YOU
from hopplus.rollouts.dataset import open_dataset
from hopplus.training.policies import Policy

MAX_ROWS = 1024
"""Maximum number of recorded steps in a clone; of more steps, an evenly spread subset."""


def load_clone(path: str, kind: str = YOU) -> Policy:
    """Returns a clone of the players of one agent type in a dataset, augmented by the symmetries of the board.

    InputError where the path is no dataset or has no player of the type.
    """
    dataset = open_dataset(Path(path))
    game, recorded = dataset.game, dataset.load()
    if not isinstance(game, GridGame):
        raise InputError(f"a behaviour clone needs a grid game, and {game.name} is none")
    present = [name for number, name in enumerate(dataset.agent_types) if (recorded.agent_types == number).any()]
    if kind not in present:
        raise InputError(f"{path} has no player {kind!r}: clone({path},kind=...) takes one of {', '.join(present)}")
    is_type = recorded.agent_types == dataset.agent_types.index(kind)
    time, episode, seat = np.nonzero(np.asarray(recorded.trajectory.alive) & is_type)
    subset = np.linspace(0, len(time) - 1, min(len(time), MAX_ROWS)).astype(int)
    time, episode, seat = time[subset], episode[subset], seat[subset]
    states = jax.tree.map(lambda leaf: leaf[time, episode], recorded.trajectory.state)
    actions = np.asarray(recorded.trajectory.actions)[time, episode, seat]
    return Policy(
        algorithm=BehaviorClone.name,
        settings={"kind": kind},
        game=dataset.header["game"],
        seed=0,
        seat=int(seat.min()),
        params={
            "features": np.concatenate(np.asarray(_features(states, seat, game))),
            "actions": np.concatenate(
                [side.actions(game.num_actions)[actions] for side in game.symmetries], dtype=np.int32
            ),
        },
    )


@partial(jax.jit, static_argnames="game")
def _features(states: Any, seats: Int[Array, " N"], game: GridGame) -> Float[Array, "sides N F"]:
    """Features of the seats in states [N], under every symmetry of the board."""
    observation = jax.vmap(lambda state, seat: observation_of(game.observe(state), seat))(states, seats)
    cells = np.arange(game.num_cells).reshape(game.height, game.width)
    from_sides = np.stack([side.board(cells) for side in game.symmetries])
    boards = observation.board.reshape(len(seats), game.num_cells, -1)[:, from_sides]
    features = jax.vmap(partial(clone_features, game))
    return jax.vmap(lambda grid: features(replace(observation, grid=grid)), in_axes=1)(boards)

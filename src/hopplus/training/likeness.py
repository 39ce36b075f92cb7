"""What somebody did in recorded games as a policy: the params of a `Likeness`."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games import GridGame
from hopplus.play.dataset import open_dataset
from hopplus.players.cast import observation_of
from hopplus.players.likeness import Likeness, situation
from hopplus.players.person import YOU
from hopplus.training.policies import Policy

MOST = 1024
"""Steps that are kept: where more were recorded, so many of them, evenly spread."""


def load_likeness(path: str, kind: str = YOU) -> Policy:
    """What the players of a kind did in a dataset, seen from every side of the board, so that a few games teach more;
    InputError where it is none, or nobody of that kind sat in it."""
    dataset = open_dataset(Path(path))
    game, recorded = dataset.game, dataset.load()
    if not isinstance(game, GridGame):
        raise InputError(f"a likeness needs a game on a grid, and {game.name} is not one")
    there = [name for number, name in enumerate(dataset.kinds) if (recorded.kinds == number).any()]
    if kind not in there:
        raise InputError(f"nobody in {path} is {kind!r}: likeness({path},kind=...) names one of {', '.join(there)}")
    is_kind = recorded.kinds == dataset.kinds.index(kind)
    time, episode, seat = np.nonzero(np.asarray(recorded.episode.alive) & is_kind)
    kept = np.linspace(0, len(time) - 1, min(len(time), MOST)).astype(int)
    time, episode, seat = time[kept], episode[kept], seat[kept]
    states = jax.tree.map(lambda leaf: leaf[time, episode], recorded.episode.state)
    actions = np.asarray(recorded.episode.actions)[time, episode, seat]
    return Policy(
        recipe=Likeness.name,
        settings={"kind": kind},
        game=dataset.header["game"],
        seed=0,
        seat=int(seat.min()),
        params={
            "features": np.concatenate(np.asarray(_situations(states, seat, game))),
            "actions": np.concatenate(
                [side.actions(game.num_actions)[actions] for side in game.symmetries], dtype=np.int32
            ),
        },
    )


@partial(jax.jit, static_argnames="game")
def _situations(states: Any, seats: Int[Array, " N"], game: GridGame) -> Float[Array, "sides N F"]:
    """The situations of players in states [N], on the board as it is and as it is from every other side."""
    seen = jax.vmap(lambda state, seat: observation_of(game.observe(state), seat))(states, seats)
    cells = np.arange(game.num_cells).reshape(game.height, game.width)
    from_sides = np.stack([side.board(cells) for side in game.symmetries])
    boards = seen.grid.reshape(len(seats), game.num_cells, -1)[:, from_sides]
    situations = jax.vmap(partial(situation, game))
    return jax.vmap(lambda grid: situations(replace(seen, grid=grid)), in_axes=1)(boards)

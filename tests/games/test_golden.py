"""Golden playthroughs, one per game and version: if one changes, so must the game's version.

To record a new version: python tests/games/test_golden.py
"""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games
from hopplus.core.keys import choose

FOLDER = Path(__file__).parent.parent / "golden"
SETTINGS = [
    *games.names(),
    "msh-4x4-4h1s:stag_needs_company=false:dynamic_end=true",
    "msh-6x6-4h1s:strengths=(3,1,0,2):prosocial=(1,)",
]


def path_of(game: games.Game[Any]) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in game.name)
    return FOLDER / f"{safe}.v{game.version}.json"


@functools.partial(jax.jit, static_argnames="game")
def played(game: games.Game[Any]) -> tuple[games.Observation, tuple[Any, ...]]:
    """First observation, then actions, outcomes and next observations [T, ...] of random legal play."""

    def step(state: Any, time: jax.Array) -> tuple[Any, tuple[Any, ...]]:
        key = jax.random.fold_in(jax.random.key(1), time)
        actions = choose(jax.random.bits(key, (game.num_players,)), game.legal(state))
        state, outcome = game.step(key, state, actions)
        return state, (actions, outcome, game.observe(state))

    first = game.init(jax.random.key(0))
    return game.observe(first), jax.lax.scan(step, first, jnp.arange(game.last_step))[1]


def playthrough(game: games.Game[Any]) -> dict[str, Any]:
    """One episode of random legal actions from seed 0, with all observations and outcomes."""
    assert isinstance(game, games.GridGame)
    first, steps = jax.tree.map(np.asarray, played(game))
    record: dict[str, Any] = {
        "game": game.name,
        "version": game.version,
        "channels": list(game.channel_names),
        "first_grid": ["".join(map(str, row)) for row in first.grid[0].reshape(-1, first.grid.shape[-1])],
        "steps": [],
    }
    for time in range(game.last_step):
        actions, outcome, observation = jax.tree.map(lambda leaf, time=time: leaf[time], steps)
        record["steps"].append(
            {
                "actions": actions.tolist(),
                "reward": outcome.reward.tolist(),
                "left": outcome.left.astype(int).tolist(),
                "took": outcome.took.tolist(),
                "cells": cells(observation.grid, game.num_players),
                "legal": ["".join(map(str, row)) for row in observation.legal[0].astype(int)],
                "deadline": int(observation.deadline[0]),
            }
        )
        if outcome.over:
            break
    return record


def cells(grid: np.ndarray, players: int) -> list[int]:
    """Cell of each player as observed by seat 0; -1 if it has left."""
    planes = np.moveaxis(grid[0], -1, 0).reshape(grid.shape[-1], -1)[:players]
    return [int(np.argmax(plane)) if plane.any() else -1 for plane in planes]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_game_reproduces_its_recorded_playthrough(setting: str) -> None:
    game = games.make(setting)
    path = path_of(game)
    assert path.exists(), f"record the playthrough of {game.name} version {game.version}: python {__file__}"
    assert playthrough(game) == json.loads(path.read_text())


if __name__ == "__main__":
    for setting in SETTINGS:
        game = games.make(setting)
        if not path_of(game).exists():
            path_of(game).write_text(json.dumps(playthrough(game)).replace('{"actions"', '\n{"actions"') + "\n")
            print(path_of(game))

"""Golden playthroughs, one a game and version: if one changes, so must the game's version.

To record a new version: python tests/test_golden.py
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games
from hopplus.keys import choose

FOLDER = Path(__file__).parent / "golden"
SETTINGS = [
    *games.names(),
    "msh-4x4-4h1s:stag_needs_company=false:dynamic_end=true",
    "msh-6x6-4h1s:strengths=(3,1,0,2):prosocial=(1,)",
]


def path_of(game: games.Game[Any]) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in game.name)
    return FOLDER / f"{safe}.v{game.version}.json"


def playthrough(game: games.Game[Any]) -> dict[str, Any]:
    """One episode of random legal actions from seed 0, with everything that a player sees and gets."""
    step = jax.jit(game.step)
    state = jax.jit(game.init)(jax.random.key(0))
    seen = game.observe(state)
    record: dict[str, Any] = {
        "game": game.name,
        "version": game.version,
        "channels": list(game.channel_names),
        "first_grid": ["".join(map(str, row)) for row in np.asarray(seen.grid[0]).reshape(-1, seen.grid.shape[-1])],
        "steps": [],
    }
    for time in range(game.last_step):
        key = jax.random.fold_in(jax.random.key(1), time)
        actions = choose(jax.random.bits(key, (game.num_players,)), game.legal(state))
        state, outcome = step(key, state, actions)
        seen = game.observe(state)
        record["steps"].append(
            {
                "actions": np.asarray(actions).tolist(),
                "reward": np.asarray(outcome.reward).tolist(),
                "left": np.asarray(outcome.left).astype(int).tolist(),
                "took": np.asarray(outcome.took).tolist(),
                "cells": cells(seen.grid, game.num_players),
                "legal": ["".join(map(str, row)) for row in np.asarray(seen.legal[0]).astype(int)],
                "deadline": int(seen.deadline[0]),
            }
        )
        if bool(outcome.over):
            break
    return record


def cells(grid: jnp.ndarray, players: int) -> list[int]:
    """Where seat 0 sees each player; -1 where it does not."""
    planes = np.moveaxis(np.asarray(grid[0]), -1, 0).reshape(grid.shape[-1], -1)[:players]
    return [int(np.argmax(plane)) if plane.any() else -1 for plane in planes]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_game_plays_as_it_did_when_its_version_was_recorded(setting: str) -> None:
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

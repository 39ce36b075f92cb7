"""The PettingZoo adapter: PettingZoo's API tests, and further ones."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from hopplus import games
from hopplus.adapters.pettingzoo import HopplusParallelEnv, parallel_env
from hopplus.core.errors import InputError
from toy_games import Medley

LONG_PLAY = """
import sys; sys.path.insert(0, {tests!r})
from adapters.test_pettingzoo import play_digest
print(play_digest({name!r}, seed=11, steps=300))
"""


def random_actions(
    env: HopplusParallelEnv, observations: dict[str, Any], generator: np.random.Generator
) -> dict[str, int]:
    """A random legal action for every agent."""
    return {agent: int(generator.choice(np.flatnonzero(observations[agent]["action_mask"]))) for agent in env.agents}


def play_digest(name: str, seed: int, steps: int) -> str:
    """Hash of all observations and rewards over many steps and episodes."""
    env, generator, digest = parallel_env(name), np.random.default_rng(seed), hashlib.sha256()
    observations, _ = env.reset(seed=seed)
    for _ in range(steps):
        if not env.agents:
            observations, _ = env.reset()
        observations, rewards, *_ = env.step(random_actions(env, observations, generator))
        for agent in sorted(observations):
            for field in sorted(observations[agent]):
                digest.update(np.ascontiguousarray(observations[agent][field]).tobytes())
            digest.update(repr(rewards[agent]).encode())
    return digest.hexdigest()


@pytest.mark.parametrize("name", games.names())
def test_pettingzoo_accepts_every_game(name: str) -> None:
    parallel_api_test(parallel_env(name), num_cycles=60)


def test_the_same_seed_gives_the_same_play() -> None:
    parallel_seed_test(lambda: parallel_env("msh-4x4-4h1s"))
    assert play_digest("msh-4x4-4h1s", 1, 100) != play_digest("msh-4x4-4h1s", 2, 100)


def test_two_processes_play_the_same_over_many_steps() -> None:
    digest = play_digest("msh-4x4-4h1s", seed=11, steps=300)
    code = LONG_PLAY.format(tests=str(Path(__file__).parent.parent), name="msh-4x4-4h1s")
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.split()[-1] == digest


def test_an_agent_that_leaves_the_grid_leaves_the_agents() -> None:
    env = parallel_env("msh-4x4-4h1s")
    env.reset(seed=0)
    game = env.game
    env._state = game.from_layout(players=[(0, 0), (1, 1), (1, 1), (3, 3)], stags=[(1, 1)], hares=[(0, 0)], time=33)  # pyright: ignore
    env._steps = 33
    _, rewards, terminations, truncations, infos = env.step(
        {"player_0": 6, "player_1": 5, "player_2": 5, "player_3": 4}
    )
    assert rewards == {"player_0": 1.0, "player_1": 5.0, "player_2": 5.0, "player_3": 0.0}
    assert terminations == {"player_0": True, "player_1": True, "player_2": True, "player_3": False}
    assert not any(truncations.values())
    assert infos["player_1"] == {"took": "stag"}
    assert env.agents == ["player_3"]
    observations, _, terminations, truncations, _ = env.step({"player_3": 4})
    assert truncations == {"player_3": True}, "the end at T is a truncation to PettingZoo's users"
    assert terminations == {"player_3": False}
    assert list(observations) == ["player_3"]
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})


def test_observations_are_those_of_the_game() -> None:
    env = parallel_env("msh-4x4-4h1s")
    observations, _ = env.reset(seed=3)
    expected = jax.jit(env.game.observe)(env._state)
    for seat, agent in enumerate(env.agents):
        np.testing.assert_array_equal(observations[agent]["observation"], expected.grid[seat])
        np.testing.assert_array_equal(observations[agent]["action_mask"], expected.legal[seat, 0])
        np.testing.assert_array_equal(observations[agent]["co_player_masks"], expected.legal[seat, 1:])
        assert env.observation_space(agent).contains(observations[agent])


def test_boards_can_be_rendered() -> None:
    env = parallel_env("msh-4x4-4h1s", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.ndim == 3
    text = parallel_env("msg-4x4", render_mode="ansi")
    text.reset(seed=0)
    assert "*" in str(text.render())
    assert parallel_env("msg-4x4").render() is None


def test_mistakes_raise_an_input_error() -> None:
    with pytest.raises(InputError, match="render_mode"):
        parallel_env("msh-4x4-4h1s", render_mode="human")
    env = parallel_env("msh-4x4-4h1s")
    env.reset(seed=0)
    with pytest.raises(InputError, match="one action for each"):
        env.step({"player_0": 4})
    with pytest.raises(InputError, match="one whole number"):
        env.step({agent: np.array([4, 4]) for agent in env.agents})  # pyright: ignore[reportArgumentType]


def test_a_game_without_a_board_observes_its_view() -> None:
    env = HopplusParallelEnv(Medley())
    parallel_api_test(env, num_cycles=20)
    observations, _ = env.reset(seed=0)
    assert observations["player_0"]["observation"].shape == (12,)
    assert env.observation_space("player_0").contains(observations["player_0"])

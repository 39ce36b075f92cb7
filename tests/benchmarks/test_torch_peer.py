"""PyTorch peer of the PPO benchmark: its NumPy game equals ours, and its training runs."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.benchmarks.numpy_stag_hunt import ACTIONS, NumpyStagHunt
from hopplus.benchmarks.torch_ppo import train
from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.games.game import Game
from hopplus.games.stag_hunt import HARE, STAG

ENVIRONMENTS = 32
STEPS = 100
SETTINGS = {
    "msh-4x4-4h1s": {},
    "msh-4x4-2h1s": {"players": 2, "hares": 2},
    "msh-4x4-4h1s:height=3:width=5:stags=2:hares=3:T=20": {"height": 3, "width": 5, "stags": 2, "hares": 3, "T": 20},
}


def our_state(game: Game[Any], width: int, peer: NumpyStagHunt, environment: int) -> Any:
    """Returns the peer's state of one environment as a state of our game."""

    def cells_of(board: np.ndarray) -> list[tuple[int, int]]:
        return [divmod(int(cell), width) for cell in np.flatnonzero(board[:-1])]

    cells = peer.cells[environment].tolist()
    return game.from_layout(
        players=[None if cell < 0 else divmod(cell, width) for cell in cells],
        stags=cells_of(peer.stags[environment]),
        hares=cells_of(peer.hares[environment]),
        time=int(peer.time[environment]),
    )


def replace_rows(states: Any, rows: np.ndarray, new: list[Any]) -> Any:
    """Returns states [E, ...] as NumPy arrays, with some rows replaced."""
    fresh = jax.tree.map(lambda *leaves: np.stack(leaves), *new)

    def replaced(old: Any, new: np.ndarray) -> np.ndarray:
        leaf = np.array(old)
        leaf[rows] = new
        return leaf

    return jax.tree.map(replaced, states, fresh)


@functools.partial(jax.jit, static_argnames="game")
def our_step(game: Game[Any], states: Any, actions: jax.Array) -> tuple[Any, Any, Any, Any]:
    """Returns observations and legal actions of states, the next states, and the outcome of the step."""
    after, outcome = jax.vmap(game.step, in_axes=(None, 0, 0))(jax.random.key(0), states, actions)
    return jax.vmap(game.observe)(states), jax.vmap(game.legal)(states), after, outcome


def eager_actions(generator: np.random.Generator, legal: np.ndarray) -> np.ndarray:
    """Returns legal joint actions [E, n] that often hunt, with one in ten replaced by any number."""
    score = generator.random(legal.shape) + 0.3 * np.isin(np.arange(ACTIONS), (STAG, HARE))
    chosen = np.where(legal, score, -1).argmax(-1)
    arbitrary = generator.integers(-1, ACTIONS + 1, chosen.shape)
    return np.where(generator.random(chosen.shape) < 0.9, chosen, arbitrary)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_numpy_game_equals_our_game(setting: str) -> None:
    """Both games play from the same first states, copied from the peer after every episode."""
    options = SETTINGS[setting]
    game, width = make(setting), options.get("width", 4)
    peer = NumpyStagHunt(ENVIRONMENTS, seed=1, **options)
    layouts = [our_state(game, width, peer, environment) for environment in range(ENVIRONMENTS)]
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *layouts)
    generator = np.random.default_rng(2)
    ends_at_deadline = ends_by_leaving = lone_stag_hunts = 0
    rewards: set[float] = set()
    for _ in range(STEPS):
        legal, features, alive, time = peer.legal().copy(), peer.features(), peer.alive(), peer.time.copy()
        actions = eager_actions(generator, legal)
        observation, our_legal, after, outcome = our_step(game, states, jnp.asarray(actions, jnp.int32))
        grid = np.asarray(observation.grid)
        np.testing.assert_array_equal(legal, our_legal)
        np.testing.assert_array_equal(features[..., : -1 - ACTIONS], grid.reshape(*grid.shape[:2], -1))
        np.testing.assert_allclose(features[..., -1 - ACTIONS], np.asarray(observation.time) / game.last_step)
        np.testing.assert_array_equal(features[..., -ACTIONS:], np.asarray(observation.legal)[:, :, 0])
        np.testing.assert_array_equal(alive, np.asarray(states.cells) >= 0)

        reward, done, over = peer.step(actions)
        np.testing.assert_array_equal(reward, outcome.reward)
        np.testing.assert_array_equal(over, outcome.over)
        np.testing.assert_array_equal(done, np.asarray(outcome.left | outcome.over[:, None]))
        if over.any():
            finished = np.flatnonzero(over)
            after = replace_rows(after, finished, [our_state(game, width, peer, row) for row in finished.tolist()])
        states = after

        left = np.asarray(outcome.left)
        ends_at_deadline += (over & ~left.all(-1)).sum()
        ends_by_leaving += (left.all(-1) & (time + 1 < game.last_step)).sum()
        pressed = np.take_along_axis(legal, np.clip(actions, 0, ACTIONS - 1)[..., None], -1)[..., 0] & (actions == STAG)
        lone_stag_hunts += (pressed & (reward == 0)).sum()
        rewards |= set(reward.reshape(-1).tolist())
    assert ends_at_deadline
    assert ends_by_leaving
    assert lone_stag_hunts
    assert {0.0, 0.5, 1.0, 5.0} <= rewards


def test_fresh_states_of_the_numpy_game() -> None:
    peer = NumpyStagHunt(4000, seed=0)
    assert (peer.stags.sum(-1) == 1).all()
    assert (peer.hares.sum(-1) == 4).all()
    assert not (peer.stags & peer.hares).any()
    for board, share in ((peer.stags, 1 / 16), (peer.hares, 4 / 16)):
        np.testing.assert_allclose(board[:, :-1].mean(0), share, atol=5 * math.sqrt(share * (1 - share) / 4000))
    standing = np.bincount(peer.cells.reshape(-1), minlength=16) / 16000
    np.testing.assert_allclose(standing, 1 / 16, atol=5 * math.sqrt(1 / 16 / 16000))


def test_prey_must_fit() -> None:
    with pytest.raises(InputError, match="do not fit on 4 cells"):
        NumpyStagHunt(1, seed=0, height=2, width=2)


TINY: dict[str, Any] = {
    "num_envs": 8,
    "steps": 36,
    "iterations": 4,
    "update_epochs": 2,
    "minibatches": 2,
    "hidden": (16, 16),
    "learning_rate": 1e-3,
    "gamma": 0.97,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "threads": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("independent", [True, False])
def test_training_runs(independent: bool) -> None:
    pytest.importorskip("torch")
    result = train(**TINY, independent=independent)
    assert result["torch_version"]
    figures = [result[name] for name in ("steps_per_second", "play_seconds", "learn_seconds", "mean_return")]
    assert np.isfinite(figures).all()
    assert min(figures) > 0
    assert train(**TINY, independent=independent)["mean_return"] == result["mean_return"]


def test_a_training_without_a_timed_iteration_is_rejected() -> None:
    with pytest.raises(InputError, match="at least 2"):
        train(**{**TINY, "iterations": 1}, independent=True)

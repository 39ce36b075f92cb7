"""A game without a board: its laws, its picture, its PettingZoo environment, and every algorithm."""

from typing import Any

import jax
import numpy as np
import pytest

from common import kept_registries
from hopplus import games
from hopplus.algorithms import make_algorithm
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.networks.encoders import encode
from hopplus.training.experiment import prepare
from hopplus.visualization import as_text, frame_of
from toy_games import Medley

SMALL = {"num_envs": 4, "num_steps": 8, "hidden": (8,)}


@pytest.fixture(autouse=True)
def medley() -> Any:
    """Registers the toy game for one test."""
    with kept_registries():
        games.register("test-medley", Medley)
        yield


def test_the_laws_of_a_game_hold_without_a_board() -> None:
    games.check_game(Medley())


@pytest.mark.parametrize("encoder", ["centred", "full", "dense"])
def test_features_begin_with_the_view_and_end_with_clock_and_legal_actions(encoder: Any) -> None:
    seen = games.one_seat(Medley().observe(Medley().init(jax.random.key(3))), 1)
    features = encode(seen, 2, encoder)
    extra = 2 * 4 + 1 if encoder == "full" else 0
    assert features.shape == (12 + extra + 2 + 4,)
    np.testing.assert_array_equal(features[:12], seen.view)
    np.testing.assert_array_equal(features[-4:], seen.legal[0])


def test_players_without_a_board_are_drawn_in_a_row_until_they_leave() -> None:
    game, state = Medley(), Medley().init(jax.random.key(0))
    frame = frame_of(game, state)
    assert (frame.height, frame.width, frame.players) == (1, 2, ((0, 0), (0, 1)))
    assert "0" in as_text(frame)
    gone = frame_of(game, type(state)(**{**vars(state), "gone": np.array([True, False])}))
    assert gone.players == (None, (0, 1))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ppo", {}),
        ("recurrent", {}),
        ("liam", {}),
        ("hopplus", {"goals": "codes", "moa_hidden": (8,)}),
        ("hopplus", {"goals": "gaussian", "moa_hidden": (8,), "encoder": "full"}),
        ("hop", {"goals": "none", "moa_hidden": (8,), "simulations": 2}),
    ],
)
def test_every_algorithm_takes_a_training_step(name: str, settings: dict[str, Any]) -> None:
    """The step is traced, not compiled: its shapes show that nothing asks for a board."""
    algorithm = make_algorithm(name, {**SMALL, **settings})
    experiment = prepare(TrainingConfig(game="test-medley", steps=1000), algorithm)
    phase, frozen = experiment.phases[0][1], experiment.frozen_params()
    state = jax.eval_shape(lambda key: algorithm.init(key, phase, frozen), jax.random.key(0))
    after, trajectory, metrics = jax.eval_shape(lambda state: algorithm.train_step(state, phase, frozen), state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert trajectory.actions.shape == (8, 4, 2)
    assert metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goals": "prey"}, "has nothing to take"),
        ({"goals": "codes", "world": "learned"}, "a world model needs a grid game"),
    ],
)
def test_what_needs_a_board_says_so(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(TrainingConfig(game="test-medley", steps=1000), make_algorithm("hopplus", settings))

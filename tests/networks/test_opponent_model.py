"""Opponent models by name: registration, checks, and the same losses and beliefs for all networks."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import kept_registries
from hopplus.algorithms import make_algorithm
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.models import MOA, make_model
from hopplus.networks.encoders import ILLEGAL, encode, legal_actions, scaled
from hopplus.networks.opponent_model import ActionModel, register_opponent_model
from hopplus.networks.sparse_first_layer import SparseInputs

GAME = make("msh-4x4-2h1s")


class Linear(nn.Module):
    """One layer; its name is that of the first layer of the package's networks."""

    num_actions: int
    goals: int

    @nn.compact
    def __call__(self, features: Any) -> Any:
        outputs = nn.Dense(self.goals * self.num_actions, name="hidden_0")(scaled(features, self.num_actions) ** 2)
        logits = outputs.reshape(*features.shape[:-1], self.goals, self.num_actions)
        return jnp.where(legal_actions(features, self.num_actions)[..., None, :], logits, ILLEGAL)


class Narrow(Linear):
    """One action too few."""

    @nn.compact
    def __call__(self, features: Any) -> Any:
        return super().__call__(features)[..., 1:]


@pytest.fixture(autouse=True)
def registered() -> Any:
    with kept_registries():
        register_opponent_model("linear", lambda game, goals, hidden: Linear(game.num_actions, goals))
        register_opponent_model("narrow", lambda game, goals, hidden: Narrow(game.num_actions, goals))
        yield


def test_the_default_is_the_action_model() -> None:
    assert MOA(codes=3, hidden=(8,)).network(GAME) == ActionModel(GAME.num_actions, 3, hidden=(8,))
    algorithm: Any = make_algorithm("hopplus", {"moa": "linear"})
    assert isinstance(algorithm.player(GAME, "x").tracker.opponent_model.network, Linear)


def test_unknown_and_unfit_models_are_rejected() -> None:
    for settings, sentence in (
        ({"moa": "liner"}, r"there is no opponent model 'liner' \(did you mean 'linear'\?\)"),
        (
            {"moa": "narrow", "goals": "codes"},
            r"'narrow' maps features \[2, F\] to \(2, 4, 6\), not to logits \(2, 4, 7\)",
        ),
        ({"moa": "linear", "goals": "gaussian"}, "goals gaussian has a network of its own"),
    ):
        with pytest.raises(InputError, match=sentence):
            make_algorithm("hopplus", settings).check([GAME])
        with pytest.raises(InputError, match=sentence):
            make_model("moa", settings).check(GAME)
    with pytest.raises(InputError, match="already known"):
        register_opponent_model("mlp", lambda game, goals, hidden: Linear(game.num_actions, goals))


def test_a_model_of_ones_own_gets_the_whole_board() -> None:
    """Only networks of the package read sparse boards: any other would see an empty board."""
    moa = MOA(moa="linear", codes=3)
    model = OpponentModel(GAME, "codes", moa.network(GAME), 3)
    state = GAME.init(jax.random.key(0))
    observations = GAME.observe(state)
    inputs = model.sparse_inputs(observations, state)
    assert not isinstance(inputs, SparseInputs)
    params = moa.init_params(jax.random.key(1), GAME)["network"]
    logits: Any = model.network.apply({"params": params}, encode(observations, GAME.last_step)[1:])
    expected = jax.nn.softmax(logits)
    np.testing.assert_allclose(model.policies(params, inputs), expected, rtol=1e-6)
    default = OpponentModel(GAME, "codes", MOA(codes=3).network(GAME), 3)
    assert isinstance(default.sparse_inputs(observations, state), SparseInputs)

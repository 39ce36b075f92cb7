"""The sparse first layer equals the dense one on the board's features."""

import functools
from collections.abc import Callable
from typing import Any, Literal, cast

import jax
import numpy as np
import pytest

from common import hopplus, played_states
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.hopplus import HopPlus
from hopplus.algorithms.hopplus.acting import make_belief_tracker, make_moa
from hopplus.games import Game, GridState, make
from hopplus.games.game import one_seat
from hopplus.networks.sparse_first_layer import sparse_board, sparse_inputs

GAMES = ("msh-4x4-4h1s", "msh-8x8-4h2s", "msg-4x4")
MODELS: dict[str, dict[str, Any]] = {
    "codes": {"goals": "codes"},
    "gaussian": {"goals": "gaussian"},
    "each": {"moa_networks": "each"},
}
ENCODERS: tuple[Literal["centred", "dense", "full"], ...] = ("centred", "dense", "full")


def states_of(game: Game[Any]) -> GridState:
    """States [N] from all times of episodes; in a stag hunt, some players have left."""
    states: GridState = jax.tree.map(lambda leaf: np.asarray(leaf)[::6], played_states(game)[0])
    left = np.asarray(states.cells) < 0
    assert left.any() != game.name.startswith("msg")
    return states


def random_params(function: Callable[[], Any], *batch: int) -> Any:
    """Random parameters in the shapes of those that a function returns; nonzero, so that a missing part is detected."""
    generator, shapes = np.random.default_rng(7), jax.eval_shape(function)
    return jax.tree.map(lambda leaf: 0.2 * generator.normal(size=(*batch, *leaf.shape)).astype(leaf.dtype), shapes)


@functools.cache
def co_players_policies(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per opponent model, the co-players' policies from features and from sparse inputs; one program per game."""
    game = make(name)
    algorithms = {model: hopplus(**settings) for model, settings in MODELS.items()}
    opponent_models = {
        model: make_belief_tracker(algorithm, game).opponent_model for model, algorithm in algorithms.items()
    }
    params, particles = {}, {}
    for model, algorithm in algorithms.items():
        opponent_model, network = opponent_models[model], cast(Any, make_moa(algorithm).network(game))
        batch = (3,) if opponent_model.network_per_co_player else ()
        params[model] = random_params(
            lambda algorithm=algorithm: make_moa(algorithm).init_params(jax.random.key(0), game)["network"], *batch
        )
        size = (3, opponent_model.num_goals, network.latent) if opponent_model.space == "gaussian" else 0
        particles[model] = np.random.default_rng(1).normal(size=size).astype(np.float32) if size else None

    def both(state: Any, params: Any) -> Any:
        observation = game.observe(state)
        return {
            model: tuple(
                opponent_model.policies(params[model], inputs, particles[model])
                for inputs in (opponent_model.features(observation), opponent_model.sparse_inputs(observation, state))
            )
            for model, opponent_model in opponent_models.items()
        }

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(both, (0, None)))(states_of(game), params))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("model", MODELS)
def test_policies_of_co_players_from_sparse_inputs_equal_those_from_features(name: str, model: str) -> None:
    by_features, by_sparse_inputs = co_players_policies(name)[model]
    assert by_features.std(0).max() > 1e-3
    np.testing.assert_allclose(by_sparse_inputs, by_features, atol=1e-5)


@functools.cache
def ego_evaluations(name: str) -> dict[str, tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """Per encoder, the ego's policy and value from features and from sparse inputs; one program per game."""
    game = make(name)
    algorithms = {encoder: HopPlus(encoder=encoder) for encoder in ENCODERS}
    players = {encoder: algorithm.player(game, "") for encoder, algorithm in algorithms.items()}
    simulations = {encoder: player.simulation for encoder, player in players.items()}
    policies = {
        encoder: random_params(
            lambda algorithm=algorithm: initial_params(algorithm.network(game), game, jax.random.key(0))
        )
        for encoder, algorithm in algorithms.items()
    }
    moa = random_params(lambda: make_moa(HopPlus()).init_params(jax.random.key(1), game))
    player = players["centred"]

    def both(state: Any, policies: Any, moa: Any) -> Any:
        observation = one_seat(game.observe(state), 0)
        board = jax.tree.map(lambda leaf: leaf[0], sparse_board(game, state))
        params = {"policy": policies["centred"], "moa": moa}
        beliefs = player.view(params, player.init(jax.random.key(2), params), observation).beliefs
        results = {}
        for encoder in ENCODERS:
            by_features = simulations[encoder].evaluate(policies[encoder], observation, beliefs)
            with sparse_inputs(game, board):
                results[encoder] = by_features, simulations[encoder].evaluate(policies[encoder], observation, beliefs)
        return jax.tree.map(lambda values: jax.nn.softmax(values) if values.ndim else values, results)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(both, (0, None, None)))(states_of(game), policies, moa))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_policy_and_value_from_sparse_inputs_equal_those_from_features(name: str, encoder: str) -> None:
    (policy, value), (sparse_policy, sparse_value) = ego_evaluations(name)[encoder]
    np.testing.assert_allclose(sparse_policy, policy, atol=1e-5)
    np.testing.assert_allclose(sparse_value, value, atol=1e-4)
    assert value.std() > 1e-2

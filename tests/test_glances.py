"""What a first layer makes of a board when it is looked up is what it makes of the board's features."""

import functools
from collections.abc import Callable
from typing import Any, Literal, cast

import jax
import numpy as np
import pytest

from common import played_states
from hopplus.games import Game, GridState, make
from hopplus.games.game import one_seat
from hopplus.planning.glances import glances, looking
from hopplus.training.recipe import initial_params
from hopplus.training.recipes.hopplus import HopPlus

GAMES = ("msh-4x4-4h1s", "msh-8x8-4h2s", "msg-4x4")
MODELS: dict[str, dict[str, Any]] = {
    "codes": {"goals": "codes"},
    "gaussian": {"goals": "gaussian"},
    "each": {"moa_networks": "each"},
}
ENCODERS: tuple[Literal["centred", "dense", "full"], ...] = ("centred", "dense", "full")


def states_of(game: Game[Any]) -> GridState:
    """States [N] of all ages, among them, in a hunt, some that players have left."""
    states: GridState = jax.tree.map(lambda leaf: np.asarray(leaf)[::6], played_states(game)[0])
    left = np.asarray(states.cells) < 0
    assert left.any() != game.name.startswith("msg")
    return states


def drawn(function: Callable[[], Any], *batch: int) -> Any:
    """Random parameters in the shapes of those that a function makes, without zeros, lest a part that is left out would
    not show."""
    generator, shapes = np.random.default_rng(7), jax.eval_shape(function)
    return jax.tree.map(lambda leaf: 0.2 * generator.normal(size=(*batch, *leaf.shape)).astype(leaf.dtype), shapes)


@functools.cache
def co_players_policies(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By model of co-players, their policies by features and by a glance; one program a game."""
    game = make(name)
    recipes = {model: HopPlus(**settings) for model, settings in MODELS.items()}
    others = {model: recipe.acquainting(game).others for model, recipe in recipes.items()}
    params, particles = {}, {}
    for model, recipe in recipes.items():
        own, network = others[model], cast(Any, recipe.moa().network(game))
        batch = (3,) if own.one_each else ()
        params[model] = drawn(lambda recipe=recipe: recipe.moa().fresh(jax.random.key(0), game)["network"], *batch)
        size = (3, own.number, network.latent) if own.space == "gaussian" else 0
        particles[model] = np.random.default_rng(1).normal(size=size).astype(np.float32) if size else ()

    def both(state: Any, params: Any) -> Any:
        everybody = game.observe(state)
        return {
            model: tuple(
                own.policies(params[model], seen, particles[model])
                for seen in (own.features(everybody), own.at_a_glance(everybody, state))
            )
            for model, own in others.items()
        }

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(both, (0, None)))(states_of(game), params))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("model", MODELS)
def test_co_players_at_a_glance_do_what_their_features_say(name: str, model: str) -> None:
    by_features, by_glance = co_players_policies(name)[model]
    assert by_features.std(0).max() > 1e-3
    np.testing.assert_allclose(by_glance, by_features, atol=1e-5)


@functools.cache
def own_evaluations(name: str) -> dict[str, tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """By encoder, the own policy and value by features and by a glance; one program a game."""
    game = make(name)
    recipes = {encoder: HopPlus(encoder=encoder) for encoder in ENCODERS}
    planners = {encoder: recipe.player(game, "") for encoder, recipe in recipes.items()}
    planning = {encoder: planners[encoder].planning(recipes[encoder].search_settings(game)) for encoder in ENCODERS}
    policies = {
        encoder: drawn(lambda recipe=recipe: initial_params(recipe.network(game), game, jax.random.key(0)))
        for encoder, recipe in recipes.items()
    }
    moa = drawn(lambda: HopPlus().moa().fresh(jax.random.key(1), game))
    first = planners["centred"]

    def both(state: Any, policies: Any, moa: Any) -> Any:
        seen, own = one_seat(game.observe(state), 0), jax.tree.map(lambda leaf: leaf[0], glances(game, state))
        params = {"policy": policies["centred"], "moa": moa}
        mind = first.look(params, first.init(jax.random.key(2), params), seen).mind
        found = {}
        for encoder in ENCODERS:
            by_features = planning[encoder].evaluate(policies[encoder], seen, mind)
            with looking(game, own):
                found[encoder] = by_features, planning[encoder].evaluate(policies[encoder], seen, mind)
        return jax.tree.map(lambda values: jax.nn.softmax(values) if values.ndim else values, found)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(both, (0, None, None)))(states_of(game), policies, moa))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_own_policy_and_value_at_a_glance(name: str, encoder: str) -> None:
    (policy, value), (policy_looked_up, value_looked_up) = own_evaluations(name)[encoder]
    np.testing.assert_allclose(policy_looked_up, policy, atol=1e-5)
    np.testing.assert_allclose(value_looked_up, value, atol=1e-4)
    assert value.std() > 1e-2

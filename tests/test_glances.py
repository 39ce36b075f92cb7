"""What a first layer makes of a board when it is looked up is what it makes of the board's features."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.games import Game, make
from hopplus.games.game import one_seat
from hopplus.planning.glances import glances, looking
from hopplus.play import rollout, start
from hopplus.players import Cast
from hopplus.players import make as player
from hopplus.training.recipes.hopplus import HopPlus

GAMES = ("msh-4x4-4h1s", "msh-8x8-4h2s", "msg-4x4")


def states_of(game: Game[Any]) -> Any:
    """States of all ages, [T E], among them, in a hunt, some that players have left."""
    cast = Cast((player("random", game),) * 4)
    _, episode = rollout(start(jax.random.key(0), game, cast, 4, ((),) * 4), game, cast, 40, ((),) * 4)
    states = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episode.state)
    assert np.asarray(episode.alive).all() == game.name.startswith("msg")
    return states


def shaken(params: Any) -> Any:
    """Parameters without zeros, lest a part that is left out would not show."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(7), len(leaves))
    return jax.tree.unflatten(
        structure, [leaf + 0.1 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    )


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("settings", [{"goals": "codes"}, {"goals": "gaussian"}, {"moa_networks": "each"}])
def test_co_players_at_a_glance_do_what_their_features_say(name: str, settings: dict[str, Any]) -> None:
    game, recipe = make(name), HopPlus(**settings)
    others = recipe.acquainting(game).others
    network = recipe.moa().network(game)
    models = [shaken(recipe.moa().fresh(jax.random.key(seed), game)["network"]) for seed in range(3)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models) if others.one_each else models[0]
    particles: Any = ()
    if others.space == "gaussian":
        particles = jax.random.normal(jax.random.key(1), (3, others.number, network.latent))  # pyright: ignore[reportAttributeAccessIssue]

    def both(state: Any) -> tuple[jax.Array, jax.Array]:
        everybody = game.observe(state)
        features, glance = others.features(everybody), others.at_a_glance(everybody, state)
        return others.policies(params, features, particles), others.policies(params, glance, particles)

    by_features, by_glance = jax.jit(jax.vmap(both))(states_of(game))
    assert by_features.std(0).max() > 1e-3
    np.testing.assert_allclose(by_glance, by_features, atol=1e-5)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("encoder", ["centred", "dense", "full"])
def test_the_own_policy_and_value_at_a_glance(name: str, encoder: str) -> None:
    game, recipe = make(name), HopPlus(encoder=encoder)  # pyright: ignore[reportArgumentType]
    planner = recipe.player(game, "")
    seen = one_seat(game.observe(game.init(jax.random.key(0))), 0)
    policy = shaken(planner.network.init(jax.random.key(0), seen)["params"])
    params = {"policy": policy, "moa": recipe.moa().fresh(jax.random.key(1), game)}
    planning = planner.planning(recipe.search_settings(game))

    def both(state: Any) -> tuple[Any, Any]:
        seen, own = one_seat(game.observe(state), 0), jax.tree.map(lambda leaf: leaf[0], glances(game, state))
        mind = planner.look(params, planner.init(jax.random.key(2), params), seen).mind
        with looking(game, own):
            looked_up = planning.evaluate(policy, seen, mind)
        return planning.evaluate(policy, seen, mind), looked_up

    (logits, value), (logits_looked_up, value_looked_up) = jax.jit(jax.vmap(both))(states_of(game))
    np.testing.assert_allclose(jax.nn.softmax(logits_looked_up), jax.nn.softmax(logits), atol=1e-5)
    np.testing.assert_allclose(value_looked_up, value, atol=1e-4)
    assert value.std() > 1e-2

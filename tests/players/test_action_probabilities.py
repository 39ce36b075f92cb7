"""Stated action probabilities against the frequencies of sampled actions."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import played_states
from hopplus import games, players
from hopplus.algorithms import PPO
from hopplus.algorithms.base import initial_params
from hopplus.core.errors import InputError
from hopplus.games import one_seat
from hopplus.players import FixedMember, Player, PolicyPlayer

HUNT, LARGE, DRIFT = "msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4"
DRAWS = 2000
STATES = 40


def sampled_and_stated(game: games.Game[Any], player: Player, params: Any = ()) -> tuple[np.ndarray, np.ndarray]:
    """Returns the frequencies and the stated probabilities of seat 0's actions, in many states of play."""
    states, _ = played_states(game, environments=16)
    number = jax.tree.leaves(states)[0].shape[0]
    chosen = np.random.default_rng(0).choice(number, STATES, replace=False)
    states = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], states)
    memory = player.begin(player.init(jax.random.key(1), params))

    def in_state(state: Any, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        observation = one_seat(game.observe(state), 0)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(7), number), DRAWS)
        actions = jax.vmap(lambda key: player.act(key, params, memory, observation)[0])(keys)
        frequencies = (actions[:, None] == jnp.arange(game.num_actions)).mean(0)
        return frequencies, player.probabilities(params, memory, observation)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(in_state))(states, jnp.arange(STATES)))


def assert_same_distribution(sampled: np.ndarray, stated: np.ndarray) -> None:
    """Compares with a tolerance of six standard errors, which about 300 comparisons exceed with probability 1e-6."""
    np.testing.assert_allclose(stated.sum(-1), 1, atol=1e-5)
    assert (sampled[stated == 0] == 0).all(), "actions of probability 0 are never sampled"
    error = np.sqrt(np.maximum(stated * (1 - stated), 1e-4) / DRAWS)
    assert (np.abs(sampled - stated) <= 6 * error).all(), np.abs(sampled - stated).max()


@pytest.mark.parametrize(
    ("game", "name"),
    [
        (HUNT, "random"),
        (HUNT, "stay"),
        (HUNT, "ns"),
        (HUNT, "nh:then=stag"),
        (LARGE, "nh"),
        (LARGE, "nh:paths=blind"),
        (HUNT, "noisy(nh,0.3)"),
        (HUNT, "switching(nh,ns,every=2)"),
        (HUNT, "pool(ns,nh,random)"),
        (DRIFT, "cleaner"),
        (DRIFT, "exploiter"),
    ],
)
def test_stated_and_sampled_agree(game: str, name: str) -> None:
    the_game = games.make(game)
    player = players.make(name, the_game)
    assert_same_distribution(*sampled_and_stated(the_game, player, player.default_params()))


@pytest.mark.parametrize("greedy", [False, True])
def test_a_network_states_its_policy(greedy: bool) -> None:
    game = games.make(HUNT)
    network = PPO().network(game)
    fresh = jax.device_get(jax.jit(lambda key: initial_params(network, game, key))(jax.random.key(3)))
    generator = np.random.default_rng(4)
    params = jax.tree.map(lambda leaf: leaf + 0.3 * generator.normal(size=leaf.shape).astype(np.float32), fresh)
    assert_same_distribution(*sampled_and_stated(game, PolicyPlayer(network, "test", greedy), params))


def test_a_player_without_known_probabilities_raises() -> None:
    with pytest.raises(InputError, match="not known"):
        Player.probabilities(FixedMember((), name="fixed"), (), (), None)  # pyright: ignore[reportArgumentType]


def test_a_fixed_member_does_not_change() -> None:
    game = games.make(HUNT)
    player = FixedMember((players.make("ns", game), players.make("nh", game)))

    @jax.jit
    def later(state: Any) -> tuple[Any, ...]:
        memory = player.init(jax.random.key(0), player.default_params())
        memory = replace(memory, member=jnp.int32(1))
        observation = one_seat(game.observe(state), 0)
        stated = player.probabilities(player.default_params(), memory, observation)
        expected = player.members[1].probabilities((), (), observation)
        return player.begin(player.end(player.begin(memory))).member, stated, expected

    member, stated, expected = later(game.from_layout([(0, 0)] * 4, stags=[(0, 3)], hares=[(3, 0)]))
    assert member == 1
    np.testing.assert_allclose(stated, expected)

"""The law that a player states is the law from which it draws."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.common import played_states

from hopplus import games, players
from hopplus.errors import InputError
from hopplus.games import one_seat
from hopplus.players import Assigned, NetworkPlayer, Player
from hopplus.training.recipe import initial_params
from hopplus.training.recipes import PPO

HUNT, LARGE, DRIFT = "msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4"
DRAWS = 2000
STATES = 40


def drawn_and_stated(game: games.Game[Any], player: Player, params: Any = ()) -> tuple[np.ndarray, np.ndarray]:
    """In many states of play, how often seat 0's player takes each action, and what it states."""
    states, _ = played_states(game, environments=16)
    number = jax.tree.leaves(states)[0].shape[0]
    chosen = np.random.default_rng(0).choice(number, STATES, replace=False)
    states = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], states)
    memory = player.begin(player.init(jax.random.key(1), params))

    def one(state: Any, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen = one_seat(game.observe(state), 0)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(7), number), DRAWS)
        actions = jax.vmap(lambda key: player.act(key, params, memory, seen)[0])(keys)
        return (actions[:, None] == jnp.arange(game.num_actions)).mean(0), player.probabilities(params, memory, seen)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(states, jnp.arange(STATES)))


def assert_same_law(drawn: np.ndarray, stated: np.ndarray) -> None:
    """Six standard errors: some 300 comparisons of true frequencies stray that far with probability 1e-6."""
    np.testing.assert_allclose(stated.sum(-1), 1, atol=1e-5)
    assert (drawn[stated == 0] == 0).all(), "what is impossible never happens"
    error = np.sqrt(np.maximum(stated * (1 - stated), 1e-4) / DRAWS)
    assert (np.abs(drawn - stated) <= 6 * error).all(), np.abs(drawn - stated).max()


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
def test_stated_and_drawn_agree(game: str, name: str) -> None:
    the_game = games.make(game)
    player = players.make(name, the_game)
    assert_same_law(*drawn_and_stated(the_game, player, player.default_params()))


@pytest.mark.parametrize("greedy", [False, True])
def test_a_network_states_its_policy(greedy: bool) -> None:
    game = games.make(HUNT)
    network = PPO().network(game)
    fresh = jax.device_get(jax.jit(lambda key: initial_params(network, game, key))(jax.random.key(3)))
    generator = np.random.default_rng(4)
    params = jax.tree.map(lambda leaf: leaf + 0.3 * generator.normal(size=leaf.shape).astype(np.float32), fresh)
    assert_same_law(*drawn_and_stated(game, NetworkPlayer(network, "test", greedy), params))


def test_one_whose_law_is_not_known_says_so() -> None:
    with pytest.raises(InputError, match="not known"):
        Player.probabilities(Assigned((), name="somebody"), (), (), None)  # pyright: ignore[reportArgumentType]


def test_an_assigned_player_stays_who_it_is() -> None:
    game = games.make(HUNT)
    player = Assigned((players.make("ns", game), players.make("nh", game)))

    @jax.jit
    def later(state: Any) -> tuple[Any, ...]:
        memory = player.init(jax.random.key(0), player.default_params())
        known = replace(memory, member=jnp.int32(1))
        seen = one_seat(game.observe(state), 0)
        own = player.probabilities(player.default_params(), known, seen)
        return player.begin(player.end(player.begin(known))).member, own, player.members[1].probabilities((), (), seen)

    member, law, expected = later(game.from_layout([(0, 0)] * 4, stags=[(0, 3)], hares=[(3, 0)]))
    assert member == 1
    np.testing.assert_allclose(law, expected)

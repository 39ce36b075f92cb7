"""Learners with tastes: who has which, what they learn by, and that nobody else is any the wiser."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from common import differs_by
from hopplus.errors import InputError
from hopplus.games import make
from hopplus.keys import Key
from hopplus.planning.search import Search
from hopplus.planning.tastes import CLUMSY, Taste, slipping, tastes, usual
from hopplus.players.planner import social_features
from hopplus.training.recipes import HopPlus
from hopplus.training.trainer import Training, prepare
from test_hopplus import GAME, SMALL, prepared
from thinking import first_mind, known_others, params_of, planning_of

STAG, HARE = 5, 6
RECIPE = HopPlus(**{**SMALL, "rollout_steps": 35, "environments": 16, "tastes": True, "acquaintance": 1})


def test_tastes_are_combinations_of_liking_work_and_one_who_is_clumsy_and_the_first_is_the_usual() -> None:
    likes = [[1] * 5 + work for work in ([1, 1], [1, -1], [-1, 1], [1, 1])]
    np.testing.assert_array_equal(tastes(make(GAME)).likes, likes)
    np.testing.assert_array_equal(tastes(make(GAME)).slips, [0, 0, 0, CLUMSY])
    np.testing.assert_array_equal(tastes(make("msg-4x4")).likes, [[1] * 6, [1] * 5 + [-1], [1] * 6])
    for game in (make(GAME), make("msg-4x4")):
        first = jax.tree.map(lambda leaf: leaf[0], tastes(game))
        jax.tree.map(np.testing.assert_array_equal, first, usual(game))


@pytest.fixture(scope="module")
def played() -> tuple[HopPlus, Any, Any, Any, Any]:
    """An iteration's play, from which learners with tastes would learn if the next step did not count: the recipe, its
    stage, one player's parameters, the play and its rows."""
    recipe = dataclasses.replace(RECIPE, discount=0.0)
    stage, state = prepared(recipe)

    @jax.jit
    def play(state: Any) -> tuple[Any, Any]:
        table, episode = recipe.play(state, stage, {})
        return episode, recipe.rows(state, stage, table, episode)

    episode, rows = jax.tree.map(np.asarray, play(state))
    return recipe, stage, jax.tree.map(lambda leaf: leaf[0], recipe.learnt(state)), episode, rows


def test_a_reward_counts_as_far_as_it_is_liked(played: Any) -> None:
    _, stage, _, episode, rows = played
    taste = np.asarray(stage.seats.choices(episode)[0].mind.taste.likes)
    reward, actions, alive = (np.asarray(getattr(episode, name)) for name in ("reward", "actions", "alive"))
    earned = list(zip(*np.nonzero(reward), strict=True))
    liked = [taste[place][actions[place]] for place in earned]
    assert {-1.0, 1.0} == set(liked)
    for place, likes in zip(earned, liked, strict=True):
        np.testing.assert_allclose(np.asarray(rows.target)[place], likes * reward[place], atol=1e-5)
    np.testing.assert_allclose(np.asarray(rows.target)[alive & (reward == 0)], 0, atol=1e-5)


def test_a_taste_lasts_as_long_as_the_acquaintance(played: Any) -> None:
    _, stage, _, episode, _ = played
    taste, over = np.asarray(stage.seats.choices(episode)[0].mind.taste.likes), np.asarray(episode.over)
    changes = (taste[1:] != taste[:-1]).any((-1, -2))
    assert not changes[~over[:-1]].any()
    assert changes.any(), "with acquaintances of one episode tastes are drawn anew"


def test_every_mixture_of_tastes_at_a_table_is_equally_likely(played: Any) -> None:
    player, params = RECIPE.player(make(GAME), "learner", learns=True), played[2]

    def three(key: Key) -> Array:
        own = jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(3))
        taste = jax.vmap(lambda of_seat: player.meet(key, player.init(of_seat, params)).taste)(own)
        return jnp.concatenate([taste.likes[:, STAG:] > 0, taste.slips[:, None] > 0], -1)

    drawn = np.asarray(jax.jit(jax.vmap(three))(jax.random.split(jax.random.key(0), 20_000)))
    kinds = (drawn @ [1, 2, -3]).astype(int)
    # Three of one kind are 4 of the 20 mixtures of four kinds; were they drawn apart, 1 in 16.
    assert abs((kinds == kinds[:, :1]).all(1).mean() - 0.2) <= differs_by(len(kinds))
    assert np.abs(np.bincount(kinds[:, 0], minlength=4) / len(kinds) - 0.25).max() <= differs_by(len(kinds))


def test_who_does_not_learn_likes_what_the_game_pays_for(played: Any) -> None:
    game, params = make(GAME), played[2]
    seated = (
        RECIPE.player(game, "judged"),
        RECIPE.at_one_table(game).player(game, "goes on learning", learns=True),
    )
    keys = jax.random.split(jax.random.key(1))
    meet = jax.jit(lambda: [player.meet(keys[0], player.init(keys[1], params)).taste for player in seated])
    for taste in meet():
        jax.tree.map(np.testing.assert_array_equal, taste, usual(game))


def test_only_the_own_taste_is_seen(played: Any) -> None:
    recipe, stage, _, episode, _ = played
    knows = recipe.acquainting(stage.game)
    thought, _ = stage.seats.choices(episode)
    mind = jax.tree.map(lambda leaf: leaf[0, 0, 0], thought.mind)
    taste = Taste(np.arange(7, dtype=np.float32), np.float32(0.25))  # pyright: ignore[reportArgumentType]
    features = jax.jit(lambda mind: social_features(knows, mind))
    before, after = (np.asarray(features(one)) for one in (mind, dataclasses.replace(mind, taste=taste)))
    np.testing.assert_array_equal(before[:-3], after[:-3])
    np.testing.assert_array_equal(after[-3:], [STAG, HARE, 0.25])
    np.testing.assert_array_equal(thought.features[1][..., -3:-1], thought.mind.taste.likes[..., STAG:])


def test_whose_hand_slips_does_anything_legal_and_learns_from_what_it_meant(played: Any) -> None:
    _, stage, _, episode, rows = played
    thought, _ = stage.seats.choices(episode)
    alive, done, meant = (np.asarray(one) for one in (episode.alive, episode.actions, thought.meant))
    clumsy = alive & (np.asarray(thought.mind.taste.slips) == CLUMSY)
    np.testing.assert_array_equal(done[alive & ~clumsy], meant[alive & ~clumsy])
    assert (done != meant)[clumsy].any()
    np.testing.assert_array_equal(rows.action, meant)
    chosen = np.take_along_axis(np.asarray(thought.policy), meant[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.asarray(rows.log_probability)[alive], np.log(chosen[alive]), atol=1e-5)


def test_a_hand_slips_as_often_as_it_should() -> None:
    legal: Any = np.array([True, False, True, True, True, False, False])
    keys = jax.random.split(jax.random.key(0), 20_000)
    slips = jax.jit(jax.vmap(lambda key, taste: slipping(key, taste, jnp.int32(4), legal), (0, None)))
    clumsy = Taste(np.ones(7, np.float32), np.float32(0.4))  # pyright: ignore[reportArgumentType]
    frequencies = np.bincount(np.asarray(slips(keys, clumsy)), minlength=7) / len(keys)
    assert np.abs(frequencies - [0.1, 0, 0.1, 0.1, 0.7, 0, 0]).max() <= differs_by(len(keys))
    assert (np.asarray(slips(keys, usual(make(GAME)))) == 4).all()


def test_a_search_plans_for_what_is_liked() -> None:
    game = make(GAME)
    planning = planning_of(known_others(game, "stay"), Search(draws=1, simulations=16))
    state = game.from_layout(players=[(0, 0), (3, 3), (3, 3), (3, 3)], stags=[(2, 2)], hares=[(0, 0), (3, 0)])
    seen, mind = first_mind(planning, state)
    plan = jax.jit(lambda mind, seen: planning.plan(jax.random.key(0), params_of(1), mind, seen))
    assert float(plan(mind, seen).values[HARE]) == pytest.approx(1)
    likes = np.where(np.arange(7) == HARE, 0, 1).astype(np.float32)
    dislikes = dataclasses.replace(mind, taste=dataclasses.replace(mind.taste, likes=jnp.asarray(likes)))
    assert float(plan(dislikes, seen).values[HARE]) == pytest.approx(0)


def test_tastes_without_a_time_to_draw_them_are_refused() -> None:
    with pytest.raises(InputError, match="tastes are drawn when players meet: acquaintance must be more than 0"):
        prepare(Training(game=GAME), HopPlus(tastes=True))

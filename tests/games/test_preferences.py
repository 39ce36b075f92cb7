"""Reward randomisation: the distribution of preferences, weighted rewards, trembles, and what a policy observes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from common import differs_by, hopplus
from hopplus.algorithms import HopPlus
from hopplus.algorithms.hopplus.acting import make_belief_tracker
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import make
from hopplus.games.preferences import TREMBLE, Preference, neutral, preferences, with_tremble
from hopplus.planning.tree_search import SearchConfig
from hopplus.players.planner import social_features
from hopplus.training.experiment import prepare
from hopplus_iterations import GAME, SMALL, prepared
from planners import initial_beliefs, known_opponents, make_tree_planner, params_of

STAG, HARE = 5, 6
ALGORITHM = hopplus(**{**SMALL, "num_steps": 35, "num_envs": 16, "randomize_rewards": True, "trial_episodes": 1})


def test_preferences_are_all_sign_combinations_and_a_trembling_one_and_the_first_is_neutral() -> None:
    weights = [[1] * 5 + signs for signs in ([1, 1], [1, -1], [-1, 1], [1, 1])]
    np.testing.assert_array_equal(preferences(make(GAME)).reward_weights, weights)
    np.testing.assert_array_equal(preferences(make(GAME)).tremble, [0, 0, 0, TREMBLE])
    np.testing.assert_array_equal(preferences(make("msg-4x4")).reward_weights, [[1] * 6, [1] * 5 + [-1], [1] * 6])
    for game in (make(GAME), make("msg-4x4")):
        first = jax.tree.map(lambda leaf: leaf[0], preferences(game))
        jax.tree.map(np.testing.assert_array_equal, first, neutral(game))


@pytest.fixture(scope="module")
def played() -> tuple[HopPlus, Any, Any, Any, Any]:
    """One training iteration with gamma = 0, so that value targets are rewards: the algorithm, its stage, parameters
    of one player, the trajectory and its transitions."""
    algorithm = dataclasses.replace(ALGORITHM, gamma=0.0)
    stage, state = prepared(algorithm)

    @jax.jit
    def play(state: Any) -> tuple[Any, Any]:
        rollout_state, trajectory = algorithm.collect(state, stage, {})
        return trajectory, algorithm.transitions(state, stage, rollout_state, trajectory)

    trajectory, transitions = jax.tree.map(np.asarray, play(state))
    params = jax.tree.map(lambda leaf: leaf[0], algorithm.params(state))
    return algorithm, stage, params, trajectory, transitions


def test_rewards_are_weighted_by_the_preference(played: Any) -> None:
    _, stage, _, trajectory, transitions = played
    weights = np.asarray(stage.seats.infos(trajectory)[0].co_player_beliefs.preference.reward_weights)
    reward, actions, alive = (np.asarray(getattr(trajectory, name)) for name in ("reward", "actions", "alive"))
    rewarded = list(zip(*np.nonzero(reward), strict=True))
    action_weights = [weights[index][actions[index]] for index in rewarded]
    assert {-1.0, 1.0} == set(action_weights)
    for index, weight in zip(rewarded, action_weights, strict=True):
        np.testing.assert_allclose(np.asarray(transitions.target)[index], weight * reward[index], atol=1e-5)
    np.testing.assert_allclose(np.asarray(transitions.target)[alive & (reward == 0)], 0, atol=1e-5)


def test_a_preference_lasts_for_a_trial(played: Any) -> None:
    _, stage, _, trajectory, _ = played
    weights, over = (
        np.asarray(stage.seats.infos(trajectory)[0].co_player_beliefs.preference.reward_weights),
        np.asarray(trajectory.over),
    )
    changes = (weights[1:] != weights[:-1]).any((-1, -2))
    assert not changes[~over[:-1]].any()
    assert changes.any(), "with trials of one episode, every episode has a new preference"


def test_all_mixtures_of_preferences_in_a_trial_are_equally_likely(played: Any) -> None:
    player, params = ALGORITHM.player(make(GAME), "learner", learns=True), played[2]

    def sample_three(key: Key) -> Array:
        seat_keys = jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(3))
        preference = jax.vmap(lambda seat_key: player.meet(key, player.init(seat_key, params)).preference)(seat_keys)
        return jnp.concatenate([preference.reward_weights[:, STAG:] > 0, preference.tremble[:, None] > 0], -1)

    drawn = np.asarray(jax.jit(jax.vmap(sample_three))(jax.random.split(jax.random.key(0), 20_000)))
    index = (drawn @ [1, 2, -3]).astype(int)
    # Three equal preferences are 4 of the 20 mixtures of four; drawn independently, they would be 1 in 16.
    assert abs((index == index[:, :1]).all(1).mean() - 0.2) <= differs_by(len(index))
    assert np.abs(np.bincount(index[:, 0], minlength=4) / len(index) - 0.25).max() <= differs_by(len(index))


def test_players_outside_training_have_the_neutral_preference(played: Any) -> None:
    game, params = make(GAME), played[2]
    players = (
        ALGORITHM.player(game, "evaluated"),
        ALGORITHM.for_fine_tuning(game).player(game, "fine-tuned", learns=True),
    )
    keys = jax.random.split(jax.random.key(1))
    meet = jax.jit(lambda: [player.meet(keys[0], player.init(keys[1], params)).preference for player in players])
    for preference in meet():
        jax.tree.map(np.testing.assert_array_equal, preference, neutral(game))


def test_a_policy_observes_only_its_own_preference(played: Any) -> None:
    algorithm, stage, _, trajectory, _ = played
    tracker = make_belief_tracker(algorithm, stage.game)
    decision, _ = stage.seats.infos(trajectory)
    beliefs = jax.tree.map(lambda leaf: leaf[0, 0, 0], decision.co_player_beliefs)
    preference = Preference(np.arange(7, dtype=np.float32), np.float32(0.25))  # pyright: ignore[reportArgumentType]
    features = jax.jit(lambda beliefs: social_features(tracker, beliefs))
    before, after = (
        np.asarray(features(given)) for given in (beliefs, dataclasses.replace(beliefs, preference=preference))
    )
    np.testing.assert_array_equal(before[:-3], after[:-3])
    np.testing.assert_array_equal(after[-3:], [STAG, HARE, 0.25])
    np.testing.assert_array_equal(
        decision.features[1][..., -3:-1], decision.co_player_beliefs.preference.reward_weights[..., STAG:]
    )


def test_a_trembling_player_learns_from_its_intended_action(played: Any) -> None:
    _, stage, _, trajectory, transitions = played
    decision, _ = stage.seats.infos(trajectory)
    alive, executed, intended = (
        np.asarray(values) for values in (trajectory.alive, trajectory.actions, decision.intended_action)
    )
    trembling = alive & (np.asarray(decision.co_player_beliefs.preference.tremble) == TREMBLE)
    np.testing.assert_array_equal(executed[alive & ~trembling], intended[alive & ~trembling])
    assert (executed != intended)[trembling].any()
    np.testing.assert_array_equal(transitions.action, intended)
    chosen = np.take_along_axis(np.asarray(decision.policy), intended[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.asarray(transitions.log_probability)[alive], np.log(chosen[alive]), atol=1e-5)


def test_trembles_have_the_right_frequency_and_are_legal() -> None:
    legal: Any = np.array([True, False, True, True, True, False, False])
    keys = jax.random.split(jax.random.key(0), 20_000)
    execute = jax.jit(jax.vmap(lambda key, preference: with_tremble(key, preference, jnp.int32(4), legal), (0, None)))
    trembling = Preference(np.ones(7, np.float32), np.float32(0.4))  # pyright: ignore[reportArgumentType]
    frequencies = np.bincount(np.asarray(execute(keys, trembling)), minlength=7) / len(keys)
    assert np.abs(frequencies - [0.1, 0, 0.1, 0.1, 0.7, 0, 0]).max() <= differs_by(len(keys))
    assert (np.asarray(execute(keys, neutral(make(GAME)))) == 4).all()


def test_search_values_are_weighted_by_the_preference() -> None:
    game = make(GAME)
    planning = make_tree_planner(known_opponents(game, "stay"), SearchConfig(belief_samples=1, simulations=16))
    state = game.from_layout(players=[(0, 0), (3, 3), (3, 3), (3, 3)], stags=[(2, 2)], hares=[(0, 0), (3, 0)])
    observation, beliefs = initial_beliefs(planning, state)
    plan = jax.jit(lambda beliefs, observation: planning.plan(jax.random.key(0), params_of(1), beliefs, observation))
    assert float(plan(beliefs, observation).values[HARE]) == pytest.approx(1)
    weights = np.where(np.arange(7) == HARE, 0, 1).astype(np.float32)
    without_hares = dataclasses.replace(
        beliefs, preference=dataclasses.replace(beliefs.preference, reward_weights=jnp.asarray(weights))
    )
    assert float(plan(without_hares, observation).values[HARE]) == pytest.approx(0)


def test_reward_randomisation_without_trials_is_refused() -> None:
    with pytest.raises(InputError, match="randomize_rewards needs trials"):
        prepare(TrainingConfig(game=GAME), hopplus(randomize_rewards=True))

"""Reward randomisation: the distribution of preferences, weighted rewards, trembles, and what a policy observes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import differs_by, floats, hopplus, step
from hopplus.algorithms import HopPlus
from hopplus.algorithms.hopplus.acting import make_belief_tracker
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import NamedPreference, make
from hopplus.games.preferences import (
    CONCENTRATION,
    TREMBLES,
    Preference,
    RegretSampling,
    draw_preference,
    neutral,
    preference_set,
    preferred_reward,
    with_tremble,
)
from hopplus.planning.tree_search import SearchConfig
from hopplus.players.planner import social_features
from hopplus.training.experiment import prepare
from hopplus_iterations import GAME, SMALL, prepared
from planners import initial_beliefs, known_opponents, make_tree_planner, params_of
from toy_games import Guess

STAG, HARE = 5, 6
ALGORITHM = hopplus(**{**SMALL, "num_steps": 35, "num_envs": 16, "randomize_rewards": True, "trial_episodes": 1})


# ------------------------------------------------------------------------------------------- components of the reward


def test_components_of_a_hunt_are_stag_and_hare() -> None:
    game = make(GAME)
    state = game.from_layout(players=[(0, 0), (0, 0), (3, 3), (1, 1)], stags=[(0, 0)], hares=[(3, 3)])
    _, outcome = step(game, jax.random.key(0), state, np.array([STAG, STAG, HARE, 4]))
    assert game.component_names == ("stag", "hare")
    np.testing.assert_array_equal(outcome.components, [[5, 0], [5, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(outcome.reward, [5, 5, 1, 0])


def test_components_of_a_prosocial_seat_sum_to_the_mean_reward_exactly() -> None:
    game = make("msh-4x4-4h1s:players=7:prosocial=(6,)")
    players = [(0, 0), (0, 0), (1, 1), (2, 2), (3, 3), (3, 0), (0, 3)]
    state = game.from_layout(players=players, stags=[(0, 0)], hares=[(1, 1), (2, 2), (3, 3), (3, 0)])
    mean_reward = jax.jit(lambda total: total / jnp.float32(7))
    for hares in range(5):
        hunts = [HARE if seat < hares else 4 for seat in range(4)]
        _, outcome = step(game, jax.random.key(0), state, np.array([STAG, STAG, *hunts, 4]))
        np.testing.assert_allclose(outcome.components[6], [10 / 7, hares / 7], atol=1e-6)
        assert outcome.reward[6] == mean_reward(np.float32(10 + hares)), "the mean reward, to the last bit"


def test_components_of_the_snowdrift_game_are_benefit_and_shared_cost() -> None:
    game = make("msg-4x4")
    drifts = [(0, 0), (1, 1), (3, 3), (3, 2), (3, 1), (3, 0)]
    state = game.from_layout(players=[(0, 0), (0, 0), (1, 1), (2, 2)], drifts=drifts)
    _, outcome = step(game, jax.random.key(0), state, np.array([5, 5, 5, 4]))
    assert game.component_names == ("benefit", "cost")
    np.testing.assert_array_equal(outcome.components, [[12, -2], [12, -2], [12, -4], [12, 0]])
    np.testing.assert_array_equal(outcome.reward, [10, 10, 8, 12])


# --------------------------------------------------------------------------------------------------------- preferences


def test_a_training_draws_every_preference_with_every_tremble() -> None:
    hunt = preference_set(make(GAME))
    calm = ("neutral", "stags", "hares", "loves stags")
    assert hunt.names == (*calm, *(f"{name}, tremble {tremble}" for tremble in (0.25, 0.5) for name in calm))
    weights = floats([[1, 1], [1, -1], [-1, 1], [2, 0.3]])
    np.testing.assert_array_equal(hunt.preferences.reward_weights, np.tile(weights, (3, 1)))
    np.testing.assert_array_equal(hunt.preferences.step_cost, np.tile(floats([0, 0.05, 0.05, 0]), 3))
    np.testing.assert_array_equal(hunt.preferences.tremble, np.repeat(floats(TREMBLES), 4))
    np.testing.assert_allclose(hunt.shares, [0.4, *[0.35 / 3] * 3, *[0.25 / 8] * 8])
    drifts = preference_set(make("msg-4x4"))
    np.testing.assert_array_equal(drifts.preferences.reward_weights[:3], [[1, 1], [1, 0], [1, 3]])
    np.testing.assert_array_equal(drifts.preferences.step_cost[:3], [0, 0.25, 0])
    for game in (make(GAME), make("msg-4x4")):
        first = jax.tree.map(lambda leaf: leaf[0], preference_set(game).preferences)
        jax.tree.map(np.testing.assert_array_equal, first, neutral(game))
        assert np.asarray(preference_set(game).preferences.is_neutral).tolist() == [
            name == "neutral" for name in preference_set(game).names
        ]


def test_default_preferences_are_neutral_and_one_per_component() -> None:
    assert Guess().preferences == (NamedPreference("neutral", (1.0,)),)
    np.testing.assert_allclose(preference_set(Guess()).shares, [0.75, 0.125, 0.125])
    expected = [("neutral", (1.0, 1.0), 0.0), ("stag", (1.0, -1.0), 0.0), ("hare", (-1.0, 1.0), 0.0)]
    default = type(Guess()).preferences.fget(make(GAME))  # pyright: ignore[reportFunctionMemberAccess, reportOptionalCall]
    assert default == tuple(NamedPreference(*fields) for fields in expected)


def test_a_preferred_reward_is_the_weighted_sum_less_the_step_cost() -> None:
    preference = Preference(floats([[-1, 2], [-1, 2], [1, 1]]), floats([0.5, 0.5, 0]), floats([0, 0, 0.5]))
    components, alive = floats([[5, 0.25], [0, 0], [3, 4]]), np.array([True, False, True])
    reward = jax.jit(preferred_reward)(preference, components, alive)
    np.testing.assert_array_equal(reward, [-5 + 0.5 - 0.5, 0, 7])


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
    preference = stage.seats.infos(trajectory)[0].co_player_beliefs.preference
    weights, components = preference.reward_weights, trajectory.components
    np.testing.assert_array_equal(components.sum(-1), trajectory.reward)
    expected = np.where(trajectory.alive, (weights * components).sum(-1) - preference.step_cost, 0)
    np.testing.assert_allclose(np.asarray(transitions.target)[trajectory.alive], expected[trajectory.alive], atol=1e-5)
    rewarded = trajectory.reward > 0
    assert {-1.0, 1.0} <= set(weights[rewarded].ravel().tolist()), "some learners dislike what they took"
    assert (preference.step_cost[trajectory.alive] > 0).any()


def test_a_preference_lasts_for_a_trial(played: Any) -> None:
    _, stage, _, trajectory, _ = played
    weights, over = (
        np.asarray(stage.seats.infos(trajectory)[0].co_player_beliefs.preference.reward_weights),
        np.asarray(trajectory.over),
    )
    changes = (weights[1:] != weights[:-1]).any((-1, -2))
    assert not changes[~over[:-1]].any()
    assert changes.any(), "with trials of one episode, every episode has a new preference"


def indices(drawn: Preference) -> np.ndarray:
    """Indices of drawn preferences in the set of the game."""
    listed = jax.tree.map(np.asarray, preference_set(make(GAME)).preferences)
    fields = (drawn.reward_weights, drawn.step_cost[..., None], drawn.tremble[..., None])
    names = (listed.reward_weights, listed.step_cost[:, None], listed.tremble[:, None])
    return (np.concatenate(fields, -1)[..., None, :] == np.concatenate(names, -1)).all(-1).argmax(-1)


def test_preferences_have_their_shares_and_equal_ones_are_frequent_in_a_trial() -> None:
    game, tables = make(GAME), 20_000

    @jax.jit
    def sample_three(keys: Key) -> Preference:
        uniform = jax.random.uniform(jax.random.key(1), (tables, 3))
        draw = jax.vmap(lambda key, uniform: draw_preference(preference_set(game), key, uniform), (None, 0))
        return jax.vmap(draw)(keys, uniform)

    drawn = jax.tree.map(np.asarray, sample_three(jax.random.split(jax.random.key(0), tables)))
    index = indices(drawn)
    frequencies = np.bincount(index[:, 0], minlength=12) / tables
    assert np.abs(frequencies - preference_set(game).shares).max() <= differs_by(tables)
    assert abs(frequencies[0] - 0.4) <= differs_by(tables)
    assert drawn.tremble[:, 0].astype(bool).mean() <= 0.25 + differs_by(tables)
    # P(three equal) = sum_k p_k (c p_k + 1) (c p_k + 2) / ((c + 1) (c + 2)); drawn independently, sum_k p_k^3 = 0.07.
    p, c = preference_set(game).shares, CONCENTRATION
    expected = (p * (c * p + 1) * (c * p + 2)).sum() / ((c + 1) * (c + 2))
    assert expected == pytest.approx(0.294, abs=1e-3)
    assert abs((index == index[:, :1]).all(1).mean() - expected) <= differs_by(tables)


# ---------------------------------------------------------------------------------------------------- regret sampling


@jax.jit
def draw_trials(keys: Key, regret: RegretSampling | None = None) -> Preference:
    """Preferences [N, 3] of three seats in each trial."""
    uniform = jax.random.uniform(jax.random.key(1), (keys.shape[0], 3))
    draw = jax.vmap(lambda key, uniform: draw_preference(preference_set(make(GAME)), key, uniform, regret), (None, 0))
    return jax.vmap(draw)(keys, uniform)


def regret_sampling(trial_share: float, shares: dict[int, float]) -> RegretSampling:
    """Regret sampling with the shares of some preferences; the others are never drawn in trials by regret."""
    return RegretSampling(
        jnp.float32(trial_share), jnp.zeros(12).at[jnp.array([*shares])].set(jnp.array([*shares.values()]))
    )


def test_draws_without_regret_sampling_are_the_same_as_ever() -> None:
    keys, uniform = jax.random.split(jax.random.key(0), 24), jax.random.uniform(jax.random.key(1), (24,))
    draw = jax.jit(jax.vmap(lambda key, uniform: draw_preference(preference_set(make(GAME)), key, uniform)))
    expected = [6, 2, 8, 0, 1, 3, 3, 7, 0, 0, 1, 1, 1, 0, 1, 2, 0, 0, 8, 1, 0, 1, 8, 6]
    assert indices(jax.tree.map(np.asarray, draw(keys, uniform))).tolist() == expected


def test_draws_by_regret_have_their_shares_in_their_share_of_the_trials() -> None:
    trials = 20_000
    keys = jax.random.split(jax.random.key(0), trials)
    always = indices(jax.tree.map(np.asarray, draw_trials(keys, regret_sampling(1.0, {0: 0.4, 2: 0.5, 9: 0.1}))))
    frequencies = np.bincount(always[:, 0], minlength=12) / trials
    assert np.abs(frequencies - floats([0.4, 0, 0.5, 0, 0, 0, 0, 0, 0, 0.1, 0, 0])).max() <= differs_by(trials)
    assert set(always.ravel()) == {0, 2, 9}
    p, c = floats([0.4, 0.5, 0.1]), CONCENTRATION
    equal = (p * (c * p + 1) * (c * p + 2)).sum() / ((c + 1) * (c + 2))
    assert abs((always == always[:, :1]).all(1).mean() - equal) <= differs_by(trials), "shares are random in a trial"
    never = indices(jax.tree.map(np.asarray, draw_trials(keys, regret_sampling(0.0, {11: 1.0}))))
    assert np.abs(np.bincount(never[:, 0]) / trials - preference_set(make(GAME)).shares).max() <= differs_by(trials)


def test_all_seats_of_a_trial_draw_by_regret_or_none() -> None:
    trials = 20_000
    keys = jax.random.split(jax.random.key(2), trials)
    drawn = indices(jax.tree.map(np.asarray, draw_trials(keys, regret_sampling(0.5, {11: 1.0}))))
    p, c = preference_set(make(GAME)).shares[11], CONCENTRATION
    otherwise = p * (c * p + 1) * (c * p + 2) / ((c + 1) * (c + 2))
    assert abs((drawn == 11).all(1).mean() - (0.5 + 0.5 * otherwise)) <= differs_by(trials)


def test_the_index_of_a_preference_is_its_place_in_the_set() -> None:
    candidates = preference_set(make(GAME))
    assert np.asarray(jax.jit(candidates.index_of)(candidates.preferences)).tolist() == list(range(12))


# ------------------------------------------------------------------------------------------------------------- players


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
    preference = Preference(floats([5, 6]), floats(0.05), floats(0.25))
    features = jax.jit(lambda beliefs: social_features(tracker, beliefs))
    before, after = (
        np.asarray(features(given)) for given in (beliefs, dataclasses.replace(beliefs, preference=preference))
    )
    np.testing.assert_array_equal(before[:-4], after[:-4])
    np.testing.assert_array_equal(after[-4:], floats([5, 6, 0.05, 0.25]))
    own = decision.co_player_beliefs.preference
    np.testing.assert_array_equal(decision.features[1][..., -4:-2], own.reward_weights)
    np.testing.assert_array_equal(decision.features[1][..., -2], own.step_cost)
    np.testing.assert_array_equal(decision.features[1][..., -1], own.tremble)


def test_a_trembling_player_learns_from_its_intended_action(played: Any) -> None:
    _, stage, _, trajectory, transitions = played
    decision, _ = stage.seats.infos(trajectory)
    alive, executed, intended = (
        np.asarray(values) for values in (trajectory.alive, trajectory.actions, decision.intended_action)
    )
    trembling = alive & (np.asarray(decision.co_player_beliefs.preference.tremble) > 0)
    np.testing.assert_array_equal(executed[alive & ~trembling], intended[alive & ~trembling])
    assert (executed != intended)[trembling].any()
    np.testing.assert_array_equal(transitions.action, intended)
    chosen = np.take_along_axis(np.asarray(decision.policy), intended[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.asarray(transitions.log_probability)[alive], np.log(chosen[alive]), atol=1e-5)


def test_trembles_have_the_right_frequency_and_are_legal() -> None:
    legal: Any = np.array([True, False, True, True, True, False, False])
    keys = jax.random.split(jax.random.key(0), 20_000)
    execute = jax.jit(jax.vmap(lambda key, preference: with_tremble(key, preference, jnp.int32(4), legal), (0, None)))
    trembling = Preference(floats([1, 1]), floats(0), floats(0.4))
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
    in_a_hurry = Preference(floats([1, 0.25]), floats(0.5), floats(0))
    hurried = dataclasses.replace(beliefs, preference=jax.tree.map(jnp.asarray, in_a_hurry))
    assert float(plan(hurried, observation).values[HARE]) == pytest.approx(0.25 - 0.5)


def test_reward_randomisation_without_trials_is_refused() -> None:
    with pytest.raises(InputError, match="randomize_rewards needs trials"):
        prepare(TrainingConfig(game=GAME), hopplus(randomize_rewards=True))


@pytest.mark.parametrize("settings", [{"real_ratio": 0.5}, {"learn": "both"}, {"learn": "expert"}])
def test_simulated_rewards_of_a_learned_world_model_cannot_be_weighted(settings: dict[str, Any]) -> None:
    algorithm = hopplus(randomize_rewards=True, trial_episodes=1, world="learned", **settings)
    with pytest.raises(InputError, match="predicts no components of the reward"):
        prepare(TrainingConfig(game=GAME), algorithm)

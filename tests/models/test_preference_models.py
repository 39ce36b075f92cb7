"""Models of co-players by their preference: labels, training of their outputs, and beliefs that use them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import hopplus
from hopplus.algorithms.hopplus import acting
from hopplus.algorithms.hopplus.opponent_update import learners_preferences
from hopplus.configs import TrainingConfig
from hopplus.games import make
from hopplus.games.game import one_seat
from hopplus.rollouts import rollout
from hopplus.training.experiment import describe, prepare
from hopplus_iterations import GAME, SMALL, iterations

PREFERRED: dict[str, Any] = {**SMALL, "goals": "prey", "randomize_rewards": True, "trial_episodes": 2}

STAY = 4


def test_the_labels_are_the_preferences_of_the_acting_learners() -> None:
    algorithm = hopplus(**{**PREFERRED, "num_envs": 16})
    training = TrainingConfig(game=GAME, partner="optimist", partner_share=0.75, steps=10_000)
    phase = prepare(training, algorithm).phases[0][1]

    @jax.jit
    def played(key: jax.Array) -> Any:
        state = algorithm.init(key, phase, {})
        params = phase.seats.params(algorithm.params(state), {}, phase.partner_share_at(jnp.int32(0)))
        cast, game = phase.seats.cast, phase.game
        trajectory = rollout(state.rollout_state, game, cast, 8, params, algorithm.trial_end_probability)[1]
        decision, acted = phase.seats.infos(trajectory)
        return learners_preferences(phase, trajectory), decision.co_player_beliefs.preference, acted

    labels, preference, acted = jax.tree.map(np.asarray, played(jax.random.key(0)))
    game, weights = make(GAME), preference.reward_weights
    assert acted.any()
    assert not acted.all()
    assert set(np.unique(labels)) == {-1, *range(len(game.preferences))}
    for number, named in enumerate(game.preferences):
        same = (weights == np.array(named.reward_weights, np.float32)).all(-1)
        same &= preference.step_cost == np.float32(named.step_cost)
        np.testing.assert_array_equal(labels == number, same & acted)


def test_only_learners_with_a_preference_train_its_output() -> None:
    result = iterations(hopplus(**PREFERRED), number=1)
    algorithm, phase, state = result.algorithm, result.phase, result.states[0]
    trajectory = jax.tree.map(jnp.asarray, result.trajectories[0])
    agents = algorithm.agent_trajectories(phase, trajectory)
    model, goals, actions = acting.make_moa(algorithm), 3, phase.game.num_actions
    params = jax.tree.map(lambda leaf: leaf[0], state.moa.params)

    @jax.jit
    def gradient(preference: jax.Array) -> jax.Array:
        batch = (dataclasses.replace(agents, preference=preference),)

        def total(params: Any) -> jax.Array:
            return model.objective(params, jax.random.key(0), batch, phase.game, jnp.float32(0))[0]

        return jax.grad(total)(params)["network"]["policy"]["bias"].reshape(-1, actions)

    shape = np.shape(agents.alive)
    unknown, second = (np.asarray(gradient(jnp.full(shape, label))) for label in (-1, 1))
    assert np.abs(unknown[:goals]).max() > 1e-4
    assert not unknown[goals:].any()
    np.testing.assert_allclose(second[:goals], unknown[:goals], atol=1e-6)
    assert (np.abs(second[goals:]).max(-1) > 1e-4).tolist() == [False, True, False, False]


def test_beliefs_recognise_a_co_player_that_acts_by_a_preference_model() -> None:
    algorithm, game = hopplus(**PREFERRED), make(GAME)
    tracker = acting.make_belief_tracker(algorithm, game)
    names = [preference.name for preference in game.preferences]
    assert tracker.rationality.preferences == tuple(names)

    @jax.jit
    def beliefs(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of the rationalities after forty actions of "hares", and the prior."""
        keys = jax.random.split(key, 3)
        moa = acting.make_moa(algorithm).init_params(keys[0], game)
        state, memory = game.init(keys[1]), tracker.init(keys[2], moa)
        observations = game.observe(state)
        seen = one_seat(observations, 0)
        memory, prior = tracker.predict(moa, memory, seen, observations, state)
        action = jnp.full(3, STAY)
        hares = 3 + names.index("hares")
        sure = memory.action_probs_by_goal.at[:, hares].set(jax.nn.one_hot(action, game.num_actions))
        memory = dataclasses.replace(memory, action_probs_by_goal=sure)
        last = jnp.concatenate([jnp.zeros(1, jnp.int32), action])
        for _ in range(40):
            memory = tracker.watch(memory, dataclasses.replace(seen, last_actions=last))
        return tracker.predict(moa, memory, seen, observations, state)[1].rationality_probs, prior.rationality_probs

    after, prior = jax.tree.map(np.asarray, beliefs(jax.random.key(1)))
    hares = tracker.rationality.names.index("preference hares, tremble 0.02")
    np.testing.assert_allclose(prior[0], tracker.rationality.prior, rtol=1e-4)
    assert (after[:, hares] > 0.9).all()


def test_preference_models_need_random_rewards_and_goals_with_labels() -> None:
    game = make(GAME)
    for changes in ({"randomize_rewards": False}, {"goals": "codes"}, {"goals": "none"}, {"preference_models": False}):
        algorithm = hopplus(**{**PREFERRED, **changes})
        assert acting.make_belief_tracker(algorithm, game).rationality.preferences == ()
        model = acting.make_moa(algorithm)
        assert model.num_outputs(game) == model.num_goals(game)


@pytest.mark.parametrize(
    ("cast", "has_models"), [("learner,ns,nh,random", False), ("learner,learner,ns,ns", True), ("self-play", True)]
)
def test_a_single_learner_has_no_preference_models(cast: str, has_models: bool) -> None:
    """No co-player would train their outputs."""
    experiment = prepare(TrainingConfig(game=GAME, cast=cast), hopplus(**PREFERRED))
    assert describe(experiment)["settings"]["preference_models"] is has_models
    tracker = acting.make_belief_tracker(experiment.algorithm, experiment.game)  # pyright: ignore[reportArgumentType]
    assert bool(tracker.rationality.preferences) is has_models

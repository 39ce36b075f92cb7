"""Belief tracker: by hand, and against an exact filter with known co-player policies."""

import functools
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import first_state, hop, hopplus, observe
from hopplus.algorithms.hopplus.acting import make_belief_tracker, make_moa
from hopplus.algorithms.presets import ONE_RATIONALITY
from hopplus.beliefs.belief_tracker import (
    FORGETTING,
    PSEUDO_COUNTS,
    WEIGHT_EXPONENT,
    BeliefState,
    BeliefTracker,
    CoPlayerBeliefs,
)
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.beliefs.rationality import EXACT, Rationality
from hopplus.games import Observation, make
from hopplus.games.game import one_seat
from hopplus.networks.subgoal_vae import Gaussian
from hopplus.players import Cast
from hopplus.players import make as make_player
from hopplus.rollouts import play_episodes
from planners import known_opponents, params_of

GAME = make("msh-4x4-4h1s")
TRACKER = BeliefTracker(known_opponents(GAME, "ns", "nh"), goal_switch_probability=0.0)
PARAMS = params_of(2)["moa"]


@functools.cache
def first_observation() -> Observation:
    """Returns seat 0's observation in an initial state."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], observe(GAME, first_state(GAME)))


@partial(jax.jit, static_argnames="tracker")
def initial_memory(tracker: BeliefTracker) -> BeliefState:
    """Returns the memory at the start of a trial."""
    return tracker.init(jax.random.key(0), PARAMS)


@partial(jax.jit, static_argnames="tracker")
def next_episode(tracker: BeliefTracker, memory: BeliefState) -> BeliefState:
    """Returns the memory at the start of the next episode."""
    return tracker.begin(tracker.end(memory))


@partial(jax.jit, static_argnames="tracker")
def _watch(
    tracker: BeliefTracker, memory: BeliefState, action_probs: Any, present: Any, observation: Observation
) -> BeliefState:
    by_co_player = jnp.broadcast_to(action_probs, (3, *action_probs.shape))
    return tracker.watch(replace(memory, action_probs_by_goal=by_co_player, present=present), observation)


def after(
    tracker: BeliefTracker,
    memory: BeliefState,
    action_probs: list[list[float]],
    action: int,
    present: tuple[bool, ...] = (True, True, True),
) -> BeliefState:
    """Returns the memory after all present co-players took an action, given their predicted probabilities [K, A]."""
    observation = replace(first_observation(), last_actions=np.full(4, action, np.int32))
    memory = _watch(tracker, memory, np.array(action_probs, np.float32), np.array(present), observation)
    return jax.tree.map(np.asarray, memory)


def belief_of(memory: BeliefState) -> np.ndarray:
    """Returns the posterior over the rationality and the current goal [n-1, B, K]; [n-1, K] with one rationality."""
    joint = np.asarray(memory.prior)[..., None] + np.asarray(memory.joint)
    weights = np.exp(joint - joint.max((1, 2, 3), keepdims=True)).sum(2)
    posterior = weights / weights.sum((-1, -2), keepdims=True)
    return posterior[:, 0] if posterior.shape[1] == 1 else posterior


@partial(jax.jit, static_argnames="tracker")
def predict(
    tracker: BeliefTracker, params: Any, memory: BeliefState, observation: Observation
) -> tuple[BeliefState, CoPlayerBeliefs]:
    """Returns the memory and beliefs of seat 0 at its observation."""
    state = GAME.restore(observation)
    return tracker.predict(params, memory, observation, GAME.observe(state), state)


def test_bayes_within_an_episode_by_hand() -> None:
    noiseless = replace(TRACKER, rationality=EXACT)
    memory = initial_memory(noiseless)
    memory = after(noiseless, memory, [[0.8, 0.2], [0.4, 0.6]], 0)
    np.testing.assert_allclose(belief_of(memory)[0], [2 / 3, 1 / 3], rtol=1e-5)
    memory = after(noiseless, memory, [[0.5, 0.5], [0.1, 0.9]], 1)
    np.testing.assert_allclose(belief_of(memory)[0], [2 * 0.5, 0.9] / np.sum([2 * 0.5, 0.9]), rtol=1e-5)


def test_model_noise_and_goal_switches_by_hand() -> None:
    switching = replace(TRACKER, goal_switch_probability=0.1)
    memory = initial_memory(switching)
    memory = after(switching, memory, [[1.0, 0.0], [0.5, 0.5]], 1)
    # Under the first goal only model noise explains the action: 0.02 / legal, where the policies show 2 legal actions.
    noise, other = 0.02 / 2, 0.98 * 0.5 + 0.02 / 2
    posterior = np.array([noise, other]) / (noise + other)
    np.testing.assert_allclose(belief_of(memory)[0], 0.9 * posterior + 0.1 * 0.5, rtol=1e-4)


def test_co_players_who_have_left_are_not_updated() -> None:
    belief = belief_of(
        after(TRACKER, initial_memory(TRACKER), [[0.8, 0.2], [0.4, 0.6]], 0, present=(True, False, True))
    )
    assert belief[0, 0] > 0.6
    np.testing.assert_allclose(belief[1], 0.5)


def test_dirichlets_between_episodes_by_hand() -> None:
    noiseless = replace(TRACKER, rationality=EXACT)
    memory = next_episode(noiseless, after(noiseless, initial_memory(noiseless), [[0.8, 0.2], [0.4, 0.6]], 0))
    posterior = np.array([2 / 3, 1 / 3])
    counts = np.array([[f * 0.5, f * 0.5] for f in FORGETTING]) + posterior
    np.testing.assert_allclose(np.asarray(memory.counts)[0, :, 0], counts, rtol=1e-5)
    weights = np.full(4, 0.25) ** WEIGHT_EXPONENT  # equal predictive likelihoods
    means = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(np.asarray(memory.prior)[0, 0]), weights / weights.sum() @ means, rtol=1e-5)
    # A constant co-player is identified within a few episodes, and so is a change.
    for _ in range(5):
        memory = next_episode(noiseless, after(noiseless, memory, [[0.8, 0.2], [0.4, 0.6]], 0))
    assert float(np.exp(np.asarray(memory.prior)[0, 0, 0])) > 0.75
    for _ in range(4):
        memory = next_episode(noiseless, after(noiseless, memory, [[0.9, 0.1], [0.1, 0.9]], 1))
    assert float(np.exp(np.asarray(memory.prior)[0, 0, 0])) < 0.5


def test_counts_of_hop_hardly_move_in_ten_episodes() -> None:
    hop, learned_prior = replace(TRACKER, inter="counts", rationality=EXACT), np.zeros(2)
    memory = initial_memory(hop)
    counts = np.array([PSEUDO_COUNTS, PSEUDO_COUNTS])
    for _ in range(10):
        prior = counts / counts.sum()
        posterior = prior * [1.0, 1e-30] / (prior @ [1.0, 1e-30])
        counts = 0.995 * counts + posterior
        memory = next_episode(hop, after(hop, memory, [[1.0, 0.0], [0.0, 1.0]], 0))
        learned_prior = np.exp(np.asarray(memory.prior)[0, 0])
        np.testing.assert_allclose(learned_prior, counts / counts.sum(), rtol=1e-4)
    assert 0.51 < learned_prior[0] < 0.53


@pytest.mark.parametrize(("inter", "intra"), [("off", True), ("dirichlets", False), ("off", False)])
def test_ablations_of_beliefs(inter: str, intra: bool) -> None:
    tracker = replace(TRACKER, inter=inter, intra=intra, rationality=EXACT)
    first = after(tracker, initial_memory(tracker), [[0.8, 0.2], [0.4, 0.6]], 0)
    _, beliefs = predict(tracker, PARAMS, first, first_observation())
    assert (abs(float(np.asarray(beliefs.belief)[0, 0, 0]) - 0.5) > 0.1) == intra
    second = next_episode(tracker, first)
    assert (abs(float(np.exp(np.asarray(second.prior)[0, 0, 0])) - 0.5) > 0.05) == (inter != "off")


def test_beliefs_in_play_are_the_exact_filter_of_the_true_players() -> None:
    """With the true policies of three agent types as model, beliefs follow Bayes' rule over whole histories."""
    opponent_model = known_opponents(GAME, "ns", "nh", "random")
    tracker = BeliefTracker(opponent_model, goal_switch_probability=0.0, inter="off", rationality=EXACT)
    cast = Cast(tuple(make_player(name, GAME) for name in ("random", "ns", "nh", "random")))
    _, trajectory = play_episodes(jax.random.key(3), GAME, cast, 16)
    params = params_of(3)["moa"]

    def track(states: object, last: object) -> jax.Array:
        def step(memory: BeliefState, states: tuple) -> tuple[BeliefState, jax.Array]:
            before, later = states
            observation = one_seat(GAME.observe(before), 0)
            state = GAME.restore(observation)
            memory, beliefs = tracker.predict(params, memory, observation, GAME.observe(state), state)
            return tracker.watch(memory, one_seat(GAME.observe(later), 0)), beliefs.goal_probs

        later = jax.tree.map(lambda rows, end: jnp.concatenate([rows[1:], end[None]]), states, last)
        first = tracker.begin(tracker.init(jax.random.key(0), params))
        return jax.lax.scan(step, first, (states, later))[1]

    def policies(state: object) -> jax.Array:
        return opponent_model.policies((), jax.tree.map(lambda leaf: leaf[1:], GAME.observe(state)))

    @jax.jit
    def beliefs_and_policies(states: object, last: object) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(track, (1, 0), 1)(states, last), jax.vmap(jax.vmap(policies))(states)  # [T, E, 3, K], [..., A]

    belief, action_probs = jax.tree.map(np.asarray, beliefs_and_policies(trajectory.state, trajectory.last_state))
    alive, actions = np.asarray(trajectory.alive)[..., 1:], np.asarray(trajectory.actions)[..., 1:]
    chosen = np.take_along_axis(np.asarray(action_probs), actions[..., None, None], -1)[..., 0]
    likelihood = np.log(np.maximum(np.where(alive[..., None], chosen, 1.0), 1e-30))
    history = np.cumsum(likelihood, 0) - likelihood
    exact = np.exp(history - history.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(belief[alive], exact[alive], atol=2e-4)
    assert belief[8, :, 0, 0][alive[8, :, 0]].mean() > 0.9  # the stag hunter is identified by then


@pytest.mark.parametrize("preferences", [(), ("random",)])
def test_imagined_actions_change_beliefs_as_real_ones_do(preferences: tuple[str, ...]) -> None:
    """With a preference model too: that of a random player."""
    model = replace(known_opponents(GAME, "ns", "nh", *preferences), num_goals=2)
    rationality = replace(TRACKER.rationality, preferences=preferences)
    tracker, params = BeliefTracker(model, 0.1, rationality=rationality), params_of(2)["moa"]

    @jax.jit
    def both(key: jax.Array, actions: jax.Array) -> tuple[CoPlayerBeliefs, CoPlayerBeliefs, CoPlayerBeliefs]:
        """Beliefs before the last step, and after it, real and imagined."""
        state = GAME.init(key)
        memory = tracker.begin(tracker.init(jax.random.key(0), params))
        memory, before = tracker.predict(params, memory, one_seat(GAME.observe(state), 0), GAME.observe(state), state)
        real = imagined = before
        for taken in actions:
            state, _ = GAME.step(jax.random.key(0), state, taken)
            observations, before = GAME.observe(state), real
            memory = tracker.watch(memory, one_seat(observations, 0))
            imagined = tracker.update_imagined(params, before, state.last_actions[1:], observations, state)
            memory, real = tracker.predict(params, memory, one_seat(observations, 0), observations, state)
        return before, real, imagined

    before, real, imagined = both(
        jax.random.key(2), jnp.array([[4, 0, 1, 2], [4, 3, 0, 1], [4, 1, 2, 3], [4, 1, 4, 0]])
    )
    np.testing.assert_allclose(imagined.belief, real.belief, atol=1e-5)
    np.testing.assert_allclose(imagined.action_probs_by_goal, real.action_probs_by_goal, atol=1e-6)
    assert np.abs(np.asarray(real.belief - before.belief)).max() > 0.1


def test_the_number_of_drifts_taken_predicts_another() -> None:
    game = make("msg-4x4")
    tracker = make_belief_tracker(hop(goals="cells"), game)
    taken_counts = np.zeros((3, 17), np.float32)
    taken_counts[:, [2, 5]] = 8.0, 2.0

    @jax.jit
    def current_prior(taken_counts: Any, num_taken: Any, available: Any) -> jax.Array:
        memory = tracker.init(jax.random.key(0), {"prior": jnp.zeros(tracker.opponent_model.num_goals)})
        return tracker._current_prior(replace(memory, taken_counts=taken_counts, num_taken=num_taken), available)

    prior = np.exp(np.asarray(current_prior(taken_counts, np.array([0, 2, 5]), np.arange(17) < 3)))[:, 0]
    np.testing.assert_allclose(prior[:, 0], [0.0, 0.8, 1.0], atol=1e-4)
    np.testing.assert_allclose(prior[0, 1:3], 0.5, atol=1e-4)


@pytest.mark.parametrize("start", [0, 20])
def test_particles_stay_within_an_episode_and_are_weighted_by_actions(start: int) -> None:
    algorithm = hopplus(
        **{"goals": "gaussian", "particles": 5, "subgoal_dim": 3, "moa_hidden": (8,), **ONE_RATIONALITY}
    )
    tracker: BeliefTracker = make_belief_tracker(algorithm, GAME)

    @jax.jit
    def two_steps(key: jax.Array) -> tuple[CoPlayerBeliefs, CoPlayerBeliefs, BeliefState]:
        params = make_moa(algorithm).init_params(key, GAME)
        state = replace(GAME.init(jax.random.key(2)), time=jnp.int32(start))
        memory, before = predict(
            tracker, params, tracker.init(jax.random.key(1), params), one_seat(GAME.observe(state), 0)
        )
        later, _ = GAME.step(jax.random.key(0), state, jnp.array([4, 4, 4, 4]))
        observation = one_seat(GAME.observe(later), 0)
        memory, after_step = predict(tracker, params, tracker.watch(memory, observation), observation)
        return before, after_step, memory

    before, after_step, memory = jax.tree.map(np.asarray, two_steps(jax.random.key(0)))
    assert before.particles.shape == (3, 5, 3)
    np.testing.assert_allclose(before.particles, after_step.particles, rtol=1e-6)  # computed twice in one program
    action_probs = np.asarray(before.action_probs_by_goal)
    expected = 0.98 * action_probs[:, :, 4] + 0.02 / (action_probs[:, :1] > 0).sum(-1)
    np.testing.assert_allclose(after_step.belief[:, 0], expected / expected.sum(-1, keepdims=True), rtol=1e-4)
    assert isinstance(memory.subgoal_prior, Gaussian)
    assert np.abs(memory.subgoal_prior.mean).max() > 0, "inferred at the first step, at whatever time it is"


def test_zero_goals_are_zero_and_no_goals_have_no_input() -> None:
    from hopplus.players.planner import social_features, social_width

    for goals, width in (("zero", 4), ("none", 0), ("codes", 4)):
        algorithm = hopplus(**{"goals": goals, "moa_hidden": (8,), **ONE_RATIONALITY})
        player = algorithm.player(GAME, "test")
        tracker = player.tracker  # pyright: ignore[reportAttributeAccessIssue]

        @jax.jit
        def features(
            key: jax.Array, observation: Observation, algorithm: Any = algorithm, tracker: Any = tracker
        ) -> jax.Array:
            moa = make_moa(algorithm).init_params(key, GAME)
            return social_features(tracker, predict(tracker, moa, tracker.init(key, moa), observation)[1])

        social = np.asarray(features(jax.random.key(0), first_observation())).reshape(3, -1)
        assert social.size == social_width(tracker) == 3 * (width + GAME.num_actions)
        assert (social[:, :width] == 0).all() == (goals != "codes" or not width)


def test_every_co_player_may_have_a_network_of_its_own() -> None:
    shared = hopplus(**{"moa_hidden": (8,)})
    each = hopplus(**{"moa_hidden": (8,), "moa_networks": "each"})
    shared_model: OpponentModel = make_belief_tracker(shared, GAME).opponent_model
    each_model: OpponentModel = make_belief_tracker(each, GAME).opponent_model

    @jax.jit
    def both(keys: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        models = jax.vmap(lambda key: make_moa(shared).init_params(key, GAME)["network"])(keys)
        features = shared_model.features(GAME.observe(GAME.init(jax.random.key(0))))
        alone = [
            shared_model.policies(jax.tree.map(lambda leaf, index=index: leaf[index], models), features)[index]
            for index in range(3)
        ]
        return each_model.policies(models, features), alone

    together, alone = jax.tree.map(np.asarray, both(jax.random.split(jax.random.key(0), 3)))
    assert np.abs(together[0] - together[1]).max() > 1e-4
    for index in range(3):
        np.testing.assert_allclose(together[index], alone[index], rtol=1e-5)


# -- rationality


def test_goal_and_tremble_are_inferred_jointly_by_hand() -> None:
    """Two trembles and two goals: the posterior is the product of prior and likelihoods over the whole history."""
    rationality = Rationality((0.0, 0.5))
    tracker = replace(TRACKER, rationality=rationality)
    policies = [([[0.8, 0.2], [0.4, 0.6]], 0), ([[0.5, 0.5], [0.1, 0.9]], 1)]
    memory, expected = initial_memory(tracker), np.array(rationality.prior)[:, None] * np.full((2, 2), 0.5)
    for action_probs, action in policies:
        memory = after(tracker, memory, action_probs, action)
        chosen = np.array(action_probs)[:, action]
        expected = expected * np.stack([chosen, 0.5 * chosen + 0.5 / 2])
    np.testing.assert_allclose(belief_of(memory)[0], expected / expected.sum(), rtol=1e-5)


def test_goals_switch_within_an_episode_and_trembles_do_not() -> None:
    tracker = replace(TRACKER, rationality=Rationality((0.0, 0.5)), goal_switch_probability=0.3)
    memory, action_probs = initial_memory(tracker), np.array([[0.9, 0.1], [0.2, 0.8]])
    belief = np.array(tracker.rationality.prior)[:, None] * np.full((2, 2), 0.5)
    for action in (0, 0, 1):
        memory = after(tracker, memory, action_probs.tolist(), action)
        chosen = action_probs[:, action]
        belief = belief * np.stack([chosen, 0.5 * chosen + 0.25])
        belief = 0.7 * belief + 0.3 * 0.5 * belief.sum(1, keepdims=True)  # the goal is redrawn, the tremble is kept
    np.testing.assert_allclose(belief_of(memory)[0], belief / belief.sum(), rtol=1e-5)


def test_memory_between_episodes_is_over_trembles_and_first_goals() -> None:
    tracker = replace(TRACKER, rationality=Rationality((0.0, 0.5)))
    memory = after(tracker, initial_memory(tracker), [[0.8, 0.2], [0.4, 0.6]], 0)
    posterior, prior = belief_of(memory)[0], np.array(tracker.rationality.prior)[:, None] * np.full((2, 2), 0.5)
    counts = np.asarray(FORGETTING)[:, None, None] * prior + posterior
    np.testing.assert_allclose(np.asarray(next_episode(tracker, memory).counts)[0], counts, rtol=1e-5)


def test_a_random_player_is_identified_whatever_the_goals_predict() -> None:
    tracker = replace(TRACKER, rationality=Rationality((0.02,), random=True))
    memory = initial_memory(tracker)
    for action in (0, 1, 0, 1, 1, 0, 1, 0):
        memory = after(tracker, memory, [[0.99, 0.01], [0.01, 0.99]], action)
    assert belief_of(memory)[0, -1].sum() > 0.99


def test_a_preference_model_weighs_hypotheses_by_its_prediction_and_infers_goals_by_theirs() -> None:
    """One preference model: its evidence is the product of its own predictions, its goal that of the goal filter."""
    rationality = Rationality((0.0,), preferences=("hares",))
    tracker = replace(TRACKER, rationality=rationality, goal_switch_probability=0.1)
    memory, by_goal, evidence = initial_memory(tracker), np.full(2, 0.5), np.array(rationality.prior)
    for action, by_preference in ((0, [0.7, 0.3]), (0, [0.6, 0.4]), (1, [0.9, 0.1])):
        policies = [[0.8, 0.2], [0.4, 0.6], by_preference]
        memory = after(tracker, memory, policies, action)
        joint = by_goal * np.array(policies)[:2, action]
        evidence = evidence * [joint.sum(), by_preference[action]]
        by_goal = 0.9 * joint / joint.sum() + 0.1 * 0.5
    np.testing.assert_allclose(belief_of(memory)[0], np.outer(evidence / evidence.sum(), by_goal), rtol=1e-5)

"""Reward randomisation of every learner: preferred rewards, trembles, the centralised critic, deployment."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import floats, hopplus
from hopplus.algorithms import PPO, HopPlus, Liam, Prosocial, RecurrentPPO, reward_randomization
from hopplus.algorithms.base import Algorithm, CurriculumPhase
from hopplus.algorithms.ppo import network_inputs
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.games.preferences import Preference, neutral
from hopplus.players.policy import evaluate_features
from hopplus.players.preferences import PreferenceMemory, preference_features
from hopplus.rollouts import Trajectory
from hopplus.training.experiment import prepare

GAME = "msh-4x4-4h1s"
SMALL: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 40,
    "hidden": (8,),
    "update_epochs": 1,
    "gamma": 0.0,
    "randomize_rewards": True,
    "trial_episodes": 1,
}
ALGORITHMS: dict[str, Any] = {
    "ppo": PPO(**SMALL),
    "ppo-centralized": PPO(**SMALL, centralized_critic=True, parameters="independent"),
    "recurrent": RecurrentPPO(**SMALL, memory_size=8),
    "liam-centralized": Liam(**SMALL, memory_size=8, centralized_critic=True),
    "hopplus-centralized": hopplus(**SMALL, moa_hidden=(8,), moa_batches=2, centralized_critic=True),
}


@dataclass(frozen=True, eq=False)
class Played:
    """One training iteration with gamma = 0, so that value targets are rewards; arrays are NumPy's."""

    algorithm: Any
    phase: CurriculumPhase
    params: Any
    """Parameter sets [P, ...] that acted."""
    trajectory: Trajectory
    transitions: Any
    metrics: Any

    @property
    def info(self) -> Any:
        return self.phase.seats.infos(self.trajectory)[0]


@pytest.fixture(scope="module", params=ALGORITHMS)
def played(request: pytest.FixtureRequest) -> Played:
    algorithm = ALGORITHMS[request.param]
    phase = prepare(TrainingConfig(game=GAME), algorithm).phases[0][1]
    state = jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))
    kept: dict[str, Any] = {}

    def recording(*arguments: Any) -> Any:
        kept["transitions"] = type(algorithm).transitions(algorithm, *arguments)
        return kept["transitions"]

    @jax.jit
    def train_step(state: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(algorithm.__dict__, "transitions", recording)
            _, trajectory, metrics = algorithm.train_step(state, phase, {})
        return trajectory, kept["transitions"], metrics

    results = jax.tree.map(np.asarray, train_step(state))
    return Played(algorithm, phase, jax.tree.map(np.asarray, algorithm.params(state)), *results)


def test_rewards_are_weighted_less_the_step_cost(played: Played) -> None:
    trajectory, preference = played.trajectory, played.info.preference
    weighted = (preference.reward_weights * trajectory.components).sum(-1) - preference.step_cost
    target, alive = played.transitions.target, trajectory.alive
    np.testing.assert_allclose(target[alive], weighted[alive], atol=1e-5)
    assert (np.abs(weighted - trajectory.reward)[alive] > 0.01).any()


def test_trembled_rows_keep_the_ratio_of_the_intended_action(played: Played) -> None:
    trajectory, rows, preference = played.trajectory, played.transitions, played.info.preference
    intended = played.info.intended_action
    trembled = trajectory.alive & (trajectory.actions != intended)
    assert trembled.any()
    assert (preference.tremble[trembled] > 0).all()
    np.testing.assert_array_equal(rows.action[trajectory.alive], intended[trajectory.alive])
    np.testing.assert_array_equal(rows.is_valid, trajectory.alive)
    log_policy, _ = outputs(played)
    log_probability = np.take_along_axis(log_policy, rows.action[..., None], -1)[..., 0]
    ratio = np.exp(log_probability - rows.log_probability)
    np.testing.assert_allclose(ratio[trajectory.alive], 1, rtol=1e-4)


def outputs(played: Played) -> tuple[np.ndarray, np.ndarray]:
    """Log-policies and values [T, E, L, ...] that the update computes from the stored transitions."""
    algorithm, rows = played.algorithm, played.transitions
    network, shared = algorithm.network(played.phase.final_game), algorithm.shares_params
    params = played.params["policy"] if isinstance(algorithm, HopPlus) else played.params

    @jax.jit
    def apply(params: Any, rows: Any) -> Any:
        if not isinstance(algorithm, RecurrentPPO):
            return outputs_of_rows(network, params, rows.features, shared)
        sequences = algorithm.to_minibatches(rows)
        first = jax.tree.map(lambda leaf: leaf[0], params)
        logits, value, *_ = algorithm.apply_network(network, first, sequences.features)
        return jnp.moveaxis(jax.nn.log_softmax(logits), 2, 0), jnp.moveaxis(value, 2, 0)

    return jax.tree.map(np.asarray, apply(params, rows))


def outputs_of_rows(network: Any, params: Any, features: Any, shared: bool) -> Any:
    """Log-policies and values of features [T, E, L, ...]."""

    def one_seat(params: Any, inputs: Any) -> Any:
        logits, value = evaluate_features(network, params, *inputs)
        return jax.nn.log_softmax(logits), value

    if shared:
        return one_seat(jax.tree.map(lambda leaf: leaf[0], params), network_inputs(features))
    return jax.vmap(one_seat, (0, 2), 2)(params, network_inputs(features))


def test_values_are_those_that_the_update_computes(played: Played) -> None:
    _, value = outputs(played)
    np.testing.assert_allclose(
        value[played.trajectory.alive], played.transitions.value[played.trajectory.alive], atol=1e-4
    )


def test_own_return_is_the_games_reward_of_neutral_learners(played: Played) -> None:
    trajectory, preference = played.trajectory, played.info.preference
    is_neutral = (preference.reward_weights == 1).all(-1) & (preference.step_cost == 0) & (preference.tremble == 0)
    counts = trajectory.over[..., None] & is_neutral
    assert 0 < counts.sum() < trajectory.over.sum() * 4
    metric = played.metrics["own_return"]
    np.testing.assert_array_equal(metric.count, counts.sum((0, 1)))
    np.testing.assert_allclose(metric.total, np.where(counts, trajectory.total_reward, 0).sum((0, 1)), rtol=1e-5)


# ------------------------------------------------------------------------------------------------ centralised critic


def test_the_critic_observes_the_preferences_of_the_co_players_ego_first(played: Played) -> None:
    critic = network_inputs(played.transitions.features)[1:]
    assert bool(critic) == played.algorithm.centralized_critic
    if not critic:
        return
    own = np.asarray(preference_features(played.info.preference))
    co_players = np.stack([np.roll(own, -seat, axis=2)[:, :, 1:] for seat in range(4)], 2)
    expected = (co_players - np.array([1, 1, 0, 0])).reshape(*critic[0].shape)
    np.testing.assert_allclose(critic[0], expected, atol=1e-6)
    assert (np.abs(played.info.value - played.transitions.value)[played.trajectory.alive] > 1e-4).any()


def test_the_policy_never_observes_the_critics_inputs() -> None:
    game, algorithm = make(GAME), ALGORITHMS["ppo-centralized"]
    player = algorithm.player(game, "deployed")

    @jax.jit
    def compare(key: jax.Array) -> tuple[Any, Any, Any]:
        params = player.network.init(
            key, observation := jax.tree.map(lambda leaf: leaf[0], game.observe(game.init(key)))
        )
        inputs = player.inputs(params["params"], (), observation)
        given = jnp.arange(12.0)
        results = [evaluate_features(player.network, params["params"], inputs, critic) for critic in (given, 0 * given)]
        return *results, (
            player.probabilities(params["params"], (), observation),
            player.value(params["params"], (), observation),
        )

    with_preferences, without, deployed = jax.tree.map(np.asarray, compare(jax.random.key(0)))
    np.testing.assert_array_equal(with_preferences[0], without[0])
    assert abs(with_preferences[1] - without[1]) > 1e-3
    np.testing.assert_allclose(deployed[1], without[1], rtol=1e-6)


# --------------------------------------------------------------------------------------------------------- deployment


@pytest.mark.parametrize("name", ["ppo", "recurrent"])
def test_deployed_players_are_neutral_and_do_not_tremble(name: str) -> None:
    game, algorithm = make(GAME), ALGORITHMS[name]
    deployed = algorithm.player(game, "deployed", greedy=True)
    learner = algorithm.player(game, "learner", greedy=True, learns=True)
    trembling = Preference(floats([1, 1]), floats(0), floats(0.5))

    @jax.jit
    def act(key: jax.Array) -> Any:
        observation = jax.tree.map(lambda leaf: leaf[0], game.observe(game.init(key)))
        params = deployed.network.init(key, observation)["params"]
        keys = jax.random.split(key, 200)
        calm = deployed.meet(key, deployed.init(key, params))
        memory = learner.meet(key, learner.init(key, params))
        drawn = PreferenceMemory(jax.tree.map(jnp.asarray, trembling), jnp.float32(0))
        memory = drawn if name == "ppo" else replace(memory, preference=drawn)
        calm_actions = jax.vmap(lambda key: deployed.act(key, params, calm, observation)[0])(keys)
        trembled_actions = jax.vmap(lambda key: learner.act(key, params, memory, observation)[0])(keys)
        return (
            calm_actions,
            trembled_actions,
            deployed.preference(calm),
            deployed.probabilities(params, calm, observation),
        )

    calm, trembled, preference, probabilities = jax.tree.map(np.asarray, act(jax.random.key(0)))
    assert (calm == probabilities.argmax()).all()
    assert 0.2 < (trembled != probabilities.argmax()).mean() < 0.5, "half of the actions are random legal ones"
    jax.tree.map(np.testing.assert_array_equal, preference, neutral(game))


def test_a_forgetful_player_keeps_its_preference_over_the_episodes_of_a_trial() -> None:
    game, algorithm = make(GAME), ALGORITHMS["liam-centralized"]
    player = algorithm.player(game, "learner", learns=True)
    memory_of = jax.jit(lambda key: player.meet(key, player.init(key, algorithm_params(algorithm))))
    assert player.forgets
    for seed in range(3):
        memory = memory_of(jax.random.key(seed))
        after = jax.jit(player.end)(jax.tree.map(lambda leaf: leaf + jnp.ones_like(leaf), memory))
        assert not np.asarray(after.hidden).any()
        jax.tree.map(
            lambda kept, before: np.testing.assert_array_equal(kept, before + 1), after.preference, memory.preference
        )


def algorithm_params(algorithm: Any) -> Any:
    """Fresh parameters of an algorithm's network."""
    game = make(GAME)
    observation = jax.tree.map(lambda leaf: leaf[0], game.observe(game.init(jax.random.key(0))))
    return algorithm.network(game).init(jax.random.key(0), observation)["params"]


# ----------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (PPO(randomize_rewards=True), "randomize_rewards needs trials"),
        (PPO(trial_episodes=5, centralized_critic=True), "centralized_critic needs randomize_rewards"),
        (PPO(trial_episodes=5, regret_share=0.5), "regret_share needs randomize_rewards"),
        (hopplus(trial_episodes=5, regret_share=0.5), "regret_share needs randomize_rewards"),
        (PPO(trial_episodes=5, randomize_rewards=True, regret_share=1.5), "regret_share must be from 0 to 1, not 1.5"),
        (
            Prosocial(trial_episodes=5, randomize_rewards=True),
            "mean reward of all players: randomize_rewards must be off",
        ),
        (
            hopplus(trial_episodes=5, randomize_rewards=True, centralized_critic=True, real_ratio=0.5),
            "a simulator knows no",
        ),
    ],
)
def test_unfit_settings_are_refused_in_one_sentence(algorithm: Algorithm, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        prepare(TrainingConfig(game=GAME), algorithm)


def test_fixed_co_players_have_no_preference_for_the_critic() -> None:
    algorithm = ALGORITHMS["ppo-centralized"]
    phase = prepare(TrainingConfig(game=GAME, cast="learner,nh,learner,ns"), algorithm).phases[0][1]
    state = jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))
    trajectory = jax.jit(lambda state: algorithm.collect(state, phase, {})[2])(state)
    critic = np.asarray(reward_randomization.co_player_preferences(phase, trajectory)).reshape(40, 16, 2, 3, 4)
    assert not critic[:, :, :, [0, 2]].any(), "seats 1 and 3 are fixed"
    assert critic[:, :, 0, 1].any()
    own = preference_features(phase.seats.infos(trajectory)[0].preference)
    np.testing.assert_allclose(critic[:, :, 0, 1], np.asarray(own)[:, :, 1] - np.array([1, 1, 0, 0]), atol=1e-6)

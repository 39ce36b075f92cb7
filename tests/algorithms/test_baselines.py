"""Baselines: recurrent PPO, LIAM, prosocial rewards and mixed pools, each on a small task with a known answer."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import numpy as np
import pytest
from jaxtyping import Array

from common import differs_by, floats, hopplus, train
from hopplus import games, players, rollouts
from hopplus.algorithms import PPO, PRESETS, HopPlus, Liam, RecurrentPPO, liam, make_algorithm, ppo_update
from hopplus.algorithms.presets import ONE_RATIONALITY
from hopplus.algorithms.prosocial import expected_mean_reward, shared_rewards
from hopplus.configs import TrainingConfig
from hopplus.games import catalog
from hopplus.networks.recurrent import History
from hopplus.players import Cast
from hopplus.players.pool import Pool
from hopplus.rollouts import Trajectory
from hopplus.training.experiment import Experiment, prepare
from toy_games import FixedAction, Guess

HUNT = "msh-4x4-4h1s"
SMALL = {"num_envs": 32, "num_steps": 24, "hidden": (32,), "memory_size": 16, "learning_rate": 4e-3}


@pytest.fixture(scope="module", autouse=True)
def registered_game() -> Iterator[None]:
    games.register("test-guess", Guess)
    yield
    catalog._GAMES.pop("test-guess")


@pytest.fixture(autouse=True)
def registered_player() -> None:
    players.register("kind", lambda game: FixedAction())


GUESSER: dict[str, Any] = {
    "num_envs": 64,
    "num_steps": 16,
    "hidden": (32,),
    "encoder": "dense",
    "memory_size": 16,
    "learning_rate": 1e-2,
    "trial_episodes": 10,
}


def guessing(algorithm: RecurrentPPO) -> list[dict[str, Any]]:
    return train(
        prepare(
            TrainingConfig(game="test-guess", steps=80 * 1024, iterations_per_call=10, cast="learner,kind"), algorithm
        )
    ).lines


# ----------------------------------------------------------------------------------------------------------- memory


def test_a_memory_identifies_the_co_player() -> None:
    # A trial lasts ten episodes on average, and its first action can only be guessed: 0.9 + 0.1 / 4 at best.
    assert guessing(RecurrentPPO(**GUESSER))[-1]["return"][0] > 0.88


@pytest.mark.slow  # fast test of the same: test_memory_is_reset_exactly_at_the_end_of_a_trial
def test_without_a_memory_the_co_player_is_not_identified() -> None:
    forgetful = [line["return"][0] for line in guessing(RecurrentPPO(**GUESSER, reset_memory=True))]
    assert max(forgetful[-4:]) < 0.3


def test_has_memory_holds_for_algorithms_with_a_state_between_episodes() -> None:
    assert RecurrentPPO().has_memory
    assert HopPlus().has_memory
    assert hopplus(goals="prey").has_memory
    assert hopplus(goals="none").has_memory, "beliefs about rationality"
    direct_om = hopplus(goals="none", **ONE_RATIONALITY)
    for forgetful in (PPO(), Liam(), RecurrentPPO(reset_memory=True), hopplus(inter=False), direct_om):
        assert not forgetful.has_memory


def test_presets_have_the_settings_of_their_names() -> None:
    game = games.make(HUNT)
    algorithm, settings = PRESETS["omg"]
    omg = make_algorithm(algorithm, settings(game))
    assert isinstance(omg, HopPlus)
    assert (omg.beliefs.goals, omg.beliefs.inter, omg.planning.planner) == ("gaussian", False, "off")
    algorithm, settings = PRESETS["direct-om"]
    assert make_algorithm(algorithm, settings(game)) == hopplus(goals="none", **ONE_RATIONALITY)


@dataclass(frozen=True, eq=False)
class PlayedRollout:
    experiment: Experiment
    algorithm: RecurrentPPO
    state: Any
    before: Any
    """Rollout state before the rollout."""
    rows: Any
    trajectory: Trajectory


@functools.cache
def play_twice(algorithm: RecurrentPPO, game: str = HUNT, cast: str = "self-play") -> PlayedRollout:
    """Second of two rollouts, which starts with a memory of the first."""
    experiment = prepare(TrainingConfig(game=game, cast=cast), algorithm)
    phase = experiment.phases[0][1]
    state = jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))
    rollout = jax.jit(partial(algorithm.collect, phase=phase, frozen={}))
    state = replace(state, rollout_state=rollout(state)[0])
    rows, trajectory = jax.tree.map(np.asarray, rollout(state)[1:])
    return PlayedRollout(experiment, algorithm, state, state.rollout_state, rows, trajectory)


@functools.partial(jax.jit, static_argnames="algorithm")
def grouped(rows: Any, algorithm: RecurrentPPO) -> Any:
    """Transitions by parameter set [P, ...]."""
    return ppo_update.group_by_params(algorithm.to_minibatches(rows), algorithm.shares_params)


@pytest.mark.parametrize(
    "algorithm", [RecurrentPPO(**SMALL, parameters="independent", trial_episodes=0), Liam(**SMALL)]
)
def test_a_stored_sequence_reproduces_the_outputs_of_play(algorithm: RecurrentPPO) -> None:
    played = play_twice(algorithm)
    batch = jax.tree.map(np.asarray, grouped(played.rows, algorithm))
    network = algorithm.network(played.experiment.game)

    @jax.jit
    @jax.vmap
    def replay(params: Any, history: Any) -> tuple[Array, Array]:
        logits, value, *_ = cast(Any, network.apply({"params": params}, history, method="from_history"))
        return jax.nn.log_softmax(logits), value

    log_policy, value = jax.tree.map(np.asarray, replay(played.state.train_state.params, batch.features))
    log_probability = np.take_along_axis(log_policy, batch.action[..., None], -1)[..., 0]
    learns = batch.is_valid
    assert 0.3 < learns.mean() < 1
    np.testing.assert_allclose(log_probability[learns], batch.log_probability[learns], atol=2e-5)
    np.testing.assert_allclose(value[learns], batch.value[learns], atol=2e-4)
    # The memory matters: another memory before the first step gives other outputs.
    other: History = replace(batch.features, hidden=batch.features.hidden + 1.0)
    changed = np.asarray(replay(played.state.train_state.params, other)[0])
    assert np.abs(np.where(changed > -100, changed - log_policy, 0))[learns].max() > 1e-6


@pytest.mark.parametrize(
    ("algorithm", "trial_episodes", "reset_memory"),
    [
        (RecurrentPPO, 1, False),
        (RecurrentPPO, 0, False),
        (RecurrentPPO, 3, False),
        (RecurrentPPO, 3, True),
        (Liam, 3, True),
    ],
)
def test_memory_is_reset_exactly_at_the_end_of_a_trial(
    algorithm: type[RecurrentPPO], trial_episodes: int, reset_memory: bool
) -> None:
    settings = {
        **GUESSER,
        "num_envs": 32,
        "num_steps": 24,
        "trial_episodes": trial_episodes,
        "reset_memory": reset_memory,
    }
    played = play_twice(algorithm(**settings), "test-guess:steps=3", "learner,kind")
    first = np.asarray(played.trajectory.state.time) == 0
    met_before = np.asarray(played.trajectory.info[1][1])[:, :, 0] > 0
    remembers = np.asarray(played.rows.features.remembers)
    expected = ~first | (met_before & (not reset_memory))
    np.testing.assert_array_equal(remembers, np.broadcast_to(expected[..., None], remembers.shape))
    assert first.any()
    if trial_episodes == 3:
        assert met_before[first].any()
        assert not met_before[first].all()
    # The memory's input at the first step of an episode is the end of the previous one; later it is the observation.
    seen = played.rows.features.seen
    same = (played.rows.features.memory_inputs[..., -seen.shape[-1] :] == seen).all(-1)
    assert same[~first].all()
    assert not same[first].any()


def test_the_end_of_an_episode_is_remembered_in_the_next() -> None:
    played = play_twice(RecurrentPPO(**GUESSER), "test-guess", "learner,kind")
    actions = np.asarray(played.trajectory.actions)[:-1]
    inputs, remembers = played.rows.features.memory_inputs[1:, :, 0, :8], played.rows.features.remembers[1:, :, 0]
    both = np.concatenate([np.eye(4)[actions[..., seat]] for seat in (0, 1)], -1)
    np.testing.assert_array_equal(inputs[remembers], both[remembers])
    assert 0.8 < remembers.mean() < 1


# ------------------------------------------------------------------------------------------------------------- LIAM


def test_liam_predicts_the_co_players_action_as_well_as_possible() -> None:
    # The first action of a trial can only be guessed; it is then repeated.
    metrics = guessing(Liam(**GUESSER, reset_memory=False))[-1]
    assert 0.88 < metrics["co_player_action_accuracy"][0] < 0.97
    assert metrics["co_player_board_accuracy"][0] == 1, "the board of this game is always empty"


@pytest.mark.slow  # fast test of the same: test_memory_is_reset_exactly_at_the_end_of_a_trial
def test_liam_without_memory_between_episodes_cannot_predict_the_co_players_action() -> None:
    assert guessing(Liam(**GUESSER))[-1]["co_player_action_accuracy"][0] < 0.32


def single_transition(**fields: Any) -> liam.TransitionsWithOthers:
    defaults = {
        **dict.fromkeys(("log_probability", "value", "advantage", "target"), np.zeros(1, np.float32)),
        **dict.fromkeys(("seat", "action", "collected_at"), np.zeros(1, np.int32)),
        "features": (),
        "is_valid": np.ones(1, bool),
    }
    return liam.TransitionsWithOthers(**defaults, **fields)


def test_reconstruction_by_hand() -> None:
    rows = single_transition(
        co_player_board=np.array([[[1, 0], [1, 1]]], np.uint8),
        co_player_action=np.array([[0, 2]]),
        co_player_legal=np.array([[[True, True, False], [True, True, True]]]),
        co_player_alive=np.array([[True, False]]),
    )
    boards, actions = floats([[[0.0, 0.0], [9.0, 9.0]]]), floats([[[0.0, 0.0, 50.0], [0.0, 0.0, 0.0]]])
    error, metrics = jax.jit(liam.reconstruction)(boards, actions, rows, np.ones(1, bool))
    # Uniform predictions of two cells and two legal actions; the other co-player has left.
    np.testing.assert_allclose(error, 2 * np.log(2), rtol=1e-5)
    assert metrics["co_players_alive"][0] == 1
    assert metrics["co_player_board_accuracy"][0] == 0.5
    assert metrics["co_player_action_accuracy"][0] == 1


def test_liam_reconstructs_observations_and_actions_of_each_seats_co_players() -> None:
    rollout = play_twice(Liam(**SMALL))
    seen = jax.jit(lambda played: rollouts.observations(rollout.experiment.game, played))(rollout.trajectory)
    for seat in range(4):
        co_players = [(seat + offset) % 4 for offset in (1, 2, 3)]
        for place, co_player in enumerate(co_players):
            for name, expected in (
                ("co_player_action", rollout.trajectory.actions[..., co_player]),
                ("co_player_alive", rollout.trajectory.alive[..., co_player]),
                ("co_player_legal", np.asarray(seen.legal)[:, :, co_player, 0]),
                ("co_player_board", np.asarray(seen.grid)[:, :, co_player].reshape(24, 32, -1)),
            ):
                np.testing.assert_array_equal(getattr(rollout.rows, name)[:, :, seat, place], expected, err_msg=name)


def test_the_policy_gradient_of_liam_does_not_reach_its_memory() -> None:
    algorithm = Liam(**SMALL)
    played = play_twice(algorithm)
    network = algorithm.network(played.experiment.game)
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[0], grouped(played.rows, algorithm))

    def loss(params: Any, weight: float) -> Array:
        apply = lambda params, history: network.apply({"params": params}, history, method="from_history")  # noqa: E731
        return liam.loss(params, apply, batch, batch.is_valid, algorithm, 5.0, 0.01, weight)[0]

    params = jax.tree.map(lambda leaf: np.asarray(leaf)[0], played.state.train_state.params)
    gradient = jax.jit(jax.grad(loss))

    def size(gradients: Any, *names: str) -> float:
        return max(float(np.abs(leaf).max()) for name in names for leaf in jax.tree.leaves(gradients[name]))

    by_policy, by_both = (jax.tree.map(np.asarray, gradient(params, weight)) for weight in (0.0, 1.0))
    assert size(by_policy, "gates", "recurrent", "decoder", "others_see", "others_do") == 0
    assert size(by_policy, "hidden_0") > 0
    assert size(by_both, "gates") > 0
    assert size(by_both, "others_do") > 0
    np.testing.assert_allclose(by_both["hidden_0"]["kernel"], by_policy["hidden_0"]["kernel"], atol=1e-6)


# -------------------------------------------------------------------------------------------------------- prosocial


def test_rewards_after_a_player_has_left_are_credited_to_its_last_step() -> None:
    # Seat 0 leaves in step 0 with 1; seat 1 earns 4 in step 2, when the episode ends; the next episode is truncated.
    alive = np.array([[1, 1], [0, 1], [0, 1], [1, 1], [0, 1]], bool)
    left = np.array([[1, 0], [1, 0], [1, 1], [1, 0], [1, 0]], bool)
    reward = np.array([[1, 0], [0, 0], [0, 4], [1, 0], [0, 2]], np.float32)
    over = np.array([0, 0, 1, 0, 0], bool)
    fields: dict[str, Any] = {"alive": alive[:, None], "left": left[:, None], "reward": reward[:, None]}
    empty: dict[str, Any] = dict.fromkeys(
        ("state", "actions", "components", "took", "cell", "total_reward", "total_steps", "info", "last_state"), ()
    )
    trajectory = Trajectory(**fields, over=over[:, None], **empty)  # pyright: ignore[reportArgumentType]
    bootstrap: Any = floats([8.0])
    share = jax.jit(
        lambda played: [shared_rewards(played, prosociality, 0.5, bootstrap) for prosociality in (1.0, 0.0)]
    )
    shared, alone = jax.tree.map(np.asarray, share(trajectory))
    # The truncated episode has a value of 8 after its last step, two steps after seat 0 has left.
    np.testing.assert_allclose(shared[:, 0, 0], [0.5 + 0.5 * 0.5 * 2, 0, 0, 0.5 + 0.5 * (1 + 0.5 * 8), 0])
    np.testing.assert_allclose(shared[:, 0, 1], [0.5, 0, 2, 0.5, 1])
    np.testing.assert_array_equal(alone[:, 0], np.where(alive, reward, 0))


@pytest.mark.parametrize("prosociality", [0.0, 0.3, 1.0])
def test_the_expected_mean_reward_uses_the_values_of_present_players(prosociality: float) -> None:
    # Two of three players are present and will earn 2 and 4: 2 in the mean of all three.
    values = floats([[(1 - prosociality) * reward + prosociality * 2.0 for reward in (2.0, 4.0)] + [99.0]])
    expected = jax.jit(lambda present: expected_mean_reward(values, present, 3, prosociality))
    np.testing.assert_allclose(expected(np.array([[True, True, False]])), 2.0, rtol=1e-6)
    assert expected(np.zeros((1, 3), bool)) == 0


# -------------------------------------------------------------------------------------------------------------- mix


def test_a_mix_makes_every_composition_of_co_players_equally_likely() -> None:
    game = games.make(HUNT)
    environments = 20_000

    def members(pool_type: str) -> tuple[Cast, np.ndarray]:
        """Cast, and the drawn member in each of three seats [environments, 3]."""
        cast = players.make_cast(
            f"stay,{pool_type}(stay,random),{pool_type}(stay,random),{pool_type}(stay,random)", game
        )
        _, trajectory = rollouts.rollout(
            rollouts.init_rollout(jax.random.key(3), game, cast, environments), game, cast, 1
        )
        return cast, np.asarray(trajectory.info[1].member)[0]

    mixed_cast, mixed = members("mix")
    frequencies = np.bincount((mixed == 0).sum(-1), minlength=4) / environments
    assert np.abs(frequencies - 0.25).max() <= differs_by(environments)
    _, apart = members("pool")
    assert abs((apart.sum(-1) % 3 == 0).mean() - 0.25) <= differs_by(environments)
    assert isinstance(mixed_cast.players[1], Pool)

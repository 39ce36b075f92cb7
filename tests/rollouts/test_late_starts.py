"""Late starts: times, returns that do not count, and memories that stay as they were."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import differs_by, floats, hopplus
from hopplus import games, players, rollouts
from hopplus.algorithms import PPO, RecurrentPPO
from hopplus.algorithms.base import Algorithm, episode_metrics
from hopplus.algorithms.reward_randomization import own_return
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.games import Observation, register
from hopplus.players import Cast, Player
from hopplus.rollouts import Trajectory
from hopplus.rollouts.late_starts import check_clock, draw_starts
from hopplus.training.experiment import prepare
from toy_games import Guess, GuessState

HUNT = games.make("msh-4x4-4h1s:T=5")
SHARE = 0.25


@dataclass(frozen=True)
class Counter(Player):
    """Player that idles, and counts the steps and the episodes of a trial; its info are both numbers."""

    name: str = "counter"

    def init(self, key: Any, params: Any) -> Any:
        return {"steps": jnp.int32(0), "episodes": jnp.int32(0), "trial": jax.random.uniform(key)}

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> Any:
        return jnp.int32(4), memory, memory

    def watch(self, params: Any, memory: Any, observation: Observation) -> Any:
        return {**memory, "steps": memory["steps"] + 1}

    def end(self, memory: Any) -> Any:
        return {**memory, "episodes": memory["episodes"] + 1}


@pytest.fixture(scope="module")
def played() -> Trajectory:
    """Steps [150, 400] of players who idle until the end, in one endless trial."""
    cast = Cast((Counter(),) * 4)
    state = rollouts.init_rollout(jax.random.key(0), HUNT, cast, 400, late_starts=True)
    return jax.tree.map(np.asarray, rollouts.rollout(state, HUNT, cast, 150, late_start_share=SHARE)[1])


def is_first(trajectory: Trajectory) -> np.ndarray:
    """Mask of the first steps of episodes [T, E], without the first of the rollout."""
    return np.concatenate([np.zeros_like(trajectory.over[:1]), np.asarray(trajectory.over)[:-1]])


def test_starts_have_their_share_and_times_are_uniform(played: Trajectory) -> None:
    first, late = is_first(played), np.asarray(played.is_late)
    number = int(first.sum())
    assert abs(late[first].mean() - SHARE) <= differs_by(number)
    times = played.state.time[first & late]
    frequencies = np.bincount(times, minlength=5) / len(times)
    assert len(frequencies) == 5
    assert np.abs(frequencies - 0.2).max() <= differs_by(len(times))
    assert (played.state.time[first & ~late] == 0).all()
    assert not late[0].any()
    assert (played.state.time[played.over] == 4).all(), "every episode ends at the deadline"
    assert (np.asarray(played.is_late)[1:] == late[:-1])[~first[1:]].all(), "late from the first step to the last"


def test_the_board_of_a_late_start_is_fresh(played: Trajectory) -> None:
    late = is_first(played) & np.asarray(played.is_late)
    assert (played.state.cells[late] >= 0).all()
    assert (played.state.deadline[late] == 5).all()
    assert len(np.unique(played.state.cells[late], axis=0)) > 100


def test_late_episodes_leave_the_memory_as_it_was(played: Trajectory) -> None:
    memory, late, over = played.info[0], np.asarray(played.is_late), np.asarray(played.over)
    counted = np.cumsum(over & ~late, 0) - (over & ~late)
    np.testing.assert_array_equal(memory["episodes"][..., 0], counted)
    own_steps = np.asarray(played.total_steps)[..., 0] - 1
    np.testing.assert_array_equal(memory["steps"][..., 0], 5 * counted + own_steps)
    assert (memory["trial"] == memory["trial"][:1]).all()


def test_trials_end_with_episodes_that_count_only() -> None:
    cast = Cast((Counter(),) * 4)
    state = rollouts.init_rollout(jax.random.key(0), HUNT, cast, 100, late_starts=True)
    _, trajectory = rollouts.rollout(state, HUNT, cast, 60, None, 1.0, 0.5)
    trajectory = jax.tree.map(np.asarray, trajectory)
    trial, late, over = trajectory.info[0]["trial"][..., 0], trajectory.is_late, trajectory.over
    np.testing.assert_array_equal(trial[1:] != trial[:-1], (over & ~late)[:-1])
    assert (trajectory.info[0]["episodes"] == 0).all()


def test_a_rollout_without_late_starts_is_the_same_as_before() -> None:
    cast = players.make_cast("ns,ns,nh,random", HUNT)
    plain = rollouts.rollout(rollouts.init_rollout(jax.random.key(0), HUNT, cast, 8), HUNT, cast, 20)
    late = rollouts.rollout(rollouts.init_rollout(jax.random.key(0), HUNT, cast, 8, late_starts=True), HUNT, cast, 20)
    assert plain[0].late is None
    assert plain[1].is_late is None
    jax.tree.map(np.testing.assert_array_equal, plain[1], replace(late[1], is_late=None))


# ------------------------------------------------------------------------------------------------------------ metrics


def test_returns_of_late_episodes_are_not_logged() -> None:
    # Two environments: the first episode counts with returns 3 and 1; in the second environment it began late.
    over, late = np.array([[0, 0], [1, 1]], bool), np.array([[0, 1], [0, 1]], bool)
    took = np.array([[[0, 0], [1, 1]], [[1, 0], [0, 0]]])
    fields: dict[str, Any] = dict.fromkeys(("state", "actions", "components", "left", "cell", "info", "last_state"), ())
    trajectory = Trajectory(
        **fields,
        alive=np.ones((2, 2, 2), bool),  # pyright: ignore[reportArgumentType]
        reward=np.zeros((2, 2, 2)),  # pyright: ignore[reportArgumentType]
        over=over,  # pyright: ignore[reportArgumentType]
        took=took,  # pyright: ignore[reportArgumentType]
        total_reward=floats([[[0, 0], [0, 0]], [[3, 1], [90, 90]]]),
        total_steps=np.array([[[1, 1], [1, 1]], [[2, 2], [2, 2]]]),  # pyright: ignore[reportArgumentType]
        is_late=late,  # pyright: ignore[reportArgumentType]
    )
    metrics = jax.jit(lambda played: episode_metrics(games.make("msh-4x4-2h1s"), played))(trajectory)
    np.testing.assert_array_equal(metrics["return"].total, [3, 1])
    np.testing.assert_array_equal(metrics["return"].count, [1, 1])
    np.testing.assert_array_equal(metrics["took_stag"].total, [1, 0])


# --------------------------------------------------------------------------------------------------------- algorithms

SMALL: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 12,
    "hidden": (8,),
    "update_epochs": 1,
    "trial_episodes": 3,
    "late_start_share": 0.5,
    "randomize_rewards": True,
}
NAME = "msh-4x4-4h1s:T=5"


def trained(algorithm: Any, steps: int = 2) -> tuple[Any, Any, Any]:
    """Phase, state and trajectory of the last of some iterations, with the logged metrics."""
    phase = prepare(TrainingConfig(game=NAME), algorithm).phases[0][1]
    state = jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))
    train_step = jax.jit(lambda state: algorithm.train_step(state, phase, {}))
    for _ in range(steps - 1):
        state = train_step(state)[0]
    return phase, state, train_step(state)


def test_hop_plus_is_trained_with_late_starts_and_logs_returns_without_them() -> None:
    algorithm = hopplus(**SMALL, moa_hidden=(8,), moa_batches=2, goals="gaussian", particles=3, subgoal_dim=2)
    phase, _, (_, trajectory, metrics) = trained(algorithm)
    late, over = np.asarray(trajectory.is_late), np.asarray(trajectory.over)
    assert late.any()
    expected = own_return(phase, trajectory)["own_return"]
    np.testing.assert_array_equal(metrics["own_return"].count, expected.count)
    assert expected.count.sum() <= 4 * (over & ~late).sum()


def test_a_sequence_with_late_starts_reproduces_the_outputs_of_play() -> None:
    algorithm = RecurrentPPO(**SMALL, memory_size=8)
    phase, state, _ = trained(algorithm)
    _, rows, trajectory = jax.jit(lambda state: algorithm.collect(state, phase, {}))(state)
    late, over = np.asarray(trajectory.is_late), np.asarray(trajectory.over)
    assert (late & over)[:-1].any()
    network = algorithm.network(phase.final_game)

    @jax.jit
    def replay(params: Any, rows: Any) -> tuple[Any, Any]:
        sequences = algorithm.to_minibatches(rows)
        first = jax.tree.map(lambda leaf: leaf[0], params)
        logits, value = algorithm.apply_network(network, first, sequences.features)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), sequences.action[..., None], -1)[..., 0]
        return jnp.moveaxis(chosen, 2, 0), jnp.moveaxis(value, 2, 0)

    log_probability, value = jax.tree.map(np.asarray, replay(state.train_state.params, rows))
    alive = np.asarray(trajectory.alive)
    np.testing.assert_allclose(value[alive], np.asarray(rows.value)[alive], atol=1e-4)
    np.testing.assert_allclose(log_probability[alive], np.asarray(rows.log_probability)[alive], atol=1e-4)


@dataclass(frozen=True)
class Timeless(Guess):
    """A game whose state has no field `time`."""

    name: str = "test-timeless"

    def draw(self, key: Any) -> Any:
        state, accepted = super().draw(key)
        return {"time": state.time, "last_actions": state.last_actions}, accepted

    def observe(self, state: Any) -> Observation:
        return super().observe(GuessState(**state))

    def over(self, state: Any) -> Any:
        return super().over(GuessState(**state))


@pytest.mark.parametrize(
    ("algorithm", "game", "complaint"),
    [
        (PPO(late_start_share=0.5), "test-timeless", "needs a game whose state has a field 'time'"),
        (hopplus(late_start_share=0.5, goals="none"), "test-timeless", "needs a game whose state has a field 'time'"),
        (PPO(late_start_share=0.5, num_envs=8, buffer_episodes=8), NAME, "must be 0 with a buffer"),
    ],
)
def test_late_starts_need_a_clock_and_fresh_rollouts(algorithm: Algorithm, game: str, complaint: str) -> None:
    register("test-timeless", Timeless)
    with pytest.raises(InputError, match=complaint):
        prepare(TrainingConfig(game=game), algorithm)


def test_a_game_of_the_library_has_a_clock() -> None:
    check_clock(HUNT)
    times = jax.jit(lambda keys: draw_starts(keys, HUNT, 1.0))(jax.random.split(jax.random.key(0), 100))
    assert np.asarray(times[0]).all()

"""PPO: transitions, probability ratios, symmetry of the seats, action masks, buffers and random keys."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.algorithms import PPO, ppo_update
from hopplus.algorithms.base import CurriculumPhase
from hopplus.algorithms.ppo import PPOState
from hopplus.configs import TrainingConfig
from hopplus.evaluation.seat_symmetry import FirstSeatTransitions
from hopplus.games import Observation
from hopplus.networks.train_state import TrainState
from hopplus.players import PolicyPlayer
from hopplus.players.policy import encode, evaluate_features
from hopplus.rollouts import Trajectory, observations
from hopplus.training.experiment import prepare

HUNT = "msh-4x4-4h1s"
INDEPENDENT = PPO(
    num_envs=32,
    num_steps=16,
    hidden=(32,),
    parameters="independent",
    minibatch_size=100,
    update_epochs=3,
    anneal_lr=False,
)


@partial(jax.jit, static_argnames="shared")
def grouped(rows: ppo_update.Transitions, shared: bool) -> ppo_update.Transitions:
    """Transitions [T, E, L] as [P, M]."""
    return ppo_update.group_by_params(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows), shared)


@dataclass(frozen=True, eq=False)
class PlayedRollout:
    """Rollout of an algorithm, with its compiled function and initial state."""

    algorithm: PPO
    phase: CurriculumPhase
    play: Callable[[PPOState], Any]
    state: PPOState
    rows: ppo_update.Transitions
    trajectory: Trajectory

    @property
    def network(self) -> Any:
        return self.algorithm.network(self.phase.final_game)

    @cached_property
    def batch(self) -> ppo_update.Transitions:
        """Transitions [P, M]."""
        return jax.tree.map(np.asarray, grouped(self.rows, self.algorithm.shares_params))


def play_once(algorithm: PPO) -> PlayedRollout:
    phase = prepare(TrainingConfig(game=HUNT), algorithm).phases[0][1]
    state = jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))
    play = jax.jit(partial(algorithm.collect, phase=phase, frozen={}))
    rows, trajectory = jax.tree.map(np.asarray, play(state)[1:])
    return PlayedRollout(algorithm, phase, play, state, rows, trajectory)


@pytest.fixture(scope="module")
def independent() -> PlayedRollout:
    return play_once(INDEPENDENT)


@pytest.fixture(scope="module")
def shared() -> PlayedRollout:
    return play_once(replace(INDEPENDENT, parameters="shared"))


Update = Callable[..., tuple[TrainState, ppo_update.Metrics]]


@pytest.fixture(scope="module")
def update(independent: PlayedRollout) -> Update:
    """`update(key, learner, rows)`, compiled for four parameter sets."""
    network = partial(evaluate_features, independent.network)

    @jax.jit
    def compiled(
        key: jax.Array, learner: TrainState, rows: ppo_update.Transitions
    ) -> tuple[TrainState, ppo_update.Metrics]:
        return ppo_update.update(key, network, learner, rows, INDEPENDENT, 5.0, jnp.float32(0), 4)

    return lambda *inputs: jax.tree.map(np.asarray, compiled(*inputs))


@pytest.fixture(scope="module")
def updated(independent: PlayedRollout, update: Update) -> tuple[TrainState, ppo_update.Metrics]:
    return update(jax.random.key(1), independent.state.train_state, independent.batch)


def equal(tree: Any, other: Any) -> bool:
    return jax.tree.structure(tree) == jax.tree.structure(other) and jax.tree.all(
        jax.tree.map(lambda a, b: np.array_equal(a, b), tree, other)
    )


# ---------------------------------------------------------------------------------------------------------- transitions


def log_policies(network: Any) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Function of params and features [P, ...] that returns log-probabilities and values."""

    @jax.jit
    @jax.vmap
    def compiled(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
        logits, value = evaluate_features(network, params, features)
        return jax.nn.log_softmax(logits), value

    return lambda *inputs: jax.tree.map(np.asarray, compiled(*inputs))


@pytest.mark.parametrize("which", ["independent", "shared"])
def test_the_ratio_is_1_before_the_first_update(which: str, request: pytest.FixtureRequest) -> None:
    rollout: PlayedRollout = request.getfixturevalue(which)
    rows = rollout.batch
    assert rows.seat.shape == ((4, 512) if which == "independent" else (1, 2048))
    log_policy, value = log_policies(rollout.network)(rollout.state.train_state.params, rows.features)
    log_probability = np.take_along_axis(log_policy, np.asarray(rows.action)[..., None], -1)[..., 0]
    assert 0.3 < rows.is_valid.mean() < 1
    ratio = np.exp(log_probability - rows.log_probability)[rows.is_valid]
    np.testing.assert_allclose(ratio, 1, atol=1e-5)
    np.testing.assert_allclose(value[rows.is_valid], rows.value[rows.is_valid], atol=1e-4)
    assert len(np.unique(rows.log_probability[rows.is_valid])) > 100


def test_transitions_hold_the_observations_and_actions_of_their_seat(independent: PlayedRollout) -> None:
    rows, trajectory = independent.rows, independent.trajectory
    assert (rows.seat == np.arange(4)).all()
    np.testing.assert_array_equal(rows.is_valid, trajectory.alive)
    np.testing.assert_array_equal(rows.action, trajectory.actions)
    seen = jax.jit(lambda played: encode(independent.network, observations(independent.phase.game, played)))(trajectory)
    np.testing.assert_array_equal(rows.features, seen)
    np.testing.assert_array_equal(rows.target[rows.is_valid], (rows.advantage + rows.value)[rows.is_valid])
    batch = independent.batch
    assert (batch.seat == np.arange(4)[:, None]).all()
    np.testing.assert_array_equal(batch.action[2], trajectory.actions[..., 2].ravel())


# ------------------------------------------------------------------------------------------------------- symmetry


def shift(tree: Any, axis: int) -> Any:
    """Moves all players one seat further."""
    return jax.tree.map(lambda leaf: np.roll(leaf, 1, axis), tree)


def test_a_shift_of_the_seats_commutes_with_making_transitions(independent: PlayedRollout) -> None:
    state, trajectory, phase = independent.state, independent.trajectory, independent.phase
    permute = partial(phase.game.permute, order=[3, 0, 1, 2])
    by_seat = ("actions", "alive", "reward", "left", "took", "cell", "total_reward", "total_steps", "info")
    shifted = replace(
        trajectory,
        **{name: shift(getattr(trajectory, name), 2) for name in by_seat},
        **jax.jit(
            lambda state, last: {"state": jax.vmap(jax.vmap(permute))(state), "last_state": jax.vmap(permute)(last)}
        )(trajectory.state, trajectory.last_state),
    )
    make_rows = jax.jit(partial(independent.algorithm.transitions, phase=phase, rollout_state=None))
    shifted_state = replace(state, train_state=shift(state.train_state, 0))
    rows = jax.tree.map(np.asarray, make_rows(state, trajectory=trajectory))
    of_shifted = jax.tree.map(np.asarray, make_rows(shifted_state, trajectory=shifted))
    assert not equal(rows.features, of_shifted.features)
    assert equal(replace(shift(rows, 2), seat=rows.seat), of_shifted)


def test_a_shift_of_the_seats_commutes_with_the_update(
    independent: PlayedRollout, update: Update, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    # From the second update on, the optimiser states differ between seats too.
    learner, rows, key = updated[0], independent.batch, jax.random.key(2)
    after, metrics = update(key, learner, rows)
    relabelled = replace(shift(rows, 0), seat=rows.seat)
    of_shifted, metrics_of_shifted = update(key, shift(learner, 0), relabelled)
    assert not equal(after.params, of_shifted.params)
    assert equal(shift(after, 0), of_shifted)
    assert equal(shift(shift(metrics, 0), 1), metrics_of_shifted)


# ---------------------------------------------------------------------------------------------------- valid transitions


@pytest.mark.parametrize("garbage", [np.nan, 1e6])
def test_invalid_transitions_never_matter(
    garbage: float, independent: PlayedRollout, update: Update, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    rows = independent.batch
    assert (~rows.is_valid).sum() > 100
    corrupted = {
        name: np.where(rows.is_valid, getattr(rows, name), np.float32(garbage))
        for name in ("log_probability", "value", "advantage", "target")
    }
    garbage_rows = replace(rows, **corrupted, action=np.where(rows.is_valid, rows.action, 6).astype(np.int32))
    result = update(jax.random.key(1), independent.state.train_state, garbage_rows)
    assert np.isfinite(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(result)])).all()
    assert equal(result, updated)


def test_every_valid_transition_is_used_once_per_epoch_by_its_seats_parameters(
    independent: PlayedRollout, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    living = independent.batch.is_valid.sum(1)
    np.testing.assert_array_equal(updated[1]["rows"], np.diag(INDEPENDENT.update_epochs * living))


def test_training_on_the_first_seats_transitions_is_visible(independent: PlayedRollout, update: Update) -> None:
    faulty = FirstSeatTransitions(**asdict(INDEPENDENT))
    rows = jax.jit(partial(faulty.transitions, phase=independent.phase, rollout_state=None))(
        independent.state, trajectory=independent.trajectory
    )
    batch = replace(independent, rows=jax.tree.map(np.asarray, rows)).batch
    _, metrics = update(jax.random.key(1), independent.state.train_state, batch)
    of_first = INDEPENDENT.update_epochs * int(independent.batch.is_valid[0].sum())
    np.testing.assert_array_equal(metrics["rows"], np.outer(np.ones(4), [of_first, 0, 0, 0]))


def test_the_values_of_all_seats_are_trained_alike(independent: PlayedRollout, update: Update) -> None:
    """Independent self-play, composed of rollouts and updates."""
    state, errors = independent.state, []
    for iteration in range(31):
        rollout_state, rows, _ = independent.play(state)
        rows = jax.tree.map(np.asarray, rows)
        squared = np.where(rows.is_valid, (rows.value - rows.target) ** 2, 0)
        errors.append(squared.sum((0, 1)) / rows.is_valid.sum((0, 1)))
        learner, _ = update(jax.random.key(iteration), state.train_state, replace(independent, rows=rows).batch)
        state = replace(state, rollout_state=rollout_state, train_state=learner, iteration=state.iteration + 1)
    late = np.mean(errors[-10:], 0)
    # The error of an untrained seat would stay about ten times as large.
    assert late.max() < 3 * late.min()
    assert (late < 0.5 * errors[0]).all()


# -------------------------------------------------------------------------------------------------- illegal actions


def test_illegal_actions_have_probability_0_and_are_never_taken(independent: PlayedRollout) -> None:
    network, game = independent.network, independent.phase.game
    all_seen = jax.tree.map(np.asarray, jax.jit(lambda played: observations(game, played))(independent.trajectory))
    seen: Observation = jax.tree.map(lambda leaf: leaf[:2, :, 0].reshape(64, *leaf.shape[3:]), all_seen)
    legal = np.asarray(seen.legal)[:, 0]
    assert (~legal).any(-1).all()
    params = jax.tree.map(lambda leaf: np.array(leaf[0]), independent.state.train_state.params)
    # A network that prefers hunting, which is illegal in nearly all states.
    params["policy"]["bias"] = np.array([0, 0, 0, 0, 0, 1e3, 1e3], np.float32)
    probability = np.asarray(jax.jit(lambda params: jax.nn.softmax(network.apply({"params": params}, seen)[0]))(params))
    assert (probability[~legal] == 0).all()
    np.testing.assert_allclose(probability.sum(-1), 1, rtol=1e-5)
    for greedy in (False, True):
        player = PolicyPlayer(network, "test", greedy=greedy)
        act = jax.vmap(jax.vmap(player.act, (0, None, None, None)), (None, None, None, 0))
        actions, _, choice = jax.jit(act)(jax.random.split(jax.random.key(0), 200), params, (), seen)
        actions = np.asarray(actions)
        assert np.take_along_axis(legal, actions, -1).all()
        expected = np.take_along_axis(np.log(np.maximum(probability, 1e-30)), actions, -1)
        np.testing.assert_allclose(choice.log_probability, expected, atol=1e-4)
        if greedy:
            np.testing.assert_array_equal(actions, np.broadcast_to(probability.argmax(-1)[:, None], (64, 200)))
        else:
            # The bias has no effect where hunting is illegal: all legal moves are sampled.
            at_rest = np.flatnonzero(~legal[:, 5] & ~legal[:, 6])
            sampled = (actions[at_rest][..., None] == np.arange(7)).any(1)
            np.testing.assert_array_equal(sampled, legal[at_rest])


# ---------------------------------------------------------------------------------------------- buffers and keys


@dataclass(frozen=True, eq=False)
class Buffered:
    """States, metrics and shuffling keys of iterations with a buffer for the episodes of three iterations."""

    algorithm: PPO
    phase: CurriculumPhase
    states: list[PPOState]
    metrics: list[dict[str, Any]]
    keys: list[bytes]
    """Shuffling keys, by epoch."""


@pytest.fixture(scope="module")
def buffered() -> Buffered:
    algorithm = PPO(
        num_envs=8,
        buffer_episodes=24,
        hidden=(16,),
        update_epochs=2,
        minibatch_size=64,
        learning_rate=0.02,
        anneal_lr=False,
    )
    phase = prepare(TrainingConfig(game="msh-4x4-2h1s:height=2:width=2:stags=0:T=6"), algorithm).phases[0][1]
    keys: list[bytes] = []
    shuffle_valid_first = ppo_update.shuffle_valid_first

    def spy(key: jax.Array, learns: jax.Array) -> jax.Array:
        jax.debug.callback(lambda data: keys.append(np.asarray(data).tobytes()), jax.random.key_data(key))
        return shuffle_valid_first(key, learns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo_update, "shuffle_valid_first", spy)
        iterate = jax.jit(partial(algorithm.iterate, phase=phase, frozen={}))
        states, metrics = [jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))], []
        for _ in range(5):
            state, result = iterate(states[-1])
            states.append(state)
            metrics.append(jax.tree.map(np.asarray, result))
        jax.effects_barrier()
    return Buffered(algorithm, phase, states, metrics, keys)


def test_staleness_grows_to_half_the_buffer(buffered: Buffered) -> None:
    for iteration, (state, metrics) in enumerate(zip(buffered.states[1:], buffered.metrics, strict=True)):
        rows = jax.tree.map(np.asarray, state.buffer)
        ages = iteration - rows.collected_at
        # Computed from the buffer; about half the largest age, as for episodes of equal length.
        expected = [ages[..., seat][rows.is_valid[..., seat]].mean() for seat in range(2)]
        np.testing.assert_allclose(metrics["staleness"].total / metrics["staleness"].count, expected, rtol=1e-5)
        np.testing.assert_allclose(expected, min(iteration, 2) / 2, atol=0.3 * (iteration > 0))
        assert set(ages[rows.is_valid].tolist()) == set(range(min(iteration, 2) + 1))


def test_a_buffer_stores_transitions_unchanged(buffered: Buffered) -> None:
    for iteration in range(5):
        before, after = (jax.tree.map(np.asarray, state.buffer) for state in buffered.states[iteration : iteration + 2])
        new = np.arange(8) + 8 * (iteration % 3)
        old = np.setdiff1d(np.arange(24), new)
        unchanged = [jax.tree.map(lambda leaf, old=old: leaf[:, old], rows) for rows in (before, after)]
        assert equal(*unchanged)
        assert (after.collected_at[:, new] == iteration).all()
        assert after.is_valid[:, new].any()


def test_ratios_are_against_the_stored_probabilities(buffered: Buffered) -> None:
    # Under the parameters before the last iteration, only the transitions of that iteration have ratios of 1.
    before, after = buffered.states[-2:]
    rows = jax.tree.map(np.asarray, after.buffer)
    features = jax.tree.map(lambda leaf: leaf[None], rows.features)
    network = buffered.algorithm.network(buffered.phase.final_game)
    log_policy, _ = log_policies(network)(before.train_state.params, features)
    log_probability = np.take_along_axis(log_policy[0], rows.action[..., None], -1)[..., 0]
    ratio, fresh = np.exp(log_probability - rows.log_probability), rows.collected_at == 4
    np.testing.assert_allclose(ratio[rows.is_valid & fresh], 1, atol=1e-5)
    for age in (1, 2):
        assert np.abs(ratio - 1)[rows.is_valid & (rows.collected_at == 4 - age)].mean() > 0.01


def test_steps_count_only_played_steps(buffered: Buffered) -> None:
    for iteration in range(5):
        before, after = buffered.states[iteration : iteration + 2]
        new = np.asarray(after.buffer.is_valid)[:, 8 * (iteration % 3) : 8 * (iteration % 3) + 8]  # pyright: ignore[reportOptionalMemberAccess]
        assert int(after.steps - before.steps) == new.any(-1).sum()
    assert int(buffered.states[-1].steps) < 5 * 8 * 6, "some episodes end before T"


def test_no_randomness_is_used_twice(buffered: Buffered, independent: PlayedRollout) -> None:
    # Two epochs in each of five iterations, each shuffled with a different key.
    assert len(buffered.keys) == 10
    assert len(set(buffered.keys)) == 10
    rows = jax.tree.map(np.asarray, buffered.states[3].buffer)
    firsts = [rows.features[0, 8 * number : 8 * number + 8] for number in range(3)]
    assert not np.array_equal(firsts[0], firsts[1])
    assert not np.array_equal(firsts[1], firsts[2])
    # On-policy: a rollout repeats bit for bit from the same rollout state, and not from the next one.
    rollout_state, _, _ = independent.play(independent.state)
    second = jax.tree.map(np.asarray, independent.play(replace(independent.state, rollout_state=rollout_state))[1])
    again = jax.tree.map(np.asarray, independent.play(independent.state)[1])
    assert equal(again, independent.rows)
    assert not np.array_equal(second.action, again.action)
    time = -2 - independent.phase.game.num_actions
    layouts = np.concatenate([rows.features[rows.features[..., time] == 0] for rows in (again, second)])
    assert len(layouts) > 64
    counts = np.unique(layouts, axis=0, return_counts=True)[1]
    assert (counts == 1).all()

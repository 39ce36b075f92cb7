"""Regret sampling of reward randomisation: the table, the regrets, the draws of every learner, and resuming."""

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import floats, hop, hopplus, shared_programs, short_evaluations
from hopplus.algorithms import PPO, Liam, RecurrentPPO, regret
from hopplus.algorithms.regret import DISCOUNT, MIN_COUNT, RegretTable, add_returns, compositions, regrets
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.struct import names_and_leaves
from hopplus.games import make
from hopplus.games.preferences import preference_set
from hopplus.training import checkpoint
from hopplus.training.experiment import prepare

GAME = "msh-4x4-4h1s"
SMALL: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 40,
    "hidden": (8,),
    "update_epochs": 1,
    "randomize_rewards": True,
    "trial_episodes": 1,
}
SMALL_HOPPLUS: dict[str, Any] = {**SMALL, "moa_hidden": (8,), "moa_batches": 2}
ALGORITHMS: dict[str, Any] = {
    "ppo": PPO(**SMALL, regret_share=1.0),
    "ppo-independent": PPO(**SMALL, regret_share=1.0, parameters="independent"),
    "recurrent": RecurrentPPO(**SMALL, regret_share=1.0, memory_size=8),
    "liam": Liam(**SMALL, regret_share=1.0, memory_size=8),
    "hopplus-with-partner": hopplus(**SMALL_HOPPLUS, regret_share=1.0, goals="prey"),
    "hop": hop(**SMALL_HOPPLUS, regret_share=1.0, belief_samples=1, simulations=2, reply_samples=1, cover_root=False),
}


def prepared(algorithm: Any, cast: str = "self-play") -> tuple[Any, Any]:
    """Curriculum phase of a training, and its initial state."""
    phase = prepare(TrainingConfig(game=GAME, cast=cast), algorithm).phases[0][1]
    return phase, jax.jit(partial(algorithm.init, phase=phase, frozen={}))(jax.random.key(0))


# ----------------------------------------------------------------------------------------------------------- the table


def test_a_composition_is_the_most_frequent_preference_of_the_co_players() -> None:
    preference = np.array([[2, 2, 1, 3], [0, 5, 5, 5], [0, 5, 5, 5], [4, 1, 2, 3]])
    acted = np.array([[True] * 4, [True] * 4, [True, True, False, False], [True] * 4])
    most_frequent, is_single = map(np.asarray, jax.jit(compositions, static_argnums=2)(preference, acted, 6))
    # First row: seat 0 is beside 2, 1 and 3, and seat 2 beside 2, 2 and 3. Third row: two seats have no preference.
    assert is_single.tolist() == [[False, False, True, True], [True] * 4, [True, True, False, False], [False] * 4]
    assert most_frequent[0, 2:].tolist() == [2, 2]
    assert most_frequent[1].tolist() == [5, 5, 5, 5]
    assert most_frequent[2, :2].tolist() == [5, 0]


def test_returns_are_added_to_a_discounted_table() -> None:
    table = RegretTable(floats([[10, 0], [0, 4], [0, 0]]), floats([[20, 0], [0, 2], [0, 0]]))
    composition, own = np.array([0, 0, 1, 2, 1]), np.array([0, 0, 1, 2, 0])
    returns, counts = floats([1, 2, 5, 9, 7]), np.array([True, True, True, True, False])
    added = jax.jit(add_returns)(table, composition, own, returns, counts)
    # The fourth learner trembles (its preference is beyond the two without tremble), the fifth does not count.
    np.testing.assert_allclose(added.total, [[10 * DISCOUNT + 3, 0], [0, 4 * DISCOUNT + 5], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(added.count, [[20 * DISCOUNT + 2, 0], [0, 2 * DISCOUNT + 1], [0, 0]], rtol=1e-6)


def test_regret_is_the_best_mean_less_that_of_the_neutral_preference() -> None:
    few, many = MIN_COUNT - 1, 2 * MIN_COUNT
    count = floats([[many, many, many], [many, many, few], [few, many, many], [many, few, few]])
    mean = floats([[1, 3, 2], [1.5, 1, 9], [0, 5, 5], [2, 9, 9]])
    regret_by_composition = jax.jit(regrets)(RegretTable(mean * count, count))
    np.testing.assert_allclose(regret_by_composition, [2, 0, 0, 0], atol=1e-6)


def table_with(regret_by_composition: dict[int, float]) -> RegretTable:
    """Table of the stag hunt with these regrets."""
    shape = len(preference_set(make(GAME)).names), len(make(GAME).preferences)
    total = np.zeros(shape, np.float32)
    for index, value in regret_by_composition.items():
        total[index, 1] = value * MIN_COUNT
    return RegretTable(jnp.asarray(total), jnp.full(shape, float(MIN_COUNT)))


def test_shares_by_regret_are_proportional_and_the_neutral_preference_keeps_its_share() -> None:
    algorithm = ALGORITHMS["ppo"]
    phase = prepare(TrainingConfig(game=GAME), algorithm).phases[0][1]
    sampling = jax.jit(lambda table: regret.sampling(algorithm, phase, table))
    given = sampling(table_with({0: 0.5, 2: 1.0, 9: 0.5}))
    assert float(given.trial_share) == 1.0
    np.testing.assert_allclose(given.shares, [0.4 + 0.15, 0, 0.3, 0, 0, 0, 0, 0, 0, 0.15, 0, 0], atol=1e-6)
    np.testing.assert_allclose(sampling(table_with({})).shares, preference_set(make(GAME)).shares, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_learner_draws_by_regret(name: str) -> None:
    algorithm = ALGORITHMS[name]
    phase, state = prepared(algorithm)

    @jax.jit
    def play(table: RegretTable) -> Any:
        played = algorithm.collect(replace(state, regret=table), phase, {})
        trajectory = played[-1]
        index = preference_set(phase.game).index_of(phase.seats.infos(trajectory)[0].preference)
        return index, trajectory.over

    index, over = map(np.asarray, play(table_with({6: 1.0})))
    first = np.cumsum(np.concatenate([np.zeros_like(over[:1]), over[:-1]]), 0) == 0
    assert len(np.unique(index[first])) > 2, "without regrets, the first trials have the expected shares"
    assert set(index[~first].ravel()) == {0, 6}


def expected_table(phase: Any, trajectory: Any) -> tuple[np.ndarray, np.ndarray]:
    """Totals and counts of one iteration, episode by episode."""
    info, acted = jax.tree.map(np.asarray, phase.seats.infos(trajectory))
    index = np.asarray(preference_set(phase.game).index_of(info.preference))
    total, count = np.zeros((2, 12, 4))
    counts = np.asarray(trajectory.over & trajectory.counts)
    for time, environment in np.argwhere(counts):
        for seat in range(4):
            others = [
                index[time, environment, other]
                for other in range(4)
                if other != seat and acted[time, environment, other]
            ]
            frequency = np.bincount(others, minlength=12)
            own = index[time, environment, seat]
            is_single = (frequency == frequency.max()).sum() == 1
            if acted[time, environment, seat] and own < 4 and is_single and others:
                total[frequency.argmax(), own] += trajectory.total_reward[time, environment, seat]
                count[frequency.argmax(), own] += 1
    return total, count


@pytest.mark.parametrize(
    "algorithm",
    [
        PPO(**SMALL, regret_share=0.5, late_start_share=0.5),
        hopplus(**SMALL_HOPPLUS, regret_share=0.5, goals="prey", late_start_share=0.5),
    ],
    ids=["ppo", "hopplus-with-partner"],
)
def test_the_table_holds_the_games_own_returns_of_an_iteration(algorithm: Any) -> None:
    phase, state = prepared(algorithm)
    before = table_with({6: 1.0})

    @jax.jit
    def step(state: Any) -> Any:
        state, trajectory, metrics = algorithm.train_step(state, phase, {})
        return state.regret, trajectory, metrics["regret"]

    after, trajectory, metric = jax.tree.map(np.asarray, step(replace(state, regret=before)))
    total, count = expected_table(phase, trajectory)
    assert (trajectory.over & trajectory.is_late).any()
    has_partners = not isinstance(algorithm, PPO)
    assert (~phase.seats.infos(trajectory)[1]).any() == has_partners
    assert (count > 0).sum() > 4
    np.testing.assert_allclose(after.total, DISCOUNT * np.asarray(before.total) + total, atol=1e-3)
    np.testing.assert_allclose(after.count, DISCOUNT * np.asarray(before.count) + count, atol=1e-3)
    is_known = after.count[:, 0] >= MIN_COUNT
    np.testing.assert_array_equal(metric.count, np.full(4, is_known.sum()))
    np.testing.assert_allclose(metric.total, np.full(4, np.asarray(regrets(after)).sum()), rtol=1e-5)


def test_without_regret_sampling_nothing_is_kept() -> None:
    phase, state = prepared(PPO(**SMALL))
    assert state.regret is None
    assert not [name for name in names_and_leaves(state) if "regret" in name]
    assert regret.update(None, phase, None) == (None, {})  # pyright: ignore[reportArgumentType]
    assert ALGORITHMS["ppo"].for_fine_tuning(make(GAME)).regret_share == 0


# -------------------------------------------------------------------------------------------------------------- resume

ARGV = (
    f"train ppo --game {GAME} --num-envs 8 --num-steps 32 --hidden 8 --update-epochs 1 --iterations-per-call 1"
    " --steps 1024 --randomize-rewards --trial-episodes 1 --regret-share 0.5 --checkpoint-seconds 0"
).split()


def test_a_resumed_run_with_regret_sampling_is_bit_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "MIN_COUNT", 1)

    def stop(lines: Any, experiment: Any) -> None:
        if lines[0]["iteration"] == 2:
            raise KeyboardInterrupt

    with shared_programs(), short_evaluations():
        assert main([*ARGV, "--out", str(tmp_path / "whole")]) == 0
        with monkeypatch.context() as patch:
            patch.setattr(cli_train, "_bar", lambda experiment: contextlib.nullcontext(stop))
            assert main([*ARGV, "--out", str(tmp_path / "stopped")]) == 130
        assert main(["train", "--resume", str(tmp_path / "stopped")]) == 0
    whole, resumed = (checkpoint.load(tmp_path / name / "checkpoints").arrays for name in ("whole", "stopped"))
    assert whole.keys() == resumed.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, resumed[name], err_msg=name)
    table = RegretTable(whole["regret/total"][0], whole["regret/count"][0])
    assert (np.asarray(regrets(jax.tree.map(jnp.asarray, table))) > 0).any()

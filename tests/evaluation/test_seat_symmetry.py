"""Seat diagnosis: it passes for equal seats, and fails for different ones."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopplus.algorithms import PPO
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.evaluation import seat_symmetry
from hopplus.training.experiment import prepare

TINY = ("--game", "msh-4x4-2h1s", "--episodes", "50", "--seeds", "0-1", "--steps", "9000")


def test_exchangeable_seats_rarely_fail() -> None:
    generator = np.random.default_rng(0)
    p_values = []
    for number in range(60):
        # Units may differ and be skewed: only seats within units are compared.
        values = generator.exponential(size=(6, 4)) + generator.normal(size=(6, 1)) * 10
        p_values.append(seat_symmetry.spread_test(values, seed=number)[1])
    assert min(p_values) > 1e-4
    assert 0.3 < np.mean(p_values) < 0.7
    # 60 draws of a uniform p-value: at most 12 below 0.05, except with probability 1e-4.
    assert sum(p_value < 0.05 for p_value in p_values) <= 12


def test_different_seats_fail() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(size=(8, 4))
    values[:, 2] += 4
    spread, p_value = seat_symmetry.spread_test(values)
    assert spread > 2
    assert p_value < 1e-3
    assert not seat_symmetry.check_spread("returns", values, tests=8).passed


def test_one_seed_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="two seeds"):
        seat_symmetry.spread_test(np.ones((1, 4)))


def test_logged_returns_are_checked_against_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = PPO(num_envs=16, num_steps=20, hidden=(8,))
    experiment = prepare(TrainingConfig(game="msh-4x4-2h1s"), algorithm)
    check = seat_symmetry.check_logged_returns(experiment)
    assert check.passed
    assert "0 episodes" not in check.detail

    def wrong(*arguments: Any) -> Any:
        totals, ended = replayed(*arguments)
        return totals + np.array([0.0, 1.0]), ended

    replayed = seat_symmetry.replayed_returns
    monkeypatch.setattr(seat_symmetry, "replayed_returns", wrong)
    assert not seat_symmetry.check_logged_returns(experiment).passed


SMALL = PPO(num_envs=8, num_steps=16, hidden=(8,), parameters="independent")


@pytest.fixture(scope="module")
def sound() -> seat_symmetry.TrainedSeats:
    return seat_symmetry.train_seats(
        prepare(TrainingConfig(game="msh-4x4-2h1s", steps=1, iterations_per_call=2), SMALL), 10, lambda: None
    )


def test_every_parameter_set_learns_from_its_own_seat(sound: seat_symmetry.TrainedSeats) -> None:
    check = seat_symmetry.check_rows(sound)
    assert check.passed
    assert check.detail == "set 0 from seat 0; set 1 from seat 1"


def test_rows_from_seat_0_fail(sound: seat_symmetry.TrainedSeats) -> None:
    faulty = replace(sound.experiment, algorithm=seat_symmetry.FirstSeatTransitions(**asdict(SMALL)))
    check = seat_symmetry.check_rows(seat_symmetry.train_seats(faulty, 10, lambda: None))
    assert not check.passed
    assert "set 1 from seat 0" in check.detail


def test_settings_that_differ_between_seats_fail(sound: seat_symmetry.TrainedSeats) -> None:
    assert seat_symmetry.check_settings(sound).passed
    clip, adam = sound.states.train_state.opt_state
    uneven = replace(sound.states.train_state, opt_state=(clip, adam._replace(count=adam.count.at[0, 1].add(1))))
    assert not seat_symmetry.check_settings(replace(sound, states=replace(sound.states, train_state=uneven))).passed


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_the_whole_diagnosis(fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["diagnose", "seats", *TINY, "--train", "--json", "seats.json"]
    assert main([*argv, *(["--fault", "rows-from-seat-0"] if fault else [])]) == fault
    checks = {check["name"]: check for check in json.loads(Path("seats.json").read_text())["checks"]}
    assert len(checks) == 2 + 3 + 2 + 6
    assert checks["rows that trained each parameter set"]["passed"] != fault
    # A single learner has only its own rows, so that the fault is invisible there.
    assert checks["rows of the learner at seat 1"]["passed"]
    assert Path("seats.png").stat().st_size > 10_000

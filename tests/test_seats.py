"""The seat diagnosis: it finds sound seats alike, and it notices when they are not."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopplus.cli.main import main
from hopplus.diagnostics import seats
from hopplus.errors import InputError
from hopplus.training.recipes import PPO
from hopplus.training.trainer import Training, prepare

TINY = ("--game", "msh-4x4-2h1s", "--episodes", "50", "--seeds", "0-1", "--steps", "9000")


def test_seats_that_are_exchangeable_are_rarely_told_apart() -> None:
    generator = np.random.default_rng(0)
    # Units may differ as much as they like, and be as skewed: only seats within units are compared.
    found = [
        seats.spread_test(generator.exponential(size=(6, 4)) + generator.normal(size=(6, 1)) * 10, seed=number)[1]
        for number in range(60)
    ]
    assert min(found) > 1e-4
    assert 0.3 < np.mean(found) < 0.7
    # 60 draws of a uniform p-value: at most 12 below 0.05, except with probability 1e-4.
    assert sum(p_value < 0.05 for p_value in found) <= 12


def test_seats_that_differ_are_told_apart() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(size=(8, 4))
    values[:, 2] += 4
    spread, p_value = seats.spread_test(values)
    assert spread > 2
    assert p_value < 1e-3
    assert not seats.check_spread("returns", values, tests=8).passed


def test_one_seed_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="two seeds"):
        seats.spread_test(np.ones((1, 4)))


def test_logged_returns_are_checked_against_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = PPO(environments=16, rollout_steps=20, hidden=(8,))
    setup = prepare(Training(game="msh-4x4-2h1s"), recipe)
    check = seats.check_logged_returns(setup)
    assert check.passed
    assert "0 episodes" not in check.detail

    def wrong(*arguments: Any) -> Any:
        totals, ended = seats_replayed(*arguments)
        return totals + np.array([0.0, 1.0]), ended

    seats_replayed = seats.replayed_returns
    monkeypatch.setattr(seats, "replayed_returns", wrong)
    assert not seats.check_logged_returns(setup).passed


SMALL = PPO(environments=8, rollout_steps=16, hidden=(8,), parameters="independent")


@pytest.fixture(scope="module")
def sound() -> seats.Learnt:
    return seats.learn(prepare(Training(game="msh-4x4-2h1s", steps=1, chunk=2), SMALL), 10, lambda: None)


def test_every_parameter_set_learns_from_its_own_seat(sound: seats.Learnt) -> None:
    check = seats.check_rows(sound)
    assert check.passed
    assert check.detail == "set 0 from seat 0; set 1 from seat 1"


def test_rows_from_seat_0_are_noticed(sound: seats.Learnt) -> None:
    faulty = replace(sound.setup, recipe=seats.FirstSeatsRows(**asdict(SMALL)))
    check = seats.check_rows(seats.learn(faulty, 10, lambda: None))
    assert not check.passed
    assert "set 1 from seat 0" in check.detail


def test_settings_that_differ_between_seats_are_noticed(sound: seats.Learnt) -> None:
    assert seats.check_settings(sound).passed
    clip, adam = sound.states.learner.optimiser
    uneven = replace(sound.states.learner, optimiser=(clip, adam._replace(count=adam.count.at[0, 1].add(1))))
    assert not seats.check_settings(replace(sound, states=replace(sound.states, learner=uneven))).passed


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_the_whole_diagnosis(fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["diagnose", "seats", *TINY, "--train", "--json", "seats.json"]
    assert main([*words, *(["--fault", "rows-from-seat-0"] if fault else [])]) == fault
    checks = {check["name"]: check for check in json.loads(Path("seats.json").read_text())["checks"]}
    assert len(checks) == 2 + 3 + 2 + 6
    assert checks["rows that trained each parameter set"]["passed"] != fault
    # One learner's only rows are its own, so that the fault is invisible there.
    assert checks["rows of the learner at seat 1"]["passed"]
    assert Path("seats.png").stat().st_size > 10_000

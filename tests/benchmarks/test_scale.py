"""Scaling benchmark: counted work, the cost model, and the page about a measurement."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from experiment_scripts import imported
from hopplus.benchmarks.cost import Cost, Device, elsewhere, fit, fit_each, left_out, predict, predict_memory
from hopplus.benchmarks.scale import AHEAD, POINTS, Point, _compile, measure
from hopplus.benchmarks.work import alive, count, kernels
from hopplus.core.errors import InputError
from hopplus.games import make

COST = Cost(1e-6, 1e-10, 2e-9, 1.5)


@pytest.fixture
def scale() -> Iterator[ModuleType]:
    """Script that writes the page."""
    with imported("scale") as module:
        yield module


def products(matrix: Any, rounds: Any) -> Any:
    """Three products in a loop of known length, and `rounds` products in one of unknown length."""
    matrix, stacked = jax.lax.scan(lambda matrix, _: (matrix @ matrix, matrix), matrix, length=3)
    return jax.lax.fori_loop(0, rounds, lambda _, matrix: matrix @ matrix, matrix), stacked


def synthetic(number: int) -> dict[str, Any]:
    """Row with exactly the cost COST."""
    row = {
        "algorithm": "ppo",
        "operations": 1e4 * (1 + number % 3),
        "flops": 1e9 * (1 + number) ** 2,
        "bytes": 1e8 * (5 - number),
        "alive_bytes": 1e6 * (1 + number),
        "state_bytes": 1e5,
    }
    return {**row, "seconds": predict(row, COST), "memory_bytes": predict_memory(row, COST)}


def test_loops_count_by_their_length() -> None:
    traced = jax.jit(products).trace(jnp.ones((8, 8)), 5)
    work = count(traced.jaxpr.jaxpr, minibatches=5)
    assert work.flops == (3 + 5) * 2 * 8**3
    assert work.bytes >= (3 + 5) * 3 * 8 * 8 * 4
    size = 8 * 8 * 4
    expected = 3 * size + size + 2 * size  # stacked outputs, the carry, and two matrices within a round
    assert alive(traced.jaxpr.jaxpr) == pytest.approx(expected, rel=0.02)
    compiled = traced.lower().compile().as_text() or ""
    assert kernels(compiled, minibatches=6) > kernels(compiled, minibatches=5) > 0


def test_the_model_recovers_the_cost_of_synthetic_rows_and_predicts_others() -> None:
    rows = [synthetic(number) for number in range(6)]
    assert dataclasses.asdict(fit(rows)) == pytest.approx(dataclasses.asdict(COST), rel=1e-6)
    assert all(abs(error[what]) < 1e-6 for error in left_out(rows) for what in ("seconds", "memory"))
    assert predict(synthetic(7) | {"bytes": 1e8}, fit(rows)) == pytest.approx(1e-6 * 2e4 + 1e-10 * 64e9 + 0.2)


def test_each_algorithm_has_its_own_cost() -> None:
    rows = [synthetic(number) for number in range(5)]
    slow = [{**row, "algorithm": "hop", "seconds": 2 * row["seconds"]} for row in rows]
    costs = fit_each([*rows, *slow])
    assert costs["hop"].seconds_per_flop == pytest.approx(2 * costs["ppo"].seconds_per_flop)
    assert all(abs(error["seconds"]) < 1e-6 for error in left_out([*rows, *slow]))


def test_the_error_of_an_outlier_is_reported() -> None:
    rows = [synthetic(number) for number in range(6)]
    rows[2]["seconds"] *= 2
    assert left_out(rows)[2]["seconds"] == pytest.approx(-0.5, abs=0.01)


def test_a_device_is_used_as_well_as_this_machine_and_at_most_fully() -> None:
    device = Device("twice", 4e10, 2e10, 1e9, 8e-6)
    assert elsewhere(COST, device, 2e10, 1e10, 4.0) == Cost(2e-6, 5e-11, 1e-9, 1.5)
    free = dataclasses.replace(COST, seconds_per_flop=0.0)
    assert elsewhere(free, device, 2e10, 1e10, 4.0).seconds_per_flop == 1 / 4e10


def test_every_point_is_a_game_and_changes_one_thing() -> None:
    bases = {point.algorithm: point for point in POINTS if point.vary == "base"}
    for point in (point for point in POINTS if point.vary != "corner"):
        game, base = make(point.game), dataclasses.asdict(bases[point.algorithm])
        assert game.num_players == point.players
        changed = {name for name, value in dataclasses.asdict(point).items() if value != base[name]} - {"vary"}
        assert changed == ({"side" if point.vary == "board" else point.vary} if point.vary != "base" else set())
    for axis, values in (("players", {2, 4, 8}), ("side", {4, 8, 16, 19}), ("simulations", {None, 8, 16, 32, 64, 128})):
        assert {getattr(point, axis) for point in POINTS} == values
    assert all(make(point.game) for point in AHEAD)


@pytest.fixture
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles equal points once; afterwards enables the compilation cache again."""
    monkeypatch.setattr("hopplus.benchmarks.scale._compile", functools.cache(_compile))
    yield
    jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.usefixtures("compiled_once")
def test_the_figures_of_a_measurement_and_its_page(scale: ModuleType, tmp_path: Path) -> None:
    base = Point("base", players=2, environments=4)
    points = (base, *3 * [dataclasses.replace(base, vary="environments", environments=8)])
    done: list[float] = []
    figures = measure(points, points[:1], 1, done.append)
    assert done == sorted(done)
    assert done[-1] == 1
    for row, error in zip(figures["rows"], figures["left_out"], strict=True):
        assert row["seconds"] > 0
        assert 0 < row["living_share"] <= 1
        assert row["flops"] > row["parameters"] > 0
        assert row["memory_bytes"] > row["state_bytes"]
        assert row["operations"] > row["kernels"] > 0
        assert set(error) == {"seconds", "memory"}
    assert figures["rows"][0]["ratio_to_base"] == 1
    assert figures["ahead"][0]["flops"] >= figures["rows"][0]["flops"]
    assert set(figures["cost"]["ppo"]) == {field.name for field in dataclasses.fields(Cost)}
    assert figures["rounds"] == 1
    page = scale.written(figures)
    assert f"{1e6 * figures['rows'][1]['seconds_per_step']:,.1f} |" in page
    assert "Nothing in this section was measured" in page
    scale.draw(tmp_path / "scale.png", figures)
    assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_too_few_points_are_rejected() -> None:
    with pytest.raises(InputError, match="at least 4 points, not 2"):
        measure(POINTS[:2], (), 1)

"""Numeric settings are arguments of the compiled program."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from hopplus.algorithms import ALGORITHMS, PPO
from hopplus.configs import TrainingConfig
from hopplus.core.settings import flatten, replace_settings, setting_types
from hopplus.training.compiled_loop import CompiledLoop, traced_numbers
from hopplus.training.experiment import prepare

GAME = "msh-4x4-2h1s:height=2:width=3:hares=1:T=8"
SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "hidden": (8,)}
OTHER_MODELS: dict[str, Any] = {"moa_hidden": (8,), "belief_samples": 1, "simulations": 2, "moa_batches": 2}


def small(name: str) -> Any:
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}  # pyright: ignore[reportArgumentType]
    return ALGORITHMS[name](**SMALL, **{key: value for key, value in OTHER_MODELS.items() if key in fields})


@pytest.mark.parametrize("name", ["ppo", "liam", "hopplus"])
def test_another_number_is_the_same_program(name: str) -> None:
    """A number compiled as a constant would appear in the text of the program."""
    algorithm = small(name)
    changed = {
        key: not value if isinstance(value := flatten(algorithm)[key], bool) else value / 2 for key in algorithm.traced
    }
    texts = set()
    for variant, training in (
        (algorithm, TrainingConfig(game=GAME, steps=1000, iterations_per_call=1)),
        (replace_settings(algorithm, changed), TrainingConfig(game=GAME, steps=2000, iterations_per_call=1)),
    ):
        loop = CompiledLoop(prepare(training, variant))
        texts.add(loop._lower_iterations(loop._experiment.phases[0][1]).as_text())
    assert len(texts) == 1


def test_every_number_of_ppo_is_traced_and_reaches_the_update() -> None:
    algorithm = PPO(**SMALL, minibatch_size=8)
    numbers = {name for name, setting_type in setting_types(algorithm).items() if setting_type is float}
    shares = {"late_start_share", "regret_share"}
    assert numbers - set(algorithm.traced) == shares, "a share of 0 leaves them out of the program"
    loop = CompiledLoop(prepare(TrainingConfig(game=GAME, steps=1000, iterations_per_call=1), algorithm))
    first = loop.init_states()
    phase = loop._experiment.phases[0][1]
    program = loop._program(phase).result()
    numbers = traced_numbers(algorithm, phase)
    after = program(first, {}, numbers)[0]
    same = program(first, {}, ({**numbers[0], "learning_rate": np.float32(0)}, numbers[1]))[0]
    for name, moved in (("same", False), ("after", True)):
        state = {"same": same, "after": after}[name]
        pairs = zip(jax.tree.leaves(first.train_state.params), jax.tree.leaves(state.train_state.params), strict=True)
        assert any((np.asarray(old) != np.asarray(new)).any() for old, new in pairs) == moved

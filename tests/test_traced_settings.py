"""Settings that only change numbers are arguments of the compiled program."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from hopplus.training.recipes import PPO, RECIPES
from hopplus.training.trainer import Programs, Training, prepare, traced_numbers

GAME = "msh-4x4-2h1s:height=2:width=3:hares=1:T=8"
SMALL: dict[str, Any] = {"environments": 4, "rollout_steps": 8, "hidden": (8,)}
OTHER_MODELS: dict[str, Any] = {"moa_hidden": (8,), "draws": 1, "simulations": 2, "moa_batches": 2}


def small(name: str) -> Any:
    fields = {field.name for field in dataclasses.fields(RECIPES[name])}  # pyright: ignore[reportArgumentType]
    return RECIPES[name](**SMALL, **{key: value for key, value in OTHER_MODELS.items() if key in fields})


@pytest.mark.parametrize("name", ["ppo", "liam", "hopplus"])
def test_another_number_is_the_same_program(name: str) -> None:
    """A number left in the program as a constant would show in its text."""
    recipe = small(name)
    changed = {
        key: not value if isinstance(value := getattr(recipe, key), bool) else value / 2 for key in recipe.traced
    }
    texts = set()
    for one, training in (
        (recipe, Training(game=GAME, steps=1000, chunk=1)),
        (dataclasses.replace(recipe, **changed), Training(game=GAME, steps=2000, chunk=1)),
    ):
        programs = Programs(prepare(training, one))
        texts.add(programs._lower_chunk(programs._setup.stages[0][1]).as_text())
    assert len(texts) == 1


def test_every_number_of_ppo_is_traced_and_reaches_the_update() -> None:
    recipe = PPO(**SMALL, minibatch=8)
    untraced = {field.name for field in dataclasses.fields(recipe) if field.type is float} - set(recipe.traced)
    assert not untraced
    programs = Programs(prepare(Training(game=GAME, steps=1000, chunk=1), recipe))
    first = programs.first_states()
    stage = programs._setup.stages[0][1]
    program = programs._program(stage).result()
    numbers = traced_numbers(recipe, stage)
    after = program(first, {}, numbers)[0]
    same = program(first, {}, ({**numbers[0], "learning_rate": np.float32(0)}, numbers[1]))[0]
    for name, moved in (("same", False), ("after", True)):
        state = {"same": same, "after": after}[name]
        pairs = zip(jax.tree.leaves(first.learner.params), jax.tree.leaves(state.learner.params), strict=True)
        assert any((np.asarray(old) != np.asarray(new)).any() for old, new in pairs) == moved

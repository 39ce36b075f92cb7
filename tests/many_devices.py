"""Trainings on several devices, in a process of its own, since JAX counts its devices once: run by test_devices.py.

`many_devices.py DIRECTORY RECIPE SETTINGS NUMBERS` trains for one iteration on so many devices each, and for another
one from what each has saved on each of them, and writes checkpoints and `found.json` into the directory.
"""

import contextlib
import io
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hopplus.cli.main import main
from hopplus.devices import mesh_of
from hopplus.struct import names_and_leaves
from hopplus.training import checkpoint
from hopplus.training.recipes import make_recipe
from hopplus.training.trainer import Programs, Training, lines_of, prepare

TRAINING = Training(game="msh-4x4-2h1s", steps=10**6, chunk=1)
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def iterate(programs: Programs, states: Any, directory: Path) -> tuple[Any, list[dict[str, Any]]]:
    """The states after an iteration, which are also saved, and the lines of it."""
    states, metrics, finite = programs.chunk(states, 0)
    assert np.asarray(finite).all()
    directory.mkdir()
    checkpoint.save(directory, 1, states, {})
    return states, lines_of(programs._setup, states, metrics, np.ones(1, bool), 1)


def of_program(programs: Programs, states: Any) -> dict[str, Any]:
    """How states are spread after an iteration, and what was compiled for it."""
    leaves = names_and_leaves(states)
    (program,) = programs._compiled.values()
    collectives = COLLECTIVE.findall(program.result().as_text())
    return {
        "devices": len(states.steps.sharding.device_set),
        "shapes": {name: leaf.shape for name, leaf in leaves.items()},
        "shares": {name: leaf.sharding.shard_shape(leaf.shape) for name, leaf in leaves.items()},
        "flops": program.result().cost_analysis()["flops"],
        "collectives": {kind: collectives.count(kind) for kind in sorted(set(collectives))},
    }


def refusal(*words: str) -> tuple[int, str]:
    """The exit code of a training that cannot be, and what it says."""
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        return main(["train", "ppo", *words]), stream.getvalue().strip()


def everything(directory: Path, name: str, settings: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    recipe = make_recipe(name, settings)
    programs = {number: Programs(prepare(TRAINING, recipe, mesh=mesh_of(number))) for number in numbers}
    found: dict[str, Any] = {}
    for number in numbers:
        states, lines = iterate(programs[number], programs[number].first_states(), directory / f"{number}")
        found[str(number)] = {"lines": lines, **of_program(programs[number], states)}
    for before, after in itertools.product(numbers, numbers):
        saved = checkpoint.load(directory / f"{before}").arrays
        states = programs[after].placed(checkpoint.restore(programs[after].template, saved))
        iterate(programs[after], states, directory / f"{before}-{after}")
    found["refused"] = [refusal("--devices", number, "--out", str(directory / "refused")) for number in ("3", "9")]
    return found


if __name__ == "__main__":
    assert jax.device_count() == 8
    out = Path(sys.argv[1])
    found = everything(out, sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    (out / "found.json").write_text(json.dumps(found), encoding="utf-8")

"""Trainings on several devices, in a process of its own, since JAX counts its devices once: run by test_sharding.py.

`many_devices.py DIRECTORY ALGORITHM SETTINGS NUMBERS` trains for one iteration on each number of devices, and for
another one from each checkpoint on each number of devices. It writes checkpoints and `results.json` into the directory.
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

from hopplus.algorithms import make_algorithm
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.sharding import mesh_of
from hopplus.core.struct import names_and_leaves
from hopplus.training import checkpoint
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import prepare
from hopplus.training.summary import log_lines

TRAINING = TrainingConfig(game="msh-4x4-2h1s", steps=10**6, iterations_per_call=1)
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def iterate(loop: CompiledLoop, states: Any, directory: Path) -> tuple[Any, list[dict[str, Any]]]:
    """States after an iteration, which are also saved, and its log lines."""
    states, metrics, finite = loop.iterate(states, 0)
    assert np.asarray(finite).all()
    directory.mkdir()
    checkpoint.save(directory, 1, states, {})
    return states, log_lines(loop._experiment, states, metrics, np.ones(1, bool), 1)


def program_figures(loop: CompiledLoop, states: Any) -> dict[str, Any]:
    """Sharding of the states after an iteration, and figures of its compiled program."""
    leaves = names_and_leaves(states)
    (program,) = loop._compiled.values()
    collectives = COLLECTIVE.findall(program.result().as_text())
    return {
        "devices": len(states.steps.sharding.device_set),
        "shapes": {name: leaf.shape for name, leaf in leaves.items()},
        "shares": {name: leaf.sharding.shard_shape(leaf.shape) for name, leaf in leaves.items()},
        "flops": program.result().cost_analysis()["flops"],
        "collectives": {name: collectives.count(name) for name in sorted(set(collectives))},
    }


def refusal(*argv: str) -> tuple[int, str]:
    """Exit code and message of a training that is refused."""
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        return main(["train", "ppo", *argv]), stream.getvalue().strip()


def everything(directory: Path, name: str, settings: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """Run all trainings; returns their figures by number of devices, and the refusals."""
    algorithm = make_algorithm(name, settings)
    loops = {number: CompiledLoop(prepare(TRAINING, algorithm, mesh=mesh_of(number))) for number in numbers}
    figures: dict[str, Any] = {}
    for number in numbers:
        states, lines = iterate(loops[number], loops[number].init_states(), directory / f"{number}")
        figures[str(number)] = {"lines": lines, **program_figures(loops[number], states)}
    for before, after in itertools.product(numbers, numbers):
        saved = checkpoint.load(directory / f"{before}").arrays
        states = loops[after].shard_states(checkpoint.restore(loops[after].template, saved))
        iterate(loops[after], states, directory / f"{before}-{after}")
    figures["refused"] = [refusal("--devices", number, "--out", str(directory / "refused")) for number in ("3", "9")]
    return figures


if __name__ == "__main__":
    assert jax.device_count() == 8
    out = Path(sys.argv[1])
    result = everything(out, sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    (out / "results.json").write_text(json.dumps(result), encoding="utf-8")

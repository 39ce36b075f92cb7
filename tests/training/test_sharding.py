"""Training on several devices and by several processes: equal to one device, and really sharded."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from hopplus.algorithms import PPO
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.sharding import AXIS, any_process, device_count, mesh_of, replicate, shard, shard_environments
from hopplus.training import checkpoint
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import prepare
from hopplus.training.run import open_run

TOLERANCE = 1e-5
"""Several devices sum over transitions in another order, which changes a 32-bit number of about 1 by 1e-7. Parameters
differed by up to 2e-7 after an iteration of a few optimiser steps. The difference grows with every iteration, so that
only the first iterations are compared."""
SMALL: dict[str, Any] = {"num_envs": 16, "num_steps": 8, "hidden": (8,), "update_epochs": 2}
SMALL_HOPPLUS = {
    **SMALL,
    "moa_hidden": (8,),
    "learn": "both",
    "planned_share": 1.0,
    "planned_states": 16,
    "belief_samples": 1,
    "simulations": 4,
}
ARGV = (
    "--game msh-4x4-2h1s --num-envs 16 --num-steps 8 --hidden 8 --update-epochs 2"
    " --iterations-per-call 1 --checkpoint-seconds 0"
)
TRAIN = ["train", "ppo", *ARGV.split(), "--no-report"]


def environment(devices: int) -> dict[str, str]:
    """Environment variables of a process whose CPU counts as several devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function that runs `many_devices.py`: its directory, and the contents of `results.json`."""

    @cache
    def train(algorithm: str, numbers: tuple[int, ...]) -> tuple[Path, dict[str, Any]]:
        out = tmp_path_factory.mktemp(algorithm)
        settings = SMALL if algorithm == "ppo" else SMALL_HOPPLUS
        program = Path(__file__).parent.parent / "many_devices.py"
        argv = [str(program), str(out), algorithm, json.dumps(settings), json.dumps(numbers)]
        answer = subprocess.run([sys.executable, *argv], env=environment(8), capture_output=True, encoding="utf-8")
        assert answer.returncode == 0, answer.stderr
        return out, json.loads((out / "results.json").read_text(encoding="utf-8"))

    return train


def assert_close(path: Path, other: Path) -> None:
    """Asserts that two checkpoints have equal numbers within the tolerance, and identical boards."""
    first, second = checkpoint.load(path).arrays, checkpoint.load(other).arrays
    assert first.keys() == second.keys()
    for name, array in first.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, second[name], TOLERANCE, TOLERANCE, err_msg=name)
        else:
            np.testing.assert_array_equal(array, second[name], err_msg=name)


def assert_lines_close(lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Asserts that log lines are equal within the tolerance, except for times."""
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"seconds"}:
            values = [np.array(value, np.float64) for value in (line[name], other[name])]
            np.testing.assert_allclose(*values, rtol=1e-4, atol=TOLERANCE, err_msg=name)


PLAIN = [("ppo", (1, 4))]
SLOW = [pytest.param("ppo", (1, 2, 8), marks=pytest.mark.slow), pytest.param("hopplus", (1, 2), marks=pytest.mark.slow)]


@pytest.mark.parametrize(("algorithm", "numbers"), [*PLAIN, *SLOW])
def test_the_same_as_on_one_device(trained: Any, algorithm: str, numbers: tuple[int, ...]) -> None:
    out, results = trained(algorithm, numbers)
    for number in numbers[1:]:
        assert_close(out / "1", out / str(number))
        assert_lines_close(results["1"]["lines"], results[str(number)]["lines"])


@pytest.mark.parametrize(("algorithm", "numbers"), [*PLAIN, *SLOW])
def test_a_checkpoint_resumes_on_any_number_of_devices(trained: Any, algorithm: str, numbers: tuple[int, ...]) -> None:
    out, _ = trained(algorithm, numbers)
    for before in numbers:
        for after in numbers:
            assert_close(out / "1-1", out / f"{before}-{after}")


@pytest.mark.parametrize(("algorithm", "numbers"), [*PLAIN, *SLOW])
def test_environments_are_sharded_and_all_else_is_replicated(
    trained: Any, algorithm: str, numbers: tuple[int, ...]
) -> None:
    _, results = trained(algorithm, numbers)
    for number in numbers:
        result = results[str(number)]
        assert result["devices"] == number
        for name, shape in result["shapes"].items():
            divides = name.startswith("rollout_state/") and name != "rollout_state/clock"
            share = [1, SMALL["num_envs"] // number, *shape[2:]] if divides else shape
            assert result["shares"][name] == share, name


@pytest.mark.parametrize(("algorithm", "numbers"), [*PLAIN, *SLOW])
def test_a_device_computes_its_share_with_few_collectives(
    trained: Any, algorithm: str, numbers: tuple[int, ...]
) -> None:
    _, results = trained(algorithm, numbers)
    alone = results["1"]
    assert alone["collectives"] == {}
    for number in numbers[1:]:
        result = results[str(number)]
        assert result["flops"] < alone["flops"] * (1 / number + 0.25)
        assert {"all-gather", "all-reduce"} <= result["collectives"].keys(), (
            "transitions are gathered, gradients are reduced"
        )
        assert sum(result["collectives"].values()) <= 62, (
            "about one for each array of transitions, and none in the rollout"
        )


def test_an_invalid_number_of_devices_is_rejected(trained: Any) -> None:
    out, results = trained(*PLAIN[0])
    (odd_code, odd_message), (many_code, many_message) = results["refused"]
    assert (odd_code, many_code) == (2, 2)
    assert odd_message == (
        "hopplus: 128 environments cannot be divided evenly among 3 devices: --num-envs must be a multiple of 3"
    )
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=9" in many_message
    assert "this process has 8" in many_message
    assert "\n" not in odd_message + many_message
    assert not (out / "refused").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--devices 0", "--devices must be at least 1, not 0"),
        ("--devices 1000", "XLA_FLAGS=--xla_force_host_platform_device_count=1000"),
        ("--processes 2", "--coordinator HOST:PORT"),
        ("--process 1", "--coordinator HOST:PORT"),
        ("--coordinator nowhere --processes 2", "not 'nowhere'"),
        ("--coordinator localhost:1 --processes 2 --process 2", "from 0 to 1"),
        ("--coordinator localhost:1 --processes two", "must be numbers"),
    ],
)
def test_invalid_device_options_are_rejected(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, *options.split(), "--out", str(tmp_path / "run")]) == 2
    sentence = capsys.readouterr().err.strip()
    assert message in sentence
    assert "\n" not in sentence
    assert not (tmp_path / "run").exists()


def test_an_automatic_coordinator_needs_a_launcher() -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_"))}
    command = [sys.executable, "-m", "hopplus.cli.main", *TRAIN, "--coordinator", "auto"]
    answer = subprocess.run(command, env=known, capture_output=True, encoding="utf-8")
    assert answer.returncode == 2
    assert answer.stderr == "hopplus: --coordinator auto: neither Slurm (srun) nor Open MPI has started this process\n"


def test_sharding_constraints_for_four_devices() -> None:
    """Traced for an abstract mesh of four devices."""
    shapes: list[tuple[int, ...]] = []

    def play(states: Any) -> Any:
        shapes.append(states.shape)
        return 2 * states

    def constraint(function: Callable[[Any], Any], shape: tuple[int, ...]) -> list[Any]:
        equations = jax.make_jaxpr(function)(np.zeros(shape)).eqns
        return [
            equation.params["sharding"].spec
            for equation in equations
            if equation.primitive.name == "sharding_constraint"
        ]

    with jax.sharding.use_abstract_mesh(AbstractMesh((4,), (AXIS,), (AxisType.Auto,))):
        assert device_count() == 4
        assert constraint(lambda rows: shard(rows, 1), (3, 8)) == [PartitionSpec(None, AXIS)]
        assert constraint(lambda rows: shard(rows, 1), (3, 6)) == [], "an uneven axis is not sharded"
        assert constraint(replicate, (3, 8)) == [PartitionSpec()]
        for environments in (16, 6):
            places = PartitionSpec(AXIS)
            jax.make_jaxpr(shard_environments(play, environments, (places,), places))(np.zeros((environments, 2)))
    assert shapes == [(4, 2), (6, 2)]
    assert constraint(lambda rows: shard(replicate(rows), 1), (3, 8)) == [], "one device has no constraints"


def test_one_device_has_no_mesh_and_an_unsharded_program() -> None:
    assert mesh_of(1) is None
    assert device_count() == 1
    assert any_process(True, False) == [True, False]
    loop = CompiledLoop(prepare(TrainingConfig(game="msh-4x4-2h1s", iterations_per_call=1), PPO(**SMALL)))
    text = loop._lower_iterations(loop._experiment.phases[0][1]).as_text()
    assert "num_partitions = 1 " in text
    assert AXIS not in text
    states = loop.init_states()
    assert loop.shard_states(states) is states


@pytest.mark.slow
def test_the_command_resumes_on_another_number_of_devices(tmp_path: Path) -> None:
    def train(*argv: str) -> None:
        command = [sys.executable, "-m", "hopplus.cli.main", *argv]
        subprocess.run(command, env=environment(2), check=True, capture_output=True)

    train(*TRAIN, "--steps", "100", "--devices", "2", "--out", str(tmp_path / "two"))
    assert open_run(tmp_path / "two").config["devices"] == 2
    train("train", "--resume", str(tmp_path / "two"), "--steps", "200", "--no-report")
    assert open_run(tmp_path / "two").config["devices"] == 1
    train(*TRAIN, "--steps", "200", "--out", str(tmp_path / "one"))
    assert_close(tmp_path / "one/checkpoints", tmp_path / "two/checkpoints")
    assert_lines_close(open_run(tmp_path / "one").metrics(), open_run(tmp_path / "two").metrics())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


LATE = """
import sys, time
from hopplus.core.sharding import any_process, is_first, join

join(sys.argv[1], 2, int(sys.argv[2]))
time.sleep(0 if is_first() else 40)
print(any_process(is_first(), False))
"""


@pytest.mark.slow
def test_a_late_process_is_waited_for() -> None:
    """Gloo by itself times out after 30 seconds."""
    address, pipes = f"127.0.0.1:{free_port()}", {"stdout": subprocess.PIPE, "encoding": "utf-8"}
    commands = [[sys.executable, "-c", LATE, address, str(process)] for process in range(2)]
    started: Any = [subprocess.Popen(command, env=environment(1), **pipes) for command in commands]
    outputs = [process.communicate(timeout=600)[0] for process in started]
    assert [output.splitlines()[-1] for output in outputs] == ["[True, False]"] * 2


Processes = list[subprocess.Popen[str]]


def together(directories: list[Path], *argv: str, act: Callable[[Processes], None] = lambda started: None) -> Any:
    """Exit codes, standard outputs and standard errors of one training by several processes.

    Each process has two devices and a separate directory. `act` is called while they train.
    """
    port, number, started = free_port(), len(directories), []
    for process, directory in enumerate(directories):
        directory.mkdir(exist_ok=True)
        team = f"--devices 2 --coordinator 127.0.0.1:{port} --processes {number} --process {process}".split()
        command = [sys.executable, "-m", "hopplus.cli.main", *argv, *team]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        started.append(subprocess.Popen(command, env=environment(2), cwd=directory, **pipes))
    try:
        act(started)
        outputs = [process.communicate(timeout=1800) for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], *zip(*outputs, strict=True)


@pytest.mark.slow
def test_two_processes_train_one_run_and_only_the_first_writes(tmp_path: Path) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    run, alone = directories[0] / "run", tmp_path / "alone"
    argv = [*TRAIN, "--seeds", "0-1", "--evaluations", "2", "--steps", "200"]
    codes, outputs, errors = together(directories, *argv, "--out", "run")
    assert codes == [0, 0], errors
    assert list(directories[1].iterdir()) == []
    assert ["mean return" in output for output in outputs] == [True, False]
    assert open_run(run).config["devices"] == 4
    codes, _, errors = together(directories, *argv, "--out", "run")
    assert codes == [2, 2], errors
    assert "already holds a run" in errors[0]
    command = [sys.executable, "-m", "hopplus.cli.main", *argv, "--out", str(alone)]
    subprocess.run(command, check=True, capture_output=True)
    assert_close(alone / "checkpoints", run / "checkpoints")
    assert_lines_close(open_run(alone).metrics(), open_run(run).metrics())

    def stop_the_second(started: Processes) -> None:
        while len(open_run(run).metrics()) < 8:
            assert all(process.poll() is None for process in started)
            time.sleep(0.05)
        started[1].terminate()

    codes, _, errors = together(directories, "train", "--resume", str(run), "--steps", "100000000", act=stop_the_second)
    assert codes == [130, 130], errors
    assert ["stopped and saved" in error for error in errors] == [True, False]
    assert checkpoint.load(run / "checkpoints").number == open_run(run).metrics()[-1]["iteration"]
    assert list(directories[1].iterdir()) == []

"""One training on several devices, and by several processes: the same as on one, and really spread."""

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
"""Sums over rows are made in another order on several devices, which moves a 32-bit figure of about 1 by 1e-7; in an
iteration of a few steps of an optimiser, parameters were seen to move by up to 2e-7. It grows with every iteration, as
any disturbance does in learning, so that only the first ones are compared."""
SMALL: dict[str, Any] = {"num_envs": 16, "num_steps": 8, "hidden": (8,), "update_epochs": 2}
SMALL_HOPPLUS = {
    **SMALL,
    "moa_hidden": (8,),
    "learn": "both",
    "planned_states": 16,
    "belief_samples": 1,
    "simulations": 4,
}
WORDS = (
    "--game msh-4x4-2h1s --num-envs 16 --num-steps 8 --hidden 8 --update-epochs 2"
    " --iterations-per-call 1 --checkpoint-seconds 0"
)
TRAIN = ["train", "ppo", *WORDS.split(), "--no-report"]


def environment(devices: int) -> dict[str, str]:
    """Of a process that takes its CPU for so many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `many_devices` finds: (its directory, `found.json`)."""

    @cache
    def train(recipe: str, numbers: tuple[int, ...]) -> tuple[Path, dict[str, Any]]:
        out = tmp_path_factory.mktemp(recipe)
        settings = SMALL if recipe == "ppo" else SMALL_HOPPLUS
        program = Path(__file__).parent.parent / "many_devices.py"
        words = [str(program), str(out), recipe, json.dumps(settings), json.dumps(numbers)]
        answer = subprocess.run([sys.executable, *words], env=environment(8), capture_output=True, encoding="utf-8")
        assert answer.returncode == 0, answer.stderr
        return out, json.loads((out / "found.json").read_text(encoding="utf-8"))

    return train


def assert_close(one: Path, other: Path) -> None:
    """Two checkpoints hold the same figures within the tolerance, and the very same boards."""
    first, second = checkpoint.load(one).arrays, checkpoint.load(other).arrays
    assert first.keys() == second.keys()
    for name, array in first.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, second[name], TOLERANCE, TOLERANCE, err_msg=name)
        else:
            np.testing.assert_array_equal(array, second[name], err_msg=name)


def assert_lines_close(lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"seconds"}:
            values = [np.array(value, np.float64) for value in (line[name], other[name])]
            np.testing.assert_allclose(*values, rtol=1e-4, atol=TOLERANCE, err_msg=name)


PLAIN = [("ppo", (1, 4))]
SLOW = [pytest.param("ppo", (1, 2, 8), marks=pytest.mark.slow), pytest.param("hopplus", (1, 2), marks=pytest.mark.slow)]


@pytest.mark.parametrize(("recipe", "numbers"), [*PLAIN, *SLOW])
def test_the_same_as_on_one_device(trained: Any, recipe: str, numbers: tuple[int, ...]) -> None:
    out, found = trained(recipe, numbers)
    for number in numbers[1:]:
        assert_close(out / "1", out / str(number))
        assert_lines_close(found["1"]["lines"], found[str(number)]["lines"])


@pytest.mark.parametrize(("recipe", "numbers"), [*PLAIN, *SLOW])
def test_a_checkpoint_goes_on_with_any_number_of_devices(trained: Any, recipe: str, numbers: tuple[int, ...]) -> None:
    out, _ = trained(recipe, numbers)
    for before in numbers:
        for after in numbers:
            assert_close(out / "1-1", out / f"{before}-{after}")


@pytest.mark.parametrize(("recipe", "numbers"), [*PLAIN, *SLOW])
def test_environments_are_spread_and_all_else_is_everywhere(
    trained: Any, recipe: str, numbers: tuple[int, ...]
) -> None:
    _, found = trained(recipe, numbers)
    for number in numbers:
        told = found[str(number)]
        assert told["devices"] == number
        for name, shape in told["shapes"].items():
            divides = name.startswith("rollout_state/") and name != "rollout_state/clock"
            share = [1, SMALL["num_envs"] // number, *shape[2:]] if divides else shape
            assert told["shares"][name] == share, name


@pytest.mark.parametrize(("recipe", "numbers"), [*PLAIN, *SLOW])
def test_a_device_computes_its_share_and_is_told_little(trained: Any, recipe: str, numbers: tuple[int, ...]) -> None:
    _, found = trained(recipe, numbers)
    alone = found["1"]
    assert alone["collectives"] == {}
    for number in numbers[1:]:
        told = found[str(number)]
        assert told["flops"] < alone["flops"] * (1 / number + 0.25)
        assert {"all-gather", "all-reduce"} <= told["collectives"].keys(), "rows go to all, gradients come from all"
        assert sum(told["collectives"].values()) <= 60, "about one for each array of rows, and none in the play"


def test_devices_that_cannot_be_are_refused(trained: Any) -> None:
    out, found = trained(*PLAIN[0])
    (odd, odd_said), (many, many_said) = found["refused"]
    assert (odd, many) == (2, 2)
    assert odd_said == (
        "hopplus: 128 environments cannot be divided evenly among 3 devices: --num-envs must be a multiple of 3"
    )
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=9" in many_said
    assert "this process has 8" in many_said
    assert "\n" not in odd_said + many_said
    assert not (out / "refused").exists()


@pytest.mark.parametrize(
    ("words", "says"),
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
def test_bad_input(words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, *words.split(), "--out", str(tmp_path / "run")]) == 2
    sentence = capsys.readouterr().err.strip()
    assert says in sentence
    assert "\n" not in sentence
    assert not (tmp_path / "run").exists()


def test_nobody_has_started_the_processes() -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_"))}
    command = [sys.executable, "-m", "hopplus.cli.main", *TRAIN, "--coordinator", "auto"]
    answer = subprocess.run(command, env=known, capture_output=True, encoding="utf-8")
    assert answer.returncode == 2
    assert answer.stderr == "hopplus: --coordinator auto: neither Slurm (srun) nor Open MPI has started this process\n"


def test_what_is_divided_among_four_devices() -> None:
    """Traced for four devices that need not be there."""
    shapes: list[tuple[int, ...]] = []

    def play(table: Any) -> Any:
        shapes.append(table.shape)
        return 2 * table

    def constraint(function: Callable[[Any], Any], shape: tuple[int, ...]) -> list[Any]:
        equations = jax.make_jaxpr(function)(np.zeros(shape)).eqns
        return [one.params["sharding"].spec for one in equations if one.primitive.name == "sharding_constraint"]

    with jax.sharding.use_abstract_mesh(AbstractMesh((4,), (AXIS,), (AxisType.Auto,))):
        assert device_count() == 4
        assert constraint(lambda rows: shard(rows, 1), (3, 8)) == [PartitionSpec(None, AXIS)]
        assert constraint(lambda rows: shard(rows, 1), (3, 6)) == [], "what does not divide evenly is not divided"
        assert constraint(replicate, (3, 8)) == [PartitionSpec()]
        for environments in (16, 6):
            places = PartitionSpec(AXIS)
            jax.make_jaxpr(shard_environments(play, environments, (places,), places))(np.zeros((environments, 2)))
    assert shapes == [(4, 2), (6, 2)]
    assert constraint(lambda rows: shard(replicate(rows), 1), (3, 8)) == [], "one device has no constraints"


def test_one_device_is_no_mesh_and_the_program_is_what_it_was() -> None:
    assert mesh_of(1) is None
    assert device_count() == 1
    assert any_process(True, False) == [True, False]
    programs = CompiledLoop(prepare(TrainingConfig(game="msh-4x4-2h1s", iterations_per_call=1), PPO(**SMALL)))
    text = programs._lower_iterations(programs._experiment.phases[0][1]).as_text()
    assert "num_partitions = 1 " in text
    assert AXIS not in text
    states = programs.init_states()
    assert programs.shard_states(states) is states


@pytest.mark.slow
def test_the_command_goes_on_with_another_number_of_devices(tmp_path: Path) -> None:
    def train(*words: str) -> None:
        command = [sys.executable, "-m", "hopplus.cli.main", *words]
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
def test_a_process_that_comes_late_is_waited_for() -> None:
    """Gloo alone would give up after 30 seconds."""
    address, pipes = f"127.0.0.1:{free_port()}", {"stdout": subprocess.PIPE, "encoding": "utf-8"}
    commands = [[sys.executable, "-c", LATE, address, str(process)] for process in range(2)]
    started: Any = [subprocess.Popen(command, env=environment(1), **pipes) for command in commands]
    outputs = [process.communicate(timeout=600)[0] for process in started]
    assert [output.splitlines()[-1] for output in outputs] == ["[True, False]"] * 2


Processes = list[subprocess.Popen[str]]


def together(directories: list[Path], *words: str, act: Callable[[Processes], None] = lambda started: None) -> Any:
    """One training by several processes of two devices each, each in a directory of its own: exit codes, and what they
    say on standard output and error. `act` is done while they train."""
    port, number, started = free_port(), len(directories), []
    for process, directory in enumerate(directories):
        directory.mkdir(exist_ok=True)
        team = f"--devices 2 --coordinator 127.0.0.1:{port} --processes {number} --process {process}".split()
        command = [sys.executable, "-m", "hopplus.cli.main", *words, *team]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        started.append(subprocess.Popen(command, env=environment(2), cwd=directory, **pipes))
    try:
        act(started)
        said = [process.communicate(timeout=1800) for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], *zip(*said, strict=True)


@pytest.mark.slow
def test_two_processes_train_one_run_and_only_the_first_writes(tmp_path: Path) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    run, alone = directories[0] / "run", tmp_path / "alone"
    words = [*TRAIN, "--seeds", "0-1", "--evaluations", "2", "--steps", "200"]
    codes, outputs, errors = together(directories, *words, "--out", "run")
    assert codes == [0, 0], errors
    assert list(directories[1].iterdir()) == []
    assert ["mean return" in output for output in outputs] == [True, False]
    assert open_run(run).config["devices"] == 4
    codes, _, errors = together(directories, *words, "--out", "run")
    assert codes == [2, 2], errors
    assert "already holds a run" in errors[0]
    command = [sys.executable, "-m", "hopplus.cli.main", *words, "--out", str(alone)]
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

"""Runs of HOP+ by command: invalid settings, resuming, search, and initialisation from another run."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from common import hopplus, shared_programs
from hopplus.algorithms import make_algorithm
from hopplus.algorithms.seats import PartnerPool
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.struct import names_and_leaves
from hopplus.games import make
from hopplus.training import checkpoint, compiled_loop, trainer
from hopplus.training.callbacks import note_return_drop
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import prepare
from hopplus.training.progress import Progress
from hopplus.training.run import open_run
from hopplus_iterations import GAME, SMALL


def test_a_return_drop_is_reported_once_with_the_metrics_that_changed() -> None:
    """A metric without transitions, here before step 5, does not prevent it."""
    progress = Progress()
    lines = []
    for step, mean_return in enumerate([1.0, 2.0, 2.5, 2.5, 2.5, 2.4, 2.3, 2.2, 2.6, 2.6, 2.6]):
        line: dict[str, Any] = {"seed": 0, "steps": step, "return": [mean_return], "entropy": [1.0 - step / 10]}
        line["plan_loss"] = [float("nan") if step < 5 else 0.5]
        note_return_drop(line, (0,), progress)
        lines.append(line)
    drops = [line for line in lines if "fell" in line]
    assert len(drops) == 1
    assert drops[0]["steps"] == 6
    assert drops[0]["fell"]["from"] == pytest.approx(2.5)
    assert set(drops[0]["fell"]["moved"]) == {"entropy"}
    assert drops[0]["fell"]["moved"]["entropy"][1] < drops[0]["fell"]["moved"]["entropy"][0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"world": "none", "planner": "tree"}, "need the rules or a learned world"),
        ({"buffer_episodes": 128}, "buffer_episodes must be 0"),
        ({"simulations": 0}, "simulations must be at least 1"),
        ({"real_ratio": 0.0}, "real_ratio"),
        ({"world": "none", "planner": "rollouts"}, "need the rules or a learned world"),
        ({"rollouts": 1}, "rollouts must be at least 2"),
        ({"plans": ("hare",)}, "no preference 'hare' .did you mean 'hares'"),
        ({"trembles": (1.0,)}, "trembles must be"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_algorithm("hopplus", settings).check([make(GAME)])


def test_an_optimist_needs_a_model_of_prey() -> None:
    with pytest.raises(InputError, match="--goals prey"):
        prepare(TrainingConfig(game=GAME, partner="optimist"), hopplus(**SMALL))


@pytest.mark.parametrize(
    ("training", "settings", "has_partner"),
    [
        ({}, {"goals": "prey"}, True),
        ({"partner": "none"}, {"goals": "prey"}, False),
        ({"cast": "learner,nh,nh,nh"}, {"goals": "prey"}, False),
        ({}, {"goals": "codes"}, False),
        ({}, {"goals": "prey", "learn": "expert"}, False),
    ],
)
def test_the_default_partner_is_for_self_play(
    training: dict[str, Any], settings: dict[str, Any], has_partner: bool
) -> None:
    experiment = prepare(TrainingConfig(game=GAME, steps=1000, **training), hopplus(**{**SMALL, **settings}))
    phase = experiment.phase_at(0)
    assert phase.partner_share == (0.75 if has_partner else 0.0)
    assert (phase.partner_steps, float(phase.partner_share_at(jnp.int32(500)))) == (500, 0.0)
    assert any(isinstance(player, PartnerPool) for player in phase.seats.cast.players) == has_partner


# ------------------------------------------------------------------------------------------------------------- commands

ARGV = (
    f"train hopplus --game {GAME} --goals prey --partner optimist --num-envs 4 --num-steps 8 --hidden 8"
    " --moa-hidden 8 --moa-batches 2 --update-epochs 1 --iterations-per-call 2 --trial-episodes 2"
    " --randomize-rewards --no-anneal-lr --steps 512"
    " --parameters independent --moa-networks each --belief-samples 1 --simulations 4"
    " --learn both --planner rollouts --rollouts 4 --rounds 1 --planned-states 8 --no-report"
).split()


@contextlib.contextmanager
def first_states() -> Iterator[list[dict[str, Any]]]:
    """Context that records the initial states of all trainings, by name of their leaves."""
    states_by_name: list[dict[str, Any]] = []
    original = CompiledLoop.init_states

    def recording(loop: CompiledLoop) -> Any:
        states = original(loop)
        states_by_name.append(names_and_leaves(states))
        return states

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledLoop, "init_states", recording)
        yield states_by_name


@dataclasses.dataclass(frozen=True)
class TrainedByCommand:
    """Run directory and initial state of a training."""

    path: Path
    first: dict[str, Any]
    """Initial state, by name of its leaves [seeds, ...]."""

    @property
    def last(self) -> Mapping[str, np.ndarray]:
        """Final state, by name of its leaves."""
        return checkpoint.load(self.path / "checkpoints").arrays


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedByCommand]:
    """Short run. Equal trainings share its compiled programs, and are evaluated in a few episodes."""
    path = tmp_path_factory.mktemp("hopplus") / "one"
    with shared_programs(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_loop, "EVALUATION_EPISODES", 4)
        with first_states() as first:
            assert main([*ARGV, "--out", str(path)]) == 0
        yield TrainedByCommand(path, first[0])


def test_every_seat_trains_a_separate_model_of_each_co_player(run: TrainedByCommand) -> None:
    last, moved = run.last, np.zeros(12)  # four seats, three co-players each
    for name, leaf in run.first.items():
        if name.startswith("moa/params/network"):
            moved = np.maximum(moved, np.abs(last[name] - np.asarray(leaf)).reshape(12, -1).max(1))
    assert (moved > 0).all()
    lines = open_run(run.path).metrics()
    # A seat that a curriculum partner had for a whole chunk has no accuracy.
    assert {seat for line in lines for seat, accuracy in enumerate(line["moa_top1"]) if accuracy is not None} == set(
        range(4)
    )
    trained_on = np.array([line["trained_on"] for line in lines])
    assert ((trained_on.sum(0) > 0) == np.eye(4, dtype=bool)).all()


def test_repeated_and_resumed_runs_are_bit_equal(run: TrainedByCommand, tmp_path: Path) -> None:
    other, stopped = (tmp_path / name for name in ("other", "stopped"))
    assert main([*ARGV, "--out", str(other)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_train, "_bar", lambda experiment: contextlib.nullcontext(interrupt_after_two_chunks))
        assert main([*ARGV, "--out", str(stopped)]) == 130
    assert checkpoint.load(stopped / "checkpoints").notes["calls"] == 2
    assert main(["train", "--resume", str(stopped), "--no-report"]) == 0
    expected = run.last
    for path in (other, stopped):
        arrays = checkpoint.load(path / "checkpoints").arrays
        assert arrays.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(arrays[name], expected[name])
    assert any(name.startswith("rollout_state/memories") for name in expected)
    assert any(name.startswith("moa/opt_state") for name in expected)


def interrupt_after_two_chunks(lines: Sequence[Mapping[str, Any]], experiment: trainer.Experiment) -> None:
    """Callback that simulates Ctrl-C."""
    if lines[0]["iteration"] == 2 * experiment.training.iterations_per_call:
        raise KeyboardInterrupt


def test_a_run_is_watched_and_evaluated_with_a_planner(run: TrainedByCommand, tmp_path: Path) -> None:
    assert main(["watch", "--run", str(run.path), "--json", str(tmp_path / "seen.json")]) == 0
    cast = ["--cast", "self,stay,stay,stay"]
    assert main(["evaluate", str(run.path), *cast, "--episodes", "4", "--planner", "tree"]) == 0


def test_init_starts_modules_from_the_parameters_of_another_run(run: TrainedByCommand, tmp_path: Path) -> None:
    init = ["--init", f"moa={run.path}", f"policy={run.path}"]
    with first_states() as recorded:
        assert main([*ARGV, "--out", str(tmp_path / "initialised"), *init]) == 0
    trained, first = run.last, recorded[0]
    for part in ("train_state/params", "acting_moa"):
        names = [name for name in first if name.startswith(part)]
        assert names
        for name in names:
            # Every seat starts from the parameters of the first seat.
            expected = np.broadcast_to(trained[name][:, :1], first[name].shape)
            np.testing.assert_array_equal(first[name], expected, err_msg=name)
    assert main([*ARGV, "--out", str(tmp_path / "wrong"), "--init", "moa=nowhere"]) == 2
    assert not (tmp_path / "wrong").exists()

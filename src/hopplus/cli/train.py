"""Command `hopplus train`."""

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro
from rich.console import Console

from hopplus.cli.output import Json, Plugin, console, run_plugin, show
from hopplus.cli.train_summary import held_out_figures, summary_table
from hopplus.cli.training_options import graceful_stop, parse_options, show_choices, value_of
from hopplus.configs import CONFIGS, TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.formatting import quote_path
from hopplus.core.settings import flatten, replace_settings
from hopplus.core.specs import check_options, nearest

if TYPE_CHECKING:
    from hopplus.training.experiment import Experiment
    from hopplus.training.run import Run

R = TypeVar("R")
T = TypeVar("T")
DEFAULT = "hopplus"
"""Algorithm that is trained by default."""
REPLAY_SETS = 1
"""Number of held-out sets whose replays a training's report shows."""
MAY_CHANGE = ("steps", "target")
"""Settings that may change when a run is resumed."""


@dataclass(frozen=True)
class TrainOptions(Generic[T, R]):
    """Options of `hopplus train ALGORITHM` in addition to the settings of the training and of the algorithm."""

    training: T
    algorithm: R
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """New run directory; by default runs/ALGORITHM-GAME-TIME."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Resume this run, bit for bit; only --steps and --target may change."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints: the most that a killed training loses."""
    devices: int = 1
    """Devices per process that share the environments; may change when a run is resumed."""
    coordinator: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Address of the first process of a distributed training, or auto for Slurm and Open MPI. Start every process with
    the same arguments except --process."""
    processes: int = 1
    """Number of processes of a distributed training."""
    process: int = 0
    """Index of this process, from 0; process 0 writes the run."""
    report: bool = True
    """At the end, evaluate with some held-out co-players and write report.html into the run directory."""
    preset: str | None = None
    """Named group of settings; individual flags override it. hop-paper: HOP as published (hop). plain: no reward
    randomisation and no planning; omg; direct-om: an opponent model without goals (hopplus)."""
    json: Json = None
    plugin: Plugin = None


def train(argv: Sequence[str]) -> int:
    """Train HOP+ or another algorithm (`hopplus train ppo`), or resume a run (`hopplus train --resume RUN`)."""
    argv = list(argv)
    _join(argv)
    run_plugin(value_of("--plugin", argv))
    resumed = _resumed(argv)
    if argv and not argv[0].startswith("-"):
        name = argv.pop(0)
    elif resumed is not None:
        name = resumed.config["algorithm"]
    elif {"-h", "--help"} & set(argv):
        more = f"Default algorithm: {DEFAULT}.   To resume a run: hopplus train --resume RUN [--steps N] [--target X]"
        return show_choices("hopplus train [ALGORITHM] [--help]", "algorithm", _known_configs(), more)
    else:
        name = DEFAULT
    if resumed is None:
        return _start(name, _options_of(name, argv))
    default = _saved_options(resumed, name)
    options = _parse(name, argv, default)
    _refuse_changes(default, options, name)
    return _resume(resumed, _with_algorithm(name, options))


def _join(argv: Sequence[str]) -> None:
    """Join the processes of a distributed training, before anything (plugins included) computes."""
    coordinator = value_of("--coordinator", argv)
    numbers = [str(value_of(option, argv) or default) for option, default in (("--processes", 1), ("--process", 0))]
    if coordinator is None:
        if numbers != ["1", "0"]:
            raise InputError("--processes and --process need --coordinator HOST:PORT, the address of process 0")
        return
    if not all(number.isdigit() for number in numbers):
        raise InputError(f"--processes and --process must be numbers, not {' and '.join(numbers)}")
    from hopplus.core.sharding import join

    join(str(coordinator), *map(int, numbers))


def check(argv: Sequence[str]) -> None:
    """Raise the InputError that `hopplus train` would raise for these arguments, without training.

    Args:
        argv: Arguments of `hopplus train`, the algorithm first.
    """
    from hopplus.training.experiment import prepare

    name, *argv = argv
    run_plugin(value_of("--plugin", argv))
    options = _options_of(name, argv)
    prepare(options.training, options.algorithm)


def _options_of(name: str, argv: Sequence[str]) -> TrainOptions[TrainingConfig, Any]:
    """Options of a new training; JAX is not imported before they are parsed."""
    configs = _known_configs()
    if name not in configs:
        raise InputError(f"there is no algorithm {name!r}{nearest(name, configs)}")
    default = TrainOptions(TrainingConfig(), replace_settings(configs[name](), _preset(argv, name)))
    return _with_algorithm(name, _parse(name, argv, default))


def _known_configs() -> dict[str, Any]:
    """Configs of the package's algorithms, and the algorithms that a plugin has registered.

    A plugin that registers an algorithm has imported `hopplus.algorithms`.
    """
    loaded = sys.modules.get("hopplus.algorithms")
    return {**(loaded.ALGORITHMS if loaded else {}), **CONFIGS}


def _with_algorithm(name: str, options: TrainOptions[TrainingConfig, Any]) -> TrainOptions[TrainingConfig, Any]:
    """Replace the algorithm's config by the algorithm."""
    from hopplus.algorithms import ALGORITHMS

    return dataclasses.replace(options, algorithm=ALGORITHMS[name](**vars(options.algorithm)))


def _parse(
    name: str, argv: Sequence[str], default: TrainOptions[TrainingConfig, Any]
) -> TrainOptions[TrainingConfig, Any]:
    configs = (type(default.training), type(default.algorithm))
    return parse_options(f"hopplus train {name}", argv, TrainOptions, configs, default)


def _preset(argv: Sequence[str], name: str) -> dict[str, Any]:
    """Settings of the chosen --preset for the chosen game."""
    preset = value_of("--preset", argv)
    if preset is None:
        return {}
    from hopplus.algorithms import PRESETS
    from hopplus.games import make

    if str(preset) not in PRESETS:
        raise InputError(f"there is no preset {str(preset)!r}{nearest(str(preset), PRESETS)}")
    algorithm, settings = PRESETS[str(preset)]
    if algorithm != name:
        command = f"hopplus train {algorithm} --preset {preset}"
        raise InputError(f"the preset {preset} belongs to the algorithm {algorithm}: {command}")
    return settings(make(str(value_of("--game", argv) or TrainingConfig().game)))


def _resumed(argv: Sequence[str]) -> "Run | None":
    """Run that --resume names, or None."""
    path = value_of("--resume", argv)
    if path is None:
        return None
    from hopplus.training.run import open_run

    return open_run(path)


def _saved_options(run: "Run", name: str) -> TrainOptions[TrainingConfig, Any]:
    """Options that a run was started with."""
    from hopplus.algorithms import make_algorithm

    if run.config["algorithm"] != name:
        raise InputError(f"{run.path} was trained by {run.config['algorithm']}, not by {name}")
    saved = run.config["training"]
    check_options(f"{run.path}: the training", saved, [field.name for field in dataclasses.fields(TrainingConfig)])
    lists = {field: tuple(saved[field]) for field in ("curriculum", "init") if field in saved}
    return TrainOptions(TrainingConfig(**{**saved, **lists}), make_algorithm(name, run.config["settings"]))


def _refuse_changes(saved: TrainOptions[Any, Any], requested: TrainOptions[Any, Any], name: str) -> None:
    """Raise InputError if a resumed run would get other settings than it was started with."""
    for part in ("training", "algorithm"):
        before, now = flatten(getattr(saved, part)), flatten(getattr(requested, part))
        for setting in before:
            if before[setting] != now[setting] and setting not in MAY_CHANGE:
                raise InputError(
                    f"this run has {setting}={before[setting]!r}, which cannot change to {now[setting]!r} on --resume:"
                    f" only {' and '.join(MAY_CHANGE)} can; start a new run for other settings"
                )
    if requested.out is not None:
        raise InputError("--out and --resume exclude each other: a resumed run stays in its own directory")


def _start(name: str, options: TrainOptions[Any, Any]) -> int:
    """Train a new run; returns the exit code."""
    from hopplus.core.sharding import mesh_of
    from hopplus.training.experiment import describe, prepare
    from hopplus.training.policies import save_policies
    from hopplus.training.run import default_path, new_run

    experiment = prepare(options.training, options.algorithm, mesh=mesh_of(options.devices))
    out = options.out or default_path(name, experiment.game.name)
    with _in_first_process(new_run(out, describe(experiment))) as run:
        if run:
            save_policies(run.co_players, experiment.frozen)
        return _run(run, experiment, None, options)


def _resume(run: "Run", options: TrainOptions[Any, Any]) -> int:
    """Train a run further; returns the exit code."""
    from hopplus.core.sharding import is_first, mesh_of
    from hopplus.training import checkpoint
    from hopplus.training.experiment import describe, prepare
    from hopplus.training.policies import load_policies, save_policies
    from hopplus.training.run import locked

    with _in_first_process(locked(run.path)):
        saved = checkpoint.load(run.checkpoints) if checkpoint.list_checkpoints(run.checkpoints) else None
        # Without a checkpoint the training starts from the beginning, and loads co-players and --init runs again.
        frozen = load_policies(run.co_players) if saved else None
        experiment = prepare(options.training, options.algorithm, frozen, mesh_of(options.devices))
        before, now = run.config.get("game_version"), experiment.game.version
        if before != now:
            raise InputError(f"{run.path} was trained on version {before} of the game, and this is version {now}")
        if not is_first():
            return _run(None, experiment, saved, options)
        run = run.with_config(describe(experiment))
        if saved is None:
            save_policies(run.co_players, experiment.frozen)
        return _run(run, experiment, saved, options)


@contextlib.contextmanager
def _in_first_process(context: contextlib.AbstractContextManager[R]) -> Iterator[R | None]:
    """Enter a context in the first process only; the others get None. If entering fails, all processes end."""
    from hopplus.core.sharding import any_process, is_first

    value, failure = None, None
    with contextlib.ExitStack() as stack:
        if is_first():
            try:
                value = stack.enter_context(context)
            except InputError as error:
                failure = error
        if any_process(failure is not None)[0]:
            raise failure or InputError("the first process could not start: see its error message")
        yield value


def _run(run: "Run | None", experiment: "Experiment", saved: Any, options: TrainOptions[Any, Any]) -> int:
    """Train and print the results; a process without a run only computes. Returns the exit code."""
    from hopplus.training.callbacks import DivergedError
    from hopplus.training.trainer import train

    try:
        with (
            graceful_stop() as should_stop,
            _bar(experiment) as show_progress,
            _report_compiled(run, experiment, options) as compile_report,
        ):

            def watch(lines: Sequence[dict[str, Any]], experiment: "Experiment") -> None:
                compile_report()
                show_progress(lines, experiment)

            summary = train(run, experiment, saved, watch, options.checkpoint_seconds, should_stop)
    except DivergedError as error:
        if run:
            print(f"hopplus: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if run:
            resume = f"hopplus train --resume {quote_path(run.path)}"
            print(f"hopplus: stopped and saved; resume with: {resume}", file=sys.stderr)
        return 130
    if run is None:
        return 0
    held_out = held_out_figures(run) if options.report else []
    show({"run": str(run.path), **summary, "held_out": held_out}, summary_table(summary, held_out), options.json)
    page = _report(run) if options.report else None
    if options.json != "-":
        if page is not None:
            console().print(f"report: {page}", soft_wrap=True)
        console().print(
            f"run: {run.path}   curves: tensorboard --logdir {quote_path(run.path / 'events')}", soft_wrap=True
        )
        console().print(f"more: hopplus evaluate {quote_path(run.path)} --cast self,...", soft_wrap=True)
    return 0


def _report(run: "Run") -> Path:
    """Write the report of a run, with replays in self-play and with REPLAY_SETS held-out sets."""
    from hopplus.visualization.report import NAME, write_report

    return write_report([run], run.path / NAME, sets=REPLAY_SETS)


@contextlib.contextmanager
def _report_compiled(
    run: "Run | None", experiment: "Experiment", options: TrainOptions[Any, Any]
) -> Iterator[Callable[[], None]]:
    """Context that yields a function whose first call starts compiling the report's replays in the background.

    The end of the context waits for the compilation.
    """
    threads: list[threading.Thread] = []

    def start() -> None:
        if run and options.report and not threads:
            threads.append(threading.Thread(target=_compile_report, args=(run, experiment)))
            threads[0].start()

    try:
        yield start
    finally:
        for thread in threads:
            thread.join()


def _compile_report(run: "Run", experiment: "Experiment") -> None:
    """Compile the replays of `_report`; a failure is left for the report itself to show."""
    from hopplus.training.compiled_loop import untrained_params
    from hopplus.visualization.replay import compile_replays

    with contextlib.suppress(Exception):
        compile_replays(run, untrained_params(experiment), REPLAY_SETS)


@contextlib.contextmanager
def _bar(experiment: "Experiment") -> Iterator[Any]:
    """Context with a progress bar: time left, steps/s and the current return against the ceiling."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    seeds = f"seed {experiment.seeds[0]}" if len(experiment.seeds) == 1 else f"{len(experiment.seeds)} seeds"
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        compiling = f"{experiment.algorithm.name}, {seeds}: compiling (first time only)"
        task = progress.add_task(compiling, total=experiment.training.steps)
        last = [time.perf_counter(), 0]

        def watch(lines: Sequence[dict[str, Any]], experiment: "Experiment") -> None:
            now, steps = time.perf_counter(), min(line["steps"] for line in lines)
            speed = len(lines) * (steps - last[1]) / max(now - last[0], 1e-9) if last[1] else 0.0
            last[:] = [now, steps]
            returns = [line["return"][seat] for line in lines for seat in experiment.learners]
            finite = [value for value in returns if value == value]
            mean = sum(finite) / len(finite) if finite else float("nan")
            text = f"return {mean:.2f} of {experiment.game.ceilings['mean']:g}"
            progress.update(task, completed=steps, description=f"{seeds}: {text}, {speed / 1e3:.1f}k steps/s")

        yield watch

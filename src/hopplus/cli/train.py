"""`hopplus train`"""

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
from rich.table import Table

from hopplus.cli.long_work import parse_options, polite_stop, show_choices, value_of
from hopplus.cli.output import Json, Plugin, console, run_plugin, show
from hopplus.errors import InputError
from hopplus.notation import as_word
from hopplus.settings import OPTIONS, Training
from hopplus.specs import check_options, nearest

if TYPE_CHECKING:
    from hopplus.training.run import Run
    from hopplus.training.trainer import Setup

R = TypeVar("R")
T = TypeVar("T")
DEFAULT = "hopplus"
"""What is trained where nobody says what."""
REPLAY_SETS = 1
"""Held-out sets beside which the report of a training shows replays."""
MAY_CHANGE = ("steps", "target")
"""Settings with which a run may go on otherwise than it began."""


@dataclass(frozen=True)
class Options(Generic[T, R]):
    """What `hopplus train RECIPE` takes beside the settings of the training and of the recipe."""

    training: T
    recipe: R
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The run directory, a new one; by default runs/RECIPE-GAME-TIME."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with this run instead, bit for bit; only --steps and --target may be given anew."""
    save_seconds: float = 30.0
    """How often a checkpoint is written; killed at any moment, a training loses no more than this."""
    devices: int = 1
    """Divide the environments among so many devices, of every process; a run may go on with another number."""
    coordinator: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Train together with other processes, each started with the same words but its own --process: where the first of
    them listens. auto: as Slurm or Open MPI says."""
    processes: int = 1
    """How many processes train together."""
    process: int = 0
    """Which of them this is, from 0; the first one writes the run."""
    report: bool = True
    """Write report.html into the run directory at the end."""
    preset: str | None = None
    """Settings under one name, which others given here change: hop-paper, HOP as it was published (hop); omg, or
    direct-om, which models others without goals (hopplus)."""
    json: Json = None
    plugin: Plugin = None


def train(words: Sequence[str]) -> int:
    """Train HOP+, or another recipe: `hopplus train ppo`; go on with a run: `hopplus train --resume RUN`."""
    given = list(words)
    _join(given)
    run_plugin(value_of("--plugin", given))
    resumed = _resumed(given)
    if given and not given[0].startswith("-"):
        name = given.pop(0)
    elif resumed is not None:
        name = resumed.config["recipe"]
    elif {"-h", "--help"} & set(given):
        more = (
            f"Without a recipe: {DEFAULT}.   To go on with a run: hopplus train --resume RUN [--steps N] [--target X]"
        )
        return show_choices("hopplus train [RECIPE] [--help]", "recipe", _known_options(), more)
    else:
        name = DEFAULT
    if resumed is None:
        return _train_anew(name, _options_of(name, given))
    default = _saved_options(resumed, name)
    options = _parsed(name, given, default)
    _refuse_changes(default, options, name)
    return _train_on(resumed, _with_recipe(name, options))


def _join(words: Sequence[str]) -> None:
    """Join the processes that train together, before anything, a plugin included, computes."""
    coordinator = value_of("--coordinator", words)
    numbers = [str(value_of(option, words) or default) for option, default in (("--processes", 1), ("--process", 0))]
    if coordinator is None:
        if numbers != ["1", "0"]:
            raise InputError("--processes and --process need --coordinator HOST:PORT, where the first process listens")
        return
    if not all(number.isdigit() for number in numbers):
        raise InputError(f"--processes and --process must be numbers, not {' and '.join(numbers)}")
    from hopplus.devices import join

    join(str(coordinator), *map(int, numbers))


def check(words: Sequence[str]) -> None:
    """InputError where `hopplus train` with these words, a recipe first, would have one; nothing is begun."""
    from hopplus.training.trainer import prepare

    name, *given = words
    run_plugin(value_of("--plugin", given))
    options = _options_of(name, given)
    prepare(options.training, options.recipe)


def _options_of(name: str, words: Sequence[str]) -> Options[Training, Any]:
    """The options of a training that is begun; JAX is not imported before they are parsed."""
    known = _known_options()
    if name not in known:
        raise InputError(f"there is no recipe {name!r}{nearest(name, known)}")
    return _with_recipe(name, _parsed(name, words, Options(Training(), known[name](**_preset(words, name)))))


def _known_options() -> dict[str, Any]:
    """The options of every recipe: those of the package, and recipes that a plugin, having imported these, has
    registered."""
    loaded = sys.modules.get("hopplus.training.recipes")
    return {**(loaded.RECIPES if loaded else {}), **OPTIONS}


def _with_recipe(name: str, options: Options[Training, Any]) -> Options[Training, Any]:
    """The options with the recipe itself instead of its settings."""
    from hopplus.training.recipes import RECIPES

    return dataclasses.replace(options, recipe=RECIPES[name](**vars(options.recipe)))


def _parsed(name: str, words: Sequence[str], default: Options[Training, Any]) -> Options[Training, Any]:
    kinds = (type(default.training), type(default.recipe))
    return parse_options(f"hopplus train {name}", words, Options, kinds, default)


def _preset(words: Sequence[str], name: str) -> dict[str, Any]:
    """The settings that --preset stands for, of the game that is given."""
    chosen = value_of("--preset", words)
    if chosen is None:
        return {}
    from hopplus.games import make
    from hopplus.training.recipes import PRESETS

    if str(chosen) not in PRESETS:
        raise InputError(f"there is no preset {str(chosen)!r}{nearest(str(chosen), PRESETS)}")
    recipe, settings = PRESETS[str(chosen)]
    if recipe != name:
        raise InputError(f"the preset {chosen} is one of the recipe {recipe}: hopplus train {recipe} --preset {chosen}")
    return settings(make(str(value_of("--game", words) or Training().game)))


def _resumed(words: Sequence[str]) -> "Run | None":
    path = value_of("--resume", words)
    if path is None:
        return None
    from hopplus.training.run import open_run

    return open_run(path)


def _saved_options(run: "Run", name: str) -> Options[Training, Any]:
    """The options with which a run was begun."""
    from hopplus.training.recipes import make_recipe

    if run.config["recipe"] != name:
        raise InputError(f"{run.path} was trained by {run.config['recipe']}, not by {name}")
    saved = run.config["training"]
    check_options(f"{run.path}: the training", saved, [field.name for field in dataclasses.fields(Training)])
    lists = {field: tuple(saved[field]) for field in ("until", "init") if field in saved}
    return Options(Training(**{**saved, **lists}), make_recipe(name, run.config["settings"]))


def _refuse_changes(saved: Options[Any, Any], given: Options[Any, Any], name: str) -> None:
    for part in ("training", "recipe"):
        before, now = dataclasses.asdict(getattr(saved, part)), dataclasses.asdict(getattr(given, part))
        for setting in before:
            if before[setting] != now[setting] and setting not in MAY_CHANGE:
                raise InputError(
                    f"this run has {setting}={before[setting]!r}, which cannot become {now[setting]!r} on the way:"
                    f" only {' and '.join(MAY_CHANGE)} can; train anew for other settings"
                )
    if given.out is not None:
        raise InputError("--out and --resume exclude each other: a resumed run goes on in its own directory")


def _train_anew(name: str, options: Options[Any, Any]) -> int:
    from hopplus.devices import mesh_of
    from hopplus.training.policies import save_policies
    from hopplus.training.run import new_run
    from hopplus.training.trainer import describe, prepare

    setup = prepare(options.training, options.recipe, mesh=mesh_of(options.devices))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    out = options.out or Path("runs") / f"{name}-{setup.game.name.replace(':', '-')}-{stamp}"
    with _by_the_first(new_run(out, describe(setup))) as run:
        if run:
            save_policies(run.co_players, setup.frozen)
        return _run(run, setup, None, options)


def _train_on(run: "Run", options: Options[Any, Any]) -> int:
    from hopplus.devices import is_first, mesh_of
    from hopplus.training import checkpoint
    from hopplus.training.policies import load_policies, save_policies
    from hopplus.training.run import locked
    from hopplus.training.trainer import describe, prepare

    with _by_the_first(locked(run.path)):
        saved = checkpoint.load(run.checkpoints) if checkpoint.found(run.checkpoints) else None
        # Without a checkpoint nothing has been learnt: it begins again, with what others have given it.
        kept = load_policies(run.co_players) if saved else None
        setup = prepare(options.training, options.recipe, kept, mesh_of(options.devices))
        before, now = run.config.get("game_version"), setup.game.version
        if before != now:
            raise InputError(f"{run.path} was trained on version {before} of the game, and this is version {now}")
        if not is_first():
            return _run(None, setup, saved, options)
        run = run.with_config(describe(setup))
        if saved is None:
            save_policies(run.co_players, setup.frozen)
        return _run(run, setup, saved, options)


@contextlib.contextmanager
def _by_the_first(opened: contextlib.AbstractContextManager[R]) -> Iterator[R | None]:
    """What the first of the processes that train together opens, and None in the others; where it cannot, all end."""
    from hopplus.devices import anyone, is_first

    found, failure = None, None
    with contextlib.ExitStack() as stack:
        if is_first():
            try:
                found = stack.enter_context(opened)
            except InputError as error:
                failure = error
        if anyone(failure is not None)[0]:
            raise failure or InputError("the first process could not begin, and says why")
        yield found


def _run(run: "Run | None", setup: "Setup", saved: Any, options: Options[Any, Any]) -> int:
    """Train; a process that has no run computes for the one that has it, and says nothing."""
    from hopplus.training.trainer import DivergedError, train

    try:
        with (
            polite_stop() as should_stop,
            _bar(setup) as show_progress,
            _report_compiled(run, setup, options) as compile_report,
        ):

            def watch(lines: Sequence[dict[str, Any]], setup: "Setup") -> None:
                compile_report()
                show_progress(lines, setup)

            summary = train(run, setup, saved, watch, options.save_seconds, should_stop)
    except DivergedError as error:
        if run:
            print(f"hopplus: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if run:
            resume = f"hopplus train --resume {as_word(run.path)}"
            print(f"hopplus: stopped and saved; go on with: {resume}", file=sys.stderr)
        return 130
    if run is None:
        return 0
    show({"run": str(run.path), **summary}, summary_table(summary), options.json)
    page = _report(run) if options.report else None
    if options.json != "-":
        if page is not None:
            console().print(f"report: {page}", soft_wrap=True)
        console().print(
            f"run: {run.path}   curves: tensorboard --logdir {as_word(run.path / 'events')}", soft_wrap=True
        )
        console().print(f"more: hopplus evaluate {as_word(run.path)} --cast self,...", soft_wrap=True)
    return 0


def _report(run: "Run") -> Path:
    """Write the page of a run that has just been trained: beside itself and one held-out set."""
    from hopplus.report.page import NAME, write_report

    return write_report([run], run.path / NAME, sets=REPLAY_SETS)


@contextlib.contextmanager
def _report_compiled(run: "Run | None", setup: "Setup", options: Options[Any, Any]) -> Iterator[Callable[[], None]]:
    """Gives a function that, called for the first time, has the replays of the report compiled in the background; at
    the end of the context they are."""
    threads: list[threading.Thread] = []

    def begin() -> None:
        if run and options.report and not threads:
            threads.append(threading.Thread(target=_compile_report, args=(run, setup)))
            threads[0].start()

    try:
        yield begin
    finally:
        for thread in threads:
            thread.join()


def _compile_report(run: "Run", setup: "Setup") -> None:
    """Compile what `_report` plays; where that fails, the report itself will say why."""
    from hopplus.report.replay import compile_replays
    from hopplus.training.trainer import untrained_params

    with contextlib.suppress(Exception):
        compile_replays(run, untrained_params(setup), REPLAY_SETS)


@contextlib.contextmanager
def _bar(setup: "Setup") -> Iterator[Any]:
    """A bar with the time left, steps/s and the current return against the ceiling."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    seeds = f"seed {setup.seeds[0]}" if len(setup.seeds) == 1 else f"{len(setup.seeds)} seeds"
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(
            f"{setup.recipe.name}, {seeds}: compiling (first time only)", total=setup.training.steps
        )
        last = [time.perf_counter(), 0]

        def watch(lines: Sequence[dict[str, Any]], setup: "Setup") -> None:
            now, steps = time.perf_counter(), min(line["steps"] for line in lines)
            speed = len(lines) * (steps - last[1]) / max(now - last[0], 1e-9) if last[1] else 0.0
            last[:] = [now, steps]
            returns = [line["return"][seat] for line in lines for seat in setup.learners]
            known = [value for value in returns if value == value]
            mean = sum(known) / len(known) if known else float("nan")
            said = f"return {mean:.2f} of {setup.game.ceilings['mean']:g}"
            progress.update(task, completed=steps, description=f"{seeds}: {said}, {speed / 1e3:.1f}k steps/s")

        yield watch


def summary_table(summary: dict[str, Any]) -> Table:
    """What a training came to: a row a seat, and the seats that learn together."""
    seeds = summary["seeds"]
    unit = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    table = Table("seat", "who", "mean return", "± s.e.", title=f"{summary['recipe']} on {summary['game']}, {unit}")
    who = dict.fromkeys(summary["learners"], "learner")
    for row in summary["per_seat"]:
        name = who.get(row["seat"], "co-player")
        table.add_row(str(row["seat"]), name, f"{row['mean']:.3f}", f"{row['standard_error']:.3f}")
    table.add_section()
    share = f"{100 * summary['share_of_ceiling']:.1f}% of the ceiling"
    table.add_row("all", share, f"{summary['mean_return']:.3f}")
    table.add_row("own", "seats that learn", f"{summary['own_return']:.3f}")
    reached = [row["reached"] for row in summary["per_seed"] if row["reached"]]
    caption = f"{summary['episodes']} greedy episodes a seed after {max(summary['steps']):,} steps"
    caption += f" and {summary['seconds']:.1f} s"
    table.caption = caption + (f"; target reached by {len(reached)} of {len(seeds)}" if reached else "")
    return table

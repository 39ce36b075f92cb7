"""Entry point of the command `hopplus`: dispatch, checks of options, exit codes."""

import contextlib
import dataclasses
import inspect
import io
import os
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tyro

import hopplus
from hopplus.cli.adapt import adapt
from hopplus.cli.bench import bench_games, bench_planning, bench_play, bench_ppo, bench_scale, bench_sweep
from hopplus.cli.collect import collect, dataset
from hopplus.cli.crossplay import crossplay
from hopplus.cli.demo import demo
from hopplus.cli.diagnose import diagnose_seats
from hopplus.cli.diagnose_moa import diagnose_moa
from hopplus.cli.diagnose_subgoals import diagnose_subgoals
from hopplus.cli.diagnose_world_model import diagnose_world_model
from hopplus.cli.evaluate import evaluate
from hopplus.cli.fit import fit
from hopplus.cli.games import games
from hopplus.cli.match import match
from hopplus.cli.oracle import oracle
from hopplus.cli.play import play
from hopplus.cli.report import report
from hopplus.cli.runs import runs
from hopplus.cli.serve import serve
from hopplus.cli.sweep import sweep
from hopplus.cli.tables import tables
from hopplus.cli.train import train
from hopplus.cli.watch import watch
from hopplus.core.errors import DamagedCheckpointWarning, InputError
from hopplus.core.files import cache_directory, make_directory
from hopplus.core.settings import setting_types
from hopplus.core.specs import nearest

Command = Callable[..., Any]
COMMANDS: dict[str, Any] = {
    "games": games,
    "play": play,
    "serve": serve,
    "match": match,
    "watch": watch,
    "train": train,
    "evaluate": evaluate,
    "runs": runs,
    "report": report,
    "adapt": adapt,
    "crossplay": crossplay,
    "oracle": oracle,
    "sweep": sweep,
    "tables": tables,
    "collect": collect,
    "dataset": dataset,
    "fit": fit,
    "diagnose": {
        "seats": diagnose_seats,
        "moa": diagnose_moa,
        "subgoals": diagnose_subgoals,
        "world-model": diagnose_world_model,
    },
    "bench": {
        "games": bench_games,
        "ppo": bench_ppo,
        "planning": bench_planning,
        "scale": bench_scale,
        "sweep": bench_sweep,
        "play": bench_play,
    },
    "demo": demo,
}
DESCRIPTION = "Opponent modelling and planning for mixed-motive games, on JAX."
PARSES_ITS_OWN_ARGV = (train, fit)
"""Commands whose options depend on their first argument: they parse their arguments themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Command-line arguments without the program's name; `sys.argv` by default.

    Returns:
        Exit code: 0, 1 for a failure that the command reports, 2 for a user's mistake, 130 after Ctrl-C.
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv in (["--version"], ["-V"]):
        print(f"hopplus {hopplus.__version__}")
        return 0
    replace_unencodable_output()
    enable_compilation_cache()
    try:
        with damaged_checkpoints_printed():
            return run(argv or ["--help"])
    except InputError as error:
        print(f"hopplus: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("hopplus: stopped", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def damaged_checkpoints_printed() -> Iterator[None]:
    """Context that prints one sentence per damaged checkpoint that is skipped in it, without repetitions."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DamagedCheckpointWarning)
        show_by_default = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            if not issubclass(category, DamagedCheckpointWarning):
                show_by_default(message, category, *args, **kwargs)
            elif str(message) not in printed and _is_first():
                printed.add(str(message))
                print(f"hopplus: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield


def _is_first() -> bool:
    """True in the process that prints for all processes of a distributed training."""
    from hopplus.core.sharding import is_first

    return is_first()


def run(argv: list[str]) -> int:
    """Run the command that the first arguments name with the remaining ones; returns its exit code."""
    commands: Mapping[str, Any] = COMMANDS
    prog = "hopplus"
    while True:
        if not argv or argv[0] in ("-h", "--help"):
            if not argv:
                raise InputError(f"{prog} needs one of {', '.join(commands)} as its next argument")
            described = {name: _with_summary(entry) for name, entry in commands.items()}
            tyro.extras.subcommand_cli_from_dict(described, prog=prog, description=DESCRIPTION, args=["--help"])
        name, *argv = argv
        if name not in commands:
            full_name = f"{prog} {name}".removeprefix("hopplus ")
            raise InputError(f"there is no command {full_name!r}{nearest(name, commands)}")
        prog, entry = f"{prog} {name}", commands[name]
        if callable(entry):
            break
        commands = entry
    argv = with_json_target(argv)
    command: Any = entry
    if entry in PARSES_ITS_OWN_ARGV:
        return command(argv) or 0
    check_argv(prog, inspect.signature(entry).parameters.values(), argv)
    code: Any = tyro.cli(command, prog=prog, args=argv, config=(tyro.conf.OmitArgPrefixes,))
    return code or 0


def _with_summary(entry: Command | Mapping[str, Command]) -> Command:
    """A command itself, or for a group a function whose docstring lists the group's commands in one line."""
    if callable(entry):
        return entry

    def group() -> None: ...

    summaries = {name: (inspect.getdoc(command) or "").splitlines()[0] for name, command in entry.items()}
    group.__doc__ = "; ".join(f"{name}: {summary}" for name, summary in summaries.items())
    return group


def check_argv(prog: str, parameters: typing.Iterable[inspect.Parameter], argv: Sequence[str]) -> None:
    """Raise InputError for an unknown option and for a missing option or argument.

    Args:
        prog: Name of the command, for messages.
        parameters: Parameters of the command's function.
        argv: Arguments of the command.
    """
    present = [arg.partition("=")[0].replace("_", "-") for arg in argv if arg.startswith("--")]
    if {"-h", "--help"} & set(argv):
        return
    parameters = list(parameters)
    options = {name: required for parameter in parameters for name, required in options_of(parameter).items()}
    for option in present:
        if option not in options:
            raise InputError(f"{prog} has no option {option!r}{nearest(option, options)}")
    for option, required in options.items():
        if required and option not in present:
            raise InputError(f"{prog} needs {option} (see {prog} --help)")
    for parameter in filter(is_positional, parameters):
        if parameter.default is parameter.empty and (not argv or argv[0].startswith("--")):
            raise InputError(f"{prog} needs {parameter.name.upper()} as its first argument")


def options_of(parameter: inspect.Parameter) -> dict[str, bool]:
    """Options that a parameter (or each field of a dataclass parameter) becomes, and whether each is required."""
    if is_positional(parameter):
        return {}
    if dataclasses.is_dataclass(parameter.annotation):
        types = setting_types(parameter.annotation)
        return {option: False for name, kind in types.items() for option in _spellings(name, kind in (bool, "bool"))}
    required = parameter.default is parameter.empty
    return dict.fromkeys(_spellings(parameter.name, parameter.annotation is bool), required)


def _spellings(name: str, is_flag: bool) -> list[str]:
    dashed = name.rstrip("_").replace("_", "-")
    return [f"--{dashed}", f"--no-{dashed}"] if is_flag else [f"--{dashed}"]


def is_positional(parameter: inspect.Parameter) -> bool:
    """True for a positional argument, False for an option."""
    return tyro.conf.Positional in getattr(parameter.annotation, "__metadata__", ())


def with_json_target(argv: Sequence[str]) -> list[str]:
    """Insert `-`, for standard output, after a `--json` that no file name follows."""
    completed: list[str] = []
    for arg, following in zip(argv, [*argv, "--"][1:], strict=True):
        completed += [arg, "-"] if arg == "--json" and following.startswith("--") else [arg]
    return completed


def replace_unencodable_output() -> None:
    """Write characters that the output's encoding lacks as question marks instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")


def enable_compilation_cache() -> None:
    """Enable JAX's persistent compilation cache, unless the user has configured it."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # RuntimeError: the user has no home directory. JAX would warn about every program that it cannot write.
    with contextlib.suppress(InputError, RuntimeError):
        directory = make_directory(cache_directory() / "jax")
        if not os.access(directory, os.W_OK):
            return
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


if __name__ == "__main__":
    sys.exit(main())

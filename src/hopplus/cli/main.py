"""`hopplus`: which command, and what happens when something is wrong."""

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
from hopplus.cli.bench import bench_games, bench_play, bench_ppo, bench_scale, bench_search, bench_sweep
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
from hopplus.errors import DamagedCheckpointWarning, InputError
from hopplus.files import cache_directory, make_directory
from hopplus.specs import nearest

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
        "search": bench_search,
        "scale": bench_scale,
        "sweep": bench_sweep,
        "play": bench_play,
    },
    "demo": demo,
}
DESCRIPTION = "Opponent modelling and planning for mixed-motive games, on JAX."
READS_ITS_OWN_WORDS = (train, fit)
"""Commands whose options depend on what they are given: they parse their words themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is 0, 1 where it says so, or 2 with one sentence for a user's mistake."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"hopplus {hopplus.__version__}")
        return 0
    write_what_the_terminal_can()
    keep_compiled_programs()
    try:
        with damaged_checkpoints_said():
            return run(words or ["--help"])
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
def damaged_checkpoints_said() -> Iterator[None]:
    """Print a sentence for each damaged checkpoint that is passed over in here, once, however often it is met."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DamagedCheckpointWarning)
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, DamagedCheckpointWarning):
                show_others(message, category, *where, **more)
            elif str(message) not in printed and _is_first():
                printed.add(str(message))
                print(f"hopplus: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield


def _is_first() -> bool:
    """Whether this process speaks for all that train together."""
    from hopplus.devices import is_first

    return is_first()


def run(words: list[str]) -> int:
    """Find the command that the words name, and run it with the rest of them."""
    known: Mapping[str, Any] = COMMANDS
    prog = "hopplus"
    while True:
        if not words or words[0] in ("-h", "--help"):
            if not words:
                raise InputError(f"{prog} needs one of {', '.join(known)} as its next word")
            described = {name: _first(found) for name, found in known.items()}
            tyro.extras.subcommand_cli_from_dict(described, prog=prog, description=DESCRIPTION, args=["--help"])
        name, *words = words
        if name not in known:
            raise InputError(f"there is no command {f'{prog} {name}'.removeprefix('hopplus ')!r}{nearest(name, known)}")
        prog, found = f"{prog} {name}", known[name]
        if callable(found):
            break
        known = found
    words = with_json_target(words)
    command: Any = found
    if found in READS_ITS_OWN_WORDS:
        return command(words) or 0
    check_words(prog, inspect.signature(found).parameters.values(), words)
    code: Any = tyro.cli(command, prog=prog, args=words, config=(tyro.conf.OmitArgPrefixes,))
    return code or 0


def _first(found: Command | Mapping[str, Command]) -> Command:
    """What stands for a group of commands in a list: a function that has the group's one line."""
    if callable(found):
        return found

    def group() -> None: ...

    group.__doc__ = "; ".join(f"{name}: {(inspect.getdoc(one) or '').splitlines()[0]}" for name, one in found.items())
    return group


def check_words(prog: str, parameters: typing.Iterable[inspect.Parameter], words: Sequence[str]) -> None:
    """InputError for an option that is not there, and for one that is missing."""
    given = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    if {"-h", "--help"} & set(words):
        return
    parameters = list(parameters)
    options = {name: needed for parameter in parameters for name, needed in options_of(parameter).items()}
    for word in given:
        if word not in options:
            raise InputError(f"{prog} has no option {word!r}{nearest(word, options)}")
    for option, needed in options.items():
        if needed and option not in given:
            raise InputError(f"{prog} needs {option} (see {prog} --help)")
    for parameter in filter(is_positional, parameters):
        if parameter.default is parameter.empty and (not words or words[0].startswith("--")):
            raise InputError(f"{prog} needs {parameter.name.upper()} as its first word")


def options_of(parameter: inspect.Parameter) -> dict[str, bool]:
    """The options that a parameter becomes, a dataclass those of its fields, and whether each must be given."""
    if is_positional(parameter):
        return {}
    if dataclasses.is_dataclass(parameter.annotation):
        fields = dataclasses.fields(parameter.annotation)
        return {name: False for field in fields for name in _spellings(field.name, field.type in (bool, "bool"))}
    needed = parameter.default is parameter.empty
    return dict.fromkeys(_spellings(parameter.name, parameter.annotation is bool), needed)


def _spellings(name: str, is_flag: bool) -> list[str]:
    dashed = name.rstrip("_").replace("_", "-")
    return [f"--{dashed}", f"--no-{dashed}"] if is_flag else [f"--{dashed}"]


def is_positional(parameter: inspect.Parameter) -> bool:
    """Whether a command's parameter is a plain word rather than an option."""
    return tyro.conf.Positional in getattr(parameter.annotation, "__metadata__", ())


def with_json_target(words: Sequence[str]) -> list[str]:
    """The words with `-`, for standard output, after a `--json` that is not followed by a file name."""
    given: list[str] = []
    for word, following in zip(words, [*words, "--"][1:], strict=True):
        given += [word, "-"] if word == "--json" and following.startswith("--") else [word]
    return given


def write_what_the_terminal_can() -> None:
    """Have characters that the output's encoding lacks written as question marks; Python would stop at them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")


def keep_compiled_programs() -> None:
    """Have JAX keep what it compiles for the next start, unless the user has decided about that already."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # RuntimeError: a user without a home. JAX would warn of every program that it cannot keep.
    with contextlib.suppress(InputError, RuntimeError):
        directory = make_directory(cache_directory() / "jax")
        if not os.access(directory, os.W_OK):
            return
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


if __name__ == "__main__":
    sys.exit(main())

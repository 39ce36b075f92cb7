"""`hopplus`: which command, and what happens when something is wrong."""

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

import hopplus
from hopplus.cli.bench import bench
from hopplus.cli.demo import demo
from hopplus.cli.games import games
from hopplus.cli.match import match
from hopplus.cli.watch import watch
from hopplus.errors import InputError
from hopplus.specs import nearest

COMMANDS = {"games": games, "match": match, "watch": watch, "bench": bench, "demo": demo}
DESCRIPTION = "Opponent modelling and planning for mixed-motive games, on JAX."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is 0, or 2 with one sentence for a user's mistake."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"hopplus {hopplus.__version__}")
        return 0
    keep_compiled_programs()
    try:
        check_words(words)
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="hopplus", description=DESCRIPTION, args=with_json_target(words or ["--help"])
        )
    except InputError as error:
        print(f"hopplus: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("hopplus: stopped", file=sys.stderr)
        return 130
    return 0


def check_words(words: Sequence[str]) -> None:
    """InputError for a command or option that is not there, and for one that is missing."""
    if not words or words[0] in ("-h", "--help"):
        return
    command, given = words[0], [word.partition("=")[0] for word in words[1:]]
    if command not in COMMANDS:
        raise InputError(f"there is no command {command!r}{nearest(command, COMMANDS)}")
    if {"-h", "--help"} & set(given):
        return
    parameters = inspect.signature(COMMANDS[command]).parameters.values()
    options = {f"--{parameter.name}": parameter for parameter in parameters if not is_positional(parameter)}
    for word in given:
        if word.startswith("--") and word not in options:
            raise InputError(f"hopplus {command} has no option {word!r}{nearest(word, options)}")
    for option, parameter in options.items():
        if parameter.default is parameter.empty and option not in given:
            raise InputError(f"hopplus {command} needs {option} (see hopplus {command} --help)")
    for parameter in filter(is_positional, parameters):
        if not given or given[0].startswith("--"):
            raise InputError(f"hopplus {command} needs {parameter.name.upper()} as its first word")


def is_positional(parameter: inspect.Parameter) -> bool:
    """Whether a command's parameter is a plain word rather than an option."""
    return tyro.conf.Positional in getattr(parameter.annotation, "__metadata__", ())


def with_json_target(words: Sequence[str]) -> list[str]:
    """The words with `-`, for standard output, after a `--json` that is not followed by a file name."""
    given: list[str] = []
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        given += [word, "-"] if word == "--json" and following.startswith("--") else [word]
    return given


def keep_compiled_programs() -> None:
    """Have JAX keep what it compiles for the next start, unless the user has decided about that already."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache_directory() / "jax")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def cache_directory() -> Path:
    """Where programs of this user keep what they can make again."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hopplus"


if __name__ == "__main__":
    sys.exit(main())

"""Helpers of the commands `train` and `fit`: options that depend on the algorithm or model, and a graceful stop."""

import contextlib
import inspect
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from hopplus.cli.output import console
from hopplus.core.settings import setting_types


def value_of(option: str, argv: Sequence[str]) -> Path | None:
    """Value of an option in unparsed arguments, or None."""
    for arg, following in zip(argv, [*argv, ""][1:], strict=True):
        if arg == option:
            return Path(following)
        if arg.startswith(f"{option}="):
            return Path(arg.partition("=")[2])
    return None


def show_choices(title: str, column: str, choices: Mapping[str, type], more: str) -> int:
    """Print the algorithms or models to choose from, one line each, followed by `more`."""
    table = Table(column, "description", title=title, title_justify="left")
    for name, choice in choices.items():
        table.add_row(name, (inspect.getdoc(choice) or "").splitlines()[0])
    console().print(table)
    console().print(more)
    return 0


def parse_options(prog: str, argv: Sequence[str], options: Any, configs: tuple[type, ...], default: Any) -> Any:
    """Parse the options of a command whose settings depend on the algorithm or model.

    Args:
        prog: Name of the command, for messages.
        argv: Arguments of the command.
        options: Generic dataclass of options.
        configs: Config classes for its type parameters.
        default: Instance of `options` with the default values.

    Returns:
        An instance of `options[configs]`.
    """
    from hopplus.cli.main import check_argv

    parameters = [
        inspect.Parameter(f"part_{number}", inspect.Parameter.KEYWORD_ONLY, annotation=config, default=None)
        for number, config in enumerate((*configs, options))
    ]
    argv = _split_number_lists(argv, configs)
    check_argv(prog, parameters, argv)
    return tyro.cli(
        options[configs],
        prog=prog,
        description=inspect.getdoc(configs[-1]),
        args=list(argv),
        default=default,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _split_number_lists(argv: Sequence[str], configs: tuple[type, ...]) -> list[str]:
    """Split lists of numbers that were typed with commas (`--hidden 64,64`) into separate arguments."""
    types = {name: kind for config in configs for name, kind in setting_types(config).items()}
    numbers = (tuple[int, ...], tuple[float, ...], tuple[int, ...] | None, tuple[float, ...] | None)
    list_options = {f"--{name.replace('_', '-')}" for name, kind in types.items() if kind in numbers}
    split: list[str] = []
    for previous, arg in zip(["", *argv], argv, strict=False):
        option, equals, value = arg.partition("=")
        if option in list_options and equals:
            split += [option, *value.split(",")]
        else:
            split += arg.split(",") if previous in list_options and not arg.startswith("--") else [arg]
    return split


@contextlib.contextmanager
def graceful_stop() -> Iterator[Callable[[], bool]]:
    """Context that yields a function: True after Ctrl-C or SIGTERM, so that the training stops at the end of its chunk.

    A second signal raises KeyboardInterrupt at once.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        previous = [signal.signal(number, handle) for number in numbers]
    except ValueError:  # not the main thread: signals are left to the calling program
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)

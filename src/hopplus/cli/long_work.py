"""What commands have in common that learn something: options that depend on what is learnt, and a polite end."""

import contextlib
import dataclasses
import inspect
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from hopplus.cli.output import console


def value_of(option: str, words: Sequence[str]) -> Path | None:
    """The value of an option among words, before they are parsed."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == option:
            return Path(following)
        if word.startswith(f"{option}="):
            return Path(word.partition("=")[2])
    return None


def show_choices(title: str, what: str, choices: Mapping[str, type], more: str) -> int:
    """Print what can be learnt, a line each."""
    table = Table(what, "what it is", title=title, title_justify="left")
    for name, choice in choices.items():
        table.add_row(name, (inspect.getdoc(choice) or "").splitlines()[0])
    console().print(table)
    console().print(more)
    return 0


def parse_options(prog: str, words: Sequence[str], options: Any, kinds: tuple[type, ...], default: Any) -> Any:
    """The options of a command: a generic dataclass of them, with `kinds` in the places of its type parameters."""
    from hopplus.cli.main import check_words

    parameters = [
        inspect.Parameter(f"part_{number}", inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=None)
        for number, kind in enumerate((*kinds, options))
    ]
    words = _spread(words, kinds)
    check_words(prog, parameters, words)
    return tyro.cli(
        options[kinds],
        prog=prog,
        description=inspect.getdoc(kinds[-1]),
        args=list(words),
        default=default,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _spread(words: Sequence[str], kinds: tuple[type, ...]) -> list[str]:
    """The words with lists of numbers that were typed with commas (`--hidden 64,64`) as separate words."""
    fields = [field for kind in kinds for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    numbers = (tuple[int, ...], tuple[float, ...])
    lists = {f"--{field.name.replace('_', '-')}" for field in fields if field.type in numbers}
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        option, equals, value = word.partition("=")
        if option in lists and equals:
            found += [option, *value.split(",")]
        else:
            found += word.split(",") if before in lists and not word.startswith("--") else [word]
    return found


@contextlib.contextmanager
def polite_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or a request to end (SIGTERM) has come: the training stops after its chunk, the second time at
    once."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, note) for number in numbers]
    except ValueError:  # not the main thread: whoever runs it decides
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

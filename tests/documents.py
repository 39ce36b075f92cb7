"""Commands and programs in README and documentation, and the table of substitutions that run them at small budgets."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Option:
    """Substitution of an option of a command."""

    command: str
    """First arguments of the commands that it applies to."""
    name: str
    value: str | None
    """New value, one or several arguments; None to leave out the option."""
    added: bool = False
    """Add the option to a command that lacks it."""


@dataclass(frozen=True)
class Text:
    """Substitution in the text of a command or a Python program."""

    old: str
    new: str


SMALL_BUDGETS: tuple[Option | Text, ...] = (
    Option("train --resume", "--steps", "128"),
    Option("train", "--steps", "64", added=True),
    Option("train", "--target", None),
    Option("train", "--num-envs", "4", added=True),
    Option("train", "--num-steps", "8", added=True),
    Option("train", "--hidden", "8", added=True),
    Option("train", "--iterations-per-call", "1", added=True),
    Option("evaluate", "--episodes", "8"),
    Option("match", "--episodes", "20"),
    Option("diagnose seats", "--episodes", "100"),
    Option("adapt", "--trials", "1"),
    Option("adapt", "--seating", "one", added=True),
    Option("adapt", "--protocol", None),
    Option("adapt", "--episodes", "10", added=True),
    Text("watch msh-8x8-4h1s", "watch msh-4x4-4h1s"),
    Text("oracle --game msh-4x4-2h1s ", "oracle --game msh-4x4-2h1s:height=3:width=3 "),
    Text("environments=1024", "environments=8"),
    Text("episodes=64", "episodes=8"),
    Text("trials=4", "trials=1"),
)
"""Every row changes a command or program; of several rows for one option, the first that applies is used."""


def read(name: str) -> str:
    """Text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Code blocks of a language in a Markdown text."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands_of(text: str) -> list[list[str]]:
    """`hopplus` commands of every shell block, in order."""
    return [[line for line in block.splitlines() if line.startswith("hopplus ")] for block in blocks(text, "sh")]


def argv_of(command: str) -> list[str]:
    """Arguments of a command for `main`."""
    return shlex.split(command)[1:]


def small_argv(command: str, used: set[Option | Text] | None = None) -> list[str]:
    """Arguments of a command at small budgets; the rows of the table that changed it are added to `used`."""
    used = set() if used is None else used
    argv, done = argv_of(small_text(command, used)), set()
    for row in SMALL_BUDGETS:
        if isinstance(row, Option) and row.name not in done and _applies(row, argv):
            done.add(row.name)
            changed = _with_option(argv, row)
            if changed != argv:
                argv = changed
                used.add(row)
    return argv


def small_text(text: str, used: set[Option | Text] | None = None) -> str:
    """Command or program with the texts of the table replaced."""
    for row in SMALL_BUDGETS:
        if isinstance(row, Text) and row.old in text:
            text = text.replace(row.old, row.new)
            if used is not None:
                used.add(row)
    return text


def _applies(row: Option, argv: Sequence[str]) -> bool:
    command = row.command.split()
    same_command = list(argv[: len(command)]) == command
    return same_command and (row.name in argv or (row.added and "--resume" not in argv))


def _with_option(argv: Sequence[str], row: Option) -> list[str]:
    """Arguments with an option's values replaced, the option left out, or added at the end."""
    value = [] if row.value is None else [row.name, *row.value.split()]
    if row.name not in argv:
        return [*argv, *value]
    start = list(argv).index(row.name)
    end = next((index for index in range(start + 1, len(argv)) if argv[index].startswith("--")), len(argv))
    return [*argv[:start], *value, *argv[end:]]

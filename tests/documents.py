"""The commands and programs of README and documentation, and the one table by which tests run them at small budgets."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Option:
    """A substitution in the words of a command."""

    command: str
    """The first words of the commands that it applies to."""
    name: str
    value: str | None
    """The new value, one or several words; None where the option is left out."""
    added: bool = False
    """Whether a command without the option gets it."""


@dataclass(frozen=True)
class Text:
    """A substitution in the text of a command or a Python program."""

    old: str
    new: str


SMALL_BUDGETS: tuple[Option | Text, ...] = (
    Option("train --resume", "--steps", "128"),
    Option("train", "--steps", "64", added=True),
    Option("train", "--target", None),
    Option("train", "--environments", "4", added=True),
    Option("train", "--rollout-steps", "8", added=True),
    Option("train", "--hidden", "8", added=True),
    Option("train", "--chunk", "1", added=True),
    Option("evaluate", "--episodes", "8"),
    Option("match", "--episodes", "20"),
    Option("diagnose seats", "--episodes", "100"),
    Option("adapt", "--tables", "1"),
    Option("adapt", "--seating", "one", added=True),
    Option("adapt", "--protocol", None),
    Option("adapt", "--episodes", "10", added=True),
    Text("watch msh-8x8-4h1s", "watch msh-4x4-4h1s"),
    Text("oracle --game msh-4x4-2h1s ", "oracle --game msh-4x4-2h1s:height=3:width=3 "),
    Text("environments=1024", "environments=8"),
)
"""Every row changes some command or program; of several rows for one option, the first that fits a command counts."""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands_of(text: str) -> list[list[str]]:
    """The commands of every block for a shell, in order."""
    return [[line for line in block.splitlines() if line.startswith("hopplus ")] for block in blocks(text, "sh")]


def words_of(command: str) -> list[str]:
    """The arguments of a command, as `main` takes them."""
    return shlex.split(command)[1:]


def small_words(command: str, used: set[Option | Text] | None = None) -> list[str]:
    """The arguments of a command at small budgets; adds the rows of the table that changed it to `used`."""
    used = set() if used is None else used
    words, done = words_of(small_text(command, used)), set()
    for row in SMALL_BUDGETS:
        if isinstance(row, Option) and row.name not in done and _applies(row, words):
            done.add(row.name)
            changed = _with_option(words, row)
            if changed != words:
                words = changed
                used.add(row)
    return words


def small_text(text: str, used: set[Option | Text] | None = None) -> str:
    """A command or program with the texts of the table replaced."""
    for row in SMALL_BUDGETS:
        if isinstance(row, Text) and row.old in text:
            text = text.replace(row.old, row.new)
            if used is not None:
                used.add(row)
    return text


def _applies(row: Option, words: Sequence[str]) -> bool:
    command = row.command.split()
    begins = list(words[: len(command)]) == command
    return begins and (row.name in words or (row.added and "--resume" not in words))


def _with_option(words: Sequence[str], row: Option) -> list[str]:
    """The words with an option's values replaced, the option left out, or added at the end."""
    value = [] if row.value is None else [row.name, *row.value.split()]
    if row.name not in words:
        return [*words, *value]
    place = list(words).index(row.name)
    end = next((index for index in range(place + 1, len(words)) if words[index].startswith("--")), len(words))
    return [*words[:place], *value, *words[end:]]

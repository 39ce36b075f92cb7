"""Names with options, as typed by a user: `nh:then=stay`, `noisy(ns,0.2)`, `msh-8x8-4h1s:T=50:blocks=0`."""

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hopplus.core.errors import InputError


@dataclass(frozen=True)
class Spec:
    """A parsed name: `name(argument, ..., key=value):key=value`."""

    name: str
    arguments: tuple["Spec", ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.arguments))  # an option may be a list, which has no hash

    def text(self) -> str:
        """Text form; `parse` returns the same spec."""
        options = [f"{key}={value}" for key, value in self.options]
        if not self.arguments:
            return ":".join([self.name, *options])
        return f"{self.name}({','.join([*(argument.text() for argument in self.arguments), *options])})"


def nearest(word: str, known: Iterable[str]) -> str:
    """Suffix of an error message: ` (did you mean 'x'?)` for the closest known word, else the list of known words."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(known) or 'none'})"


def split_top_level(text: str, separator: str = ",") -> list[str]:
    """Splits `text` at separators outside all brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            raise InputError(f"{text!r} has a closing bracket without an opening one")
        if character == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if depth:
        raise InputError(f"{text!r} has an opening bracket without a closing one")
    return [*parts, text[start:].strip()]


def parse_value(text: str) -> Any:
    """Parses a number, a boolean, None, a tuple or a list; returns other text unchanged."""
    lowered = text.lower()
    if lowered in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[lowered]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse(text: str) -> Spec:
    """Parses `name`, `name:key=value:...` or `name(argument, key=value)`; raises InputError otherwise."""
    head, *settings = split_top_level(text.strip(), ":")
    match = re.fullmatch(r"([^\s(),=:]+)\s*(?:\((.*)\))?", head)
    if match is None:
        raise InputError(f"{text!r} is not a name with options, such as 'nh', 'nh:then=stay' or 'noisy(ns,0.2)'")
    arguments = []
    for part in split_top_level(match[2]) if match[2] is not None else []:
        if re.match(r"\w+\s*=", part):
            settings.append(part)
        else:
            arguments.append(parse(part))
    options = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{setting!r} in {text!r} is not an option of the form key=value")
        options.append((key.strip(), parse_value(value.strip())))
    return Spec(match[1], tuple(arguments), tuple(options))


def check_options(kind: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raises InputError for the first unknown option, with the closest known one."""
    known = list(known)
    for option in options:
        if option not in known:
            raise InputError(f"{kind} has no option {option!r}{nearest(option, known)}")


def keyword_names(function: Callable[..., Any]) -> list[str]:
    """Names of a function's keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]

"""How much work a program is, from its trace alone: XLA's own count takes the body of a loop once, however often it is
gone through."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Literal

VIEWS = ("broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "iota", "reshape", "squeeze")
"""What moves nothing by itself: it becomes part of whatever reads it."""
FREE = ("bitcast", "constant", "get-tuple-element", "parameter", "tuple")
"""Instructions of a compiled program that are no kernels."""
INSTRUCTION = re.compile(r" = .*?(?<![\w.])([a-z][\w-]*)\(")
CALLED = re.compile(r"(?:body|calls|to_apply)=%([\w.-]+)")
KNOWN_LENGTH = re.compile(r'known_trip_count":{"n":"(\d+)"')
READS = ("dynamic_slice", "gather", "slice")
"""What reads as much of its input as it gives."""


@dataclass(frozen=True)
class Work:
    """What a program does, loops gone through."""

    operations: float
    """Primitive operations one after the other; a compiler makes one kernel of several."""
    flops: float
    """Of products of matrices."""
    bytes: float
    """Read and written by every operation, as if none were made one with the next."""

    def __add__(self, other: "Work") -> "Work":
        return Work(self.operations + other.operations, self.flops + other.flops, self.bytes + other.bytes)

    def times(self, number: float) -> "Work":
        return Work(number * self.operations, number * self.flops, number * self.bytes)


NOTHING = Work(0.0, 0.0, 0.0)


def count(jaxpr: Any, minibatches: float) -> Work:
    """The work of a traced program. The length of a loop is mostly known; one that is not is that over the minibatches
    of living rows if it multiplies matrices, and else (boards drawn again, a way back up a tree) taken once."""
    return sum((_of_equation(equation, minibatches) for equation in jaxpr.eqns), NOTHING)


def _of_equation(equation: Any, minibatches: float) -> Work:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return count(params["jaxpr"].jaxpr, minibatches).times(params["length"])
    if name == "while":
        body = params["body_jaxpr"].jaxpr
        return count(body, minibatches).times(minibatches if _multiplies_matrices(body) else 1)
    if name == "cond":
        return max((count(branch.jaxpr, minibatches) for branch in params["branches"]), key=lambda work: work.bytes)
    if name.startswith("scatter") or not (inner := list(_inner(equation))):
        return Work(1.0, _flops(equation), _bytes(equation))
    return sum((count(jaxpr, minibatches) for jaxpr in inner), NOTHING)


def alive(jaxpr: Any) -> float:
    """The most bytes of results that are still needed at once, in a traced program and in those that it calls."""
    last = {value: number for number, equation in enumerate(jaxpr.eqns) for value in _variables(equation.invars)}
    last |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))
    needed: dict[Any, int] = {}
    most = 0.0
    for number, equation in enumerate(jaxpr.eqns):
        moves = equation.primitive.name not in VIEWS
        needed |= {value: _size(value) if moves else 0 for value in equation.outvars}
        most = max(most, sum(needed.values()) + max(map(alive, _inner(equation)), default=0.0))
        needed = {value: size for value, size in needed.items() if last.get(value, number) > number}
    return most


def _variables(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if not isinstance(value, Literal)]


def kernels(compiled: str, minibatches: float) -> float:
    """How many kernels a compiled program, given as text, runs one after the other; loops as in `count`."""
    parts: dict[str, list[str]] = {}
    name = first = ""
    for line in compiled.splitlines():
        if line.endswith("{") and not line.startswith((" ", "HloModule")):
            name = line.removeprefix("ENTRY ").split()[0].removeprefix("%")
            first = name if line.startswith("ENTRY") else first
            parts[name] = []
        elif name:
            parts[name].append(line)
    return _kernels(parts, first, minibatches)


def _kernels(parts: dict[str, list[str]], name: str, minibatches: float) -> float:
    found = 0.0
    for line in parts[name]:
        kind = match[1] if (match := INSTRUCTION.search(line)) else FREE[0]
        if kind in ("while", "call"):
            inner = CALLED.search(line)[1]  # pyright: ignore[reportOptionalSubscript]
            known = KNOWN_LENGTH.search(line)
            unknown = minibatches if _has_products(parts, inner) else 1
            times = 1 if kind == "call" else int(known[1]) if known else unknown
            found += times * _kernels(parts, inner, minibatches)
        else:
            found += kind not in FREE
    return found


def _has_products(parts: dict[str, list[str]], name: str) -> bool:
    return any(
        " dot(" in line or any(_has_products(parts, inner) for inner in CALLED.findall(line)) for line in parts[name]
    )


def _inner(equation: Any) -> Iterator[Any]:
    """The programs that an equation calls."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                yield getattr(one, "jaxpr", one)


def _multiplies_matrices(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name == "dot_general" or any(map(_multiplies_matrices, _inner(equation)))
        for equation in jaxpr.eqns
    )


def _flops(equation: Any) -> float:
    if equation.primitive.name != "dot_general":
        return 0.0
    (summed, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in summed)


def _bytes(equation: Any) -> float:
    name, given = equation.primitive.name, sum(map(_size, equation.outvars))
    if name in VIEWS:
        return 0.0
    if name in READS:
        return 2.0 * given
    if name == "dynamic_update_slice":
        return 2.0 * _size(equation.invars[1])
    if name.startswith("scatter"):
        return 2.0 * _size(equation.invars[2])
    return float(given + sum(map(_size, equation.invars)))


def _size(value: Any) -> int:
    return math.prod(value.aval.shape) * value.aval.dtype.itemsize

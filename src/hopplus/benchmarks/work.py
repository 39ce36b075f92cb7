"""Work of a program, counted from its trace; XLA's own count includes the body of a loop only once."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Literal

VIEWS = ("broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "iota", "reshape", "squeeze")
"""Operations that move no data by themselves: they are fused into their consumers."""
FREE = ("bitcast", "constant", "get-tuple-element", "parameter", "tuple")
"""Instructions of a compiled program that are not kernels."""
INSTRUCTION = re.compile(r" = .*?(?<![\w.])([a-z][\w-]*)\(")
CALLED = re.compile(r"(?:body|calls|to_apply)=%([\w.-]+)")
KNOWN_LENGTH = re.compile(r'known_trip_count":{"n":"(\d+)"')
READS = ("dynamic_slice", "gather", "slice")
"""Operations that read as much of their input as they return."""


@dataclass(frozen=True)
class Work:
    """Work of a program, with loops counted by their length."""

    operations: float
    """Sequential primitive operations; the compiler fuses several into one kernel."""
    flops: float
    """Floating-point operations of matrix products."""
    bytes: float
    """Bytes read and written by all operations, without fusion."""

    def __add__(self, other: "Work") -> "Work":
        return Work(self.operations + other.operations, self.flops + other.flops, self.bytes + other.bytes)

    def times(self, number: float) -> "Work":
        """Returns the work of a number of repetitions."""
        return Work(number * self.operations, number * self.flops, number * self.bytes)


NOTHING = Work(0.0, 0.0, 0.0)


def count(jaxpr: Any, minibatches: float) -> Work:
    """Returns the work of a traced program.

    Loops of unknown length are those over minibatches of valid rows if they contain matrix products; others (redrawn
    boards, backup in a tree) count once.
    """
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
    """Returns the peak number of live bytes in a traced program and its subprograms."""
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
    """Returns the number of kernels that a compiled program (its text) runs; loops as in `count`."""
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
    total = 0.0
    for line in parts[name]:
        instruction = match[1] if (match := INSTRUCTION.search(line)) else FREE[0]
        if instruction in ("while", "call"):
            inner = CALLED.search(line)[1]  # pyright: ignore[reportOptionalSubscript]
            known = KNOWN_LENGTH.search(line)
            unknown = minibatches if _has_products(parts, inner) else 1
            times = 1 if instruction == "call" else int(known[1]) if known else unknown
            total += times * _kernels(parts, inner, minibatches)
        else:
            total += instruction not in FREE
    return total


def _has_products(parts: dict[str, list[str]], name: str) -> bool:
    return any(
        " dot(" in line or any(_has_products(parts, inner) for inner in CALLED.findall(line)) for line in parts[name]
    )


def _inner(equation: Any) -> Iterator[Any]:
    """Yields the subprograms of an equation."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                yield getattr(part, "jaxpr", part)


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
    name, written = equation.primitive.name, sum(map(_size, equation.outvars))
    if name in VIEWS:
        return 0.0
    if name in READS:
        return 2.0 * written
    if name == "dynamic_update_slice":
        return 2.0 * _size(equation.invars[1])
    if name.startswith("scatter"):
        return 2.0 * _size(equation.invars[2])
    return float(written + sum(map(_size, equation.invars)))


def _size(value: Any) -> int:
    return math.prod(value.aval.shape) * value.aval.dtype.itemsize

"""Constraints declared on the fields of a config, and the check that holds them."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hopplus.core.errors import InputError


@dataclass(frozen=True)
class Interval:
    """Range of a number, or of every entry of a tuple of numbers."""

    low: float
    high: float = float("inf")
    open_low: bool = False
    open_high: bool = False

    def contains(self, value: float) -> bool:
        """Returns whether a value lies in the range; NaN does not."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        low = f"more than {self.low:g}" if self.open_low else f"at least {self.low:g}"
        if self.high == float("inf"):
            return low
        if not self.open_low and not self.open_high:
            return f"from {self.low:g} to {self.high:g}"
        return f"{low} and {'less than' if self.open_high else 'at most'} {self.high:g}"


def at_least(low: float) -> Interval:
    """Range [low, inf)."""
    return Interval(low)


def more_than(low: float) -> Interval:
    """Range (low, inf): finite numbers only."""
    return Interval(low, float("inf"), open_low=True, open_high=True)


Probability = Annotated[float, Interval(0, 1)]
PositiveInt = Annotated[int, at_least(1)]
PositiveFloat = Annotated[float, more_than(0)]
Widths = Annotated[tuple[int, ...], at_least(1)]
"""Widths of hidden layers: at least one layer."""


def check_fields(config: Any) -> None:
    """Raises InputError where a field, or one of a nested config, breaks its declared constraint."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_fields(value)
        else:
            _check(field.name, hints[field.name], value)


def _check(name: str, hint: Any, value: Any) -> None:
    if value is None:
        return
    choices = _choices(hint)
    if choices and value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")
    for interval in _intervals(hint):
        values = value if isinstance(value, tuple) else (value,)
        if not values:
            raise InputError(f"{name} must have at least one entry")
        for number in values:
            if not interval.contains(number):
                raise InputError(f"{name} must be {interval}, not {number}")


def _choices(hint: Any) -> tuple[Any, ...]:
    """Values of a Literal, also of one that is Annotated or Optional."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for part in get_args(hint) if get_origin(part) is not None for choice in _choices(part))


def _intervals(hint: Any) -> list[Interval]:
    """Intervals among the annotations of a type, also of the parts of a union."""
    own = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Interval)]
    nested = [interval for part in get_args(hint) if get_origin(part) is not None for interval in _intervals(part)]
    return own + nested

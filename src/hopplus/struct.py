"""Frozen dataclasses of arrays that JAX can batch, scan and differentiate through."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

import jax

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def struct(cls: type[T]) -> type[T]:
    """A frozen dataclass whose fields are all arrays (or trees of arrays), registered as a JAX tree."""
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))

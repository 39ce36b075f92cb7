"""Frozen dataclasses of arrays that JAX can batch, scan and differentiate through."""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def struct(cls: type[T]) -> type[T]:
    """Decorator: a frozen dataclass whose fields are arrays (or trees of arrays), registered as a JAX pytree."""
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))


def where_first(condition: Bool[Array, " N"], first: Any, second: Any) -> Any:
    """`jnp.where` over two trees of arrays [N, ...], with a condition on the first axis."""

    def select(left: Array, right: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (left.ndim - 1)), left, right)

    return jax.tree.map(select, first, second)


def names_and_leaves(tree: Any) -> dict[str, Any]:
    """Returns a tree's leaves by path: field names, keys and positions joined by slashes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(_part(part) for part in path): leaf for path, leaf in leaves}


def _part(part: Any) -> str:
    return str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part))))

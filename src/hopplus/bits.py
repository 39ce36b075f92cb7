"""Sets of small numbers as bits: element k is bit (k % 32) of word (k // 32) of a uint32[words]."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32


def words_for(size: int) -> int:
    """How many 32-bit words a set of numbers below `size` takes."""
    return -(-size // 32)


def pack(members: Bool[Any, "... size"]) -> UInt32[Any, "... words"]:
    """Truth values by element as sets (NumPy in, NumPy out)."""
    library = np if isinstance(members, np.ndarray) else jnp
    size = members.shape[-1]
    words = words_for(size)
    unused = [(0, 0)] * (members.ndim - 1) + [(0, words * 32 - size)]
    bits = library.pad(members, unused).reshape(*members.shape[:-1], words, 32).astype(library.uint32)
    return (bits << library.arange(32, dtype=library.uint32)).sum(-1, dtype=library.uint32)


def unpack(sets: UInt32[Array, "... words"], size: int) -> Bool[Array, "... size"]:
    """Sets as truth values by element."""
    bits = (sets[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return bits.reshape(*sets.shape[:-1], -1)[..., :size].astype(bool)


def single(elements: Int[Array, "..."], words: int) -> UInt32[Array, "... words"]:
    """Sets of one element each; empty for a negative element."""
    bit = jnp.uint32(1) << (elements & 31).astype(jnp.uint32)
    return jnp.where((elements >> 5)[..., None] == jnp.arange(words), bit[..., None], jnp.uint32(0))


def union(sets: UInt32[Array, "k words"]) -> UInt32[Array, " words"]:
    """The elements that are in any of the sets."""
    return jax.lax.reduce(sets, np.uint32(0), jax.lax.bitwise_or, (0,))


def count(sets: UInt32[Array, "... words"]) -> Int[Array, "..."]:
    """How many elements each set has."""
    return jax.lax.population_count(sets).sum(-1).astype(jnp.int32)


def shift(sets: UInt32[Array, "... words"], by: int) -> UInt32[Array, "... words"]:
    """Every element k as k + by, 0 < |by| < 32; those that leave the words are lost."""
    distance = np.uint32(abs(by))
    carry = np.uint32(32) - distance
    edge = jnp.zeros_like(sets[..., :1])
    if by > 0:
        return (sets << distance) | jnp.concatenate([edge, sets[..., :-1] >> carry], axis=-1)
    return (sets >> distance) | jnp.concatenate([sets[..., 1:] << carry, edge], axis=-1)


def ranked(sets: UInt32[Array, "... words"], ranks: Int[Array, "... k"], size: int) -> Int[Array, "... k"]:
    """The element of each rank (0 the lowest) in each set; `size` where there is none."""
    up_to = pack(np.tri(size, dtype=bool))
    number_up_to = count(sets[..., None, :] & up_to)
    return (number_up_to[..., None, :] <= ranks[..., None]).sum(-1).astype(jnp.int32)

"""Bit sets of small integers: element k is bit (k % 32) of word (k // 32) of a uint32[words]."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32


def words_for(size: int) -> int:
    """Number of 32-bit words that a set of integers below `size` takes."""
    return -(-size // 32)


def pack(members: Bool[Any, "... size"]) -> UInt32[Any, "... words"]:
    """Packs membership flags into bit sets (NumPy in, NumPy out)."""
    library = np if isinstance(members, np.ndarray) else jnp
    size = members.shape[-1]
    words = words_for(size)
    unused = [(0, 0)] * (members.ndim - 1) + [(0, words * 32 - size)]
    bits = library.pad(members, unused).reshape(*members.shape[:-1], words, 32).astype(library.uint32)
    return (bits << library.arange(32, dtype=library.uint32)).sum(-1, dtype=library.uint32)


def unpack(sets: UInt32[Array, "... words"], size: int) -> Bool[Array, "... size"]:
    """Unpacks bit sets into membership flags."""
    bits = (sets[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return bits.reshape(*sets.shape[:-1], -1)[..., :size].astype(bool)


def single(elements: Int[Array, "..."], words: int) -> UInt32[Array, "... words"]:
    """Returns sets of one element each; a negative element gives the empty set."""
    bit = jnp.uint32(1) << (elements & 31).astype(jnp.uint32)
    return jnp.where((elements >> 5)[..., None] == jnp.arange(words), bit[..., None], jnp.uint32(0))


def union(sets: UInt32[Array, "k words"]) -> UInt32[Array, " words"]:
    """Union of k sets."""
    return jax.lax.reduce(sets, np.uint32(0), jax.lax.bitwise_or, (0,))


def count(sets: UInt32[Array, "... words"]) -> Int[Array, "..."]:
    """Number of elements of each set."""
    return jax.lax.population_count(sets).sum(-1).astype(jnp.int32)


def shift(sets: UInt32[Array, "... words"], by: int) -> UInt32[Array, "... words"]:
    """Moves every element k to k + by (from -31 to 31, not 0); elements shifted out of the words are dropped."""
    distance = np.uint32(abs(by))
    carry = np.uint32(32) - distance
    edge = jnp.zeros_like(sets[..., :1])
    if by > 0:
        return (sets << distance) | jnp.concatenate([edge, sets[..., :-1] >> carry], axis=-1)
    return (sets >> distance) | jnp.concatenate([sets[..., 1:] << carry, edge], axis=-1)


def ranked(sets: UInt32[Array, "... words"], ranks: Int[Array, "... k"], size: int) -> Int[Array, "... k"]:
    """Returns the element of each rank (0 is the lowest) in each set; `size` for a rank beyond the last element."""
    up_to = pack(np.tri(size, dtype=bool))
    count_up_to = count(sets[..., None, :] & up_to)
    return (count_up_to[..., None, :] <= ranks[..., None]).sum(-1).astype(jnp.int32)

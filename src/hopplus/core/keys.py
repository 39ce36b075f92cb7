"""Random keys and sampling primitives.

No function keeps state. A key is used for one purpose only; several keys are derived by
`jax.random.fold_in(key, purpose)`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Bool, Int, UInt32

from hopplus.core import bits
from hopplus.core.errors import InputError

Key = jax.Array
"""A JAX random key (typed, of shape [])."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _hash(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of the counter (high, low) under key[2], with its twenty rounds unrolled.

    JAX compiles the same hash for CPUs as a loop that passes through memory after every four rounds; unrolled, it
    becomes one vectorised kernel.
    """
    first, second = key[0], key[1]
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    high, low = high + first, low + second
    for round_group in range(5):
        for rotation in _ROTATIONS[round_group % 2]:
            high = high + low
            low = (low << np.uint32(rotation)) | (low >> np.uint32(32 - rotation))
            low = low ^ high
        high = high + schedule[(round_group + 1) % 3]
        low = low + schedule[(round_group + 2) % 3] + np.uint32(round_group + 1)
    return high, low


def _pair(high: Array, low: Array) -> Array:
    """Stacks both along a new last axis, by `where`: XLA does not vectorise operations fused into a concatenation."""
    return jnp.where(np.arange(2) == 0, high[..., None], low[..., None])


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    size = int(np.prod(shape, dtype=np.int64))
    if size >= 2**32:
        raise InputError(f"a draw of {size} random numbers is too large: split it over several keys")
    return jnp.zeros(shape, jnp.uint32), jnp.arange(size, dtype=jnp.uint32).reshape(shape)


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _pair(*_hash(key, *_counters(shape)))


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = _hash(key, *_counters(shape))
    if bit_width == 64:
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{bit_width}")


def _fold_in(key: Array, data: Array | int) -> Array:
    return _pair(*_hash(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))


UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="hopplus_threefry2x32",
    tag="hop",
)


def fast(key: Key) -> Key:
    """Returns a key with exactly the same random stream that is faster to compute on a CPU.

    Takes typed keys of any shape, or raw uint32[..., 2]. Keys of a generator other than JAX's default are returned
    unchanged.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(key, impl=UNROLLED)
    if str(jax.random.key_impl(key)) == "threefry2x32":
        return jax.random.wrap_key_data(jax.random.key_data(key), impl=UNROLLED)
    return key


@partial(jax.jit, static_argnames="environments")
def environment_keys(key: Key, environments: int) -> Key:
    """Returns keys [environments]; key i does not depend on the number of environments."""
    return jax.vmap(lambda index: jax.random.fold_in(fast(key), index))(jnp.arange(environments))


def below(words: UInt32[Array, "..."], bound: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """Maps uniform 32-bit words to integers in [0, bound), bound < 2**16: floor(word * bound / 2**32).

    Each value's probability differs from 1 / bound by less than 2**-32.
    """
    bound = jnp.asarray(bound).astype(jnp.uint32)
    high = (words >> 16) * bound
    low = ((words & 0xFFFF) * bound) >> 16
    return ((high + low) >> 16).astype(jnp.int32)


def choose(words: UInt32[Array, "..."], mask: Bool[Array, "... A"]) -> Int[Array, "..."]:
    """Samples the index of a true entry of each mask, uniformly, from one uniform 32-bit word per mask.

    Every mask must have a true entry.
    """
    members = bits.pack(mask)
    rank = below(words, bits.count(members))
    return bits.ranked(members, rank[..., None], mask.shape[-1])[..., 0]

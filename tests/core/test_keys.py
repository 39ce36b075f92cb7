"""Fast keys have exactly the random streams of JAX's keys, and samples are uniform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hopplus.core.bits import count, pack, ranked, shift, unpack
from hopplus.core.keys import below, choose, environment_keys, fast


@jax.jit
def all_draws(key: jax.Array) -> list[jax.Array]:
    """Draws of all kinds from a key; one program per key type."""
    draws = []
    for shape in ((), (5,), (3, 4)):
        draws += [jax.random.bits(key, shape), jax.random.uniform(key, shape)]
        draws.append(jax.random.key_data(jax.random.split(key, shape or 2)))
    draws += [jax.random.bits(key, (9,), width) for width in ("uint8", "uint16")]
    draws += [jax.random.key_data(jax.random.fold_in(key, data)) for data in (0, 7, 2**31)]
    return [*draws, jax.random.randint(key, (20,), 0, 7)]


def test_fast_keys_have_the_random_streams_of_jax() -> None:
    plain = jax.random.key(42)
    for expected, drawn in zip(all_draws(plain), all_draws(fast(plain)), strict=True):
        np.testing.assert_array_equal(drawn, expected)


def test_raw_keys_and_keys_of_other_generators_are_accepted() -> None:
    raw = jax.random.PRNGKey(3)
    for expected, drawn in zip(all_draws(jax.random.key(3)), all_draws(fast(raw)), strict=True):
        np.testing.assert_array_equal(drawn, expected)
    other = jax.random.key(3, impl="rbg")
    assert fast(other) is other
    assert fast(fast(raw)).dtype == fast(raw).dtype


@functools.partial(jax.jit, static_argnames="environments")
def environment_key_data(key: jax.Array, environments: int) -> jax.Array:
    return jax.random.key_data(environment_keys(key, environments))


def test_an_environment_has_the_same_key_in_every_batch() -> None:
    few, many = (np.asarray(environment_key_data(jax.random.key(1), number)) for number in (3, 100))
    np.testing.assert_array_equal(few, many[:3])
    assert len(np.unique(many, axis=0)) == 100


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 16, 361, 65535])
def test_below_is_the_exact_product(bound: int) -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint64)
    words[:2] = 0, 2**32 - 1
    expected = words * bound >> np.uint64(32)
    np.testing.assert_array_equal(jax.jit(below)(words.astype(np.uint32), bound), expected.astype(np.int64))


def test_choose_is_uniform_over_the_true_entries() -> None:
    mask = np.tile([False, True, True, False, True, False, False], (30_000, 1))
    words = jax.random.bits(jax.random.key(0), (30_000,))
    counts = np.bincount(np.asarray(jax.jit(choose)(words, mask)), minlength=7)
    assert counts[[0, 3, 5, 6]].sum() == 0
    assert stats.chisquare(counts[[1, 2, 4]]).pvalue > 1e-3


SHIFTS = (1, 7, 19, -1, -4)


@jax.jit
def set_operations(members: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, list[jax.Array], jax.Array]:
    """Packs, unpacks, counts and shifts sets, and returns elements of all ranks, for members [sets, size]."""
    size = members.shape[-1]
    sets = pack(members)
    shifted = [unpack(shift(sets, by), size) for by in SHIFTS]
    return sets, unpack(sets, size), count(sets), shifted, ranked(sets, jnp.arange(size + 1), size)


@pytest.mark.parametrize("size", [1, 16, 32, 33, 64, 361])
def test_bit_set_operations(size: int) -> None:
    generator = np.random.default_rng(size)
    members = generator.random((5, size)) < 0.4
    sets, unpacked, number, shifted, elements = jax.tree.map(np.asarray, set_operations(members))
    np.testing.assert_array_equal(sets, pack(members))
    np.testing.assert_array_equal(unpacked, members)
    np.testing.assert_array_equal(number, members.sum(-1))
    for by, result in zip(SHIFTS, shifted, strict=True):
        moved = np.zeros_like(members)
        source = slice(0, max(size - by, 0)) if by > 0 else slice(min(-by, size), size)
        target = slice(min(by, size), size) if by > 0 else slice(0, max(size + by, 0))
        moved[:, target] = members[:, source]
        np.testing.assert_array_equal(result, moved)
    for row, ranked_elements in zip(members, elements, strict=True):
        present = np.flatnonzero(row)
        np.testing.assert_array_equal(ranked_elements, [*present, *[size] * (size + 1 - len(present))])

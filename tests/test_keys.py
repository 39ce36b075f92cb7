"""The fast keys draw exactly what JAX's keys draw, and draws are uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from hopplus.bits import count, pack, ranked, shift, unpack
from hopplus.keys import below, choose, environment_keys, fast


def test_fast_keys_draw_what_jax_draws() -> None:
    plain = jax.random.key(42)
    quick = fast(plain)
    for shape in ((), (5,), (3, 4)):
        np.testing.assert_array_equal(jax.random.bits(plain, shape), jax.random.bits(quick, shape))
        np.testing.assert_array_equal(jax.random.uniform(plain, shape), jax.random.uniform(quick, shape))
        np.testing.assert_array_equal(
            jax.random.key_data(jax.random.split(plain, shape or 2)),
            jax.random.key_data(jax.random.split(quick, shape or 2)),
        )
    for width in ("uint8", "uint16"):
        np.testing.assert_array_equal(jax.random.bits(plain, (9,), width), jax.random.bits(quick, (9,), width))
    for data in (0, 7, 2**31):
        np.testing.assert_array_equal(
            jax.random.key_data(jax.random.fold_in(plain, data)), jax.random.key_data(jax.random.fold_in(quick, data))
        )
    np.testing.assert_array_equal(jax.random.randint(plain, (20,), 0, 7), jax.random.randint(quick, (20,), 0, 7))


def test_raw_and_foreign_keys_are_welcome() -> None:
    raw = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(jax.random.bits(fast(raw)), jax.random.bits(jax.random.key(3)))
    other = jax.random.key(3, impl="rbg")
    assert fast(other) is other
    assert fast(fast(raw)).dtype == fast(raw).dtype


def test_an_environment_has_the_same_key_in_every_batch() -> None:
    few, many = environment_keys(jax.random.key(1), 3), environment_keys(jax.random.key(1), 100)
    np.testing.assert_array_equal(jax.random.key_data(few), jax.random.key_data(many)[:3])
    assert len(np.unique(jax.random.key_data(many), axis=0)) == 100


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 16, 361, 65535])
def test_below_is_the_exact_product(bound: int) -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint64)
    words[:2] = 0, 2**32 - 1
    expected = words * bound >> np.uint64(32)
    np.testing.assert_array_equal(below(jnp.asarray(words, jnp.uint32), bound), expected.astype(np.int64))


def test_choose_is_uniform_over_the_true_entries() -> None:
    mask = jnp.array([False, True, True, False, True, False, False])
    words = jax.random.bits(jax.random.key(0), (30_000,))
    counts = np.bincount(np.asarray(choose(words, jnp.broadcast_to(mask, (30_000, 7)))), minlength=7)
    assert counts[[0, 3, 5, 6]].sum() == 0
    assert stats.chisquare(counts[[1, 2, 4]]).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 16, 32, 33, 64, 361])
def test_sets_as_bits(size: int) -> None:
    generator = np.random.default_rng(size)
    members = generator.random((5, size)) < 0.4
    sets = jnp.asarray(pack(members))
    np.testing.assert_array_equal(pack(jnp.asarray(members)), sets)
    np.testing.assert_array_equal(unpack(sets, size), members)
    np.testing.assert_array_equal(count(sets), members.sum(-1))
    for by in (1, 7, 19, -1, -4):
        moved = np.zeros_like(members)
        source = slice(0, max(size - by, 0)) if by > 0 else slice(min(-by, size), size)
        target = slice(min(by, size), size) if by > 0 else slice(0, max(size + by, 0))
        moved[:, target] = members[:, source]
        np.testing.assert_array_equal(unpack(shift(sets, by), size), moved)
    for row, board in zip(members, sets, strict=True):
        present = np.flatnonzero(row)
        ranks = jnp.arange(len(present) + 1)
        np.testing.assert_array_equal(ranked(board, ranks, size), [*present, size])

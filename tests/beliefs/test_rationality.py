"""Rationality hypotheses by hand: likelihoods, mixtures and single policies agree."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.beliefs.rationality import EXACT, FIRST_SHARE, PREFERENCE_SHARE, RANDOM_SHARE, Rationality, mix_uniform

FULL = Rationality((0.02, 0.25), (1.0, 3.0), random=True)
POLICY = np.array([[0.6, 0.3, 0.1, 0.0], [0.0, 0.5, 0.5, 0.0]], np.float32)
"""Two goals, three legal actions."""
BY_PREFERENCE = np.array([[0.2, 0.2, 0.6, 0.0], [0.9, 0.0, 0.1, 0.0], [0.0, 1.0, 0.0, 0.0]], np.float32)
"""Policies of the preference models."""
WITH_PREFERENCES = Rationality((0.02, 0.25), (1.0, 3.0), random=True, preferences=("neutral", "stags", "hares"))


def by_hand(rationality: Rationality) -> np.ndarray:
    """Returns the action probabilities [B, K, A] under every hypothesis."""
    pairs = [(sharpness, tremble) for sharpness in rationality.sharpness for tremble in rationality.trembles]
    uniform = np.array([1, 1, 1, 0]) / 3
    policies = []
    for sharpness, tremble in [*pairs, *[(1.0, 1.0)] * rationality.random]:
        powers = POLICY**sharpness
        policies.append((1 - tremble) * powers / powers.sum(-1, keepdims=True) + tremble * uniform)
    liked = [
        np.broadcast_to((1 - tremble) * BY_PREFERENCE[number] + tremble * uniform, POLICY.shape)
        for number in range(len(rationality.preferences))
        for tremble in rationality.trembles
    ]
    return np.array([*policies[: len(pairs)], *liked, *policies[len(pairs) :]])


def test_prior_and_names() -> None:
    np.testing.assert_allclose(FULL.prior.sum(), 1)
    np.testing.assert_allclose(FULL.prior[0], FIRST_SHARE * (1 - RANDOM_SHARE) / 2)
    assert FULL.prior[-1] == RANDOM_SHARE
    assert FULL.names == (
        "sharpness 1, tremble 0.02",
        "sharpness 1, tremble 0.25",
        "sharpness 3, tremble 0.02",
        "sharpness 3, tremble 0.25",
        "random",
    )
    assert EXACT.names == ("tremble 0",)


def test_prior_and_names_with_preference_models() -> None:
    names, prior = WITH_PREFERENCES.names, WITH_PREFERENCES.prior
    assert len(names) == len(prior) == WITH_PREFERENCES.num_blocks == 11
    assert names[4:6] == ("preference neutral, tremble 0.02", "preference neutral, tremble 0.25")
    assert (names[9], names[-1]) == ("preference hares, tremble 0.25", "random")
    short = WITH_PREFERENCES.short_names
    assert (short[:4], short[-1]) == (names[:4], "random")
    assert short[4:10] == tuple(f"preference {name}" for name in ("neutral", "stags", "hares") for _ in range(2))
    np.testing.assert_allclose(prior.sum(), 1)
    np.testing.assert_allclose(prior[4:10].sum(), PREFERENCE_SHARE * (1 - RANDOM_SHARE))
    np.testing.assert_allclose(prior[[4, 6, 8]], FIRST_SHARE * PREFERENCE_SHARE * (1 - RANDOM_SHARE) / 3)


@pytest.mark.parametrize(
    "rationality",
    [
        EXACT,
        Rationality((0.02, 0.5), random=True),
        FULL,
        WITH_PREFERENCES,
        replace(WITH_PREFERENCES, sharpness=(3.0, 1.0)),
    ],
)
def test_likelihoods_mixture_and_policies_by_hand(rationality: Rationality) -> None:
    rows = np.concatenate([POLICY, BY_PREFERENCE[: len(rationality.preferences)]])
    expected, policy = by_hand(rationality), jnp.asarray(rows)
    blocks = rationality.num_blocks
    belief = np.random.default_rng(0).dirichlet(np.ones(2 * blocks)).reshape(blocks, 2).astype(np.float32)
    trembles = len(rationality.trembles)
    first = len(rationality.sharpness) * trembles
    for action in range(3):
        likelihood = np.asarray(rationality.likelihoods(policy, jnp.int32(action), jnp.asarray(belief)))
        by_hypothesis = np.maximum(expected[..., action], 1e-30)
        for block in range(first, first + len(rationality.preferences) * trembles):
            of_goals = mix_uniform(
                jnp.asarray(POLICY[:, action]), jnp.float32(3), rationality.trembles[block % trembles]
            )
            by_hypothesis[block] *= of_goals / (belief[block] / belief[block].sum() @ of_goals)
        np.testing.assert_allclose(likelihood, by_hypothesis, rtol=1e-4)
    mixture = np.asarray(rationality.mixture(policy, jnp.asarray(belief)))
    np.testing.assert_allclose(mixture, np.einsum("bk,bka->a", belief, expected), rtol=1e-4, atol=1e-7)
    players = jnp.broadcast_to(policy, (2 * blocks, *policy.shape))
    each = np.asarray(rationality.policy_of(players, jnp.arange(2 * blocks)))
    np.testing.assert_allclose(each, expected.reshape(2 * blocks, -1), rtol=1e-4, atol=1e-7)


def test_a_first_tremble_keeps_beliefs_from_locking_in() -> None:
    mixed = mix_uniform(jnp.array([0.0, 1.0]), jnp.array(4.0), 0.02)
    np.testing.assert_allclose(mixed, [0.005, 0.985], rtol=1e-5)

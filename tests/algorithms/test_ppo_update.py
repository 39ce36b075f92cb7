"""PPO update: minibatches, parameter sets, the loss by hand, normalisation and annealing."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import floats
from hopplus.algorithms import ppo_update
from hopplus.networks.train_state import TrainState

# ---------------------------------------------------------------------------------------------------------- minibatches


def simple_network(params: Any, observation: Any) -> tuple[jax.Array, jax.Array]:
    """Network whose outputs are its inputs plus the parameters."""
    return observation["logits"] + params["logits"], observation["value"] + params["value"]


def simple_learner(settings: ppo_update.PPOUpdateConfig, actions: int = 3) -> TrainState:
    params = {"logits": jnp.zeros(actions), "value": jnp.float32(0)}
    return ppo_update.init_train_state(jax.random.split(jax.random.key(0), 1), lambda key: params, settings)


def simple_rows(number: int, learns: np.ndarray) -> ppo_update.Transitions:
    """Transitions [1, number] that are identified by `collected_at`."""
    generator = np.random.default_rng(0)
    logits, (value, advantage, target) = generator.normal(size=(1, number, 3)), generator.normal(size=(3, 1, number))
    places: Any = np.arange(number)[None]
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf,
        ppo_update.Transitions(
            features={"logits": logits, "value": value},
            seat=places % 2,
            action=places % 3,
            log_probability=np.full((1, number), -1.0),  # pyright: ignore[reportArgumentType]
            value=value,
            advantage=advantage,
            target=target,
            is_valid=learns[None],  # pyright: ignore[reportArgumentType]
            collected_at=places,
        ),
    )


@pytest.mark.parametrize(("number", "num_valid", "minibatch"), [(50, 37, 8), (30, 4, 7)])
def test_minibatches_are_even_and_hold_every_valid_transition_once(number: int, num_valid: int, minibatch: int) -> None:
    settings = ppo_update.PPOUpdateConfig(update_epochs=1, minibatch_size=minibatch)
    rows = simple_rows(number, np.random.default_rng(1).permutation(number) < num_valid)
    used: list[np.ndarray] = []

    def spy(params: Any, network: Any, rows: ppo_update.Transitions, counts: jax.Array, **rest: Any) -> Any:
        jax.debug.callback(lambda place, counts: used.append(place[counts]), rows.collected_at, counts)
        return ppo_update.loss(params, network, rows, counts, **rest)

    _, metrics = jax.jit(
        lambda key, rows: ppo_update.update(
            key, simple_network, simple_learner(settings), rows, settings, 1.0, jnp.float32(0), 2, spy
        )
    )(jax.random.key(0), rows)
    jax.effects_barrier()
    sizes = [len(places) for places in used]
    assert len(sizes) == math.ceil(num_valid / minibatch)
    assert sum(sizes) == num_valid
    assert max(sizes) <= minibatch
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(used)), np.flatnonzero(rows.is_valid[0]))
    np.testing.assert_array_equal(metrics["rows"][0], np.bincount(rows.seat[0][rows.is_valid[0]], minlength=2))


def test_many_small_minibatches_still_hold_every_transition() -> None:
    # 50,000 minibatches of 50,000 transitions: the product overflows 32 bits, as with buffers of 20,000 episodes.
    settings = ppo_update.PPOUpdateConfig(update_epochs=1, minibatch_size=1)
    rows = simple_rows(50_000, np.ones(50_000, bool))
    _, metrics = jax.jit(
        lambda key, rows: ppo_update.update(
            key, simple_network, simple_learner(settings), rows, settings, 1.0, jnp.float32(0), 2
        )
    )(jax.random.key(0), rows)
    assert metrics["rows"].tolist() == [[25_000, 25_000]]


def test_a_parameter_set_learns_as_if_it_were_alone() -> None:
    """Gradients are clipped per parameter set; a set without valid transitions is unchanged, whatever its momentum."""
    settings = ppo_update.PPOUpdateConfig(update_epochs=2, minibatch_size=8, max_grad_norm=0.01)
    batches = [simple_rows(12, learns) for learns in (np.ones(12, bool), np.ones(12, bool), np.zeros(12, bool))]
    batches[1] = replace(batches[1], target=1000 * batches[1].target)
    momentum = jax.tree.map(lambda leaf: leaf + 1, simple_learner(settings))

    def train(rows: list[ppo_update.Transitions]) -> TrainState:
        start = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(rows)), momentum)
        stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
        return jax.jit(
            lambda key: ppo_update.update(key, simple_network, start, stacked, settings, 1.0, jnp.float32(0), 2)[0]
        )(jax.random.key(0))

    together = train(batches)
    for number, rows in enumerate(batches[:2]):
        alone = train([rows])
        for result, expected in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(result[number], expected[0], rtol=1e-5)
    for result, expected in zip(jax.tree.leaves(together), jax.tree.leaves(momentum), strict=True):
        np.testing.assert_array_equal(result[2], expected[0])


def test_valid_transitions_come_first_in_a_different_order_for_every_key() -> None:
    learns = np.random.default_rng(0).random((2, 60)) < 0.6
    keys = jax.random.split(jax.random.key(0), 5)
    orders = np.asarray(jax.jit(jax.vmap(ppo_update.shuffle_valid_first, (0, None)))(keys, learns))
    for order in orders:
        for indices, mask in zip(order, learns, strict=True):
            assert np.sort(indices).tolist() == list(range(60))
            assert mask[indices].tolist() == sorted(mask.tolist(), reverse=True)
    num_valid = int(learns[0].sum())
    assert len(np.unique(orders[:, 0, :num_valid], axis=0)) == 5


# ----------------------------------------------------------------------------------------------------------------- loss


def test_the_loss_equals_the_computation_by_hand() -> None:
    # Three actions; the third is illegal in row 2, and row 4 is invalid. Value scale 2, clip 0.2.
    settings = ppo_update.PPOUpdateConfig(clip_coef=0.2, vf_coef=0.5)
    policies = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]]
    logits = [[math.log(p) if p else -1e9 for p in policy] for policy in policies]
    actions = [0, 1, 1, 2, 0]
    old = [0.25, 0.5, 0.5, 0.5, 0.9]
    values, old_values, targets = [1.0, 3.0, 0.0, 2.0, 9.0], [1.0, 1.0, 1.0, 2.0, 0.0], [2.0, 2.5, 0.5, 2.0, -9.0]
    advantages = [3.0, -1.0, 1.0, 1.0, 1000.0]
    counts = np.array([True, True, True, True, False])

    # Advantages over the four valid rows: mean 1, squared deviations 4, 4, 0, 0, so variance 2.
    normal = [(a - 1.0) / math.sqrt(2.0 + 1e-8) for a in advantages[:4]]
    ratios = [2.0, 0.5, 1.0, 1.2]
    policy_losses = [
        -min(2.0 * normal[0], 1.2 * normal[0]),  # 2 is cut to 1.2, for the advantage is positive
        -min(0.5 * normal[1], 0.8 * normal[1]),  # 0.5 is raised to 0.8, for the advantage is negative
        -1.0 * normal[2],
        -1.2 * normal[3],
    ]
    # In units of 2: values .5 1.5 0 1, old .5 .5 .5 1, targets 1 1.25 .25 1; moved by 0, 1 -> .2, -.5 -> -.2, 0.
    value_losses = [
        0.5 * 0.5**2,
        0.5 * max((1.5 - 1.25) ** 2, (0.7 - 1.25) ** 2),
        0.5 * max((0.0 - 0.25) ** 2, (0.3 - 0.25) ** 2),
        0.0,
    ]
    entropies = [-sum(p * math.log(p) for p in policy if p) for policy in policies[:4]]
    expected = sum(p + 0.5 * v - 0.1 * e for p, v, e in zip(policy_losses, value_losses, entropies, strict=True)) / 4

    places: Any = np.zeros(5, np.int32)
    rows = ppo_update.Transitions(
        features={"logits": floats(logits), "value": floats(values)},
        seat=places,
        action=np.array(actions),  # pyright: ignore[reportArgumentType]
        log_probability=np.log(floats(old)),
        value=floats(old_values),
        advantage=floats(advantages),
        target=floats(targets),
        is_valid=counts,  # pyright: ignore[reportArgumentType]
        collected_at=places,
    )
    params = {"logits": floats([0, 0, 0]), "value": floats(0)}
    function = jax.jit(
        jax.value_and_grad(
            lambda params: ppo_update.loss(params, simple_network, rows, jnp.array(counts), settings, 2.0, 0.1),
            has_aux=True,
        )
    )
    (total, aux), gradient = jax.tree.map(np.asarray, function(params))
    assert total == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(aux["policy_loss"][:4], policy_losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(aux["entropy"][:4], entropies, rtol=1e-5)
    # The reported value loss is the unclipped squared error, in units of reward.
    np.testing.assert_allclose(aux["value_loss"][:4], [1.0, 0.25, 0.25, 0.0], atol=1e-6)
    np.testing.assert_allclose(aux["kl"][:4], [r - 1 - math.log(r) for r in ratios], atol=1e-6)
    np.testing.assert_array_equal(aux["clip_fraction"][:3], [1, 1, 0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))

    # The gradient of the value: in rows 0 and 2 that of the plain error (-0.5 and -0.25), in row 1 the clipped error
    # is the greater and has none; times the weight 0.5, over 4 rows and the scale 2.
    assert gradient["value"] == pytest.approx(0.5 * (-0.5 - 0.25) / 4 / 2, rel=1e-4)
    assert not np.isclose(expected, sum(policy_losses) / 4, rtol=0.01), "every part shows in the sum"


def test_advantages_are_normalised_over_valid_transitions() -> None:
    mask: Any = np.array([True, True, False, True, False])
    advantage = floats([1.0, 3.0, 1e6, 5.0, -1e6])
    normalized, of_none = jax.jit(
        lambda rows: (ppo_update.normalize(rows, mask), ppo_update.masked_mean(rows, ~(mask | True)))
    )(advantage)
    np.testing.assert_allclose(np.asarray(normalized)[mask], [-math.sqrt(1.5), 0, math.sqrt(1.5)], atol=1e-5)
    assert of_none == 0


def test_annealed_values_fall_to_a_tenth() -> None:
    settings = ppo_update.PPOUpdateConfig(anneal_lr=True)
    steady = replace(settings, anneal_lr=False)
    both = jax.jit(lambda done: (ppo_update.anneal(settings, 2.0, done), ppo_update.anneal(steady, 2.0, done)))
    annealed, unchanged = both(floats([0, 0.5, 1, 2]))
    assert np.asarray(annealed) == pytest.approx([2, 1.1, 0.2, 0.2])
    assert (np.asarray(unchanged) == 2).all()

"""Expert iteration: the loss of policy and plan targets, HOP, and the preset of its paper."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from common import hop
from hopplus.algorithms import expert_iteration, ppo_update
from hopplus.algorithms.expert_iteration import NO_PLAN, PlannedTransitions
from hopplus.algorithms.hopplus import acting
from hopplus.algorithms.presets import hop_paper
from hopplus.games import make
from hopplus_iterations import SMALL, iterations


def planned_transitions(
    acted: list[bool], has_plan_target: list[bool], base_plan: list[int] | None = None
) -> PlannedTransitions:
    """Transitions whose plan takes action 1, by default without a base plan."""
    number = len(acted)
    plan_policy = np.tile([0.0, 1.0, 0.0], (number, 1))
    places: Any = np.zeros(number, np.int32)
    ones: Any = np.ones(number, np.float32)
    return PlannedTransitions(
        features=0 * ones[:, None],
        seat=places,
        action=places,
        log_probability=np.log(ones / 3),
        value=0 * ones,
        advantage=np.arange(number, dtype=np.float32),  # pyright: ignore[reportArgumentType]
        target=ones,
        is_valid=ones > 0,
        collected_at=places,
        policy_acted=np.array(acted),  # pyright: ignore[reportArgumentType]
        trains_value=ones > 0,
        has_plan_target=np.array(has_plan_target),  # pyright: ignore[reportArgumentType]
        plan_policy=plan_policy.astype(np.float32),  # pyright: ignore[reportArgumentType]
        base_plan=np.array([NO_PLAN] * number if base_plan is None else base_plan),  # pyright: ignore[reportArgumentType]
    )


def test_policy_and_plan_losses_use_only_the_transitions_meant_for_them() -> None:
    settings = ppo_update.PPOUpdateConfig(ent_coef=0.0, vf_coef=0.0)

    def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.broadcast_to(params, (features.shape[0], 3)), jnp.zeros(features.shape[0])

    @jax.jit
    def compiled(params: jax.Array, rows: PlannedTransitions, weight: float) -> jax.Array:
        counts = jnp.ones(rows.is_valid.shape, bool)
        return expert_iteration.loss(params, network, rows, counts, settings, 1.0, 0.0, weight)[0]

    differentiated = jax.jit(jax.grad(compiled))

    def gradient(rows: PlannedTransitions, weight: float = 1.0) -> np.ndarray:
        return np.asarray(differentiated(np.zeros(3, np.float32), rows, weight))

    searched = gradient(planned_transitions([False] * 4, [True] * 4))
    np.testing.assert_allclose(searched, np.array([1 / 3, 1 / 3 - 1, 1 / 3]), atol=1e-6)
    np.testing.assert_allclose(gradient(planned_transitions([False] * 4, [False] * 4)), 0, atol=1e-7)
    # Advantages are normalised over the two transitions in which the policy acted: -1 and 1.
    mixed = planned_transitions([True, True, False, False], [False, False, True, True])
    acted_only = gradient(mixed, weight=0.0)
    np.testing.assert_allclose(acted_only, gradient(planned_transitions([True, True], [False, False]), 0.0), atol=1e-6)
    np.testing.assert_allclose(gradient(mixed), acted_only + searched, atol=1e-6)


def test_the_plan_head_learns_the_base_plans_of_planned_transitions_only() -> None:
    settings = ppo_update.PPOUpdateConfig(ent_coef=0.0, vf_coef=0.0)
    rows = planned_transitions([False] * 4, [False] * 4, base_plan=[2, NO_PLAN, 0, NO_PLAN])

    def total(plan_logits: jax.Array, rows: PlannedTransitions) -> tuple[jax.Array, Any]:
        def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
            return jnp.zeros((4, 3)), jnp.zeros(4), jnp.broadcast_to(params, (4, 3))

        return expert_iteration.loss(plan_logits, network, rows, jnp.ones(4, bool), settings, 1.0, 0.0, 2.0)

    gradient, metrics = jax.jit(jax.grad(total, has_aux=True))(jnp.zeros(3), rows)
    # Cross-entropy: twice the mean of softmax minus one-hot over the two rows with plans 2 and 0.
    np.testing.assert_allclose(gradient, 2 * (1 / 3 - np.array([0.5, 0, 0.5])), atol=1e-6)
    np.testing.assert_array_equal(metrics["plan_head_targets"], [1, 0, 1, 0])
    np.testing.assert_allclose(metrics["plan_head_loss"], np.log(3) * np.array([1, 0, 1, 0]), rtol=1e-6)


def test_transitions_without_a_value_target_do_not_train_the_value() -> None:
    settings = ppo_update.PPOUpdateConfig(vf_coef=1.0)
    rows = dataclasses.replace(
        planned_transitions([True] * 4, [False] * 4),
        target=jnp.array([1.0, 1.0, 50.0, 50.0]),
        trains_value=jnp.array([True, True, False, False]),
    )

    def total(value: jax.Array) -> jax.Array:
        def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((4, 3)), jnp.broadcast_to(params, 4)

        return expert_iteration.loss(value, network, rows, jnp.ones(4, bool), settings, 1.0, 0.0, 1.0)[0]

    # Half the squared error, 1 from the target: its slope is -1.
    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.float32(0)), -1.0, rtol=1e-5)


def test_hop_acts_by_its_search_and_is_trained_by_it_alone() -> None:
    algorithm = hop(**{**SMALL, "belief_samples": 1, "simulations": 4})
    result = iterations(algorithm, number=1)
    transitions, trajectory = result.transitions[0], result.trajectories[0]
    plan = result.phase.seats.infos(trajectory)[0].plan
    assert not transitions.policy_acted.any()
    assert transitions.has_plan_target.all()
    np.testing.assert_array_equal(transitions.plan_policy, plan.policy)
    assert float(result.metrics[0]["plan_depth"].total.sum()) > 0
    legal = np.asarray(jax.jit(jax.vmap(jax.vmap(result.phase.game.legal)))(trajectory.state))
    assert not plan.policy[~legal].any()


def test_the_papers_preset() -> None:
    published = hop(**hop_paper(make("msh-4x4-4h1s")))
    planning = published.planning
    assert (planning.belief_samples, planning.simulations, planning.exploration) == (5, 200, 1.0)
    assert (planning.temperature, published.gamma) == (0.5, 0.95)
    assert (planning.hypotheses, planning.cover_root, planning.leaf) == ("tree", False, "value")
    assert hop(**hop_paper(make("msg-4x4"))).planning.exploration == 15.0
    assert acting.make_belief_tracker(published, make("msh-4x4-4h1s")).inter == "counts"

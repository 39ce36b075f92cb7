"""Distillation of belief rollouts: the phase with planned targets, its learners, and the policy alone after it."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import hopplus
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.expert_iteration import NO_PLAN
from hopplus.algorithms.hopplus import acting, targets
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.settings import flatten, replace_settings
from hopplus.games import make
from hopplus.games.game import one_seat
from hopplus.games.preferences import base_plans, stack_preferences
from hopplus.players.planner import Planner, features_of
from hopplus.players.policy import evaluate_features
from hopplus.players.preferences import preference_features
from hopplus.training.experiment import prepare
from hopplus.training.policies import Policy, load_policy, save_policy
from hopplus_iterations import GAME, SMALL, Iterations, iterations

DISTILLED: dict[str, Any] = {
    **SMALL,
    "learn": "both",
    "planner": "rollouts",
    "randomize_rewards": True,
    "planned_share": 1.0,
    "planned_states": 24,
    "rollouts": 16,
    "rounds": 1,
    "level": 0.45,
    "trial_episodes": 2,
}


@pytest.mark.parametrize(
    ("share", "curriculum", "expected"),
    [
        (0.2, (), [(800, False), (None, True)]),
        (1.0, (), [(None, True)]),
        (0.2, ("500:hares=0",), [(500, False), (800, False), (None, True)]),
        (0.5, ("500:hares=0",), [(500, False), (None, True)]),
        (0.5, ("700:hares=0",), [(500, False), (700, True), (None, True)]),
    ],
)
def test_the_last_part_of_a_training_has_planned_targets(share: float, curriculum: Any, expected: Any) -> None:
    training = TrainingConfig(game=GAME, steps=1000, curriculum=curriculum, iterations_per_call=1)
    phases = prepare(training, hopplus(**{**DISTILLED, "planned_share": share})).phases
    ends = [end for end, _ in phases[:-1]] + [None]
    assert [(end, phase.has_plan_targets) for end, (_, phase) in zip(ends, phases, strict=True)] == expected
    for end, phase in phases:
        assert (getattr(phase.game, "hares", None) == 0) == (
            bool(curriculum) and end <= int(curriculum[0].split(":")[0])
        )
    # Phases change between calls: the last one, from step 992 here, has targets, whatever the share.
    assert hopplus(**{**DISTILLED, "planned_share": 0.001}).first_planned_step(1000, 1) == 992
    assert hopplus(**{**DISTILLED, "planned_share": 0.001}).first_planned_step(1000, 100) == 0
    undistilled = prepare(training, hopplus(**{**DISTILLED, "learn": "ppo"})).phases
    assert [end for end, _ in undistilled] == [int(text.split(":")[0]) for text in curriculum] + [phases[-1][0]]
    assert not any(phase.has_plan_targets for _, phase in undistilled)


def perturbed(policy: Any) -> Any:
    """A policy that differs between preferences, which a fresh one hardly does."""
    return jax.tree.map(lambda leaf: leaf + 0.3 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), policy)


@pytest.fixture(scope="module")
def training() -> Iterations:
    """One iteration with planned targets."""
    return iterations(hopplus(**DISTILLED), number=1)


def test_targets_are_the_plans_of_belief_rollouts_for_neutral_learners(training: Iterations) -> None:
    algorithm, phase, state = training.algorithm, training.phase, training.states[0]
    trajectory, transitions = jax.tree.map(jnp.asarray, (training.trajectories[0], training.transitions[0]))
    own = phase.seats.infos(trajectory)[0].co_player_beliefs.preference
    eligible = np.asarray(transitions.is_valid) & np.asarray(own.is_neutral)
    assert not np.asarray(own.is_neutral).all()
    every_row, planned = (
        training.batches[0].is_valid[:, : eligible.size],
        training.batches[0].is_valid[:, eligible.size :],
    )
    np.testing.assert_array_equal(every_row, np.asarray(transitions.is_valid).reshape(1, -1))
    assert planned.shape == (1, 24)

    # With a horizon of one step, plans differ in nothing but their first action: the followed plan stays neutral.
    short = replace_settings(algorithm, {"horizon": 1, "plan_switches": (), "level": 1e-6})

    @jax.jit
    def with_targets(key: jax.Array) -> Any:
        results = []
        for each in (algorithm, short):
            params = {**each.params(state), "policy": perturbed(each.params(state)["policy"])}
            method = each.planning_method(phase.final_game)
            results.append(targets.add_plan_targets(key, each, phase, method, params, transitions, trajectory))
        return results

    (real, planned), (neutral, unplanned) = jax.tree.map(np.asarray, with_targets(jax.random.key(1)))
    has_plan = real.base_plan != NO_PLAN
    assert has_plan.sum() == min(24, eligible.sum())
    assert not (has_plan & ~eligible).any()
    assert planned.is_valid.any()
    assert not (planned.policy_acted | planned.trains_value).any()
    np.testing.assert_array_equal(planned.has_plan_target, planned.is_valid)
    np.testing.assert_array_equal(planned.plan_policy.sum(-1), 1)
    assert set(np.unique(neutral.base_plan)) == {NO_PLAN, 0}
    assert not unplanned.is_valid.any()
    # The network input of a planned transition ends with the preference of the base plan that is followed.
    plans = stack_preferences(base_plans(phase.final_game))
    inputs = np.asarray(jax.vmap(preference_features)(plans))
    followed = (planned.features[1][:, None, -inputs.shape[1] :] == inputs).all(-1)
    assert (followed.sum(-1) == 1).all()
    chosen_plans = real.base_plan[has_plan]
    assert sorted(followed[: len(chosen_plans)].argmax(-1)) == sorted(chosen_plans)
    assert len(np.unique(followed[planned.is_valid].argmax(-1))) > 1


@dataclasses.dataclass(frozen=True)
class FixedChoice:
    """Planner whose challenger replaces the reference (action 1, plan 0), in place of belief rollouts."""

    method: Any
    action: int
    base_plan: int

    def plan(self, *decision: Any) -> Any:
        empty = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self.method.plan, *decision)
        )
        choice = dataclasses.replace(
            empty.choice,
            replaced=jnp.bool_(True),
            reference=jnp.array([1, 0]),
            challenger=jnp.array([self.action, 4]),
            base_plan=jnp.int32(self.base_plan),
        )
        return dataclasses.replace(empty, choice=choice)


@pytest.mark.parametrize(("action", "base_plan", "is_target"), [(1, 0, False), (2, 0, True), (1, 2, True)])
def test_a_delayed_plan_that_has_not_switched_is_a_target_only_with_another_action(
    training: Iterations, action: int, base_plan: int, is_target: bool
) -> None:
    algorithm, phase, params = training.algorithm, training.phase, training.algorithm.params(training.states[0])
    trajectory, transitions = jax.tree.map(jnp.asarray, (training.trajectories[0], training.transitions[0]))
    method: Any = FixedChoice(algorithm.planning_method(phase.final_game), action, base_plan)
    add = partial(targets.add_plan_targets, config=algorithm, phase=phase, method=method)
    real, planned = jax.jit(lambda key: add(key, params=params, transitions=transitions, trajectory=trajectory))(
        jax.random.key(0)
    )
    assert planned.is_valid.any() == is_target
    assert set(np.unique(real.base_plan)) == {NO_PLAN, base_plan}


def test_planned_transitions_train_the_parameters_of_their_seats(training: Iterations) -> None:
    algorithm, phase = training.algorithm, training.phase
    planned = jax.tree.map(lambda leaf: leaf[0, :6], training.batches[0])
    planned = dataclasses.replace(planned, seat=jnp.array([0, 1, 2, 3, 3, 0]), is_valid=jnp.arange(6) < 5)
    for parameters, expected in (("shared", [5]), ("independent", [1, 1, 1, 2])):
        each = replace_settings(algorithm, {"parameters": parameters})
        sets = len(expected)
        batch = jax.tree.map(lambda leaf, sets=sets: jnp.zeros((sets, 2, *leaf.shape[1:]), leaf.dtype), planned)
        appended = targets.append_planned(each, phase, batch, planned)
        assert appended.is_valid.sum(-1).tolist() == expected
        assert appended.seat[-1, 2:].tolist() == [0, 1, 2, 3, 3, 0]


def test_the_plan_head_is_trained_and_reported(training: Iterations) -> None:
    before, after = (state.train_state.params["plan"]["kernel"] for state in training.states)
    assert not np.array_equal(before, after)
    metric = training.metrics[0]["plan_head_loss"]
    assert metric.count.sum() == (training.batches[0].base_plan != NO_PLAN).sum()
    assert 0 < metric.total.sum() / metric.count.sum() < 2 * np.log(3)


def test_the_policy_alone_follows_the_base_plan_of_its_head() -> None:
    algorithm, game = hopplus(**DISTILLED), make(GAME)
    player = algorithm.player(game, "test")
    alone = dataclasses.replace(player, planning=None)
    plans = stack_preferences(base_plans(game))
    number = len(base_plans(game))
    assert number > 1

    @jax.jit
    def act(key: jax.Array, bias: jax.Array) -> Any:
        """The view of the policy alone with a biased plan head, and the logits of every base plan."""
        keys = jax.random.split(key, 4)
        seen = one_seat(game.observe(game.init(keys[0])), 0)
        policy = initial_params(algorithm.network(game), game, keys[1])
        policy = perturbed(policy)
        policy = {**policy, "plan": {"kernel": 0 * policy["plan"]["kernel"], "bias": bias}}
        params = {"policy": policy, "moa": acting.make_moa(algorithm).init_params(keys[2], game)}
        memory = alone.begin(alone.init(keys[3], params))
        view = alone.view(params, memory, seen)

        def of_plan(preference: Any) -> jax.Array:
            beliefs = dataclasses.replace(view.beliefs, preference=preference)
            inputs = features_of(alone.network, alone.tracker, seen, beliefs)
            return evaluate_features(alone.network, policy, inputs)[0]

        return view.logits, jax.vmap(of_plan)(plans), alone.probabilities(params, memory, seen)

    for plan in range(number):
        logits, by_plan, probabilities = act(jax.random.key(0), 5.0 * jax.nn.one_hot(plan, number))
        np.testing.assert_allclose(logits, by_plan[plan], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(probabilities, jax.nn.softmax(by_plan[plan]), rtol=1e-4, atol=1e-6)
        others = np.delete(np.arange(number), plan)
        assert (np.abs(np.asarray(by_plan)[others] - np.asarray(logits)).max(-1) > 1e-3).all()
    untrained, by_plan, _ = act(jax.random.key(0), jnp.zeros(number))
    np.testing.assert_allclose(untrained, by_plan[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("planner", ["off", "tree", "rollouts(plans=hares,inter=False)", "rollouts(rollouts=8)"])
def test_a_saved_policy_keeps_its_plan_head_with_any_planner(tmp_path: Path, planner: str) -> None:
    algorithm, game = hopplus(**DISTILLED), make(GAME)
    trained = Policy("hopplus", flatten(algorithm), GAME, 0, 0, {}).with_planner(planner)
    save_policy(tmp_path / "policy.safetensors", trained)
    loaded = load_policy(str(tmp_path / "policy.safetensors"))
    for policy in (trained, loaded):
        player = policy.player(game, "test")
        assert isinstance(player, Planner)
        assert (player.plans, player.network) == (base_plans(game), algorithm.network(game))
        assert (player.planning is None) == (planner == "off")
        if player.planning is not None and "(" in planner:
            assert player.planning.config.plans == (("hares",) if "hares" in planner else ())


@pytest.mark.parametrize("option", ["learn=ppo", "planned_states=8"])
def test_settings_of_trainings_are_refused_in_play(option: str) -> None:
    policy = Policy("hopplus", flatten(hopplus(**DISTILLED)), GAME, 0, 0, {})
    with pytest.raises(InputError, match=option.split("=")[0]):
        policy.with_planner(f"rollouts({option})")


def test_learners_and_trainings_without_plans_do_not_follow_a_head() -> None:
    game = make(GAME)
    assert hopplus(**DISTILLED).player(game, "x", learns=True).plans == ()
    for settings in ({"learn": "ppo"}, {"randomize_rewards": False}, {"planner": "tree"}, {"plans": ("neutral",)}):
        algorithm = hopplus(**{**DISTILLED, **settings})
        assert (algorithm.player(game, "x").plans, algorithm.network(game).plans) == ((), 0)

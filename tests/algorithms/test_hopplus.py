"""Training of HOP+: updated modules, stored beliefs, transitions by seat, and imagination."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import hopplus
from hopplus.algorithms import HopPlus
from hopplus.algorithms.base import CurriculumPhase, initial_params
from hopplus.algorithms.hopplus import HopPlusState, acting, targets
from hopplus.algorithms.hopplus import algorithm as hopplus_algorithm
from hopplus.algorithms.hopplus.opponent_update import co_player_mask
from hopplus.configs import TrainingConfig
from hopplus.core.settings import replace_settings
from hopplus.core.struct import names_and_leaves
from hopplus.games import make
from hopplus.games.game import one_seat
from hopplus.models import online
from hopplus.models.agent_trajectories import from_rollout
from hopplus.networks.train_state import TrainState
from hopplus.planning.imagination import ImaginedRollout, imagine
from hopplus.players.planner import PlannerView, social_features
from hopplus.training.experiment import prepare
from hopplus_iterations import GAME, SMALL, Iterations, agent_trajectories, iterations


@pytest.fixture(scope="module")
def training() -> Iterations:
    """Two iterations with imagination and a learned world model. Search is tested in test_expert_iteration.py."""
    settings = {"real_ratio": 0.5, "imagined_steps": 3, "world": "learned", "world_model_rows": 16}
    return iterations(hopplus(**{**SMALL, **settings}))


# -------------------------------------------------------------------------------------------------------------- updates


def test_every_module_is_trained_and_none_is_reinitialised(training: Iterations) -> None:
    first, second, third = training.states
    for module in ("train_state", "moa", "world"):
        before, after = (names_and_leaves(getattr(state, module).params) for state in (first, second))
        still = [name for name in before if np.array_equal(before[name], after[name])]
        # Vocabularies are counted, not trained; and no deadline changes here.
        untrained = ("rewards", "delays") if module != "world" else ("rewards", "delays", "deadline")
        assert not [name for name in still if not any(part in name for part in untrained)], (module, still)
    # The acting copy is refreshed in the second iteration, with the trained parameters.
    for state in (first, second):
        np.testing.assert_array_equal(_flat(first.acting_moa), _flat(state.acting_moa))
    np.testing.assert_array_equal(_flat(third.acting_moa), _flat(third.moa.params))
    assert np.abs(_flat(third.acting_moa) - _flat(first.acting_moa)).max() < 0.2


def test_the_acting_copy_of_the_opponent_model_is_refreshed_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the opponent model changes: by 1 in each iteration."""
    trajectory = types.SimpleNamespace(alive=np.ones((1, 1, 1), bool))
    parts: dict[str, Any] = {
        "collect": lambda *args: (None, trajectory),
        "transitions": lambda *args: types.SimpleNamespace(target=()),
        "agent_trajectories": lambda *args: (),
        "batch": lambda *args: (),
        "update_moa": lambda self, state, *args: TrainState(state.moa.params + 1, ()),
        "update_policy": lambda self, state, *args: (state.train_state, {}),
    }
    for name, part in parts.items():
        monkeypatch.setattr(HopPlus, name, part)
    for name in ("update_metrics", "belief_metrics"):
        monkeypatch.setattr(hopplus_algorithm, name, lambda *args: {})
    algorithm, phase, copies = hopplus(moa_refresh=3), CurriculumPhase.__new__(CurriculumPhase), []
    object.__setattr__(phase, "game", types.SimpleNamespace(num_players=1))
    still = TrainState(np.float32(0), ())
    state = HopPlusState(jax.random.key(0), jnp.int32(0), jnp.int32(0), still, still, np.float32(0), None, None)
    for _ in range(7):
        state = algorithm.train_step(state, phase, {})[0]
        copies.append(float(state.acting_moa))
    assert copies == [0, 0, 3, 3, 3, 6, 6]
    assert float(state.moa.params) == 7


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_one_iteration_is_one_rollout_shared_by_all_updates(training: Iterations) -> None:
    """Fault 7: a model of goals trained on a second play-through."""
    for number, (state, trajectory) in enumerate(zip(training.states[1:], training.trajectories, strict=True), start=1):
        assert int(state.rollout_state.clock) == number * training.algorithm.num_steps
        assert int(state.steps) == sum(int(earlier.alive.any(-1).sum()) for earlier in training.trajectories[:number])
        by_agent, features = jax.tree.map(np.asarray, agent_trajectories(trajectory, training.phase.game))
        np.testing.assert_array_equal(by_agent.action.reshape(4, 4, 8), np.moveaxis(trajectory.actions, 0, 2))
        expected = np.moveaxis(features, 0, 2)
        np.testing.assert_array_equal(by_agent.features.reshape(expected.shape), expected)
        np.testing.assert_array_equal(by_agent.alive.reshape(4, 4, 8), np.moveaxis(trajectory.alive, 0, 2))


def test_agent_trajectories_mask_steps_whose_goal_is_not_yet_known(training: Iterations) -> None:
    trajectory = training.trajectories[-1]
    by_agent, _ = agent_trajectories(trajectory, training.phase.game, prey=True)
    took, over, alive = trajectory.took, trajectory.over, trajectory.alive
    goal = np.asarray(by_agent.goal).reshape(4, 4, 8)
    known = np.asarray(by_agent.alive).reshape(4, 4, 8)
    for environment in range(4):
        for seat in range(4):
            for time in range(8):
                later = [
                    (took[step, environment, seat], over[step, environment], trajectory.left[step, environment, seat])
                    for step in range(time, 8)
                ]
                expected_goal, ended = 0, False
                for prey, is_over, left in later:
                    expected_goal = expected_goal or int(prey)
                    if is_over or left:
                        ended = True
                        break
                assert known[environment, seat, time] == (alive[time, environment, seat] and ended)
                if known[environment, seat, time]:
                    assert goal[environment, seat, time] == expected_goal


def test_beliefs_about_co_players_are_stored_at_every_step(training: Iterations) -> None:
    """Fault 8: inferred goals stored at the last step only."""
    decision, _ = training.phase.seats.infos(training.trajectories[-1])
    tracker = acting.make_belief_tracker(training.algorithm, training.phase.game)
    social = jax.jit(jax.vmap(jax.vmap(jax.vmap(lambda beliefs: social_features(tracker, beliefs)))))(
        decision.co_player_beliefs
    )
    # Sums over hypotheses may be in another order in another program: a last bit may differ.
    np.testing.assert_allclose(decision.features[1], social, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(decision.belief.sum(-1), 1, rtol=1e-4)
    moves = np.abs(np.diff(np.asarray(decision.belief), axis=0)).max((1, 2, 3, 4))
    assert (moves > 0).all()


def test_value_targets_are_advantages_plus_values_of_the_same_rollout(training: Iterations) -> None:
    """Fault 12: advantages from fresh values but returns from the old ones."""
    for transitions, trajectory in zip(training.transitions, training.trajectories, strict=True):
        np.testing.assert_allclose(
            (transitions.target - transitions.advantage - transitions.value)[transitions.is_valid], 0, atol=1e-5
        )
        assert not transitions.advantage[~trajectory.alive].any()


def test_recall_is_reported_for_every_action_and_seat(training: Iterations) -> None:
    """Fault 11: rare actions lost in an average."""
    trajectory, metrics = training.trajectories[-1], training.metrics[-1]
    decision, _ = training.phase.seats.infos(trajectory)
    alive, actions = np.asarray(trajectory.alive), np.asarray(trajectory.actions)
    predicted = np.asarray(decision.action_probs).argmax(-1)
    for seat in range(4):
        co_players = (seat + 1 + np.arange(3)) % 4
        counts = alive[..., [seat]] & alive[..., co_players]
        for number, name in enumerate(training.phase.game.action_names):
            took_action = counts & (actions[..., co_players] == number)
            recall = metrics[f"moa_recall_{name}"]
            assert (recall.total[seat], recall.count[seat]) == (
                (took_action & (predicted[:, :, seat] == number)).sum(),
                took_action.sum(),
            )
        assert metrics["moa_top1"].count[seat] == counts.sum()


# -------------------------------------------------------------------------------------------------- transitions by seat


@pytest.mark.parametrize(
    ("settings", "cast", "expected"),
    [
        ({}, "self-play", [[1, 1, 1, 1]]),
        ({}, "learner,ns,nh,ns", [[0, 1, 1, 1]]),
        ({"parameters": "independent"}, "self-play", [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]),
        ({"moa_networks": "each"}, "ns,learner,nh,ns", [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]),
    ],
)
def test_opponent_models_are_trained_on_the_co_players_of_their_seats(
    settings: dict[str, Any], cast: str, expected: list[list[int]]
) -> None:
    """Fault 6: the model updated for seat 1 only."""
    algorithm = hopplus(**{**SMALL, **settings})
    phase = prepare(TrainingConfig(game=GAME, cast=cast), algorithm).phases[0][1]
    assert co_player_mask(algorithm, phase).astype(int).tolist() == expected


def test_transitions_of_a_player_that_has_left_train_nothing(training: Iterations) -> None:
    """Fault 2: the model fitted on rows after a player left."""
    trajectory, phase, state = training.trajectories[0], training.phase, training.states[0]
    in_time = np.arange(len(trajectory.alive)) < 3
    gone = dataclasses.replace(trajectory, alive=trajectory.alive & in_time[:, None, None])
    other = dataclasses.replace(gone, actions=np.where(in_time[:, None, None], gone.actions, 0))
    learn = jax.jit(
        lambda trajectory: training.algorithm.update_moa(state, phase, trajectory, from_rollout(phase.game, trajectory))
    )
    assert not np.array_equal(gone.actions, other.actions)
    for name, leaf in names_and_leaves(learn(gone).params).items():
        np.testing.assert_array_equal(leaf, names_and_leaves(learn(other).params)[name])


# ---------------------------------------------------------------------------------------------------------- imagination


@pytest.mark.parametrize("goals", ["codes", "prey", "gaussian"])
def test_beliefs_in_imagination_are_those_of_real_play(goals: Any) -> None:
    """Fault 3: subgoals zero in imagined data but real when acting."""
    algorithm, game, steps = hopplus(**{**SMALL, "goals": goals}), make(GAME), 6
    player = algorithm.player(game, "test", learns=True)

    @jax.jit
    def both(key: jax.Array) -> tuple[ImaginedRollout, PlannerView]:
        """Imagined rollout, and the views of a player that observes the same steps [H]."""
        keys = jax.random.split(key, 5)
        seen = one_seat(game.observe(game.init(keys[0])), 0)
        policy = initial_params(algorithm.network(game), game, keys[1])
        params = {"policy": policy, "moa": acting.make_moa(algorithm).init_params(keys[2], game)}
        memory = player.begin(player.init(keys[3], params))
        imagined = imagine(player.simulation, keys[4], params, player.view(params, memory, seen).beliefs, seen, steps)

        def step(memory: Any, seen: Any) -> tuple[Any, PlannerView]:
            # No action precedes the first step: watching then would be a step too many.
            watched = player.watch(params, memory, seen)
            memory = jax.tree.map(lambda new, old: jnp.where(seen.time == 0, old, new), watched, memory)
            view = player.view(params, memory, seen)
            return view.memory, view

        return imagined, jax.lax.scan(step, memory, imagined.observation)[1]

    imagined, views = jax.tree.map(np.asarray, both(jax.random.key(3)))
    alive = imagined.alive
    assert alive.sum() > 2
    assert np.abs(np.diff(imagined.beliefs.belief, axis=0)).max() > 1e-4
    np.testing.assert_allclose(views.beliefs.belief[alive], imagined.beliefs.belief[alive], atol=1e-5)
    np.testing.assert_allclose(
        views.beliefs.action_probs_by_goal[alive], imagined.beliefs.action_probs_by_goal[alive], atol=1e-5
    )
    np.testing.assert_allclose(views.value[alive], imagined.value[alive], atol=1e-4)


def test_imagined_transitions_train_the_value_only_if_configured(training: Iterations) -> None:
    mixed, rows = training.batches[-1], 4 * 8 * 4
    imagined = mixed.is_valid.shape[1] - rows
    assert imagined == 3 * round(rows / 3)
    assert not mixed.trains_value[0, rows:].any()
    assert mixed.policy_acted[0, rows:].all()
    configured = replace_settings(training.algorithm, {"imagined_values": True})
    valued = jax.jit(lambda shapes: targets.imagined_transitions(configured, training.phase, *shapes).trains_value)
    assert np.asarray(valued(training.shapes["imagined"])).all()


def test_rare_goals_have_the_same_total_weight_as_common_goals(training: Iterations) -> None:
    by_agent = jax.tree.map(np.asarray, agent_trajectories(training.trajectories[0], training.phase.game, prey=True)[0])
    alive, goal = np.zeros_like(by_agent.alive), np.zeros_like(by_agent.goal)
    alive[:, 0] = True
    goal[3] = 1
    value = np.where(goal == 1, 5.0, 1.0).astype(np.float32)
    by_agent = dataclasses.replace(by_agent, alive=alive, goal=goal, value=value)
    weights, goal_returns = jax.jit(
        lambda by_agent: (
            online.inverse_frequency_weights(by_agent, 3),
            online.update_goal_returns(jnp.zeros(3), by_agent),
        )
    )(by_agent)
    assert weights[3] == pytest.approx(np.delete(weights, 3).sum(), rel=0.02)
    np.testing.assert_allclose(goal_returns, [1.0, 5.0, 0.0])

"""Labelled goals: labels in hindsight, registration, and training on them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from common import kept_registries
from hopplus.algorithms import make_algorithm
from hopplus.beliefs.goal_space import (
    CellGoals,
    LabelledGoals,
    OpponentModel,
    PlayedSteps,
    PreyGoals,
    goal_space_names,
    labelled_goals,
    next_label,
    register_goal_space,
)
from hopplus.core.errors import InputError
from hopplus.games import Game, make
from hopplus.models import MOA
from hopplus.models.agent_trajectories import AgentTrajectories, from_rollout, random_symmetry

GAME = make("msh-4x4-2h1s")


class Parity(LabelledGoals):
    """Parity of the cell in which a player ends the episode."""

    def is_symmetric(self, game: Game[Any]) -> bool:
        return False

    def names(self, game: Game[Any]) -> tuple[str, ...]:
        return ("even", "odd")

    def labels(self, game: Game[Any], steps: PlayedSteps) -> Array:
        is_last = steps.alive & (steps.left | steps.over[..., None])
        return next_label(steps.state.cells % 2, is_last, steps.over)


def test_labels_are_those_of_the_next_event_in_the_episode() -> None:
    rng = np.random.default_rng(0)
    label: Any = rng.integers(1, 9, (12, 3, 2))
    is_event: Any = rng.random((12, 3, 2)) < 0.3
    over: Any = rng.random((12, 3)) < 0.2
    result = np.asarray(next_label(label, is_event, over))
    for time, environment, seat in np.ndindex(*label.shape):
        expected, now = 0, time
        while now < 12:
            if is_event[now, environment, seat]:
                expected = label[now, environment, seat]
                break
            if over[now, environment]:
                break
            now += 1
        assert result[time, environment, seat] == expected


def test_unknown_and_repeated_names_are_rejected() -> None:
    with pytest.raises(InputError, match=r"there is no goal space 'pray' \(did you mean 'prey'\?\)"):
        make_algorithm("hopplus", {"goals": "pray"}).check([GAME])
    with pytest.raises(InputError, match="there is no goal space 'parity'"):
        make_algorithm("hopplus", {"goals": "parity"}).player(GAME, "x")
    with pytest.raises(InputError, match="there is no goal space 'pray'"):
        MOA(goals="pray").check(GAME)
    with pytest.raises(InputError, match="goals none"):
        MOA(goals="zero").check(GAME)
    for name in goal_space_names():
        with pytest.raises(InputError, match="already known"):
            register_goal_space(name, Parity())


def test_a_registered_goal_space_serves_models_and_beliefs() -> None:
    with kept_registries():
        register_goal_space("parity", Parity())
        algorithm: Any = make_algorithm("hopplus", {"goals": "parity"})
        algorithm.check([GAME])
        tracker = algorithm.player(GAME, "x").tracker
        assert tracker.opponent_model.goal_names == ("even", "odd")
        assert tracker.opponent_model.num_goals == 2
        assert tracker.goal_switch_probability == 0.02
        assert algorithm.has_memory
        observation = jax.tree.map(lambda leaf: leaf[0], GAME.observe(GAME.init(jax.random.key(0))))
        assert tracker.opponent_model.available(observation).tolist() == [True, True]
        assert MOA(goals="parity").goal_names(GAME) == ("even", "odd")
    assert "parity" not in goal_space_names()


def test_only_items_and_registered_goals_have_labels() -> None:
    assert isinstance(labelled_goals("prey"), PreyGoals)
    assert isinstance(labelled_goals("cells"), CellGoals)
    assert [labelled_goals(name) for name in ("none", "zero", "gaussian", "codes")] == [None] * 4
    assert OpponentModel(GAME, "codes", MOA().network(GAME), 4).labelled is None


def rollout_of(steps: int = 6) -> Any:
    """Rollout of one environment: the episode ends after four steps, and the next one is unfinished."""
    states = jax.vmap(GAME.init)(jax.random.split(jax.random.key(0), steps))
    states = jax.tree.map(lambda leaf: leaf[:, None], states)
    zeros, false = jnp.zeros((steps, 1, 2), jnp.int32), jnp.zeros((steps, 1, 2), bool)
    over = jnp.arange(steps)[:, None] == 3
    fields = {"state": states, "actions": zeros, "alive": ~false, "left": false, "over": over, "took": zeros}
    return type("Steps", (), {**fields, "cell": zeros - 1, "reward": zeros.astype(jnp.float32)})


def test_rollouts_are_labelled_where_their_episode_ends() -> None:
    trajectory = rollout_of()
    agents = from_rollout(GAME, trajectory, goals=Parity())
    final = np.asarray(trajectory.state.cells)[3, 0] % 2
    np.testing.assert_array_equal(np.asarray(agents.goal)[:, :4], np.repeat(final[:, None], 4, 1))
    np.testing.assert_array_equal(agents.alive, [[True] * 4 + [False] * 2] * 2)
    assert agents.available.shape == (2, 6, 2)
    unlabelled = from_rollout(GAME, trajectory)
    assert unlabelled.alive.all()
    assert unlabelled.available.shape == (2, 6, 0)


def test_goals_that_a_rotation_changes_are_not_augmented() -> None:
    agents = from_rollout(GAME, rollout_of(), goals=Parity())
    changed = random_symmetry(jax.random.key(1), agents, GAME)
    assert (changed.features != agents.features).any()

    def augmented(goals: str) -> AgentTrajectories:
        (result,) = MOA(goals=goals).augment(jax.random.key(1), (agents,), GAME)
        return result

    with kept_registries():
        register_goal_space("parity", Parity())
        assert augmented("parity") is agents
        assert augmented("prey") is not agents
    snowdrift: Any = make("msg-4x4")
    assert MOA(goals="cells").augment(jax.random.key(1), (agents,), snowdrift)[0] is agents

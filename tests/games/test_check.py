"""`check_game` accepts the games of the library, and rejects games that violate a property."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import pytest

from hopplus import games
from hopplus.games import GridObservation, NamedPreference, StagHunt

SMALL: dict[str, Any] = {"players": 2, "hares": 2, "T": 12}
# Two players; blocks and boards of two words; the other game. The remaining settings differ from these only in sizes,
# and `test_reference.py` compares their transitions with the reference.
VARIED = ("msh-4x4-2h1s", "msh-8x8-4h2s", "msg-8x8")


@pytest.mark.parametrize(
    "name", [name if name in VARIED else pytest.param(name, marks=pytest.mark.slow) for name in games.names()]
)
def test_the_games_of_the_library_pass(name: str) -> None:
    games.check_game(games.make(name))


@dataclass(frozen=True)
class FavouredFirstSeat(StagHunt):
    def transition(self, key: Any, state: Any, actions: Any) -> Any:
        after, components, took, cell = super().transition(key, state, actions)
        return after, components * jnp.where(jnp.arange(self.players) == 0, 1.0, 0.5)[:, None], took, cell


@dataclass(frozen=True)
class ForgottenRotation(StagHunt):
    """The grid is rotated to the ego, the last actions are not."""

    def observe(self, state: Any) -> GridObservation:
        return replace(
            super().observe(state), last_actions=jnp.broadcast_to(state.last_actions, (self.players, self.players))
        )


@dataclass(frozen=True)
class GhostsMayWalk(StagHunt):
    def legal(self, state: Any) -> Any:
        return super().legal(state) | (jnp.arange(7) == 0)


@dataclass(frozen=True)
class NeverOver(StagHunt):
    def over(self, state: Any) -> Any:
        return jnp.bool_(False)


@dataclass(frozen=True)
class TooGenerous(StagHunt):
    def transition(self, key: Any, state: Any, actions: Any) -> Any:
        after, components, took, cell = super().transition(key, state, actions)
        return after, 20 * components, took, cell


@dataclass(frozen=True)
class UnexplainedReward(StagHunt):
    """A bonus that belongs to no component of the reward."""

    def step(self, key: Any, state: Any, actions: Any) -> Any:
        after, outcome = super().step(key, state, actions)
        return after, replace(outcome, reward=outcome.reward + 0.1 * (outcome.took > 0))


@dataclass(frozen=True)
class OneComponent(StagHunt):
    """Rewards [n] instead of rewards by component [n, C]."""

    def transition(self, key: Any, state: Any, actions: Any) -> Any:
        after, components, took, cell = super().transition(key, state, actions)
        return after, components.sum(-1), took, cell


@dataclass(frozen=True)
class NeverNeutral(StagHunt):
    @property
    def preferences(self) -> tuple[NamedPreference, ...]:
        return super().preferences[1:]


@dataclass(frozen=True)
class HiddenClock(StagHunt):
    """Observes half the time, so that a planner cannot know the remaining steps."""

    def observe(self, state: Any) -> GridObservation:
        observation = super().observe(state)
        return replace(observation, time=observation.time // 2)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (FavouredFirstSeat, "permuted outcome"),
        (ForgottenRotation, "permuted observations|the same observation"),
        (GhostsMayWalk, "may only idle"),
        (NeverOver, "over by the last step"),
        (TooGenerous, "exceeds the ceiling"),
        (UnexplainedReward, "sums of their components"),
        (OneComponent, "rewards by component have the shape"),
        (NeverNeutral, "first preference is neutral"),
        (HiddenClock, "the same observation"),
    ],
)
def test_the_violated_property_is_named(broken: type[StagHunt], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        games.check_game(broken(**SMALL))

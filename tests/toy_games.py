"""Games with known answers, and a scripted player, for tests of learning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, below
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, VectorObservation, ego_first
from hopplus.players import Player

DILEMMA, BANDIT, PATIENCE = range(3)
"""Games of `Medley`."""


State = TypeVar("State")


@dataclass(frozen=True)
class ToyGame(Game[State]):
    """A game of two players without items to take, in which all actions are legal and nobody leaves, unless overridden.

    The state has a `time` and `last_actions`.
    """

    version: ClassVar[str] = "1"
    idle_action: ClassVar[int] = 0
    taken_names: ClassVar[tuple[str, ...]] = ("nothing",)  # pyright: ignore[reportIncompatibleMethodOverride]
    num_players: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleMethodOverride]

    def left(self, state: State) -> Bool[Array, " n"]:
        return jnp.zeros(2, bool)

    def over(self, state: Any) -> Bool[Array, ""]:
        return state.time >= self.last_step

    def legal(self, state: State) -> Bool[Array, "n A"]:
        return jnp.ones((2, self.num_actions), bool)

    def observed(self, state: Any, vector: Array) -> Observation:
        """Returns the observation of a state with these vectors [n, F]."""
        return VectorObservation(
            vector=vector,
            time=jnp.broadcast_to(state.time, 2),
            deadline=jnp.full(2, self.last_step),
            legal=ego_first(self.legal(state)),
            last_actions=ego_first(state.last_actions),
        )


@struct
class GuessState:
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Guess(ToyGame[GuessState]):
    """Both players earn 1 for equal actions. An action is observed one step later: after the episode, if it has one
    step."""

    name: str = "test-guess"
    steps: int = 1
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE", "TWO", "THREE")

    @property
    def last_step(self) -> int:
        return self.steps

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": float(self.steps), "player": float(self.steps)}

    def draw(self, key: Key) -> tuple[GuessState, Bool[Array, ""]]:
        return GuessState(jnp.int32(0), jnp.zeros(2, jnp.int32)), jnp.bool_(True)

    def transition(
        self, key: Key, state: GuessState, actions: Int[Array, " n"]
    ) -> tuple[GuessState, Float[Array, "n 1"], Int[Array, " n"], Int[Array, " n"]]:
        reward = jnp.broadcast_to(actions[0] == actions[1], 2).astype(jnp.float32)
        return GuessState(state.time + 1, actions), reward[:, None], jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)

    def observe(self, state: GuessState) -> Observation:
        return self.observed(state, jnp.zeros((2, 1), jnp.int8))

    def restore(self, observation: Observation) -> GuessState:
        return GuessState(observation.time, observation.last_actions)

    def permute(self, state: GuessState, order: Sequence[int] | Int[Array, " n"]) -> GuessState:
        return GuessState(state.time, state.last_actions[jnp.asarray(order)])


@dataclass(frozen=True)
class FixedAction(Player):
    """Player with one action, drawn at the start of a trial; its info is the action and the number of the episode."""

    name: str = "kind"

    def init(self, key: Key, params: Any) -> tuple[Array, Array]:
        return jax.random.randint(key, (), 0, 4), jnp.int32(0)

    def act(self, key: Key, params: Any, memory: Any, observation: Observation) -> Any:
        return memory[0], memory, memory

    def end(self, memory: Any) -> Any:
        return memory[0], memory[1] + 1


@struct
class MedleyState:
    kind: Int[Array, ""]
    arms: Int[Array, " n"]
    """Paying arm of each player in the bandit."""
    gone: Bool[Array, " n"]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Medley(ToyGame[MedleyState]):
    """One of three games of two players and two steps, drawn per episode and observed: three known answers in one
    compiled program.

    Dilemma: action 1 defects, which is better whatever the other does: 0.5 a step each in equilibrium, 2.5 a step
    against a player who always idles. Bandit: of four arms each player sees the one that pays it 1 a step (and the one
    that pays the other). Patience: action 1 takes 1 in the first step or 1.5 in the second, and its player leaves;
    waiting is better if gamma is above 2/3.
    """

    name: str = "test-medley"
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE", "TWO", "THREE")
    last_step: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 3.0, "player": 5.0}

    def draw(self, key: Key) -> tuple[MedleyState, Bool[Array, ""]]:
        kind, *arms = below(jax.random.bits(key, (3,)), jnp.array([3, 4, 4]))
        arms = jnp.where(kind == BANDIT, jnp.stack(arms), 0)
        nothing = jnp.zeros(2, jnp.int32)
        return MedleyState(kind, arms, nothing > 0, jnp.int32(0), nothing), jnp.bool_(True)

    def transition(
        self, key: Key, state: MedleyState, actions: Int[Array, " n"]
    ) -> tuple[MedleyState, Float[Array, "n 1"], Int[Array, " n"], Int[Array, " n"]]:
        defects = (actions == 1).astype(jnp.float32)
        dilemma = 1.5 + defects - (1.5 + defects * 0.5) * defects[::-1]
        bandit = (actions == state.arms).astype(jnp.float32)
        patience = defects * jnp.where(state.time == 0, 1.0, 1.5)
        reward = jnp.where(state.gone, 0.0, jnp.stack([dilemma, bandit, patience])[state.kind])
        after = MedleyState(
            kind=state.kind,
            arms=state.arms,
            gone=state.gone | ((state.kind == PATIENCE) & (actions == 1)),
            time=state.time + 1,
            last_actions=jnp.where(state.gone, state.last_actions, actions),
        )
        return after, reward[:, None], jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)

    def left(self, state: MedleyState) -> Bool[Array, " n"]:
        return state.gone

    def over(self, state: MedleyState) -> Bool[Array, ""]:
        return super().over(state) | state.gone.all()

    def legal(self, state: MedleyState) -> Bool[Array, "n A"]:
        number = jnp.where(state.gone, 1, jnp.where(state.kind == BANDIT, 4, 2))
        return jnp.arange(4) < number[:, None]

    def observe(self, state: MedleyState) -> Observation:
        arms = ego_first(state.arms[:, None] == jnp.arange(4))
        kind = jnp.broadcast_to(state.kind == jnp.arange(4), (2, 1, 4))
        return self.observed(state, jnp.concatenate([arms, kind], 1).reshape(2, -1).astype(jnp.int8))

    def restore(self, observation: Observation) -> MedleyState:
        arm, other, kind = observation.view.reshape(3, 4).argmax(-1)
        gone = ~observation.legal[:, 1]
        return MedleyState(kind, jnp.stack([arm, other]), gone, observation.time, observation.last_actions)

    def permute(self, state: MedleyState, order: Sequence[int] | Int[Array, " n"]) -> MedleyState:
        order = jnp.asarray(order)
        return MedleyState(state.kind, state.arms[order], state.gone[order], state.time, state.last_actions[order])

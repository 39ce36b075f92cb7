"""Learning where the answers are known, and who sits where: learners, scripted players, frozen ones, pools, guests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from hopplus import games, play, players
from hopplus.errors import InputError
from hopplus.games import Game, Observation, ego_first
from hopplus.keys import Key, below
from hopplus.players import Cast, NetworkPlayer, Pool, PoolParams
from hopplus.players.pool import draw_member
from hopplus.struct import struct
from hopplus.training.policies import Policy
from hopplus.training.recipe import initial_params
from hopplus.training.recipes import PPO
from hopplus.training.seats import LEARNER, Hosted, make_seats
from hopplus.training.trainer import Programs, Setup, Training, lines_of, prepare

DILEMMA, BANDIT, PATIENCE = range(3)
GUEST_STEPS = 1_000_000_000


@struct
class MedleyState:
    kind: Int[Array, ""]
    arms: Int[Array, " n"]
    """Which arm pays whom, in the bandit."""
    gone: Bool[Array, " n"]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Medley(Game[MedleyState]):
    """One of three games of two players and two steps, drawn for every episode and shown to both: one compiled program
    for three known answers.

    Dilemma: action 1 defects, which is better whatever the other does: 0.5 a step each in equilibrium, 2.5 a step
    against a player who always idles. Bandit: of four arms each player sees the one that pays it 1 a step (and the one
    that pays the other). Patience: action 1 takes 1 in the first step or 1.5 in the second, and whoever takes leaves;
    to wait is right where a step costs less than a third.
    """

    name: str = "test-medley"
    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE", "TWO", "THREE")
    idle_action: ClassVar[int] = 0
    channel_names: ClassVar[tuple[str, ...]] = ("own arm", "other's arm", "kind")
    taken_names: ClassVar[tuple[str, ...]] = ("nothing",)
    num_players: ClassVar[int] = 2
    last_step: ClassVar[int] = 2
    ceilings: ClassVar[Mapping[str, float]] = {"mean": 3.0, "player": 5.0}

    def draw(self, key: Key) -> tuple[MedleyState, Bool[Array, ""]]:
        kind, *arms = below(jax.random.bits(key, (3,)), jnp.array([3, 4, 4]))
        return MedleyState(kind, jnp.stack(arms), jnp.zeros(2, bool), jnp.int32(0), jnp.zeros(2, jnp.int32)), jnp.array(
            True
        )

    def transition(
        self, key: Key, state: MedleyState, actions: Int[Array, " n"]
    ) -> tuple[MedleyState, Float[Array, " n"], Int[Array, " n"], Int[Array, " n"]]:
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
        return after, reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)

    def left(self, state: MedleyState) -> Bool[Array, " n"]:
        return state.gone

    def over(self, state: MedleyState) -> Bool[Array, ""]:
        return (state.time >= 2) | state.gone.all()

    def legal(self, state: MedleyState) -> Bool[Array, "n A"]:
        number = jnp.where(state.gone, 1, jnp.where(state.kind == BANDIT, 4, 2))
        return jnp.arange(4) < number[:, None]

    def observe(self, state: MedleyState) -> Observation:
        arms = ego_first(state.arms[:, None] == jnp.arange(4))
        kind = jnp.broadcast_to(state.kind == jnp.arange(4), (2, 1, 4))
        return Observation(
            grid=jnp.moveaxis(jnp.concatenate([arms, kind], 1), 1, 2)[:, None].astype(jnp.int8),
            time=jnp.broadcast_to(state.time, 2),
            deadline=jnp.full(2, 2),
            legal=ego_first(self.legal(state)),
            last_actions=ego_first(state.last_actions),
        )

    def restore(self, observation: Observation) -> MedleyState:
        own, other, kind = observation.grid[0].argmax(0)
        gone = ~observation.legal[:, 1]
        return MedleyState(kind, jnp.stack([own, other]), gone, observation.time, observation.last_actions)

    def permute(self, state: MedleyState, order: Sequence[int] | Int[Array, " n"]) -> MedleyState:
        order = jnp.asarray(order)
        return MedleyState(state.kind, state.arms[order], state.gone[order], state.time, state.last_actions[order])


if "test-medley" not in games.names():
    games.register("test-medley", Medley)
MEDLEY = games.make("test-medley")
RECIPE = PPO(environments=64, rollout_steps=8, hidden=(32,), minibatch=256, learning_rate=4e-3, anneal=False)
TINY_HUNT = "msh-4x4-2h1s:height=2:width=2:hares=0:T=6"


@dataclass(frozen=True, eq=False)
class Trained:
    """A training in memory."""

    setup: Setup
    first: Any
    states: Any
    lines: list[dict[str, Any]]

    def returns(self, episodes: int = 600) -> tuple[Float[np.ndarray, "episodes n"], Int[np.ndarray, " episodes"]]:
        """Greedy returns, and the kinds of the episodes if they have some."""
        judged, learnt = self.setup.judged, jax.tree.map(lambda leaf: leaf[0], self.setup.recipe.learnt(self.states))
        params = judged.params(learnt, self.setup.frozen_params())
        _, episode = play.play_episodes(jax.random.key(1), self.setup.game, judged.cast, episodes, params)
        return np.asarray(episode.returns), np.asarray(getattr(episode.state, "kind", episode.state.time)[0])

    def by_kind(self) -> Float[np.ndarray, "kinds n"]:
        returns, kinds = self.returns()
        return np.stack([returns[kinds == kind].mean(0) for kind in range(3)])


def train(training: Training, recipe: PPO, start_steps: int = 0, kept: Mapping[str, Policy] | None = None) -> Trained:
    """Train one seed for its steps, in a training that is already at step `start_steps`."""
    setup = prepare(training, recipe, kept)
    programs = Programs(setup)
    first = programs.first_states()
    states, lines = replace(first, steps=first.steps + start_steps), []
    while int(states.steps[0]) - start_steps < training.steps:
        states, metrics, _ = programs.chunk(states, start_steps)
        lines += lines_of(setup, states, metrics, np.ones(1, bool), len(lines) + 1)
    return Trained(setup, first, states, lines)



# ---------------------------------------------------------------------------------------------------- known answers


@pytest.fixture(scope="module")
def hosted() -> tuple[Setup, Programs]:
    """Self-play with independent parameters, in which a guest sits in both seats at step 0 and nowhere at the end."""
    training = Training(
        game="test-medley", steps=200 * 512, chunk=20, guest="stay", guest_share=1.0, guest_steps=GUEST_STEPS
    )
    setup = prepare(training, replace(RECIPE, parameters="independent"))
    return setup, Programs(setup)


def check_medley(found: Float[np.ndarray, "kinds seats"], dilemma: float, patience: float) -> None:
    np.testing.assert_allclose(found[DILEMMA], dilemma, rtol=0.03, err_msg="dilemma")
    np.testing.assert_allclose(found[BANDIT], 2.0, rtol=0.03, err_msg="bandit")
    np.testing.assert_allclose(found[PATIENCE], patience, rtol=0.03, err_msg="patience")


def test_shared_parameters_learn_the_known_answers() -> None:
    learnt = train(Training(game="test-medley", steps=200 * 512, chunk=20), RECIPE)
    check_medley(learnt.by_kind(), dilemma=1.0, patience=1.5)


def test_independent_parameters_learn_the_known_answers(hosted: tuple[Setup, Programs]) -> None:
    learnt = train(*hosted, start_steps=GUEST_STEPS)
    check_medley(learnt.by_kind(), dilemma=1.0, patience=1.5)
    trained_on = np.array([line["trained_on"] for line in learnt.lines])
    assert (trained_on[:, [0, 1], [0, 1]] > 0).all()
    assert (trained_on[:, [0, 1], [1, 0]] == 0).all(), "a set has learnt from the other seat's rows"

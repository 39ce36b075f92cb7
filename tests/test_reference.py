"""The fast games equal the plain reference on more than a million transitions.

Batches of whole episodes are played by the fast game, a few steps beyond their end. The reference reads each first
state from what seat 0 sees, gets the same actions, and must arrive at the same masks, outcomes and observations of all
seats after every step.
"""

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games
from tests import reference

BATCH = 256
"""Environments played at once."""
STEPS_BEYOND = 2
"""Steps that are played after the last one of an episode."""
NOISE = 0.08
"""How often a seat that goes for something does anything legal instead."""

# The plans of a seat. A seat that goes for something walks to the nearest thing of a kind and works on it: at once
# (eager), every sixth step (so that those who wait there do it together), or in the last step only.
PRESS_FIRST, PRESS_LAST, ANYTHING, LEGAL = range(4)
EAGER, PUNCTUAL, LATE = range(3)
PLANS = 10


def going_for(kind: int, when: int) -> int:
    """The plan of a seat that goes for the first (0) or the last (1) kind of things."""
    return 4 + 3 * kind + when


@dataclass(frozen=True)
class Case:
    """A setting with some options, how many batches of it to compare, and events that must be among them."""

    name: str
    batches: int
    options: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps of each environment."""
        return reference.make(self.name, **self.options).T + STEPS_BEYOND

    @property
    def transitions(self) -> int:
        return self.batches * BATCH * self.steps

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])


HUNTS = ("joint hare", "stag caught by 2", "left at step T", "arrived at a catch", "nothing for a lone STAG")
PARTIES = ("stag caught by 3", "stag caught by 4")
DRIFTS = ("drift removed by 1", "drift removed by 2", "drift removed by 3", "two drifts in one step", "last drift")

CASES = [
    Case("msh-4x4-4h1s", 8, events=(*HUNTS, *PARTIES)),
    Case("msh-4x4-2h1s", 8, events=HUNTS),
    Case("msh-6x6-4h1s", 9, events=(*HUNTS, *PARTIES)),
    Case("msh-8x8-4h1s", 9, events=(*HUNTS, *PARTIES)),
    Case("msh-8x8-4h2s", 9, events=(*HUNTS, *PARTIES, "two stags in one step")),
    Case("msg-4x4", 8, events=DRIFTS),
    Case("msg-6x6", 8, events=DRIFTS),
    Case("msg-8x8", 6, events=DRIFTS),
    Case("msh-6x6-4h1s", 5, {"stag_needs_company": False}, (*HUNTS, *PARTIES, "lone STAG without company")),
    Case("msh-8x8-4h2s", 5, {"dynamic_end": True}, ("joint hare", "deadline brought forward", "ended by deadline")),
    Case("msh-4x4-4h1s", 4, {"prosocial": (0, 2)}, (*HUNTS, *PARTIES, "mean for a seat without a catch")),
    Case("msh-4x4-4h1s", 5, {"strengths": (1, 2, 0, 3)}, (*HUNTS, *PARTIES, "catch worth nothing")),
    Case("msh-4x4-4h1s", 4, {"strengths": (0, 0, 0, 0)}, (*HUNTS, *PARTIES)),
    Case(
        "msh-8x8-4h2s",
        4,
        {"prosocial": (1,), "strengths": (2, 0, 5, 1), "dynamic_end": True, "stag_needs_company": False, "T": 20},
        ("joint hare", "deadline brought forward", "catch worth nothing", "mean for a seat without a catch"),
    ),
    Case("msh-6x6-4h1s", 4, {"players": 2, "stags": 2, "hares": 1}, HUNTS),
    Case(
        "msh-8x8-4h2s",
        4,
        {"height": 5, "width": 9, "players": 8, "stags": 3, "hares": 6, "blocks": 2},
        (*HUNTS, *PARTIES, "stag caught by 5", "two stags in one step"),
    ),
    Case("msh-4x4-4h1s", 8, {"T": 1}, ("joint hare", "stag caught by 2", "left at step T")),
    Case("msh-4x4-4h1s", 16, {"T": 3}, ("joint hare", "stag caught by 2", "stag caught by 3", "left at step T")),
    Case("msh-4x4-4h1s", 16, {"T": 4, "dynamic_end": True}, ("joint hare", "stag caught by 2", "left at step T")),
    Case("msh-6x6-4h1s", 4, {"hare_reward": 2.5, "stag_reward": 7.3}, (*HUNTS, *PARTIES)),
    Case("msh-8x8-4h1s", 4, {"hares": 0, "height": 6, "width": 11}, ("stag caught by 2", "left at step T", *PARTIES)),
    Case("msh-4x4-4h1s", 4, {"stags": 0, "hares": 3, "height": 2, "width": 7}, ("joint hare", "left at step T")),
    Case("msg-4x4", 6, {"players": 2, "drifts": 9, "T": 30, "benefit": 1.5, "cost": 5.0}, ("drift removed by 2",)),
    Case("msg-6x6", 5, {"players": 8, "blocks": 3, "width": 9, "height": 5, "benefit": 2.5, "cost": 1.3}, DRIFTS),
    Case("msg-4x4", 12, {"drifts": 1, "T": 3}, ("drift removed by 1", "drift removed by 2", "last drift")),
]


# ------------------------------------------------------------------------------------------------- the fast game


class Episodes(NamedTuple):
    """What the fast game did in episodes [E] of steps [S]; observations and masks are of states [S + 1]."""

    observations: Any
    legal: Any
    actions: Any
    outcomes: Any


def seat_plans(environments: int, players: int, seed: int) -> np.ndarray:
    """Plans [environments, players]: a quarter has one plan for all seats, in a quarter every other seat goes for the
    first kind of things and the rest for the last, and elsewhere every seat has any plan."""
    generator = np.random.default_rng(seed)
    plans = generator.integers(PLANS, size=(environments, players))
    plans[::4] = (np.arange(len(plans[::4])) % PLANS)[:, None]
    when = generator.integers(3, size=plans[1::4].shape)
    plans[1::4] = going_for((np.arange(players) % 2)[None], when)  # pyright: ignore[reportArgumentType]
    return plans


def nearer_moves(board: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether each of the moves UP, DOWN, LEFT, RIGHT leads from the one true cell of a board [H, W] nearer to the
    nearest target (Manhattan), and whether that cell is a target."""
    height, width = board.shape
    rows, columns = np.divmod(np.arange(height * width), width)
    distance = np.abs(rows[:, None] - rows) + np.abs(columns[:, None] - columns)
    nearest = jnp.where(targets.reshape(-1), distance, 99).min(-1).reshape(board.shape)
    padded = jnp.pad(nearest, 1, constant_values=99)
    around = jnp.stack([padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]])
    here = (nearest * board).sum()
    return (around * board).sum((1, 2)) < here, (board * (nearest == 0)).any()


def any_of(key: jax.Array, mask: jax.Array) -> jax.Array:
    """The index of a true entry, uniformly."""
    return jnp.argmax(jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0))


def seat_action(game: Any, key: jax.Array, seen: Any, plan: jax.Array) -> jax.Array:
    """The action of one seat: what it sees and its plan decide."""
    keys = jax.random.split(key, 4)
    legal, board = seen.legal[0], seen.grid[..., 0]
    kinds = game.num_actions - 5
    things = seen.grid[..., -kinds:]
    goes, kind, when = plan >= 4, (plan - 4) // 3, (plan - 4) % 3
    index = jnp.where(kind == 0, 0, kinds - 1)
    nearer, arrived = nearer_moves(board, jnp.take(things, index, axis=-1))
    time = seen.time
    now = (when == EAGER) | ((when == PUNCTUAL) & (time % 6 == 5)) | (time == game.last_step - 1)
    good = nearer & legal[:4]
    at_random = any_of(keys[0], legal)
    walk = jnp.where(good.any(), any_of(keys[1], good), at_random)
    hunt = jnp.where(arrived, jnp.where(now, 5 + index, reference.STAY), walk)
    hunt = jnp.where(jax.random.bernoulli(keys[2], NOISE), at_random, hunt)
    anything = jax.random.randint(keys[3], (), -1, game.num_actions + 1)
    fixed = jnp.stack([jnp.int32(5), jnp.int32(game.num_actions - 1), anything, at_random])
    return jnp.where(goes, hunt, fixed[jnp.clip(plan, 0, 3)]).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames=("game", "steps"))
def play(game: Any, key: jax.Array, plans: jax.Array, steps: int) -> Episodes:
    """Episodes of the fast game, one an environment, without resets."""
    init_key, play_key = jax.random.split(key)
    states = games.init_batch(game, jax.random.split(init_key, plans.shape[0]))

    def step(state: Any, key: jax.Array, plan: jax.Array) -> tuple[Any, Any]:
        seen, legal = game.observe(state), game.legal(state)
        act = jax.vmap(lambda key, seen, plan: seat_action(game, key, seen, plan))
        actions = act(jax.random.split(key, game.num_players), seen, plan)
        after, outcome = game.step(key, state, actions)
        return after, (seen, legal, actions, outcome)

    def episode(state: Any, key: jax.Array, plan: jax.Array) -> Episodes:
        last, records = jax.lax.scan(lambda s, k: step(s, k, plan), state, jax.random.split(key, steps))
        seen, legal, actions, outcomes = records
        seen = jax.tree.map(lambda before, end: jnp.concatenate([before, end[None]]), seen, game.observe(last))
        return Episodes(seen, jnp.concatenate([legal, game.legal(last)[None]]), actions, outcomes)

    return jax.vmap(episode)(states, jax.random.split(play_key, plans.shape[0]), plans)


# ---------------------------------------------------------------------------------------------------- comparison

EXACT_OUTCOMES = ("left", "over", "took", "cell")


def assert_same(what: str, fast: np.ndarray, expected: np.ndarray) -> None:
    """Equal shapes and values; names the first place where they differ."""
    if not np.array_equal(fast, expected):
        assert fast.shape == expected.shape, f"{what} has the shape {fast.shape}, not {expected.shape}"
        place = tuple(np.argwhere(fast != expected)[0].tolist())
        raise AssertionError(f"{what} differs first at {place}: {fast[place]}, but the reference says {expected[place]}")


def compare_episode(slow: reference.Reference, fast: Episodes, where: str) -> Counter[str]:
    """Play one recorded episode again with the reference; counts its steps and events."""
    assert fast.observations.time[0, 0] == 0, f"{where}: the first state has time 0"
    state = slow.parse(fast.observations.grid[0, 0])
    states, outcomes, events = [state], [], Counter[str]()
    for actions in fast.actions.tolist():
        after, outcome = slow.step(state, actions)
        if not slow.over(state):
            count_events(slow, state, after, outcome, events)
        state = after
        states.append(state)
        outcomes.append(outcome)
        events["compared"] += 1
    expected = slow.observe(states)
    for name in reference.Observation._fields:
        assert_same(f"{where}: observed {name} [state, ...]", getattr(fast.observations, name), getattr(expected, name))
    assert_same(f"{where}: legal [state, seat, action]", fast.legal, expected.legal[:, 0])
    for name in EXACT_OUTCOMES:
        values = np.array([getattr(outcome, name) for outcome in outcomes])
        assert_same(f"{where}: {name} [step, ...]", getattr(fast.outcomes, name), values)
    rewards = np.array([outcome.reward for outcome in outcomes])
    np.testing.assert_allclose(fast.outcomes.reward, rewards, rtol=1e-6, atol=0, err_msg=f"{where}: reward [step, seat]")
    assert not fast.outcomes.truncated.any(), f"{where}: our games are never cut off"
    return events


def count_events(
    slow: reference.Reference,
    state: reference.State,
    after: reference.State,
    outcome: reference.Outcome,
    events: Counter[str],
) -> None:
    """Count a step of a game that was not over, and whatever rare happened in it."""
    events["live"] += 1
    if isinstance(slow, reference.StagHunt):
        count_hunts(slow, state, after, outcome, events)
    else:
        count_removals(after, outcome, events)


def count_removals(after: reference.State, outcome: reference.Outcome, events: Counter[str]) -> None:
    """Events of the Markov Snowdrift Game."""
    removers = Counter(cell for cell in outcome.cell if cell >= 0)
    for number in removers.values():
        events[f"drift removed by {number}"] += 1
    events["two drifts in one step"] += len(removers) == 2
    events["last drift"] += not after.things[0]


def count_hunts(
    slow: reference.StagHunt,
    state: reference.State,
    after: reference.State,
    outcome: reference.Outcome,
    events: Counter[str],
) -> None:
    """Events of the Markov Stag Hunt."""
    pressed_stag = [
        cell
        for cell, action, took in zip(state.players, after.last_actions, outcome.took, strict=True)
        if cell is not None and action == reference.STAG and not took
    ]
    events["nothing for a lone STAG"] += len(pressed_stag)
    events["lone STAG without company"] += sum(state.players.count(cell) == 1 for cell in pressed_stag)
    if slow.dynamic_end and outcome.over and not all(outcome.left):
        events["ended by deadline"] += after.time < slow.T
    if not any(outcome.took):
        return
    parties = Counter(zip(outcome.took, outcome.cell, strict=True))
    del parties[0, -1]
    for (kind, _), number in parties.items():
        if kind == 1:
            events[f"stag caught by {number}"] += 1
        elif number >= 2:
            events["joint hare"] += 1
    events["two stags in one step"] += sum(kind == 1 for kind, _ in parties) == 2
    events["left at step T"] += after.time == slow.T
    events["deadline brought forward"] += slow.deadline(after) < slow.deadline(state)
    events["catch worth nothing"] += any(
        took and reward == 0 for took, reward in zip(outcome.took, outcome.reward, strict=True)
    )
    events["mean for a seat without a catch"] += any(
        reward > 0 and not took for took, reward in zip(outcome.took, outcome.reward, strict=True)
    )
    places = {divmod(cell, slow.width) for cell in outcome.cell if cell >= 0}
    events["arrived at a catch"] += any(
        now in places and before != now for before, now in zip(state.players, after.players, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fast_game_equals_the_reference(case: Case) -> None:
    game, slow = games.make(case.name, **case.options), reference.make(case.name, **case.options)
    events: Counter[str] = Counter()
    for batch in range(case.batches):
        plans = seat_plans(BATCH, slow.players, seed=batch)
        recorded = jax.tree.map(np.asarray, play(game, jax.random.key(1000 + batch), plans, case.steps))
        for environment in range(BATCH):
            episode = jax.tree.map(lambda values, e=environment: values[e], recorded)
            events += compare_episode(slow, episode, f"{case}, batch {batch}, environment {environment}")
    assert events["compared"] == case.transitions
    assert events["live"] >= case.transitions // 4, "most steps should not be steps after the end"
    missing = [event for event in case.events if not events[event]]
    assert not missing, f"among {dict(events)} there is no {missing}"


def test_a_million_transitions_are_compared() -> None:
    assert sum(case.transitions for case in CASES) >= 1_000_000


def test_every_named_setting_is_compared() -> None:
    assert {case.name for case in CASES if not case.options} == set(games.names()) == set(reference.SETTINGS)

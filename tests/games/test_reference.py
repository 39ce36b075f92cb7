"""The fast games equal the reference on more than a million transitions.

The fast game plays batches of whole episodes, and a few steps after their end. The reference parses each initial state
from seat 0's observation, receives the same actions, and must produce the same masks, outcomes and observations of all
seats after every step.
"""

import functools
import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from common import QUICK_TO_RUN
from hopplus import games

BATCH = 256
"""Environments played at once."""
STEPS_BEYOND = 2
"""Steps played after the last step of an episode."""
NOISE = 0.08
"""Probability that a seat with a target takes a random legal action instead."""

# The plans of a seat. A seat with a target moves to the nearest item of a kind and takes it: at once (eager), every
# sixth step (so that waiting seats do it together), or in the last step only.
PRESS_FIRST, PRESS_LAST, ARBITRARY, LEGAL = range(4)
EAGER, PUNCTUAL, LATE = range(3)
PLANS = 10


def plan_for(kind: int, when: int) -> int:
    """Plan of a seat that targets the first (0) or the last (1) kind of items."""
    return 4 + 3 * kind + when


@dataclass(frozen=True)
class Case:
    """A setting with options, the number of batches to compare, and events that must occur in them."""

    name: str
    batches: int
    options: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps per environment."""
        return reference.make(self.name, **self.options).T + STEPS_BEYOND

    @property
    def transitions(self) -> int:
        """Transitions of all batches."""
        return self.batches * BATCH * self.steps

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])


HUNTS = (
    "joint hare",
    "stag caught by 2",
    "left at step T",
    "arrived at a catch",
    "nothing for a lone STAG",
    "taking after the end",
)
PARTIES = ("stag caught by 3", "stag caught by 4")
DRIFTS = (
    "drift removed by 1",
    "drift removed by 2",
    "drift removed by 3",
    "two drifts in one step",
    "last drift",
    "taking after the end",
)

CASES = [
    Case("msh-4x4-4h1s", 7, events=(*HUNTS, *PARTIES)),
    Case("msh-4x4-2h1s", 6, events=HUNTS),
    Case("msh-6x6-4h1s", 7, events=(*HUNTS, *PARTIES)),
    Case("msh-8x8-4h1s", 7, events=(*HUNTS, *PARTIES)),
    Case("msh-8x8-4h2s", 7, events=(*HUNTS, *PARTIES, "two stags in one step")),
    Case("msg-4x4", 8, events=DRIFTS),
    Case("msg-6x6", 8, events=DRIFTS),
    Case("msg-8x8", 5, events=DRIFTS),
    Case("msh-6x6-4h1s", 5, {"stag_needs_company": False}, (*HUNTS, *PARTIES, "lone STAG without company")),
    Case("msh-8x8-4h2s", 4, {"dynamic_end": True}, ("joint hare", "deadline brought forward", "ended by deadline")),
    Case("msh-4x4-4h1s", 4, {"prosocial": (0, 2)}, (*HUNTS, *PARTIES, "mean for a seat without a catch")),
    Case("msh-4x4-4h1s", 5, {"strengths": (1, 2, 0, 3)}, (*HUNTS, *PARTIES, "catch worth nothing")),
    Case("msh-4x4-4h1s", 3, {"strengths": (0, 0, 0, 0)}, (*HUNTS, *PARTIES)),
    Case(
        "msh-8x8-4h2s",
        4,
        {"prosocial": (1,), "strengths": (2, 5, 0, 1), "dynamic_end": True, "stag_needs_company": False, "T": 20},
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
    Case("msh-4x4-4h1s", 12, {"T": 4, "dynamic_end": True}, ("joint hare", "stag caught by 2", "left at step T")),
    Case("msh-6x6-4h1s", 4, {"hare_reward": 2.5, "stag_reward": 7.3}, (*HUNTS, *PARTIES)),
    Case("msh-8x8-4h1s", 4, {"hares": 0, "height": 6, "width": 11}, ("stag caught by 2", "left at step T", *PARTIES)),
    Case("msh-4x4-4h1s", 4, {"stags": 0, "hares": 3, "height": 2, "width": 7}, ("joint hare", "left at step T")),
    Case("msg-4x4", 6, {"players": 2, "drifts": 9, "T": 30, "benefit": 1.5, "cost": 5.0}, ("drift removed by 2",)),
    Case("msg-6x6", 5, {"players": 8, "blocks": 3, "width": 9, "height": 5, "benefit": 2.5, "cost": 1.3}, DRIFTS),
    Case("msg-4x4", 12, {"drifts": 1, "T": 3}, ("drift removed by 1", "drift removed by 2", "last drift")),
]


# ------------------------------------------------------------------------------------------------- the fast game


class Episodes(NamedTuple):
    """Episodes [E] of the fast game with steps [S]; observations and masks are of states [S + 1]."""

    observations: Any
    legal: Any
    actions: Any
    outcomes: Any


def seat_plans(generator: np.random.Generator, players: int) -> np.ndarray:
    """Plans [BATCH, players]. A quarter has one plan for all seats; in a quarter the seats target the first and the
    last kind of items in turn; in the rest every seat has a random plan."""
    plans = generator.integers(PLANS, size=(BATCH, players))
    plans[::4] = generator.permutation(BATCH // 4)[:, None] % PLANS
    when = generator.integers(3, size=plans[1::4].shape)
    plans[1::4] = plan_for(0, EAGER) + 3 * (np.arange(players) % 2) + when
    return plans


def moves_nearer(standing: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moves (UP, DOWN, LEFT, RIGHT) towards the nearest item by Manhattan distance [..., 4], and whether the player has
    arrived, for boards [..., H, W] with at most one player and any number of items."""
    height, width = standing.shape[-2:]
    cell = standing.reshape(*standing.shape[:-2], -1).argmax(-1)
    row, column = np.divmod(cell, width)
    rows, columns = np.divmod(np.arange(height * width), width)
    down, right = rows - row[..., None], columns - column[..., None]
    distance = np.where(items.reshape(down.shape), np.abs(down) + np.abs(right), height + width)
    nearest = distance.argmin(-1)[..., None]
    shortest = np.take_along_axis(distance, nearest, -1)[..., 0]
    down, right = np.take_along_axis(down, nearest, -1), np.take_along_axis(right, nearest, -1)
    good = np.concatenate([down < 0, down > 0, right < 0, right > 0], axis=-1)
    return good & (shortest < height + width)[..., None], shortest == 0


def sample_true(generator: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """Samples the index of a true entry of each mask [..., A], uniformly; 0 if there is none."""
    return np.where(mask, generator.random(mask.shape, np.float32), -1).argmax(-1)


def plan_actions(game: Any, generator: np.random.Generator, observations: Any, plans: np.ndarray) -> np.ndarray:
    """Actions [E, n] from observations [E, n, ...] and plans [E, n]."""
    legal, kinds = observations.legal[:, :, 0], game.num_actions - 5
    last_kind = plans >= plan_for(1, EAGER)
    items = np.where(last_kind[..., None, None], observations.grid[..., -1], observations.grid[..., -kinds])
    nearer, arrived = moves_nearer(observations.grid[..., 0], items > 0)
    when = (plans - 4) % 3
    time = observations.time
    now = (when == EAGER) | ((when == PUNCTUAL) & (time % 6 == 5)) | (time == game.last_step - 1)
    take = 5 + last_kind * (kinds - 1)
    at_random, nearer = sample_true(generator, legal), nearer & legal[..., :4]
    random_move = generator.random(plans.shape) < NOISE
    move = np.where(random_move | ~nearer.any(-1), at_random, sample_true(generator, nearer))
    targeted = np.where(arrived & ~random_move, np.where(now, take, reference.STAY), move)
    arbitrary = generator.integers(-1, game.num_actions, plans.shape, endpoint=True)
    # After the end, every player that could still take an item tries to.
    too_late = (time >= observations.deadline) & legal[..., 5:].any(-1)
    targeted = np.where(too_late, 5 + legal[..., 5:].argmax(-1), targeted)
    by_plan = [np.full(plans.shape, 5), np.full(plans.shape, game.num_actions - 1), arbitrary, at_random]
    return np.select([plans == plan for plan in range(4)], by_plan, targeted).astype(np.int32)


# Sampling of initial states is compiled once for all games that differ only in settings without effect on them.
RULES = ("name", "stag_reward", "hare_reward", "stag_needs_company", "dynamic_end", "prosocial", "strengths")


def with_default_rules(game: Any) -> Any:
    return replace(game, **{setting.name: setting.default for setting in fields(game) if setting.name in RULES})


@functools.partial(jax.jit, static_argnames="game", compiler_options=QUICK_TO_RUN)
def attempts(game: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
    return jax.vmap(game.draw)(keys)


def first_states(game: Any, key: jax.Array) -> Any:
    """Initial states [BATCH] as NumPy arrays, from accepted attempts (`test_initial_states.py` tests `init` itself)."""
    drawn, number = [], 0
    while number < BATCH:
        keys = jax.random.split(jax.random.fold_in(key, len(drawn)), 4 * BATCH)
        states, accepted = jax.tree.map(np.asarray, attempts(with_default_rules(game), keys))
        drawn.append(jax.tree.map(lambda leaf, rows=accepted: leaf[rows], states))
        number += accepted.sum()
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:BATCH], *drawn)


@functools.partial(jax.jit, static_argnames="game", compiler_options=QUICK_TO_RUN)
def advance(
    game: Any, keys: jax.Array, states: Any, actions: jax.Array, started: bool
) -> tuple[Any, Any, tuple[Any, jax.Array]]:
    """Next states, outcomes, and the observations and masks there; the states are unchanged if not `started`."""
    after, outcomes = jax.vmap(game.step)(keys, states, actions)
    states = jax.tree.map(lambda old, new: jnp.where(started, new, old), states, after)
    return states, outcomes, (jax.vmap(game.observe)(states), jax.vmap(game.legal)(states))


def recorded_batch(game: Any, steps: int, seed: int) -> Episodes:
    """A batch of episodes of the fast game as NumPy arrays, one per environment, without resets."""
    generator = np.random.default_rng(seed)
    plans = seat_plans(generator, game.num_players)
    keys = jax.random.split(jax.random.key(seed), BATCH)
    idle = np.full(plans.shape, reference.STAY, np.int32)
    states, _, view = advance(game, keys, first_states(game, jax.random.key(seed)), idle, False)
    views, actions, outcomes = [jax.tree.map(np.asarray, view)], [], []
    for _ in range(steps):
        actions.append(plan_actions(game, generator, views[-1][0], plans))
        states, outcome, view = advance(game, keys, states, actions[-1], True)
        views.append(jax.tree.map(np.asarray, view))
        outcomes.append(jax.tree.map(np.asarray, outcome))

    def stack(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *trees)

    observations, legal = stack(views)
    return Episodes(observations, legal, np.stack(actions, axis=1), stack(outcomes))


# ---------------------------------------------------------------------------------------------------- comparison

EXACT_OUTCOMES = ("left", "over", "took", "cell")


def assert_same(label: str, fast: np.ndarray, expected: np.ndarray) -> None:
    """Asserts equal shapes and values; the message names the first index that differs."""
    if not np.array_equal(fast, expected):
        assert fast.shape == expected.shape, f"{label} has the shape {fast.shape}, not {expected.shape}"
        index = tuple(np.argwhere(fast != expected)[0].tolist())
        raise AssertionError(
            f"{label} differs first at {index}: {fast[index]}, but the reference has {expected[index]}"
        )


class Replay(NamedTuple):
    """One recorded episode as played by the reference: states and masks [S + 1], outcomes [S]."""

    states: list[reference.State]
    masks: list[list[reference.Mask]]
    outcomes: list[reference.Outcome]


def replay(slow: reference.Reference, first_grid: np.ndarray, actions: np.ndarray, events: Counter[str]) -> Replay:
    """Replays one recorded episode with the reference, and counts its steps and events."""
    state = slow.parse(first_grid)
    played = Replay([state], [slow.legal(state)], [])
    over = slow.over(state)
    for joint in actions.tolist():
        after, outcome = slow.step(state, joint, played.masks[-1])
        if over:
            events["taking after the end"] += tries_to_take(joint, played.masks[-1])
        else:
            count_events(slow, state, after, outcome, events)
        played.states.append(after)
        played.masks.append(played.masks[-1] if after is state else slow.legal(after))
        played.outcomes.append(outcome)
        state, over = after, outcome.over
    events["compared"] += len(actions)
    return played


def compare_batch(slow: reference.Reference, fast: Episodes, context: str) -> Counter[str]:
    """Replays all episodes of a batch with the reference, compares all results, and counts steps and events."""
    assert not fast.observations.time[:, 0].any(), f"{context}: the first states have time 0"
    events = Counter[str]()
    replays = [
        replay(slow, grid, actions, events)
        for grid, actions in zip(fast.observations.grid[:, 0, 0], fast.actions, strict=True)
    ]
    states = [state for played in replays for state in played.states]
    expected = slow.observe(states, [masks for played in replays for masks in played.masks])
    expected = reference.Observation(*(values.reshape(len(replays), -1, *values.shape[1:]) for values in expected))
    for name in reference.Observation._fields:
        label = f"{context}: observed {name} [environment, state, ...]"
        assert_same(label, getattr(fast.observations, name), getattr(expected, name))
    assert_same(f"{context}: legal [environment, state, seat, action]", fast.legal, expected.legal[:, :, 0])
    outcomes = [played.outcomes for played in replays]
    for name in EXACT_OUTCOMES:
        values = np.array([[getattr(outcome, name) for outcome in row] for row in outcomes])
        assert_same(f"{context}: {name} [environment, step, ...]", getattr(fast.outcomes, name), values)
    rewards = np.array([[outcome.reward for outcome in row] for row in outcomes])
    label = f"{context}: reward [environment, step, seat]"
    np.testing.assert_allclose(fast.outcomes.reward, rewards, rtol=1e-6, atol=0, err_msg=label)
    assert not fast.outcomes.truncated.any(), f"{context}: games are never truncated"
    return events


def tries_to_take(actions: list[int], masks: list[reference.Mask]) -> bool:
    """True if a player chose a legal action that takes an item."""
    return any(5 <= action < len(mask) and mask[action] for action, mask in zip(actions, masks, strict=True))


def count_events(
    slow: reference.Reference,
    state: reference.State,
    after: reference.State,
    outcome: reference.Outcome,
    events: Counter[str],
) -> None:
    """Counts a step of a game that was not over, and its rare events."""
    events["live"] += 1
    if isinstance(slow, reference.StagHunt):
        count_hunts(slow, state, after, outcome, events)
    else:
        count_removals(after, outcome, events)


def count_removals(after: reference.State, outcome: reference.Outcome, events: Counter[str]) -> None:
    """Events of the Markov Snowdrift Game."""
    if not any(outcome.took):
        return
    removers = Counter(cell for cell in outcome.cell if cell >= 0)
    for number in removers.values():
        events[f"drift removed by {number}"] += 1
    events["two drifts in one step"] += len(removers) == 2
    events["last drift"] += not after.items[0]


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
    catch_cells = {divmod(cell, slow.width) for cell in outcome.cell if cell >= 0}
    events["arrived at a catch"] += any(
        now in catch_cells and before != now for before, now in zip(state.players, after.players, strict=True)
    )


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """The reference creates millions of tuples; searching them for cycles takes nearly as long as creating them."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_fast_game_equals_the_reference(case: Case) -> None:
    game, slow = games.make(case.name, **case.options), reference.make(case.name, **case.options)
    events: Counter[str] = Counter()
    for batch in range(case.batches):
        events += compare_batch(slow, recorded_batch(game, case.steps, seed=batch), f"{case}, batch {batch}")
    assert events["compared"] == case.transitions
    assert events["live"] >= case.transitions // 4, "most steps should not be steps after the end"
    missing = [event for event in case.events if not events[event]]
    assert not missing, f"{missing} did not occur, among {dict(events)}"


def test_a_million_transitions_are_compared() -> None:
    assert sum(case.transitions for case in CASES) >= 1_000_000


def test_every_named_setting_is_compared() -> None:
    assert {case.name for case in CASES if not case.options} == set(games.names()) == set(reference.SETTINGS)

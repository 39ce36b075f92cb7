"""Search where the answers are known: hand-made boards, a gamble, exact best responses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from common import first_state, floats, observe
from hopplus.evaluation.exact import best_response
from hopplus.games import Game, Observation, ego_first, make
from hopplus.games.stag_hunt import StagHunt
from hopplus.keys import Key
from hopplus.planning.acquaintance import Acquainting
from hopplus.planning.search import Planning, Search
from hopplus.planning.simulator import Simulator
from hopplus.planning.tree import Arrival, Growth
from hopplus.struct import struct
from thinking import KnownOthers, certain, first_mind, know_nothing, known_others, params_of, plan_in, planning_of

MSH = make("msh-4x4-4h1s")
UP, DOWN, LEFT, RIGHT, STAY, STAG, HARE = range(7)
KINDS = ("ns", "nh")
GOLDEN_SEARCH = Search(draws=2, simulations=40, replies=2)
DEEP = Search(draws=1, simulations=200, replies=4, exploration=2.0)


# ------------------------------------------------------------------------------------------------------ the gamble game


@struct
class GambleState:
    done: Bool[Array, ""]
    own_coin: Bool[Array, ""]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Gamble(Game[GambleState]):
    """Two players, two steps. In the first, SURE pays 0.7 at once and ends it for the ego; GAMBLE goes on to a second
    step, in which the other's coin, or the game's own, decides between 1 and 0 before the ego chooses again. Whose coin
    it is belongs to the state and is seen, so that both are one program."""

    name: str = "test-gamble"
    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("GAMBLE", "SURE")
    idle_action: ClassVar[int] = 0

    @property
    def channel_names(self) -> tuple[str, ...]:
        return ("self", "other")

    @property
    def taken_names(self) -> tuple[str, ...]:
        return ("nothing",)

    @property
    def num_players(self) -> int:
        return 2

    @property
    def last_step(self) -> int:
        return 6

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 1.0, "player": 1.0}

    def draw(self, key: Key) -> tuple[GambleState, Bool[Array, ""]]:
        return gamble(own_coin=False), jnp.bool_(True)

    def transition(self, key: Key, state: GambleState, actions: Int[Array, " n"]) -> Any:
        heads = jnp.where(state.own_coin, jax.random.bernoulli(key, 0.5), actions[1] == 1)
        # Each gamble is a chance to win at once; whoever has lost may try again, for nothing.
        first = state.time == 0
        sure = actions[0] == 1
        paid = jnp.where(first, jnp.where(sure, 0.7, jnp.where(heads, 1.0, 0.0)), 0.0)
        reward = jnp.stack([paid, 0.0])
        after = GambleState(jnp.bool_(True) & first, state.own_coin, state.time + 1, actions)
        return after, reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1)

    def left(self, state: GambleState) -> Bool[Array, " n"]:
        return jnp.zeros(2, bool)

    def over(self, state: GambleState) -> Bool[Array, ""]:
        return state.time >= 6

    def legal(self, state: GambleState) -> Bool[Array, "n A"]:
        return jnp.ones((2, 2), bool)

    def observe(self, state: GambleState) -> Observation:
        return Observation(
            grid=jnp.broadcast_to(state.own_coin, (2, 1, 1, 2)).astype(jnp.int8),
            time=jnp.broadcast_to(state.time, 2),
            deadline=jnp.full(2, 6),
            legal=jnp.ones((2, 2, 2), bool),
            last_actions=ego_first(state.last_actions),
        )

    def restore(self, observation: Observation) -> GambleState:
        own_coin = observation.grid[0, 0, 0] > 0
        return GambleState(observation.time > 0, own_coin, observation.time, observation.last_actions)

    def permute(self, state: GambleState, order: Any) -> GambleState:
        return state


def gamble(own_coin: bool) -> GambleState:
    """The first state of the gamble game."""
    return GambleState(jnp.bool_(False), jnp.bool_(own_coin), jnp.int32(0), jnp.zeros(2, jnp.int32))


@dataclass(frozen=True)
class Coin(KnownOthers):
    """A co-player that tosses a coin."""

    def policies(self, params: Any, features: Any, particles: Any = ()) -> Float[Array, "1 1 2"]:
        return jnp.full((1, 1, 2), 0.5)


GAMBLE = Gamble()


@partial(jax.jit, static_argnames="search")
def gamble_values(keys: Array, state: GambleState, search: Search) -> Float[Array, "seeds 2"]:
    """The values of the gamble and of the sure thing, by key."""
    others = Coin(GAMBLE, "codes", None, 1)  # pyright: ignore[reportArgumentType]
    planning = Planning(search, Simulator(GAMBLE), Acquainting(others, inter="off"), know_nothing)
    seen, mind = first_mind(planning, state)
    return jax.vmap(lambda key: planning.plan(key, params_of(1), mind, seen).values)(keys)


def gambles(own_coin: bool, search: Search, seeds: int = 64) -> float:
    """In which share of searches the gamble looks better than the sure thing."""
    values = np.asarray(gamble_values(jax.random.split(jax.random.key(5), seeds), gamble(own_coin), search))
    assert values[:, 1] == pytest.approx(0.7)
    return float((values[:, 0] > values[:, 1]).mean())


@pytest.mark.parametrize("own_coin", [False, True])
def test_the_sure_thing_beats_the_gamble_as_simulations_grow(own_coin: bool) -> None:
    frozen = gambles(own_coin, Search(draws=1, simulations=64, replies=1))
    few = gambles(own_coin, Search(draws=1, simulations=16, replies=8))
    many = gambles(own_coin, Search(draws=5, simulations=128, replies=32))
    assert frozen > 0.3  # the fault: one outcome an edge, and half of the trees take luck for foresight
    assert few <= frozen
    assert many <= 0.05


def test_a_search_does_not_know_the_games_next_coin() -> None:
    """What it finds depends on its own key alone: the game's coin falls as it likes."""
    search, state = Search(draws=1, simulations=16, replies=8), gamble(own_coin=True)
    keys = jax.random.split(jax.random.key(1), 64)
    rewards = jax.jit(jax.vmap(lambda key: GAMBLE.step(key, state, jnp.array([0, 0]))[1].reward[0]))(keys)
    found = np.asarray(gamble_values(keys, state, search))
    np.testing.assert_array_equal(gamble_values(keys[::-1], state, search), found[::-1])
    assert 0 < np.mean(rewards) < 1
    assert abs(np.corrcoef(rewards, found[:, 0])[0, 1]) < 0.5


# ------------------------------------------------------------------------------------------------- known best responses


def beside_the_stag(game: Game[Any], *others: str) -> tuple[Planning, Any]:
    """The ego and one other stand on the stag's cell, a hare lies one step away; two more have left."""
    state = game.from_layout([(1, 1), (1, 1), None, None], stags=[(1, 1)], hares=[(1, 2)])
    return planning_of(known_others(game, *others), DEEP, inter="off"), state


def test_the_stag_beside_one_who_goes_for_it_and_the_hare_beside_one_who_does_not() -> None:
    planning, state = beside_the_stag(MSH, "ns", "nh")
    assert int(plan_in(planning, state, belief=certain(0, planning)).policy.argmax()) == STAG
    assert int(plan_in(planning, state, belief=certain(1, planning)).policy.argmax()) == RIGHT


def test_the_belief_decides_where_both_are_possible_and_each_co_players_goal_counts() -> None:
    planning, state = beside_the_stag(MSH, "ns", "nh")
    hunter, loner = [[1, 0], [0.5, 0.5], [0.5, 0.5]], [[0, 1], [0.5, 0.5], [0.5, 0.5]]
    assert int(plan_in(planning, state, belief=hunter).policy.argmax()) == STAG
    assert int(plan_in(planning, state, belief=loner).policy.argmax()) == RIGHT
    # One other on the stag, one far away: what the one on the stag is after matters, the other's goal does not.
    state = MSH.from_layout([(1, 1), (1, 1), (3, 3), None], stags=[(1, 1)], hares=[(1, 2), (3, 2)])
    near, far = [[1, 0], [0, 1], [0.5, 0.5]], [[0, 1], [1, 0], [0.5, 0.5]]
    assert int(plan_in(planning, state, belief=near).policy.argmax()) == STAG
    assert plan_in(planning, state, belief=near).values[STAG] > 4.9
    assert plan_in(planning, state, belief=far).values[STAG] < plan_in(planning, state, belief=near).values[STAG] - 1
    # The same with both in each other's place: a search that gives the first one's goal to all of them is caught.
    state = MSH.from_layout([(1, 1), (3, 3), (1, 1), None], stags=[(1, 1)], hares=[(1, 2), (3, 2)])
    assert plan_in(planning, state, belief=far).values[STAG] > 4.9
    assert plan_in(planning, state, belief=near).values[STAG] < 4


def test_in_the_snowdrift_a_drift_beside_those_who_idle_and_none_beside_one_who_removes_it() -> None:
    game = make("msg-4x4", T=6)
    state = game.from_layout([(1, 1), (1, 1), (3, 3), (3, 3)], drifts=[(1, 1)])
    remove = game.action_names.index("REMOVE")
    planning = planning_of(known_others(game, "stay", "cleaner"), replace(DEEP, exploration=15.0), inter="off")
    beside_idlers = plan_in(planning, state, belief=certain(0, planning))
    assert int(beside_idlers.policy.argmax()) == remove
    beside_cleaners = plan_in(planning, state, belief=certain(1, planning))
    assert beside_cleaners.values[game.idle_action] > beside_cleaners.values[remove]


@pytest.fixture(scope="module")
def errors() -> dict[str, tuple[float, float, float]]:
    """By co-player, how far the value of the best action is from that of dynamic programming with 200 and with 8000
    simulations, and the mean of the latter; both co-players' searches run side by side."""
    game = make("msh-4x4-2h1s", T=4)
    assert isinstance(game, StagHunt)
    generator = np.random.default_rng(0)
    cells = [generator.permutation(16)[:5] for _ in range(8)]
    states = [
        game.from_layout(
            [divmod(int(cell), 4) for cell in some[3:]],
            stags=[divmod(int(some[0]), 4)],
            hares=[divmod(int(cell), 4) for cell in some[1:3]],
        )
        for some in cells
    ]
    others = known_others(game, *KINDS)
    layouts, where = np.stack(cells)[:, :3], np.stack(cells)[:, 3:].T
    exact = np.stack([best_response(game, (kind,), layouts)[np.arange(8), *where] for kind in others.kinds])
    found = []
    for simulations in (200, 8000):
        search = Search(draws=1, simulations=simulations, replies=2, exploration=1.0, discount=1.0)
        planning = planning_of(others, search, inter="off")
        beliefs = [certain(goal, planning) for goal in range(len(KINDS))]
        looks = [first_mind(planning, state, belief) for belief in beliefs for state in states]
        seen, mind = jax.tree.map(lambda *leaves: np.stack(leaves), *looks)
        plan = jax.jit(
            jax.vmap(lambda mind, seen, plan=planning.plan: plan(jax.random.key(0), params_of(2), mind, seen))
        )
        values = np.asarray(plan(mind, seen).values).max(-1).reshape(exact.shape)
        found.append(np.abs(values - exact).mean(-1))
    return dict(zip(KINDS, zip(*found, exact.mean(-1), strict=True), strict=True))


@pytest.mark.parametrize("other", KINDS)
def test_with_true_policies_the_search_approaches_the_exact_best_response(other: str, errors: Any) -> None:
    """The value of the best action against dynamic programming, as simulations grow."""
    with_few, with_many, exact = errors[other]
    assert with_many < 0.5 * with_few
    assert with_many < 0.2 * exact


# ----------------------------------------------------------------------------------------------------------- the tree


def test_masks_are_respected_and_visits_add_up() -> None:
    planning = planning_of(known_others(MSH, "ns", "nh"), GOLDEN_SEARCH, inter="off")
    for seed in range(3):
        state = first_state(MSH, seed)
        plan, legal = plan_in(planning, state, seed), np.asarray(observe(MSH, state).legal)[0, 0]
        assert plan.visits.sum() == GOLDEN_SEARCH.draws * GOLDEN_SEARCH.simulations
        assert not plan.visits[~legal].any()
        assert not plan.policy[~legal].any()
        assert plan.policy.sum() == pytest.approx(1, abs=1e-5)
        assert plan.depth >= 1


def test_what_the_policy_rules_out_is_not_chosen_where_all_else_is_bad() -> None:
    growth = Growth(actions=3, replies=1, exploration=1.0)
    nothing = jnp.float32(0)
    arrival = Arrival(jnp.array([0.5, 0.5, 0.0]), nothing, jnp.int32(-1), nothing, nothing)
    found = jnp.array([[-50.0, 5.0], [-60.0, 5.0], [0.0, 0.0]])
    assert int(jax.jit(growth._choice)(arrival, found, jnp.zeros(3))) == 0


def test_replies_are_drawn_as_the_model_has_them() -> None:
    planning = planning_of(known_others(MSH, "random", "ns"), Search(replies=8), inter="off")
    expected, goals = floats(np.random.default_rng(4).dirichlet(np.ones(7), (3, 2))), cast(Any, np.array([0, 1, 0]))
    draw = jax.jit(jax.vmap(lambda key: planning.replies(expected, goals, jax.random.uniform(key, (3,)))))
    replies = np.asarray(draw(jax.random.split(jax.random.key(0), 4000))).reshape(-1, 3)
    for player, goal in enumerate([0, 1, 0]):
        often = np.bincount(replies[:, player], minlength=7) / len(replies)
        np.testing.assert_allclose(often, expected[player, goal], atol=0.02)
    # Any two co-players' replies are independent of each other.
    joint = np.histogram2d(replies[:, 0], replies[:, 2], bins=np.arange(8) - 0.5)[0] / len(replies)
    np.testing.assert_allclose(joint, np.outer(expected[0, 0], expected[2, 0]), atol=0.02)


def test_a_small_difference_does_not_become_a_certain_target() -> None:
    """The improved policy is softmax(log pi + sharpness Q / most) of raw values: 1e-4 moves it by next to nothing."""
    planning = planning_of(known_others(MSH, "ns"), Search(sharpness=10.0), inter="off")
    legal: Any = np.arange(7) < 2
    logits = floats(np.where(legal, 0.0, -1e9))
    hop = replace(planning, search=Search(temperature=0.5))
    worth = floats([[1.0, 1.0001, 0, 0, 0, 0, 0], [1.0, 2.0, 0, 0, 0, 0, 0]])
    improved = jax.jit(
        lambda *worth: [one._improved(logits, own, legal) for one, own in zip((planning, hop), worth, strict=True)]
    )
    policy, of_hop = map(np.asarray, improved(*worth))
    np.testing.assert_allclose(policy[:2], 0.5, atol=1e-3)
    np.testing.assert_allclose(of_hop[1] / of_hop[0], np.exp(2.0), rtol=1e-5)
    assert not of_hop[2:].any(), "what is not legal has no share, whatever it would be worth"


def test_golden_tree() -> None:
    """What a fixed key finds on a fixed board: changes only when the search does."""
    state = MSH.from_layout([(0, 0), (0, 3), (3, 0), (3, 3)], stags=[(1, 1)], hares=[(0, 1), (2, 2), (3, 1), (1, 3)])
    planning = planning_of(known_others(MSH, "ns", "nh"), GOLDEN_SEARCH, inter="off")
    plan = plan_in(planning, state, seed=7)
    assert plan.visits.tolist() == GOLDEN_VISITS
    np.testing.assert_allclose(plan.values, GOLDEN_VALUES, atol=1e-4)


GOLDEN_VISITS = [0.0, 13.0, 0.0, 54.0, 13.0, 0.0, 0.0]
GOLDEN_VALUES = [0.0, 0.0, 0.0, 0.62648, 0.0, 0.0, 0.0]

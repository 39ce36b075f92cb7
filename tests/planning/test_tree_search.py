"""Tree search against known answers: hand-made boards, a gamble, exact best responses."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from common import first_state, floats, observe
from gamble import GAMBLE, Coin, GambleState, gamble
from hopplus.beliefs.belief_tracker import BeliefTracker
from hopplus.beliefs.rationality import EXACT
from hopplus.evaluation.exact_best_response import best_response
from hopplus.games import Game, make
from hopplus.games.stag_hunt import StagHunt
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.simulator import Simulator
from hopplus.planning.tree import Selection, TreeSearch, Visit
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from planners import (
    certain,
    initial_beliefs,
    known_opponents,
    make_tree_planner,
    params_of,
    plan_in,
    uniform_policy,
)

MSH = make("msh-4x4-4h1s")
UP, DOWN, LEFT, RIGHT, STAY, STAG, HARE = range(7)
AGENT_TYPES = ("ns", "nh")
GOLDEN_SEARCH = SearchConfig(belief_samples=2, simulations=40, reply_samples=2)
DEEP = SearchConfig(belief_samples=1, simulations=200, reply_samples=4, exploration=2.0)


# ------------------------------------------------------------------------------------------------------ the gamble game


@partial(jax.jit, static_argnames="search")
def gamble_values(keys: Array, state: GambleState, search: SearchConfig) -> Float[Array, "seeds 2"]:
    """Returns the Q-values of GAMBLE and SURE, by key."""
    opponent_model = Coin(GAMBLE, "codes", None, 1)  # pyright: ignore[reportArgumentType]
    planner = TreePlanner(
        search, BeliefSimulator(Simulator(GAMBLE), BeliefTracker(opponent_model, inter="off"), uniform_policy)
    )
    observation, beliefs = initial_beliefs(planner, state)
    return jax.vmap(lambda key: planner.plan(key, params_of(1), beliefs, observation).values)(keys)


def gamble_share(own_coin: bool, search: SearchConfig, seeds: int = 64) -> float:
    """Returns the share of searches that value GAMBLE above SURE."""
    values = np.asarray(gamble_values(jax.random.split(jax.random.key(5), seeds), gamble(own_coin), search))
    assert values[:, 1] == pytest.approx(0.7)
    return float((values[:, 0] > values[:, 1]).mean())


@pytest.mark.parametrize("own_coin", [False, True])
def test_sure_beats_gamble_as_simulations_grow(own_coin: bool) -> None:
    frozen = gamble_share(own_coin, SearchConfig(belief_samples=1, simulations=64, reply_samples=1))
    few = gamble_share(own_coin, SearchConfig(belief_samples=1, simulations=16, reply_samples=8))
    many = gamble_share(own_coin, SearchConfig(belief_samples=5, simulations=128, reply_samples=32))
    assert frozen > 0.3  # with one frozen outcome per edge, half of the trees overvalue the gamble
    assert few <= frozen
    assert many <= 0.05


def test_a_search_does_not_know_the_games_next_coin() -> None:
    """The search depends on its own key alone, and is uncorrelated with the game's coin."""
    search, state = SearchConfig(belief_samples=1, simulations=16, reply_samples=8), gamble(own_coin=True)
    keys = jax.random.split(jax.random.key(1), 64)
    rewards = jax.jit(jax.vmap(lambda key: GAMBLE.step(key, state, jnp.array([0, 0]))[1].reward[0]))(keys)
    values = np.asarray(gamble_values(keys, state, search))
    np.testing.assert_array_equal(gamble_values(keys[::-1], state, search), values[::-1])
    assert 0 < np.mean(rewards) < 1
    assert abs(np.corrcoef(rewards, values[:, 0])[0, 1]) < 0.5


# ------------------------------------------------------------------------------------------------- known best responses


def beside_the_stag(game: Game[Any], *agent_types: str) -> tuple[TreePlanner, Any]:
    """Returns a planner and a state: the ego and one co-player are on the stag's cell, a hare is one step away, and two
    co-players have left."""
    state = game.from_layout([(1, 1), (1, 1), None, None], stags=[(1, 1)], hares=[(1, 2)])
    return make_tree_planner(known_opponents(game, *agent_types), DEEP, inter="off"), state


def test_the_stag_beside_a_stag_hunter_and_the_hare_beside_a_hare_hunter() -> None:
    planner, state = beside_the_stag(MSH, "ns", "nh")
    assert int(plan_in(planner, state, belief=certain(0, planner)).policy.argmax()) == STAG
    assert int(plan_in(planner, state, belief=certain(1, planner)).policy.argmax()) == RIGHT


def test_the_belief_decides_and_each_co_players_goal_counts() -> None:
    planner, state = beside_the_stag(MSH, "ns", "nh")
    stag_hunter, hare_hunter = [[1, 0], [0.5, 0.5], [0.5, 0.5]], [[0, 1], [0.5, 0.5], [0.5, 0.5]]
    assert int(plan_in(planner, state, belief=stag_hunter).policy.argmax()) == STAG
    assert int(plan_in(planner, state, belief=hare_hunter).policy.argmax()) == RIGHT
    # One co-player on the stag and one far away: only the goal of the co-player on the stag matters.
    state = MSH.from_layout([(1, 1), (1, 1), (3, 3), None], stags=[(1, 1)], hares=[(1, 2), (3, 2)])
    near, far = [[1, 0], [0, 1], [0.5, 0.5]], [[0, 1], [1, 0], [0.5, 0.5]]
    assert int(plan_in(planner, state, belief=near).policy.argmax()) == STAG
    assert plan_in(planner, state, belief=near).values[STAG] > 4.9
    assert plan_in(planner, state, belief=far).values[STAG] < plan_in(planner, state, belief=near).values[STAG] - 1
    # The same with both places swapped, to catch a search that gives the first co-player's goal to all co-players.
    state = MSH.from_layout([(1, 1), (3, 3), (1, 1), None], stags=[(1, 1)], hares=[(1, 2), (3, 2)])
    assert plan_in(planner, state, belief=far).values[STAG] > 4.9
    assert plan_in(planner, state, belief=near).values[STAG] < 4


def test_in_the_snowdrift_remove_beside_idlers_and_idle_beside_cleaners() -> None:
    game = make("msg-4x4", T=6)
    state = game.from_layout([(1, 1), (1, 1), (3, 3), (3, 3)], drifts=[(1, 1)])
    remove = game.action_names.index("REMOVE")
    planner = make_tree_planner(known_opponents(game, "stay", "cleaner"), replace(DEEP, exploration=15.0), inter="off")
    beside_idlers = plan_in(planner, state, belief=certain(0, planner))
    assert int(beside_idlers.policy.argmax()) == remove
    beside_cleaners = plan_in(planner, state, belief=certain(1, planner))
    assert beside_cleaners.values[game.idle_action] > beside_cleaners.values[remove]


@pytest.fixture(scope="module")
def errors() -> dict[str, tuple[float, float, float]]:
    """Returns, by co-player, the mean absolute error of the best action's value with 200 and with 8000 simulations, and
    the mean exact value from dynamic programming. Both co-players' searches run in one batch."""
    game = make("msh-4x4-2h1s", T=4)
    assert isinstance(game, StagHunt)
    generator = np.random.default_rng(0)
    cells = [generator.permutation(16)[:5] for _ in range(8)]
    states = [
        game.from_layout(
            [divmod(int(cell), 4) for cell in layout[3:]],
            stags=[divmod(int(layout[0]), 4)],
            hares=[divmod(int(cell), 4) for cell in layout[1:3]],
        )
        for layout in cells
    ]
    opponent_model = known_opponents(game, *AGENT_TYPES)
    layouts, positions = np.stack(cells)[:, :3], np.stack(cells)[:, 3:].T
    exact = np.stack(
        [best_response(game, (player,), layouts)[np.arange(8), *positions] for player in opponent_model.agent_types]
    )
    errors = []
    for simulations in (200, 8000):
        search = SearchConfig(belief_samples=1, simulations=simulations, reply_samples=2, exploration=1.0, gamma=1.0)
        exact_beliefs = {"inter": "off", "rationality": EXACT, "goal_switch_probability": 0.0}
        planner = make_tree_planner(opponent_model, search, **exact_beliefs)
        goals = [certain(goal, planner) for goal in range(len(AGENT_TYPES))]
        inputs = [initial_beliefs(planner, state, belief) for belief in goals for state in states]
        observation, beliefs = jax.tree.map(lambda *leaves: np.stack(leaves), *inputs)
        plan = jax.jit(
            jax.vmap(
                lambda beliefs, observation, plan=planner.plan: plan(
                    jax.random.key(0), params_of(2), beliefs, observation
                )
            )
        )
        values = np.asarray(plan(beliefs, observation).values).max(-1).reshape(exact.shape)
        errors.append(np.abs(values - exact).mean(-1))
    return dict(zip(AGENT_TYPES, zip(*errors, exact.mean(-1), strict=True), strict=True))


@pytest.mark.parametrize("agent_type", AGENT_TYPES)
def test_with_true_policies_the_search_approaches_the_exact_best_response(agent_type: str, errors: Any) -> None:
    """The value of the best action approaches that of dynamic programming with more simulations."""
    with_few, with_many, exact = errors[agent_type]
    assert with_many < 0.5 * with_few
    assert with_many < 0.2 * exact


# ----------------------------------------------------------------------------------------------------------- the tree


def test_masks_are_respected_and_visits_add_up() -> None:
    planner = make_tree_planner(known_opponents(MSH, "ns", "nh"), GOLDEN_SEARCH, inter="off")
    for seed in range(3):
        state = first_state(MSH, seed)
        plan, legal = plan_in(planner, state, seed), np.asarray(observe(MSH, state).legal)[0, 0]
        assert plan.visits.sum() == GOLDEN_SEARCH.belief_samples * GOLDEN_SEARCH.simulations
        assert not plan.visits[~legal].any()
        assert not plan.policy[~legal].any()
        assert plan.policy.sum() == pytest.approx(1, abs=1e-5)
        assert plan.depth >= 1


def test_masked_actions_are_never_selected() -> None:
    """At the root an action is masked if it is illegal, below the root if the policy gives it probability 0."""
    select = jax.jit(TreeSearch(actions=3, replies=1, exploration=1.0, root_visits=0)._select_action)
    prior, zero = jnp.array([0.5, 0.5, 0.0]), jnp.float32(0)
    selection = Selection(jnp.zeros(3), jnp.array([False, True, True]))
    returns = jnp.array([[-50.0, 5.0], [-60.0, 5.0], [0.0, 0.0]])
    assert int(select(Visit(prior, zero, jnp.int32(4), zero, zero), returns, selection)) == 0
    assert int(select(Visit(prior, zero, jnp.int32(-1), zero, zero), returns, selection)) == 2


def test_replies_follow_the_opponent_model() -> None:
    planner = make_tree_planner(known_opponents(MSH, "random", "ns"), SearchConfig(reply_samples=8), inter="off")
    action_probs = floats(np.random.default_rng(4).dirichlet(np.ones(7), 3))
    draw = jax.jit(jax.vmap(lambda key: planner.replies(action_probs, jax.random.uniform(key, (3,)))))
    replies = np.asarray(draw(jax.random.split(jax.random.key(0), 4000))).reshape(-1, 3)
    for player in range(3):
        frequencies = np.bincount(replies[:, player], minlength=7) / len(replies)
        np.testing.assert_allclose(frequencies, action_probs[player], atol=0.02)
    # The replies of two co-players are independent.
    joint = np.histogram2d(replies[:, 0], replies[:, 2], bins=np.arange(8) - 0.5)[0] / len(replies)
    np.testing.assert_allclose(joint, np.outer(action_probs[0], action_probs[2]), atol=0.02)


def test_golden_tree() -> None:
    """The search on a fixed board with a fixed key: changes only when the search changes."""
    state = MSH.from_layout([(0, 0), (0, 3), (3, 0), (3, 3)], stags=[(1, 1)], hares=[(0, 1), (2, 2), (3, 1), (1, 3)])
    planner = make_tree_planner(known_opponents(MSH, "ns", "nh"), GOLDEN_SEARCH, inter="off")
    plan = plan_in(planner, state, seed=7)
    assert plan.visits.tolist() == GOLDEN_VISITS
    np.testing.assert_allclose(plan.values, GOLDEN_VALUES, atol=1e-4)


GOLDEN_VISITS = [0.0, 13.0, 0.0, 54.0, 13.0, 0.0, 0.0]
GOLDEN_VALUES = [0.0, 0.0, 0.0, 0.62648, 0.0, 0.0, 0.0]

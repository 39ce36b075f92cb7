"""The search against mctx: with the same rule of choice and the same keys, `mctx.search` grows the same trees."""

from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from common import first_state
from hopplus.games import Observation, make
from hopplus.keys import fast
from hopplus.planning.acquaintance import Mind
from hopplus.planning.search import GOALS, NEVER, TIES, TREES, Planning, Search
from hopplus.struct import struct
from thinking import first_mind, known_others, params_of, plan_in, planning_of

GAME = make("msh-4x4-4h1s")


@struct
class MctxNode:
    situation: Any
    mind: Mind
    replies: jax.Array


def values_at(tree: Any, node: Any, visits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """By action, the mean over replies of what was found, and how often it was tried."""
    by_edge = tree.children_rewards[node] + tree.children_discounts[node] * tree.children_values[node]
    tried = visits.sum(-1)
    return (by_edge.reshape(visits.shape) * visits).sum(-1) / jnp.maximum(tried, 1), tried


def grown_by_mctx(planning: Planning, key: jax.Array, mind: Mind, seen: Observation) -> tuple[jax.Array, jax.Array]:
    """Visits and mean values of the root's actions, over all trees."""
    key, search = fast(key), planning.search
    params = params_of(planning.acquainting.others.number)
    players, actions = mind.expected.shape[0], mind.expected.shape[-1]
    goals = jax.random.categorical(jax.random.fold_in(key, GOALS), mind.belief, shape=(search.draws, players))
    uniform = jax.random.uniform(jax.random.fold_in(key, TIES), (search.draws, players + actions))
    shifts, ties = jnp.split(uniform, [players], axis=-1)
    logits, value = planning.evaluate((), seen, mind)
    situation = planning.simulator.at(seen)

    def node(situation: Any, mind: Mind, goals: jax.Array, shifts: jax.Array) -> MctxNode:
        return MctxNode(situation, mind, planning.replies(mind.expected, goals, shifts))

    def expand(context: Any, key: jax.Array, edges: Any, nodes: Any) -> tuple[Any, Any]:
        shifts = jax.random.uniform(jax.random.fold_in(key, search.draws), goals.shape)
        keys = jax.vmap(lambda tree: jax.random.fold_in(key, tree))(jnp.arange(search.draws))

        def one(key: jax.Array, edge: Any, at: MctxNode, goals: jax.Array, shifts: jax.Array) -> tuple[Any, Any]:
            action, reply = edge // search.replies, edge % search.replies
            step = planning.simulate(key, params, at.situation, at.mind, action, at.replies[reply])
            output = {
                "reward": step.reward,
                "discount": jnp.where(step.goes_on, search.discount, 0.0),
                "prior_logits": jnp.repeat(step.logits, search.replies),
                "value": jnp.where(step.goes_on, step.value, 0.0),
            }
            return mctx.RecurrentFnOutput(**output), node(step.situation, step.mind, goals, shifts)

        return jax.vmap(one)(keys, edges, nodes, goals, shifts)

    def select(tree: Any, at: Any) -> jax.Array:
        visits = tree.children_visits[at].reshape(actions, search.replies)
        prior = jax.nn.softmax(tree.children_prior_logits[at].reshape(actions, search.replies)[:, 0])
        values, tried = values_at(tree, at, visits)
        known = jnp.where(tried > 0, values, tree.raw_values[at])
        bonus = prior * jnp.sqrt(tree.node_visits[at]) / (1 + tried)
        score = known + search.exploration * bonus + tree.extra_data
        action = jnp.argmax(jnp.where(prior > 0, score, NEVER))
        return (action * search.replies + jnp.argmin(visits[action])).astype(jnp.int32)

    root = {
        "prior_logits": jnp.broadcast_to(jnp.repeat(logits, search.replies), (search.draws, actions * search.replies)),
        "value": jnp.broadcast_to(value, (search.draws,)),
        "embedding": jax.vmap(lambda *own: node(situation, mind, *own))(goals, shifts),
    }
    trees = mctx.search(
        params=(),
        rng_key=jax.random.fold_in(key, TREES),
        root=mctx.RootFnOutput(**root),
        recurrent_fn=expand,
        root_action_selection_fn=lambda key, tree, at: select(tree, at),
        interior_action_selection_fn=lambda key, tree, at, depth: select(tree, at),
        num_simulations=search.simulations,
        extra_data=1e-6 * ties,
    )
    visits = jnp.asarray(trees.children_visits)[:, 0].reshape(search.draws, actions, search.replies)
    values, tried = jax.vmap(values_at, (0, None, 0))(trees, 0, visits)
    return tried.sum(0), (values * tried).sum(0) / jnp.maximum(tried.sum(0), 1)


@pytest.mark.parametrize(("replies", "exploration"), [(1, 1.0), (4, 2.0)])
def test_the_same_trees_as_mctx(replies: int, exploration: float) -> None:
    search = Search(draws=2, simulations=48, replies=replies, exploration=exploration)
    planning = planning_of(known_others(GAME, "ns", "random"), search, inter="off", switch=0.02)
    grow = jax.jit(lambda key, mind, seen: grown_by_mctx(planning, key, mind, seen))
    for seed in range(6):
        state = first_state(GAME, seed)
        seen, mind = first_mind(planning, state)
        visits, values = map(np.asarray, grow(jax.random.key(seed), mind, seen))
        plan = plan_in(planning, state, seed)
        np.testing.assert_array_equal(plan.visits, visits)
        tried = visits > 0
        np.testing.assert_allclose(plan.values[tried], values[tried], atol=1e-4)

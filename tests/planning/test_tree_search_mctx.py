"""Tree search against mctx: with the same selection rule and keys, `mctx.search` grows the same trees."""

from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from common import first_state
from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.keys import fast
from hopplus.core.struct import struct
from hopplus.games import Observation, make
from hopplus.planning.tree_search import HYPOTHESES, MASKED_SCORE, STEP, TIES, TREES, Node, SearchConfig, TreePlanner
from planners import initial_beliefs, known_opponents, make_tree_planner, params_of, plan_in

GAME = make("msh-4x4-4h1s")


@struct
class MctxNode:
    """Embedding of a node."""

    state: Any
    beliefs: CoPlayerBeliefs
    node: Node


def values_at(tree: Any, node: Any, visits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the mean value over replies and the visit count, by action."""
    by_edge = tree.children_rewards[node] + tree.children_discounts[node] * tree.children_values[node]
    tried = visits.sum(-1)
    return (by_edge.reshape(visits.shape) * visits).sum(-1) / jnp.maximum(tried, 1), tried


def select(search: SearchConfig, tree: Any, node: Any, root_visits: Any = 0) -> jax.Array:
    """Selects the edge at a node by the rule of `TreeSearch`, with a number of visits of all actions at first."""
    visits = tree.children_visits[node].reshape(-1, search.reply_samples)
    prior = jax.nn.softmax(tree.children_prior_logits[node].reshape(-1, search.reply_samples)[:, 0])
    values, tried = values_at(tree, node, visits)
    q_values = jnp.where(tried > 0, values, tree.raw_values[node])
    bonus = prior * jnp.sqrt(tree.node_visits[node]) / (1 + tried)
    score = q_values + search.exploration * bonus + tree.extra_data
    least = jnp.min(jnp.where(prior > 0, tried, jnp.inf))
    is_next = (prior > 0) & (tried == least)
    covered = jnp.where(is_next, prior + tree.extra_data, MASKED_SCORE)
    chosen = jnp.where(least < root_visits, covered, jnp.where(prior > 0, score, MASKED_SCORE))
    action = jnp.argmax(chosen)
    return (action * search.reply_samples + jnp.argmin(visits[action])).astype(jnp.int32)


def grown_by_mctx(
    planner: TreePlanner, key: jax.Array, beliefs: CoPlayerBeliefs, observation: Observation
) -> tuple[jax.Array, jax.Array]:
    """Returns the visits and mean values of the root's actions, over all trees."""
    key, search = fast(key), planner.search
    params = params_of(planner.simulation.belief_tracker.opponent_model.num_goals)
    players, actions = beliefs.action_probs_by_goal.shape[0], beliefs.action_probs_by_goal.shape[-1]
    belief = jnp.log(beliefs.belief).reshape(players, -1)
    hypotheses = jax.random.categorical(
        jax.random.fold_in(key, HYPOTHESES), belief, shape=(search.belief_samples, players)
    )
    uniform = jax.random.uniform(jax.random.fold_in(key, TIES), (search.belief_samples, players + actions))
    shifts, ties = jnp.split(uniform, [players], axis=-1)
    logits, value = planner.simulation.evaluate((), observation, beliefs)
    root_state = planner.simulation.simulator.from_observation(observation)

    def node(
        state: Any, beliefs: CoPlayerBeliefs, posterior: jax.Array, hypotheses: jax.Array, shifts: jax.Array
    ) -> MctxNode:
        return MctxNode(state, beliefs, planner.node(state, beliefs, posterior, hypotheses, shifts))

    def expand(context: Any, key: jax.Array, edges: Any, nodes: Any) -> tuple[Any, Any]:
        shifts = jax.random.uniform(jax.random.fold_in(key, search.belief_samples), hypotheses.shape)
        keys = jax.vmap(lambda tree: jax.random.fold_in(key, tree))(jnp.arange(search.belief_samples))

        def expand_tree(
            key: jax.Array, edge: Any, parent: MctxNode, hypotheses: jax.Array, shifts: jax.Array
        ) -> tuple[Any, Any]:
            action, reply = edge // search.reply_samples, edge % search.reply_samples
            replies = parent.node.replies[reply]
            step_key = jax.random.fold_in(key, STEP)
            step = planner.simulation.step(step_key, params, parent.state, parent.beliefs, action, replies)
            posterior = planner.posterior(parent.node, parent.beliefs, replies, step)
            output = {
                "reward": step.reward,
                "discount": jnp.where(step.is_alive, search.gamma, 0.0),
                "prior_logits": jnp.repeat(step.logits, search.reply_samples),
                "value": jnp.where(step.is_alive, step.value, 0.0),
            }
            return mctx.RecurrentFnOutput(**output), node(step.state, step.beliefs, posterior, hypotheses, shifts)

        return jax.vmap(expand_tree)(keys, edges, nodes, hypotheses, shifts)

    root = {
        "prior_logits": jnp.broadcast_to(
            jnp.repeat(logits, search.reply_samples), (search.belief_samples, actions * search.reply_samples)
        ),
        "value": jnp.broadcast_to(value, (search.belief_samples,)),
        "embedding": jax.vmap(lambda *drawn: node(root_state, beliefs, beliefs.belief, *drawn))(hypotheses, shifts),
    }
    trees = mctx.search(
        params=(),
        rng_key=jax.random.fold_in(key, TREES),
        root=mctx.RootFnOutput(**root),
        recurrent_fn=expand,
        root_action_selection_fn=lambda key, tree, node: select(search, tree, node, search.root_visits),
        interior_action_selection_fn=lambda key, tree, node, depth: select(search, tree, node),
        num_simulations=search.simulations,
        extra_data=1e-6 * ties,
    )
    visits = jnp.asarray(trees.children_visits)[:, 0].reshape(search.belief_samples, actions, search.reply_samples)
    values, tried = jax.vmap(values_at, (0, None, 0))(trees, 0, visits)
    return tried.sum(0), (values * tried).sum(0) / jnp.maximum(tried.sum(0), 1)


@pytest.mark.parametrize(
    ("settings", "intra"),
    [
        ({"reply_samples": 1, "exploration": 1.0, "hypotheses": "tree", "cover_root": False}, True),
        ({"reply_samples": 4, "exploration": 2.0}, True),
        ({"reply_samples": 4, "exploration": 2.0}, False),
    ],
    ids=["as in HOP", "default", "without updates of beliefs"],
)
def test_the_same_trees_as_mctx(settings: dict[str, Any], intra: bool) -> None:
    search = SearchConfig(belief_samples=2, simulations=48, **settings)
    opponent_model = known_opponents(GAME, "ns", "random")
    planner = make_tree_planner(opponent_model, search, inter="off", intra=intra, goal_switch_probability=0.02)
    grow = jax.jit(lambda key, beliefs, observation: grown_by_mctx(planner, key, beliefs, observation))
    for seed in range(6):
        state = first_state(GAME, seed)
        observation, beliefs = initial_beliefs(planner, state)
        visits, values = map(np.asarray, grow(jax.random.key(seed), beliefs, observation))
        plan = plan_in(planner, state, seed)
        np.testing.assert_array_equal(plan.visits, visits)
        tried = visits > 0
        np.testing.assert_allclose(plan.values[tried], values[tried], atol=1e-4)

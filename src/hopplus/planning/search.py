"""Planning: tree search (mctx) over the ego's actions, co-players being drawn from the model of them.

For every decision several goals of the co-players are drawn from the beliefs, and for each a tree is grown. An edge of
a tree is an action of the ego and one of several replies of the co-players, drawn once for every node: the search
chooses the action, and the replies in turn. So the worth of an action is a mean over replies; with a single one
(`replies=1`) luck would be taken for foresight, and a deep search would be clairvoyant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.keys import Key, fast
from hopplus.planning.acquaintance import Acquainting, Mind
from hopplus.planning.simulator import Simulator, Situation
from hopplus.struct import struct

Params = Any
Evaluate = Callable[[Params, Observation, Mind], tuple[Array, Array]]
"""`(policy's params, what the ego sees, what it makes of the others) -> (masked logits [A], value [])`."""
GOALS, TREES, TIES = range(3)
"""Purposes of a decision's key."""
STRIDES = (1, 3, 5, 7, 11, 13, 17)
"""By co-player, how far its draws for one reply and the next lie apart, so that few replies cover much."""
NEVER = -1e9


@dataclass(frozen=True)
class Search:
    """How a planner searches."""

    draws: int = 3
    """Goals of all co-players that are drawn from the beliefs; a tree is grown for each."""
    simulations: int = 32
    """Steps that each tree is grown by."""
    replies: int = 4
    """What the co-players do in answer to an action is drawn so many times at every node."""
    exploration: float = 2.0
    """PUCT's constant, in units of reward: how much the policy counts against values that were found."""
    sharpness: float = 10.0
    """How fast the improved policy, softmax(log policy + sharpness Q / most), moves towards what the search found; most
    is what one player can earn at most."""
    temperature: float | None = None
    """HOP's: act by softmax(Q / temperature) instead, whatever the policy says."""
    discount: float = 0.995
    """What a reward one step later is worth."""


@struct
class Node:
    """A node of a tree: where the simulation is, what the ego would make of it, and what the others may do."""

    situation: Situation
    mind: Mind
    replies: Int[Array, "R n-1"]


@struct
class Plan:
    """What a search found."""

    values: Float[Array, " A"]
    """Q: what every action is worth, in the game's reward; what the search never tried has the value of the root."""
    visits: Float[Array, " A"]
    """How often each was tried, over all trees."""
    policy: Float[Array, " A"]
    """The improved policy."""
    value: Float[Array, ""]
    """What the ego can expect, by the search."""
    depth: Float[Array, ""]
    """How deep the trees are, on average."""


@struct
class Simulated:
    """Where a simulated step led, and what the ego would make of it."""

    situation: Situation
    mind: Mind
    seen: Observation
    reward: Float[Array, ""]
    """The ego's."""
    goes_on: Bool[Array, ""]
    """Whether the ego is still in a game that is not over."""
    logits: Float[Array, " A"]
    value: Float[Array, ""]


@dataclass(frozen=True)
class Planning:
    """A search with all that it needs."""

    search: Search
    simulator: Simulator
    acquainting: Acquainting
    evaluate: Evaluate

    def plan(self, key: Key, params: Params, mind: Mind, observation: Observation) -> Plan:
        """The plan for one decision; params are {policy, moa, world}."""
        key, draws = fast(key), self.search.draws
        co_players, actions = mind.expected.shape[0], mind.expected.shape[-1]
        goals = jax.random.categorical(jax.random.fold_in(key, GOALS), mind.belief, shape=(draws, co_players))
        uniform = jax.random.uniform(jax.random.fold_in(key, TIES), (draws, co_players + actions))
        shifts, ties = jnp.split(uniform, [co_players], axis=-1)
        logits, value = self.evaluate(params["policy"], observation, mind)
        situation = self.simulator.at(observation)
        first = {
            "prior_logits": jnp.broadcast_to(self._edges(logits), (draws, actions * self.search.replies)),
            "value": jnp.broadcast_to(value, (draws,)),
            "embedding": jax.vmap(lambda *own: Node(situation, mind, self.replies(mind, *own)))(goals, shifts),
        }
        trees = mctx.search(
            params=(params, goals),  # pyright: ignore[reportArgumentType]
            rng_key=jax.random.fold_in(key, TREES),
            root=mctx.RootFnOutput(**first),
            recurrent_fn=self._expand,
            root_action_selection_fn=lambda key, tree, node: self._select(tree, node),
            interior_action_selection_fn=lambda key, tree, node, depth: self._select(tree, node),
            num_simulations=self.search.simulations,
            extra_data=1e-6 * ties,
        )
        return self._found(trees, logits, value)

    # -- growing a tree

    def _edges(self, by_action: Float[Array, "... A"]) -> Float[Array, "... AR"]:
        """What holds of an action, at every edge with it."""
        return jnp.repeat(by_action, self.search.replies, axis=-1)

    def replies(self, mind: Mind, goals: Int[Array, " n-1"], shifts: Float[Array, " n-1"]) -> Int[Array, "R n-1"]:
        """What co-players with these goals do, drawn `replies` times: each draw is by itself as the model has it, and
        all of them together are spread evenly."""
        chosen = jnp.take_along_axis(mind.expected, goals[:, None, None], 1)[:, 0]
        number, players = self.search.replies, len(goals)
        steps = np.arange(number)[:, None] * np.array(STRIDES[:players]) / number
        return drawn((shifts + steps) % 1.0, chosen)

    def _expand(self, context: Any, key: Key, edges: Any, nodes: Any) -> tuple[Any, Any]:
        """The nodes at the ends of edges [M], one of each tree."""
        params, goals = context
        shifts = jax.random.uniform(jax.random.fold_in(key, edges.shape[0]), goals.shape)
        keys = jax.vmap(lambda tree: jax.random.fold_in(key, tree))(jnp.arange(edges.shape[0]))

        def one(key: Key, edge: Array, node: Node, goals: Array, shifts: Array) -> tuple[Any, Node]:
            action, reply = edge // self.search.replies, edge % self.search.replies
            step = self.simulate(key, params, node.situation, node.mind, action, node.replies[reply])
            output = {
                "reward": step.reward,
                "discount": jnp.where(step.goes_on, self.search.discount, 0.0),
                "prior_logits": self._edges(step.logits),
                "value": jnp.where(step.goes_on, step.value, 0.0),
            }
            return mctx.RecurrentFnOutput(**output), Node(
                step.situation, step.mind, self.replies(step.mind, goals, shifts)
            )

        return jax.vmap(one)(keys, edges, nodes, goals, shifts)

    def simulate(
        self,
        key: Key,
        params: Params,
        situation: Situation,
        mind: Mind,
        action: Int[Array, ""],
        replies: Int[Array, " n-1"],
    ) -> "Simulated":
        """One step with the ego's action and the co-players', and what the ego would make of it."""
        actions = jnp.concatenate([action[None], replies])
        step = self.simulator.step(key, params.get("world", ()), situation, actions)
        everybody = self.simulator.observe(step.situation)
        mind = self.acquainting.imagine(params["moa"], mind, replies, everybody)
        seen = jax.tree.map(lambda leaf: leaf[0], everybody)
        logits, value = self.evaluate(params["policy"], seen, mind)
        return Simulated(step.situation, mind, seen, step.reward[0], step.goes_on, logits, value)

    def _select(self, tree: Any, node: Any) -> Int[Array, ""]:
        """PUCT on raw values among actions; of the replies to the chosen one that which was tried least."""
        by_edge = (-1, self.search.replies)
        visits = tree.children_visits[node].reshape(by_edge)
        prior = jax.nn.softmax(tree.children_prior_logits[node].reshape(by_edge)[:, 0])
        values, tried = _values(tree, node, visits)
        known = jnp.where(tried > 0, values, tree.raw_values[node])
        bonus = prior * jnp.sqrt(tree.node_visits[node]) / (1 + tried)
        score = known + self.search.exploration * bonus + tree.extra_data
        action = jnp.argmax(jnp.where(prior > 0, score, NEVER))
        return (action * self.search.replies + jnp.argmin(visits[action])).astype(jnp.int32)

    # -- what was found

    def _found(self, trees: Any, logits: Float[Array, " A"], root_value: Float[Array, ""]) -> Plan:
        legal = logits > NEVER / 2
        visits = trees.children_visits[:, 0].reshape(self.search.draws, -1, self.search.replies)
        values, tried = jax.vmap(_values, (0, None, 0))(trees, 0, visits)
        total = tried.sum(0)
        mean = (values * tried).sum(0) / jnp.maximum(total, 1)
        policy = jax.nn.softmax(logits)
        found = jnp.where(total > 0, policy, 0.0)
        guess = (found * mean).sum() / jnp.maximum(found.sum(), 1e-9)
        untried = jnp.where(found.sum() > 0, (root_value + total.sum() * guess) / (1 + total.sum()), root_value)
        worth = jnp.where(legal, jnp.where(total > 0, mean, untried), 0.0)
        improved = self._improved(logits, worth, legal)
        return Plan(
            values=worth,
            visits=total.astype(jnp.float32),
            policy=improved,
            value=(improved * worth).sum(),
            depth=jax.vmap(_depth)(trees).mean(),
        )

    def _improved(self, logits: Array, worth: Array, legal: Bool[Array, " A"]) -> Float[Array, " A"]:
        if self.search.temperature is not None:
            return jax.nn.softmax(jnp.where(legal, worth / self.search.temperature, NEVER))
        most = float(self.simulator.game.ceilings["player"]) or 1.0
        return jax.nn.softmax(jnp.where(legal, logits + self.search.sharpness * worth / most, NEVER))


def drawn(uniform: Float[Array, "*batch n-1"], probabilities: Float[Array, "n-1 A"]) -> Int[Array, "*batch n-1"]:
    """The actions that uniform numbers stand for; one of probability 0 is never drawn."""
    bounds = jnp.cumsum(probabilities, -1)
    found = (uniform[..., None] * bounds[:, -1:] >= bounds).sum(-1)
    last = jnp.max(jnp.where(probabilities > 0, jnp.arange(probabilities.shape[-1]), 0), -1)
    return jnp.minimum(found, last).astype(jnp.int32)


def _values(tree: Any, node: Any, visits: Int[Array, "A R"]) -> tuple[Float[Array, " A"], Int[Array, " A"]]:
    """By action at a node, the mean of what was found over replies in proportion to visits, and how often it was
    tried."""
    by_edge = tree.children_rewards[node] + tree.children_discounts[node] * tree.children_values[node]
    tried = visits.sum(-1)
    return (by_edge.reshape(visits.shape) * visits).sum(-1) / jnp.maximum(tried, 1), tried


def _depth(tree: Any) -> Float[Array, ""]:
    """The mean depth of a tree's nodes; every node comes after its parent."""

    def add(depths: Array, node: Array) -> tuple[Array, None]:
        parent = tree.parents[node]
        return depths.at[node].set(jnp.where(parent < 0, 0, depths[jnp.maximum(parent, 0)] + 1)), None

    nodes = tree.parents.shape[0]
    depths, _ = jax.lax.scan(add, jnp.zeros(nodes), jnp.arange(nodes))
    return depths[1:].sum() / jnp.maximum((tree.parents[1:] >= 0).sum(), 1)

"""Planning: tree search over the ego's actions, co-players being drawn from the model of them.

For every decision several goals of the co-players are drawn from the beliefs, and for each a tree is grown. An edge of
a tree is an action of the ego and one of several replies of the co-players, drawn once for every node: the search
chooses the action, and the replies in turn. So the worth of an action is a mean over replies; with a single one
(`replies=1`) luck would be taken for foresight, and a deep search would be clairvoyant.

It finds what `mctx.search` finds with the same rule of choice (a test holds that), in a fraction of the time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation, one_seat
from hopplus.keys import Key, fast
from hopplus.planning.acquaintance import Acquainting, Mind
from hopplus.planning.glances import glances, looking
from hopplus.planning.simulator import Simulator, Situation
from hopplus.planning.tree import NEVER, Arrival, Growth, Tree, unpacked
from hopplus.struct import struct

Params = Any
Evaluate = Callable[[Params, Observation, Mind], tuple[Array, Array]]
"""`(policy's params, what the ego sees, what it makes of the others) -> (masked logits [A], value [])`."""
GOALS, TREES, TIES = range(3)
"""Purposes of a decision's key."""
STRIDES = (1, 3, 5, 7, 11, 13, 17)
"""By co-player, how far its draws for one reply and the next lie apart, so that few replies cover much."""


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
    """A node of a tree: where the simulation is, what the ego would make of it, and what the others may do. (Of its
    mind only what differs from node to node.)"""

    situation: Situation
    belief: Float[Array, "n-1 K"]
    expected: Float[Array, "n-1 K A"]
    replies: Int[Array, "R n-1"]


@struct
class Plan:
    """What a search found."""

    values: Float[Array, " A"]
    """Q: what every action is worth, in reward as far as the ego likes it; what the search never tried has the value of
    the root. (One who is clumsy plans as if its hand were sure.)"""
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

        root = jax.nn.softmax(logits), value, jnp.int32(-1), jnp.float32(0), jnp.float32(0)

        def planted(goals: Array, shifts: Array, ties: Array) -> Tree:
            node = Node(situation, mind.belief, mind.expected, self.replies(mind.expected, goals, shifts))
            return self._growth.plant(node, Arrival(*root), 1e-6 * ties, self.search.simulations)

        def simulation(carry: tuple[Key, Tree], number: Array) -> tuple[tuple[Key, Tree], None]:
            key, _, own = jax.random.split(carry[0], 3)
            shifts = jax.random.uniform(jax.random.fold_in(own, draws), goals.shape)
            keys = jax.vmap(lambda tree: jax.random.fold_in(own, tree))(jnp.arange(draws))
            like = Node(situation, mind.belief, mind.expected, jnp.zeros((self.search.replies, co_players), jnp.int32))
            grow = jax.vmap(lambda *of_tree: self._grow(params, mind, like, number, *of_tree))
            return (key, grow(carry[1], keys, goals, shifts)), None

        first = (jax.random.fold_in(key, TREES), jax.vmap(planted)(goals, shifts, ties))
        (_, trees), _ = jax.lax.scan(simulation, first, 1 + jnp.arange(self.search.simulations))
        return self._found(trees, logits, value)

    # -- growing a tree

    @property
    def _growth(self) -> Growth:
        return Growth(self.simulator.game.num_actions, self.search.replies, self.search.exploration)

    def replies(
        self, expected: Float[Array, "n-1 K A"], goals: Int[Array, " n-1"], shifts: Float[Array, " n-1"]
    ) -> Int[Array, "R n-1"]:
        """What co-players with these goals do, drawn `replies` times: each draw is by itself as the model has it, and
        all of them together are spread evenly."""
        chosen = jnp.take_along_axis(expected, goals[:, None, None], 1)[:, 0]
        number, players = self.search.replies, len(goals)
        steps = np.arange(number)[:, None] * np.array(STRIDES[:players]) / number
        return drawn((shifts + steps) % 1.0, chosen)

    def _grow(
        self,
        params: Params,
        mind: Mind,
        like: Node,
        number: Int[Array, ""],
        tree: Tree,
        key: Key,
        goals: Int[Array, " n-1"],
        shifts: Float[Array, " n-1"],
    ) -> Tree:
        """The tree with one node more, its number given; `mind` is that at the root, and nodes are `like` this one."""
        at, action, reply = self._growth.end(tree)
        node = unpacked(tree.contents[at], like)
        before = Mind(node.belief, mind.prior, node.expected, mind.particles, mind.taste)
        step = self.simulate(key, params, node.situation, before, action, node.replies[reply])
        arrival = Arrival(
            prior=jax.nn.softmax(step.logits),
            value=jnp.where(step.goes_on, step.value, 0.0),
            above=tree.next,
            reward=step.reward,
            discount=jnp.where(step.goes_on, self.search.discount, 0.0),
        )
        drawn = self.replies(step.mind.expected, goals, shifts)
        after = Node(step.situation, step.mind.belief, step.mind.expected, drawn)
        return self._growth.grow(tree, number, after, arrival)

    def simulate(
        self,
        key: Key,
        params: Params,
        situation: Situation,
        mind: Mind,
        action: Int[Array, ""],
        replies: Int[Array, " n-1"],
    ) -> Simulated:
        """One step with the ego's action and the co-players', and what the ego would make of it; of its reward, as much
        as it likes."""
        actions = jnp.concatenate([action[None], replies])
        step = self.simulator.step(key, params.get("world", ()), situation, actions)
        everybody = self.simulator.observe(step.situation)
        reward = step.reward[0] * mind.taste.likes[action]
        mind = self.acquainting.imagine(params["moa"], mind, replies, everybody, step.situation.state)
        seen, game = one_seat(everybody, 0), self.simulator.game
        own = jax.tree.map(lambda leaf: leaf[0], glances(game, step.situation.state))
        with looking(game, own):
            logits, value = self.evaluate(params["policy"], seen, mind)
        return Simulated(step.situation, mind, seen, reward, step.goes_on, logits, value)

    # -- what was found

    def _found(self, trees: Tree, logits: Float[Array, " A"], root_value: Float[Array, ""]) -> Plan:
        legal = logits > NEVER / 2
        found, total = trees.found[:, : len(logits)].sum(0).T
        mean = found / jnp.maximum(total, 1)
        policy = jax.nn.softmax(logits)
        known = jnp.where(total > 0, policy, 0.0)
        guess = (known * mean).sum() / jnp.maximum(known.sum(), 1e-9)
        untried = jnp.where(known.sum() > 0, (root_value + total.sum() * guess) / (1 + total.sum()), root_value)
        worth = jnp.where(legal, jnp.where(total > 0, mean, untried), 0.0)
        improved = self._improved(logits, worth, legal)
        return Plan(
            values=worth,
            visits=total,
            policy=improved,
            value=(improved * worth).sum(),
            depth=trees.depth.mean() / self.search.simulations,
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

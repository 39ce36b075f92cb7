"""Tree search over the ego's actions, with co-players' actions sampled from the opponent model.

An edge of a tree is an action of the ego and one of several replies of the co-players, which are sampled once per node.
The search selects the action and uses the replies in turn, so an action's value is a mean over replies. With a single
reply (`reply_samples=1`) the search would exploit the frozen outcome of each edge, and deep searches would be
clairvoyant.

The search does not know the co-players' hypotheses. A tree that is grown for one draw of them would plan with knowledge
that the ego lacks (strategy fusion). So hypotheses are drawn anew for every simulation. Given the path to a node, the
reply there then follows the opponent model averaged over the beliefs that are filtered along that path (root sampling:
POMCP, Silver and Veness, 2010; BAMCP, Guez et al., 2012). Replies are sampled from this average, without an explicit
draw, so that the stored replies of a node are valid for every simulation through it.

Several trees are grown for a decision. Each has its own replies, so that the value of an action is a mean over more
replies at the root, and trees grow in one batch, which takes less time than one tree of as many simulations. HOP's
search, in which each tree has one draw of hypotheses, is an option (`hypotheses="tree"`).

The results equal those of `mctx.search` with the same selection rule (held by a test), in a fraction of the time.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.planning.plan import Plan
from hopplus.planning.playout import playout_value
from hopplus.planning.simulation import BeliefSimulator, Params, SimulatedStep, sample_actions
from hopplus.planning.simulator import SimState
from hopplus.planning.tree import MASKED_SCORE, Selection, Tree, TreeSearch, Visit, unpack

HYPOTHESES, TREES, TIES = range(3)
"""Purposes of a decision's key."""
STEP, LEAF_HYPOTHESES, LEAF = range(3)
"""Purposes of the key of a simulation in one tree."""
STRIDES = (1, 3, 5, 7, 11, 13, 17)
"""By co-player, the stride between the quantiles of successive replies, so that few replies cover the distribution."""


@dataclass(frozen=True)
class SearchConfig:
    """Configuration of the tree search."""

    belief_samples: int = 3
    """Trees per decision, each with samples of its own from the beliefs."""
    simulations: int = 32
    """Simulations per tree."""
    reply_samples: int = 4
    """Samples of the co-players' joint action at every node."""
    exploration: float = 2.0
    """PUCT's exploration constant, in units of reward."""
    q_scale: float = 20.0
    """Weight c of values in the improved policy softmax(log policy + c Q / max(spread, floor)). The spread is that of
    the values of visited root actions, so that c is the log-odds of the best against the worst action."""
    q_floor: float = 0.1
    """Floor of the spread, as a share of the maximum return of one player: smaller differences have less weight."""
    temperature: float | None = None
    """HOP's policy softmax(Q / temperature) instead, independent of the prior policy."""
    gamma: float = 0.995
    """Discount factor."""
    hypotheses: Literal["simulation", "tree"] = "simulation"
    """Draw hypotheses about the co-players for every simulation, or once per tree, as in HOP."""
    cover_root: bool = True
    """Visit every legal action at the root before PUCT decides, `reply_samples` times over all trees. If there are too
    few simulations, the actions have equally many visits, or the likeliest have one."""
    leaf: Literal["value", "rollout"] = "value"
    """Value of a new node: the network's, or the return of one playout of the policy to the end of the episode."""

    @property
    def root_visits(self) -> int:
        """Visits of every legal root action in each tree before PUCT decides; the trees share them evenly."""
        return math.ceil(self.reply_samples / self.belief_samples) if self.cover_root else 0


@struct
class Node:
    """Contents of a tree node.

    Simulation state, the part of the ego's beliefs that differs between nodes, and the sampled replies.
    """

    state: SimState
    belief: Float[Array, "n-1 B K"]
    posterior: Float[Array, "n-1 B K"] | None
    """Probabilities of the co-players' hypotheses, given the path; None if they are the ego's belief."""
    action_probs_by_goal: Float[Array, "n-1 H A"]
    replies: Int[Array, "R n-1"]


@struct
class Draws:
    """Random numbers of one simulation, for the new node of one tree."""

    key: Key
    hypotheses: Int[Array, " n-1"]
    """Hypotheses of the tree, numbered b K + k (`hypotheses="tree"`)."""
    shifts: Float[Array, " n-1"]
    """First quantile of the replies, by co-player."""


@dataclass(frozen=True)
class TreePlanner:
    """Tree search with the player's simulator, beliefs, policy and value."""

    search: SearchConfig
    simulation: BeliefSimulator

    def plan(self, key: Key, params: Params, beliefs: CoPlayerBeliefs, observation: Observation) -> Plan:
        """Plans one decision; `params` are {policy, moa, world}."""
        key, samples = fast(key), self.search.belief_samples
        co_players, actions = beliefs.action_probs_by_goal.shape[0], beliefs.action_probs_by_goal.shape[-1]
        belief, legal = jnp.log(beliefs.belief).reshape(co_players, -1), observation.legal[0]
        hypotheses = jax.random.categorical(jax.random.fold_in(key, HYPOTHESES), belief, shape=(samples, co_players))
        uniform = jax.random.uniform(jax.random.fold_in(key, TIES), (samples, co_players + actions))
        shifts, ties = jnp.split(uniform, [co_players], axis=-1)
        logits, value = self.simulation.evaluate(params["policy"], observation, beliefs)
        root_state = self.simulation.simulator.from_observation(observation)
        root_visit = Visit(jax.nn.softmax(logits), value, jnp.int32(-1), jnp.float32(0), jnp.float32(0))

        def root_node(hypotheses: Array, shifts: Array) -> Node:
            return self.node(root_state, beliefs, beliefs.belief, hypotheses, shifts)

        def init_tree(hypotheses: Array, shifts: Array, ties: Array) -> Tree:
            selection = Selection(1e-6 * ties, legal)
            return self._tree_search.init(root_node(hypotheses, shifts), root_visit, selection, self.search.simulations)

        like = jax.eval_shape(root_node, hypotheses[0], shifts[0])

        def simulation(carry: tuple[Key, Tree], number: Array) -> tuple[tuple[Key, Tree], None]:
            key, _, step_key = jax.random.split(carry[0], 3)
            shifts = jax.random.uniform(jax.random.fold_in(step_key, samples), hypotheses.shape)
            keys = jax.vmap(lambda tree: jax.random.fold_in(step_key, tree))(jnp.arange(samples))
            grow = jax.vmap(lambda *per_tree: self._grow(params, beliefs, like, number, *per_tree))
            return (key, grow(carry[1], Draws(keys, hypotheses, shifts))), None

        first = (jax.random.fold_in(key, TREES), jax.vmap(init_tree)(hypotheses, shifts, ties))
        (_, trees), _ = jax.lax.scan(simulation, first, 1 + jnp.arange(self.search.simulations))
        return self._summarize(trees, logits, value, legal)

    # -- growing a tree

    @property
    def _tree_search(self) -> TreeSearch:
        search, actions = self.search, self.simulation.game.num_actions
        return TreeSearch(actions, search.reply_samples, search.exploration, search.root_visits)

    def node(
        self,
        state: SimState,
        beliefs: CoPlayerBeliefs,
        posterior: Float[Array, "n-1 B K"],
        hypotheses: Int[Array, " n-1"],
        shifts: Float[Array, " n-1"],
    ) -> Node:
        """Returns a node's contents, with replies from the posterior or by the hypotheses of the tree."""
        rationality = self.simulation.belief_tracker.rationality
        if self.search.hypotheses == "tree":
            reply_probs = rationality.policy_of(beliefs.action_probs_by_goal, hypotheses)
        else:
            reply_probs = rationality.mixture(beliefs.action_probs_by_goal, posterior)
        kept = posterior if self._has_posterior else None
        replies = self.replies(reply_probs, shifts)
        return Node(state, beliefs.belief, kept, beliefs.action_probs_by_goal, replies)

    def replies(self, action_probs: Float[Array, "n-1 A"], shifts: Float[Array, " n-1"]) -> Int[Array, "R n-1"]:
        """Samples R joint actions of co-players with these action probabilities.

        Each sample follows the probabilities. Together the samples are stratified: co-player j's quantiles are evenly
        spaced from `shifts[j]`.
        """
        number, players = self.search.reply_samples, len(shifts)
        steps = np.arange(number)[:, None] * np.array(STRIDES[:players]) / number
        return sample_actions((shifts + steps) % 1.0, action_probs)

    @property
    def _has_posterior(self) -> bool:
        """True if nodes keep a posterior of their own: the ego's beliefs are not updated within an episode."""
        return self.search.hypotheses == "simulation" and not self.simulation.belief_tracker.intra

    def posterior(
        self, node: Node, before: CoPlayerBeliefs, replies: Int[Array, " n-1"], step: SimulatedStep
    ) -> Float[Array, "n-1 B K"]:
        """Returns the probabilities of the co-players' hypotheses after a step from a node."""
        if node.posterior is None:
            return step.beliefs.belief
        tracker = self.simulation.belief_tracker
        return tracker.filter_imagined(node.posterior, before, replies, step.observation)

    def _grow(
        self, params: Params, beliefs: CoPlayerBeliefs, like: Node, number: Int[Array, ""], tree: Tree, draws: Draws
    ) -> Tree:
        """Adds node `number` to a tree; `beliefs` are those at the root, and `like` has the shapes of a node."""
        parent, action, reply = self._tree_search.select_leaf(tree)
        node = unpack(tree.contents[parent], like)
        replies = node.replies[reply]
        before = replace(beliefs, belief=node.belief, action_probs_by_goal=node.action_probs_by_goal)
        step_key = jax.random.fold_in(draws.key, STEP)
        step = self.simulation.step(step_key, params, node.state, before, action, replies)
        posterior = self.posterior(node, before, replies, step)
        visit = Visit(
            prior=jax.nn.softmax(step.logits),
            value=jnp.where(step.is_alive, self.leaf_value(params, step, posterior, draws), 0.0),
            parent_edge=tree.leaf,
            reward=step.preferred_reward(beliefs.preference),
            discount=jnp.where(step.is_alive, self.search.gamma, 0.0),
        )
        child = self.node(step.state, step.beliefs, posterior, draws.hypotheses, draws.shifts)
        return self._tree_search.expand_and_backup(tree, number, child, visit)

    def leaf_value(
        self, params: Params, step: SimulatedStep, posterior: Float[Array, "n-1 B K"], draws: Draws
    ) -> Float[Array, ""]:
        """Returns the value of a new node: the network's, or the return of a playout with drawn hypotheses."""
        if self.search.leaf == "value":
            return step.value
        hypotheses = draws.hypotheses
        if self.search.hypotheses == "simulation":
            uniform = jax.random.uniform(jax.random.fold_in(draws.key, LEAF_HYPOTHESES), hypotheses.shape)
            hypotheses = sample_actions(uniform, posterior.reshape(len(hypotheses), -1))
        key = jax.random.fold_in(draws.key, LEAF)
        return playout_value(self.simulation, key, params, step, hypotheses, self.search.gamma)

    # -- result

    def _summarize(
        self, trees: Tree, logits: Float[Array, " A"], root_value: Float[Array, ""], legal: Bool[Array, " A"]
    ) -> Plan:
        returns, visits = trees.returns[:, : len(logits)].sum(0).T
        mean = returns / jnp.maximum(visits, 1)
        policy = jax.nn.softmax(logits)
        visited_policy = jnp.where(visits > 0, policy, 0.0)
        visited_value = (visited_policy * mean).sum() / jnp.maximum(visited_policy.sum(), 1e-9)
        mixed_value = (root_value + visits.sum() * visited_value) / (1 + visits.sum())
        unvisited = jnp.where(visited_policy.sum() > 0, mixed_value, root_value)
        values = jnp.where(legal, jnp.where(visits > 0, mean, unvisited), 0.0)
        improved = self.improved_policy(logits, values, legal, legal & (visits > 0))
        return Plan(
            values=values,
            errors=None,
            visits=visits,
            policy=improved,
            value=(improved * values).sum(),
            depth=trees.depth.mean() / self.search.simulations,
        )

    def improved_policy(
        self,
        logits: Float[Array, " A"],
        values: Float[Array, " A"],
        legal: Bool[Array, " A"],
        visited: Bool[Array, " A"],
    ) -> Float[Array, " A"]:
        """Returns the policy that weighs the prior policy by the values; the spread is that of `visited` actions."""
        if self.search.temperature is not None:
            return jax.nn.softmax(jnp.where(legal, values / self.search.temperature, MASKED_SCORE))
        highest = jnp.max(jnp.where(visited, values, -jnp.inf))
        lowest = jnp.min(jnp.where(visited, values, jnp.inf))
        floor = self.search.q_floor * (float(self.simulation.game.ceilings["player"]) or 1.0)
        scale = self.search.q_scale / jnp.maximum(highest - lowest, floor)
        return jax.nn.softmax(jnp.where(legal, logits + scale * values, MASKED_SCORE))

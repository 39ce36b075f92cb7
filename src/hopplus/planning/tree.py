"""Search tree: selection of the next leaf, expansion by one node, and backup of its value.

A node has an edge for every action and every reply to it. Everything here is for one tree; a search grows many trees at
once with `jax.vmap`. A simulation touches only the nodes on its path, whatever the size of the tree: the leaf of the
next simulation is known in advance, because the selection at a node changes only after a backup through it.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.struct import struct

MASKED_SCORE = -1e9
"""Score of an action that must not be selected."""


@struct
class Visit:
    """Statistics of a node that are fixed at its expansion."""

    prior: Float[Array, " A"]
    """Policy at the node."""
    value: Float[Array, ""]
    """Network's value of the node; 0 where the ego's game has ended."""
    parent_edge: Int[Array, ""]
    """Edge that leads to the node; -1 for the root."""
    reward: Float[Array, ""]
    """Reward on the parent edge."""
    discount: Float[Array, ""]
    """Discount on the parent edge; 0 where the ego's game has ended."""


@struct
class Selection:
    """Inputs of the selection of actions that are the same at all nodes of a tree."""

    ties: Float[Array, " A"]
    """Small scores that break ties between actions."""
    root_legal: Bool[Array, " A"]
    """Legal actions at the root."""


@struct
class Tree:
    """A tree of nodes [N], the root first.

    The edge with action a and reply r at node k has the number (k A + a) R + r. An edge is open until it leads to a
    node.
    """

    contents: Int[Array, "N F"]
    """Simulation state of each node, as `pack` encodes it."""
    visits: Int[Array, "N G"]
    """`Visit` of each node, as `pack` encodes it."""
    returns: Float[Array, "NA 2"]
    """Sum of backed-up returns and visit count, by node and action."""
    next_leaf: Int[Array, " NAR"]
    """By edge that is not open: the open edge at which a simulation through it would end."""
    leaf: Int[Array, ""]
    """Open edge at which the next simulation ends."""
    depth: Int[Array, ""]
    """Sum of the depths of all nodes."""
    selection: Selection


@dataclass(frozen=True)
class TreeSearch:
    """Operations on trees: selection by PUCT on raw values, expansion and backup.

    At the root, every legal action is visited some times before PUCT decides, whatever its prior. Below the root,
    actions to which the policy gives probability 0 are never selected.
    """

    actions: int
    """Number of actions, A."""
    replies: int
    """Replies per action, R."""
    exploration: float
    """PUCT's exploration constant."""
    root_visits: int
    """Visits of every legal action at the root before PUCT decides there."""

    def init(self, content: Any, visit: Visit, selection: Selection, simulations: int) -> Tree:
        """Returns a tree of the root alone, with room for `simulations` more nodes."""
        nodes, edges = 1 + simulations, self.actions * self.replies

        def allocate(root: Array) -> Array:
            return jnp.zeros((nodes, *root.shape), root.dtype).at[0].set(root)

        no_returns = jnp.zeros((self.actions, 2), visit.value.dtype)
        return Tree(
            contents=allocate(pack(content)),
            visits=allocate(pack(visit)),
            returns=jnp.zeros((nodes * self.actions, 2), visit.value.dtype),
            next_leaf=jnp.zeros(nodes * edges, jnp.int32),
            leaf=self._select_action(visit, no_returns, selection) * self.replies,
            depth=jnp.int32(0),
            selection=selection,
        )

    def select_leaf(self, tree: Tree) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
        """Returns the edge that the next simulation expands: its node, action and reply."""
        pair, reply = jnp.divmod(tree.leaf, self.replies)
        node, action = jnp.divmod(pair, self.actions)
        return node, action, reply

    def expand_and_backup(self, tree: Tree, number: Int[Array, ""], content: Any, visit: Visit) -> Tree:
        """Adds node `number` at the selected leaf and backs its value up to the root."""
        tree = _replace(
            tree,
            contents=tree.contents.at[number].set(pack(content), mode="promise_in_bounds"),
            visits=tree.visits.at[number].set(pack(visit), mode="promise_in_bounds"),
        )
        # Writes to an edge out of bounds are dropped.
        no_edge = jnp.int32(tree.next_leaf.shape[0])

        def backup(carry: tuple[Tree, Array, Array, Array, Array]) -> tuple[Tree, Array, Array, Array, Array]:
            tree, edge, node, value, _ = carry
            value_and_count = jnp.stack([value, jnp.ones_like(value)])
            tree = _replace(
                tree,
                returns=tree.returns.at[edge // self.replies].add(value_and_count),
                next_leaf=tree.next_leaf.at[edge].set(tree.leaf),
            )
            visit = self._unpack_visit(tree.visits[node])
            has_parent = visit.parent_edge >= 0
            tree = _replace(tree, leaf=self._next_leaf(tree, node, visit), depth=tree.depth + has_parent)
            parent = jnp.maximum(visit.parent_edge, 0) // (self.actions * self.replies)
            next_edge = jnp.where(has_parent, visit.parent_edge, no_edge)
            return tree, next_edge, parent, visit.reward + visit.discount * value, has_parent

        first = (tree, no_edge, number, visit.value, jnp.bool_(True))
        return jax.lax.while_loop(lambda carry: anywhere(carry[-1]), backup, first)[0]

    def _next_leaf(self, tree: Tree, node: Int[Array, ""], visit: Visit) -> Int[Array, ""]:
        """Returns the open edge at which a simulation through a node ends; replies take turns."""
        begin = node * self.actions
        returns = jax.lax.dynamic_slice(tree.returns, (begin, 0), (self.actions, 2))
        action = self._select_action(visit, returns, tree.selection)
        count = returns[action, 1].astype(jnp.int32)
        edge = (begin + action) * self.replies + count % self.replies
        return jnp.where(count < self.replies, edge, tree.next_leaf[edge])

    def _select_action(self, visit: Visit, returns: Float[Array, "A 2"], selection: Selection) -> Int[Array, ""]:
        """Selects the action at a node by PUCT on raw values; at the root, actions with too few visits come first."""
        total, count = returns[:, 0], returns[:, 1]
        value = jnp.where(count > 0, total / jnp.maximum(count, 1), visit.value)
        bonus = visit.prior * jnp.sqrt(1 + count.sum()) / (1 + count)
        score = value + self.exploration * bonus + selection.ties
        is_root = visit.parent_edge < 0
        is_allowed = jnp.where(is_root, selection.root_legal, visit.prior > 0)
        is_due = is_root & selection.root_legal & (count < self.root_visits)
        # Of the actions that are due, the least visited is selected; of several, the likeliest.
        due_score = visit.prior + selection.ties - 2 * count
        score = jnp.where(is_due.any(), due_score, score)
        is_allowed = jnp.where(is_due.any(), is_due, is_allowed)
        return jnp.argmax(jnp.where(is_allowed, score, MASKED_SCORE)).astype(jnp.int32)

    def _unpack_visit(self, flat: Int[Array, " G"]) -> Visit:
        number, edge = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        prior = jax.ShapeDtypeStruct((self.actions,), jnp.float32)
        return unpack(flat, Visit(prior, number, edge, number, number))  # pyright: ignore[reportArgumentType]


@jax.custom_batching.custom_vmap
def anywhere(condition: Bool[Array, ""]) -> Bool[Array, ""]:
    """Returns whether a condition holds anywhere in the batch, over all `jax.vmap` axes.

    A batched loop whose iterations end at different times would otherwise copy all trees at each iteration, to keep the
    finished ones unchanged.
    """
    return condition


@anywhere.def_vmap
def _(axis_size: int, in_batched: list[bool], condition: Bool[Array, " N"]) -> tuple[Bool[Array, ""], bool]:
    return anywhere(condition.any(0)), False


def pack(tree: Any) -> Int[Array, " F"]:
    """Packs all leaves into one vector, so that a loop that reads and writes the same array does not copy it."""
    leaves = [leaf.astype(_wide(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([jax.lax.bitcast_convert_type(leaf, jnp.int32).ravel() for leaf in leaves])


def unpack(flat: Int[Array, " F"], like: Any) -> Any:
    """Unpacks a vector of `pack` into leaves with the shapes and types of `like`."""
    leaves, structure = jax.tree.flatten(like)
    parts = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])

    def decode(part: Array, leaf: Array) -> Array:
        return jax.lax.bitcast_convert_type(part.reshape(leaf.shape), _wide(leaf)).astype(leaf.dtype)

    return jax.tree.unflatten(structure, map(decode, parts, leaves))


def _wide(leaf: Array) -> Any:
    """Returns a 32-bit type that holds all values of a leaf."""
    if leaf.dtype.itemsize == 4:
        return leaf.dtype
    return jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.int32


def _replace(tree: Tree, **changes: Any) -> Tree:
    return Tree(**{**vars(tree), **changes})

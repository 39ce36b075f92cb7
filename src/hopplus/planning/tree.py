"""Trees that simulations grow, one node each: which edge is tried next, and who is told what was found there.

A node has an edge for every action and every reply to it. Everything here is for one tree; a search grows many at once
with `jax.vmap`. A simulation touches the nodes on its path and nothing else, however large the trees are: where the
next one will end is known beforehand, since the choice at a node changes only when something was found below it.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.struct import struct

NEVER = -1e9
"""The score of an action that the policy rules out."""


@struct
class Arrival:
    """What is known of a node from the moment it was reached."""

    prior: Float[Array, " A"]
    """What the policy says there."""
    value: Float[Array, ""]
    """What the network says that it is worth; 0 where the ego's game has ended."""
    above: Int[Array, ""]
    """The edge that led there; -1 for the root."""
    reward: Float[Array, ""]
    """What that edge brought."""
    discount: Float[Array, ""]
    """What the node's worth counts at the beginning of that edge; 0 where the ego's game has ended."""


@struct
class Tree:
    """A tree of nodes [N], the root first. The edge with action a and reply r at node k has the number
    (k A + a) R + r; it is open until there is a node at its end."""

    contents: Int[Array, "N F"]
    """What a simulation needs to go on from each node, `packed`."""
    arrivals: Int[Array, "N G"]
    """`packed`, too."""
    found: Float[Array, "NA 2"]
    """By node and action, the sum of what simulations that passed there found, and how many these were."""
    ahead: Int[Array, " NAR"]
    """By edge that is not open, the open one at which a simulation through it would end."""
    next: Int[Array, ""]
    """The open edge at which the next simulation ends."""
    depth: Int[Array, ""]
    """The sum of the depths of all nodes."""
    ties: Float[Array, " A"]
    """What decides between actions of equal score."""


@dataclass(frozen=True)
class Growth:
    """How trees grow."""

    actions: int
    replies: int
    exploration: float

    def plant(self, content: Any, arrival: Arrival, ties: Float[Array, " A"], simulations: int) -> Tree:
        """A tree of its root alone, with room for so many nodes more."""
        nodes, edges = 1 + simulations, self.actions * self.replies

        def with_room(root: Array) -> Array:
            return jnp.zeros((nodes, *root.shape), root.dtype).at[0].set(root)

        nothing = jnp.zeros((self.actions, 2), arrival.value.dtype)
        return Tree(
            contents=with_room(packed(content)),
            arrivals=with_room(packed(arrival)),
            found=jnp.zeros((nodes * self.actions, 2), arrival.value.dtype),
            ahead=jnp.zeros(nodes * edges, jnp.int32),
            next=self._choice(arrival, nothing, ties) * self.replies,
            depth=jnp.int32(0),
            ties=ties,
        )

    def end(self, tree: Tree) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
        """Where the next simulation ends: the node that it starts anew from, the action and the reply."""
        pair, reply = jnp.divmod(tree.next, self.replies)
        node, action = jnp.divmod(pair, self.actions)
        return node, action, reply

    def grow(self, tree: Tree, number: Int[Array, ""], content: Any, arrival: Arrival) -> Tree:
        """The tree with node `number` at the edge where the simulation ended, and all nodes above told of it."""
        tree = _with(
            tree,
            contents=tree.contents.at[number].set(packed(content), mode="promise_in_bounds"),
            arrivals=tree.arrivals.at[number].set(packed(arrival), mode="promise_in_bounds"),
        )
        # What is told to the edge after the last one is lost.
        nobody = jnp.int32(tree.ahead.shape[0])

        def up(carry: tuple[Tree, Array, Array, Array, Array]) -> tuple[Tree, Array, Array, Array, Array]:
            tree, edge, node, worth, _ = carry
            brought = jnp.stack([worth, jnp.ones_like(worth)])
            tree = _with(
                tree,
                found=tree.found.at[edge // self.replies].add(brought),
                ahead=tree.ahead.at[edge].set(tree.next),
            )
            at = self._arrival(tree.arrivals[node])
            tree = _with(tree, next=self._next(tree, node, at), depth=tree.depth + (at.above >= 0))
            parent = jnp.maximum(at.above, 0) // (self.actions * self.replies)
            told = jnp.where(at.above >= 0, at.above, nobody)
            return tree, told, parent, at.reward + at.discount * worth, at.above >= 0

        first = (tree, nobody, number, arrival.value, jnp.bool_(True))
        return jax.lax.while_loop(lambda carry: anywhere(carry[-1]), up, first)[0]

    def _next(self, tree: Tree, node: Int[Array, ""], arrival: Arrival) -> Int[Array, ""]:
        """The open edge at which a simulation ends that has come to a node; replies take turns."""
        begin = node * self.actions
        found = jax.lax.dynamic_slice(tree.found, (begin, 0), (self.actions, 2))
        action = self._choice(arrival, found, tree.ties)
        times = found[action, 1].astype(jnp.int32)
        edge = (begin + action) * self.replies + times % self.replies
        return jnp.where(times < self.replies, edge, tree.ahead[edge])

    def _choice(self, arrival: Arrival, found: Float[Array, "A 2"], ties: Float[Array, " A"]) -> Int[Array, ""]:
        """The action at a node, by PUCT on raw values."""
        total, tried = found[:, 0], found[:, 1]
        known = jnp.where(tried > 0, total / jnp.maximum(tried, 1), arrival.value)
        bonus = arrival.prior * jnp.sqrt(1 + tried.sum()) / (1 + tried)
        score = known + self.exploration * bonus + ties
        return jnp.argmax(jnp.where(arrival.prior > 0, score, NEVER)).astype(jnp.int32)

    def _arrival(self, flat: Int[Array, " G"]) -> Arrival:
        number, edge = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        prior = jax.ShapeDtypeStruct((self.actions,), jnp.float32)
        return unpacked(flat, Arrival(prior, number, edge, number, number))  # pyright: ignore[reportArgumentType]


@jax.custom_batching.custom_vmap
def anywhere(condition: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether a condition holds anywhere in all that is computed at once, whatever it is mapped over.

    A loop that ends at different times in different trees would otherwise copy all trees at each turn, so that those
    which have ended stay as they are.
    """
    return condition


@anywhere.def_vmap
def _(axis_size: int, in_batched: list[bool], condition: Bool[Array, " N"]) -> tuple[Bool[Array, ""], bool]:
    return anywhere(condition.any(0)), False


def packed(tree: Any) -> Int[Array, " F"]:
    """All leaves in one vector: a loop that writes what depends on what it read of the same array does not copy it."""
    leaves = [leaf.astype(_wide(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate([jax.lax.bitcast_convert_type(leaf, jnp.int32).ravel() for leaf in leaves])


def unpacked(flat: Int[Array, " F"], like: Any) -> Any:
    """What was `packed`, with the shapes and types of `like`."""
    leaves, structure = jax.tree.flatten(like)
    parts = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])

    def one(part: Array, leaf: Array) -> Array:
        return jax.lax.bitcast_convert_type(part.reshape(leaf.shape), _wide(leaf)).astype(leaf.dtype)

    return jax.tree.unflatten(structure, map(one, parts, leaves))


def _wide(leaf: Array) -> Any:
    """The type of 32 bits that holds all that a leaf may be."""
    if leaf.dtype.itemsize == 4:
        return leaf.dtype
    return jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.int32


def _with(tree: Tree, **changes: Any) -> Tree:
    return Tree(**{**vars(tree), **changes})

"""Behaviour clone: a nearest-neighbour policy fitted to a player's recorded actions."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, fast
from hopplus.games import GridGame, Observation
from hopplus.games.board import STAY
from hopplus.players.player import Info, Memory, Params, Player, as_action, own_mask, uniform

NEIGHBOURS = 7
"""Number of nearest neighbours, ties not counted."""
ROUNDING = 1e-5
"""Tolerance within which distances are equal."""


@dataclass(frozen=True)
class BehaviorClone(Player):
    """Samples from the actions of the nearest recorded states, weighted by 1 / (1 + distance).

    Uniform over legal actions if none of these actions is legal.

    Params are the recorded states: `features` [N, F] from `clone_features`, and `actions` [N]. All states tied with the
    last neighbour are included, so the order of recording does not matter.
    """

    game: GridGame
    source: str
    """Source of the params; players with different sources are never equal."""
    name: str = "clone"

    shares_params = True

    def bind(self, sources: Mapping[str, Params]) -> Params:
        return sources[self.source]

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        policy = self.probabilities(params, memory, observation)
        return as_action(jax.random.categorical(fast(key), jnp.log(policy))), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        legal, actions = own_mask(observation), jnp.asarray(params["actions"])
        distance = jnp.linalg.norm(params["features"] - clone_features(self.game, observation), axis=-1)
        weights = jnp.where(distance <= _neighbour_radius(distance) + ROUNDING, 1 / (1 + distance), 0.0)
        votes = weights @ jax.nn.one_hot(actions, self.game.num_actions) * legal
        return jnp.where(votes.any(), votes / jnp.maximum(votes.sum(), 1e-30), uniform(legal))


def clone_features(game: GridGame, observation: Observation) -> Float[Array, " F"]:
    """Returns the features of a behaviour clone, each from -1 to 1.

    Offsets to the nearest item of every kind and to the nearest co-player, the share of co-players on the ego's cell,
    and the legal work actions.
    """
    planes = jnp.moveaxis(observation.board, -1, 0).reshape(-1, game.num_cells) > 0
    ego, co_players, items = planes[0], planes[1 : game.players], planes[game.players + 1 :]
    offsets = [way_to_nearest(game, ego, places) for places in (*items, co_players.any(0))]
    same_cell = (co_players & ego).any(-1).mean(keepdims=True)
    return jnp.concatenate([*offsets, same_cell, own_mask(observation)[STAY + 1 :]])


def way_to_nearest(game: GridGame, ego: Bool[Array, " cells"], places: Bool[Array, " cells"]) -> Float[Array, " 3"]:
    """Returns the row and column offset from the ego to the nearest of some places, and 1; zeros if there are none.

    Blocks are ignored. Offsets are divided by 1 + distance, so that a step matters less at a larger distance. Equally
    near places are averaged, so that no side of the board is preferred.
    """
    rows, columns = jnp.divmod(jnp.arange(game.num_cells), game.width)
    row, column = jnp.divmod(jnp.argmax(ego), game.width)
    offset = jnp.stack([rows - row, columns - column])
    distance = jnp.abs(offset).sum(0)
    nearest = jnp.where(places, distance, game.num_cells).min()
    is_nearest = places & (distance == nearest)
    mean = (offset * is_nearest).sum(-1) / jnp.maximum(is_nearest.sum(), 1)
    return jnp.append(mean / (1 + nearest), places.any())


def _neighbour_radius(distance: Float[Array, " N"]) -> Float[Array, ""]:
    """Returns the distance of the last neighbour; infinite if there are fewer states. Faster than sorting."""

    def next_farther(_: Array, bound: Array) -> Array:
        enough = (distance <= bound + ROUNDING).sum() >= NEIGHBOURS
        return jnp.where(enough, bound, jnp.where(distance > bound + ROUNDING, distance, jnp.inf).min())

    return jax.lax.fori_loop(1, NEIGHBOURS, next_farther, distance.min())

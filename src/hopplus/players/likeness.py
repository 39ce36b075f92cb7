"""A player made of what somebody did: it does what was done in the recorded situations most like the present one."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import GridGame, Observation
from hopplus.games.grid import STAY
from hopplus.keys import Key, fast
from hopplus.players.player import Info, Memory, Params, Player, as_action, own_mask, uniform

NEIGHBOURS = 7
"""How many situations are asked."""
ROUNDING = 1e-5
"""Distances that differ by no more are equal."""


@dataclass(frozen=True)
class Likeness(Player):
    """Draws from what was done in the most similar situations, the nearer the likelier; uniform over legal actions
    where nothing of that is legal now.

    Params are the situations, `features` [N, F] as `situation` gives them, and `actions` [N]. As many as are as near
    as the last of the nearest few are asked, so that the order in which they were recorded does not matter.
    """

    game: GridGame
    source: str
    """Where its params come from: players of different sources are never taken for each other."""
    name: str = "likeness"

    shares_params = True

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        law = self.probabilities(params, memory, observation)
        return as_action(jax.random.categorical(fast(key), jnp.log(law))), memory, ()

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        legal, actions = own_mask(observation), jnp.asarray(params["actions"])
        distance = jnp.linalg.norm(params["features"] - situation(self.game, observation), axis=-1)
        weights = jnp.where(distance <= _farthest(distance) + ROUNDING, 1 / (1 + distance), 0.0)
        votes = weights @ jax.nn.one_hot(actions, self.game.num_actions) * legal
        return jnp.where(votes.any(), votes / jnp.maximum(votes.sum(), 1e-30), uniform(legal))


def situation(game: GridGame, observation: Observation) -> Float[Array, " F"]:
    """What of a player's observation its likeness goes by, each figure from -1 to 1: the way to the nearest thing of
    every kind and to the nearest other player, how many others stand where it stands, and what it can work on."""
    planes = jnp.moveaxis(observation.grid, -1, 0).reshape(-1, game.num_cells) > 0
    me, others, things = planes[0], planes[1 : game.players], planes[game.players + 1 :]
    ways = [way_to_nearest(game, me, places) for places in (*things, others.any(0))]
    company = (others & me).any(-1).mean(keepdims=True)
    return jnp.concatenate([*ways, company, own_mask(observation)[STAY + 1 :]])


def way_to_nearest(game: GridGame, me: Bool[Array, " cells"], places: Bool[Array, " cells"]) -> Float[Array, " 3"]:
    """Rows and columns from a player to the nearest of some places, blocks ignored, and 1; zeros where there is none.

    Both are divided by 1 + distance, so that a step more counts less the farther it is. Of several equally near places
    the mean is taken, so that no side of the board is preferred.
    """
    rows, columns = jnp.divmod(jnp.arange(game.num_cells), game.width)
    row, column = jnp.divmod(jnp.argmax(me), game.width)
    way = jnp.stack([rows - row, columns - column])
    distance = jnp.abs(way).sum(0)
    nearest = jnp.where(places, distance, game.num_cells).min()
    mean = (way * (places & (distance == nearest))).sum(-1) / jnp.maximum((places & (distance == nearest)).sum(), 1)
    return jnp.append(mean / (1 + nearest), places.any())


def _farthest(distance: Float[Array, " N"]) -> Float[Array, ""]:
    """How far the last of the nearest is; infinitely, where there are fewer. This is faster than to sort them all."""

    def next_farther(_: Array, bound: Array) -> Array:
        enough = (distance <= bound + ROUNDING).sum() >= NEIGHBOURS
        return jnp.where(enough, bound, jnp.where(distance > bound + ROUNDING, distance, jnp.inf).min())

    return jax.lax.fori_loop(1, NEIGHBOURS, next_farther, distance.min())

"""Goals that a planner takes its co-players to have: which there are, and what each means for what they will do.

A goal space is finite for a planner: no goals (one that everybody has), prey, codes, or particles in a space of
subgoals. Every function here is for one ego; co-players [n-1] are in its order.
"""

from dataclasses import dataclass
from typing import Any, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.errors import InputError
from hopplus.games import Game, GridGame, Observation
from hopplus.networks.encoding import Features, encode
from hopplus.planning.glances import Glanced, glances, looking, without_board
from hopplus.settings import Space

Params = Any
SPACES: tuple[str, ...] = get_args(Space)


def prey_names(game: Game[Any]) -> tuple[str, ...]:
    """The goals of a player that is after something: `nothing`, then the kinds of things that can be taken; where there
    is one kind only (the snowdrift game), each cell on which it can lie. InputError where the game has nothing to take.
    """
    if not isinstance(game, GridGame) or len(game.taken_names) < 2:
        raise InputError(f"{game.name} has nothing to take, so that there are no goals of the kind 'prey'")
    if prey_is_a_kind(game):
        return game.taken_names
    return ("nothing", *(f"{game.taken_names[1]} at {divmod(cell, game.width)}" for cell in range(game.num_cells)))


def prey_is_a_kind(game: Game[Any]) -> bool:
    """Whether prey is told apart by its kind rather than by its cell."""
    return len(game.taken_names) > 2


def prey_there(game: Game[Any], observation: Observation) -> Bool[Array, " K"]:
    """Which goals of the kind 'prey' a player can have: those that lie on the board of one observation, and none."""
    players = observation.legal.shape[-2]
    things = jnp.moveaxis(observation.grid[..., players + 1 :], -1, 0) > 0
    there = things.any((-1, -2)) if prey_is_a_kind(game) else things[0].reshape(-1)
    return jnp.concatenate([jnp.ones(1, bool), there])


@dataclass(frozen=True)
class Others:
    """How a planner models its co-players: what each will do, were it after each of the goals."""

    game: Game[Any]
    space: Space
    network: nn.Module
    """An action model with as many goals, or the network of gaussian subgoals."""
    number: int
    """How many goals there are, or particles."""
    one_each: bool = False
    """Whether every co-player has a network of its own: params are then stacked, co-players first."""

    @property
    def dimensions(self) -> int:
        """How many figures tell a policy what a co-player may be after."""
        if self.space in ("none", "gaussian"):
            return 0 if self.space == "none" else self.network.latent  # pyright: ignore[reportAttributeAccessIssue]
        return ZEROS if self.space == "zero" else self.number

    @property
    def names(self) -> tuple[str, ...]:
        """What the goals are called."""
        if self.space == "prey":
            return prey_names(self.game)
        what = {"codes": "code", "gaussian": "particle"}.get(self.space, "any")
        return tuple(f"{what} {number}" for number in range(self.number))

    @property
    def may_go(self) -> bool:
        """Whether there are times when some goals cannot be had."""
        return self.space == "prey"

    def there(self, seen: Observation) -> Bool[Array, " K"]:
        """Which goals can be had now."""
        return prey_there(self.game, seen) if self.may_go else jnp.ones(self.number, bool)

    def features(self, everybody: Observation) -> Features:
        """What the co-players see [n-1, F], each in its own frame, from what all see [n]."""
        return encode(jax.tree.map(lambda leaf: leaf[1:], everybody), self.game.last_step)

    def at_a_glance(self, everybody: Observation, state: Any) -> Features | Glanced:
        """What the co-players see [n-1], from what all see [n] and the state that they see: where there is a board,
        glances at it, which `policies` takes much faster than features."""
        if not isinstance(self.game, GridGame) or not isinstance(self.network, nn.Module):
            return self.features(everybody)
        theirs = jax.tree.map(lambda leaf: leaf[1:], glances(self.game, state))
        return Glanced(self.features(without_board(everybody)), theirs)

    def policies(
        self, params: Params, features: Features | Glanced, particles: Float[Array, "n-1 K Z"] | tuple[()] = ()
    ) -> Float[Array, "n-1 K A"]:
        """The probabilities of every co-player's actions under every goal, from what it sees [n-1, F]."""

        def one(own: Params, seen: Features | Glanced, particles: Any) -> Array:
            features, glance = (seen.features, seen.glance) if isinstance(seen, Glanced) else (seen, None)
            with looking(self.game, glance):
                if self.space == "gaussian":
                    repeated = jnp.broadcast_to(features, (self.number, *features.shape))
                    return self.network.apply({"params": own}, repeated, particles, method="act")  # pyright: ignore[reportReturnType]
                return self.network.apply({"params": own}, features)  # pyright: ignore[reportReturnType]

        return jax.nn.softmax(jax.vmap(one, (0 if self.one_each else None, 0, 0))(params, features, particles))

    def own_policies(self, params: Params, seen: Observation) -> Float[Array, "K A"]:
        """The probabilities of one's own actions, were one of the others and after each goal (finite spaces)."""
        own = jax.tree.map(lambda leaf: leaf[0], params) if self.one_each else params
        return jax.nn.softmax(self.network.apply({"params": own}, encode(seen, self.game.last_step)))  # pyright: ignore[reportArgumentType]


ZEROS = 4
"""How wide a goal input is that is always 0."""

"""Goal spaces and the opponent model: co-players' action probabilities conditioned on goals.

A goal space is finite for a planner: no goals (a single goal that all co-players share), prey, codes, or particles in a
subgoal space. Every function here is for one ego; co-players [n-1] are in ego-first order.
"""

from dataclasses import dataclass
from typing import Any, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hopplus.configs import GoalSpace
from hopplus.core.errors import InputError
from hopplus.games import Game, GridGame, Observation
from hopplus.networks.encoders import Features, encode
from hopplus.networks.sparse_first_layer import SparseInputs, sparse_board, sparse_inputs, without_board

Params = Any
GOAL_SPACES: tuple[str, ...] = get_args(GoalSpace)
ZERO_GOAL_WIDTH = 4
"""Width of the constant zero goal input (`space="zero"`)."""


def prey_names(game: Game[Any]) -> tuple[str, ...]:
    """Returns the names of the goals of a prey space: `nothing`, then the kinds of items that can be taken.

    If there is only one kind (the snowdrift game), each cell of the board is a goal instead.

    Raises:
        InputError: if no item can be taken in the game.
    """
    if not isinstance(game, GridGame) or len(game.taken_names) < 2:
        raise InputError(f"{game.name} has nothing to take, so goals cannot be 'prey': choose another goal space")
    if prey_is_a_kind(game):
        return game.taken_names
    return ("nothing", *(f"{game.taken_names[1]} at {divmod(cell, game.width)}" for cell in range(game.num_cells)))


def prey_is_a_kind(game: Game[Any]) -> bool:
    """Returns whether prey goals are kinds of items rather than cells."""
    return len(game.taken_names) > 2


def available_prey(game: Game[Any], observation: Observation) -> Bool[Array, " K"]:
    """Returns the mask of available prey goals: `nothing`, and the items on the observed board."""
    players = observation.legal.shape[-2]
    items = jnp.moveaxis(observation.board[..., players + 1 :], -1, 0) > 0
    on_board = items.any((-1, -2)) if prey_is_a_kind(game) else items[0].reshape(-1)
    return jnp.concatenate([jnp.ones(1, bool), on_board])


@dataclass(frozen=True)
class OpponentModel:
    """Model of other agents (MOA): action probabilities of each co-player under each goal."""

    game: Game[Any]
    space: GoalSpace
    network: nn.Module
    """Goal-conditioned action model, or the subgoal VAE (`space="gaussian"`)."""
    num_goals: int
    """Number of goals or particles, K."""
    network_per_co_player: bool = False
    """Separate parameters per co-player, stacked along axis 0."""

    @property
    def dimensions(self) -> int:
        """Width of the goal input that a policy receives per co-player."""
        if self.space in ("none", "gaussian"):
            return 0 if self.space == "none" else self.network.latent  # pyright: ignore[reportAttributeAccessIssue]
        return ZERO_GOAL_WIDTH if self.space == "zero" else self.num_goals

    @property
    def goal_names(self) -> tuple[str, ...]:
        """Names of the goals."""
        if self.space == "prey":
            return prey_names(self.game)
        prefix = {"codes": "code", "gaussian": "particle"}.get(self.space, "any")
        return tuple(f"{prefix} {number}" for number in range(self.num_goals))

    @property
    def goals_can_vanish(self) -> bool:
        """True if goals can become unavailable during an episode."""
        return self.space == "prey"

    def available(self, observation: Observation) -> Bool[Array, " K"]:
        """Returns the mask of goals that are available now."""
        return available_prey(self.game, observation) if self.goals_can_vanish else jnp.ones(self.num_goals, bool)

    def features(self, observations: Observation) -> Features:
        """Encodes the co-players' observations [n-1, F], each in its own frame, from all players' observations [n]."""
        return encode(jax.tree.map(lambda leaf: leaf[1:], observations), self.game.last_step)

    def sparse_inputs(self, observations: Observation, state: Any) -> Features | SparseInputs:
        """Encodes the co-players' observations for `policies`.

        For grid games as sparse boards, which are much faster than features.

        Args:
            observations: all players' observations [n, ...], ego first.
            state: the game state of these observations, the ego in seat 0.
        """
        if not isinstance(self.game, GridGame) or not isinstance(self.network, nn.Module):
            return self.features(observations)
        boards = jax.tree.map(lambda leaf: leaf[1:], sparse_board(self.game, state))
        return SparseInputs(self.features(without_board(observations)), boards)

    def policies(
        self, params: Params, features: Features | SparseInputs, particles: Float[Array, "n-1 K Z"] | None = None
    ) -> Float[Array, "n-1 K A"]:
        """Returns each co-player's action probabilities under each goal.

        Args:
            params: parameters of the network.
            features: the co-players' observations [n-1, ...], from `features` or `sparse_inputs`.
            particles: candidate subgoals (`space="gaussian"`).
        """

        def co_player_logits(params: Params, inputs: Features | SparseInputs, particles: Any) -> Array:
            features, board = (inputs.features, inputs.board) if isinstance(inputs, SparseInputs) else (inputs, None)
            with sparse_inputs(self.game, board):
                if self.space == "gaussian":
                    repeated = jnp.broadcast_to(features, (self.num_goals, *features.shape))
                    return self.network.apply({"params": params}, repeated, particles, method="act")  # pyright: ignore[reportReturnType]
                return self.network.apply({"params": params}, features)  # pyright: ignore[reportReturnType]

        params_axis = 0 if self.network_per_co_player else None
        return jax.nn.softmax(jax.vmap(co_player_logits, (params_axis, 0, 0))(params, features, particles))

    def ego_policies(self, params: Params, observation: Observation) -> Float[Array, "K A"]:
        """Returns the model's action probabilities for the ego's own observation, per goal (finite spaces only)."""
        params = jax.tree.map(lambda leaf: leaf[0], params) if self.network_per_co_player else params
        return jax.nn.softmax(self.network.apply({"params": params}, encode(observation, self.game.last_step)))  # pyright: ignore[reportArgumentType]

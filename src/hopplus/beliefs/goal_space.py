"""Goal spaces and the opponent model: co-players' action probabilities conditioned on goals.

A goal space is finite for a planner: no goals (a single goal that all co-players share), labelled goals such as prey,
codes, or particles in a subgoal space. Every function of the opponent model is for one ego; co-players [n-1] are in
ego-first order.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.specs import nearest
from hopplus.core.struct import struct
from hopplus.games import Game, GridGame, Observation
from hopplus.networks.encoders import Features, encode
from hopplus.networks.opponent_model import ActionModel
from hopplus.networks.sparse_first_layer import SparseInputs, sparse_board, sparse_inputs, without_board
from hopplus.networks.subgoal_vae import GaussianSubgoals

Params = Any
UNLABELLED = ("none", "zero", "gaussian", "codes")
"""Goal spaces without labels: no goals, or goals that are learnt from behaviour."""
SPARSE_NETWORKS = (ActionModel, GaussianSubgoals)
"""Networks whose first layer accepts sparse boards; subclasses may read the features in another way."""
ZERO_GOAL_WIDTH = 4
"""Width of the constant zero goal input (`space="zero"`)."""


def _items(game: Game[Any], goals: str) -> tuple[str, ...]:
    """Returns the kinds of items that can be taken in the game.

    Raises:
        InputError: if there are none, so that `goals` cannot be labelled.
    """
    if not isinstance(game, GridGame) or len(game.taken_names) < 2:
        raise InputError(f"{game.name} has nothing to take, so goals cannot be {goals!r}: choose --goals codes")
    return game.taken_names[1:]


def _items_on_board(observation: Observation) -> Bool[Array, "kinds cells"]:
    """Returns where items of each kind are on the observed board."""
    players = observation.legal.shape[-2]
    items = jnp.moveaxis(observation.board[..., players + 1 :], -1, 0) > 0
    return items.reshape(items.shape[0], -1)


# ------------------------------------------------------------------------------------------------- labelled goals


@struct
class PlayedSteps:
    """Steps [T, E] of all players, as in `Trajectory`; several episodes may follow one another in time."""

    state: Any
    """States of the game [T, E, ...] before each step."""
    actions: Int[Array, "T E n"]
    alive: Bool[Array, "T E n"]
    """Mask of valid rows."""
    left: Bool[Array, "T E n"]
    """The player has left by the end of the step."""
    over: Bool[Array, "T E"]
    """The episode ends with this step."""
    took: Int[Array, "T E n"]
    """Item taken in the step: an index into `Game.taken_names`, 0 for nothing."""
    cell: Int[Array, "T E n"]
    """Cell of the item taken, -1 for none."""


class LabelledGoals(ABC):
    """Finitely many named goals. In hindsight, each step of a player has one of them as its label.

    The opponent model is trained on the labels. An instance has no state: its methods are pure functions.
    """

    has_no_goal: ClassVar[bool] = False
    """Goal 0 stands for having none: the accuracy of beliefs is measured where the label is another goal."""

    @abstractmethod
    def names(self, game: Game[Any]) -> tuple[str, ...]:
        """Returns the names of the K goals. Raises InputError for a game that has no such goals."""

    @abstractmethod
    def labels(self, game: Game[Any], steps: PlayedSteps) -> Int[Array, "T E n"]:
        """Returns the goal of each player at each step, known in hindsight.

        Labels of steps whose episode does not end in `steps` are ignored. `next_label` makes labels from events.
        """

    def available(self, game: Game[Any], observation: Observation) -> Bool[Array, " K"]:
        """Returns the mask of goals that are available now, the same from every seat; by default all."""
        return jnp.ones(len(self.names(game)), bool)

    def is_symmetric(self, game: Game[Any]) -> bool:
        """Returns whether goals keep their meaning on rotated and reflected boards; by default they do.

        If so, the opponent model is trained on such boards too.
        """
        return True

    def counts_items(self, game: Game[Any]) -> bool:
        """Returns whether a goal has no meaning in the next episode, so that beliefs count items taken instead.

        Goal 0 must then stand for taking nothing, and every other goal for taking an item.
        """
        return False

    def item_beliefs(self, game: Game[Any], belief: Float[Array, "n-1 K"]) -> Float[Array, "n-1 kinds"] | None:
        """Returns the probabilities of the kind of item that each co-player takes next; None if goals do not tell."""
        return None


def next_label(
    label: Int[Array, "T E n"], is_event: Bool[Array, "T E n"], over: Bool[Array, "T E"]
) -> Int[Array, "T E n"]:
    """Returns, for each step, the label of the first event from that step to the end of the episode; 0 for none."""

    def step(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        label, is_event, over = row
        now = jnp.where(is_event, label, jnp.where(over[:, None], 0, later))
        return now, now

    rows = (jnp.asarray(label), jnp.asarray(is_event), jnp.asarray(over))
    return jax.lax.scan(step, jnp.zeros_like(rows[0][0]), rows, reverse=True)[1]


class PreyGoals(LabelledGoals):
    """The kind of item that a player takes next: stag or hare in the stag hunt, as in HOP."""

    has_no_goal: ClassVar[bool] = True

    def names(self, game: Game[Any]) -> tuple[str, ...]:
        return ("nothing", *_items(game, "prey"))

    def labels(self, game: Game[Any], steps: PlayedSteps) -> Int[Array, "T E n"]:
        return next_label(steps.took, steps.took > 0, steps.over)

    def available(self, game: Game[Any], observation: Observation) -> Bool[Array, " K"]:
        return jnp.concatenate([jnp.ones(1, bool), _items_on_board(observation).any(-1)])

    def item_beliefs(self, game: Game[Any], belief: Float[Array, "n-1 K"]) -> Float[Array, "n-1 kinds"]:
        return belief[:, 1:]


class CellGoals(LabelledGoals):
    """The cell of the item that a player takes next: the drift in the snowdrift game, as in HOP.

    There are as many goals as cells, which makes training several times slower than with `PreyGoals`.
    """

    has_no_goal: ClassVar[bool] = True

    def names(self, game: Game[Any]) -> tuple[str, ...]:
        item = " or ".join(_items(game, "cells"))
        width, cells = game.width, game.num_cells  # pyright: ignore[reportAttributeAccessIssue]
        return ("nothing", *(f"{item} at {divmod(cell, width)}" for cell in range(cells)))

    def labels(self, game: Game[Any], steps: PlayedSteps) -> Int[Array, "T E n"]:
        return next_label(steps.cell + 1, steps.took > 0, steps.over)

    def available(self, game: Game[Any], observation: Observation) -> Bool[Array, " K"]:
        return jnp.concatenate([jnp.ones(1, bool), _items_on_board(observation).any(0)])

    def is_symmetric(self, game: Game[Any]) -> bool:
        return False

    def counts_items(self, game: Game[Any]) -> bool:
        return True

    def item_beliefs(self, game: Game[Any], belief: Float[Array, "n-1 K"]) -> Float[Array, "n-1 kinds"] | None:
        return belief[:, 1:].sum(-1, keepdims=True) if len(_items(game, "cells")) == 1 else None


_LABELLED: dict[str, LabelledGoals] = {"prey": PreyGoals(), "cells": CellGoals()}


def register_goal_space(name: str, goals: LabelledGoals) -> None:
    """Registers labelled goals under a new name, for the setting `goals` and all commands."""
    if name in goal_space_names():
        raise InputError(f"the goal space {name!r} is already known: choose another name")
    _LABELLED[name] = goals


def goal_space_names() -> list[str]:
    """Returns the names of all goal spaces."""
    return [*UNLABELLED, *_LABELLED]


def labelled_goals(name: str) -> LabelledGoals | None:
    """Returns the labelled goals of a goal space; None if its goals have no labels.

    Raises:
        InputError: if there is no such goal space.
    """
    if name not in goal_space_names():
        raise InputError(f"there is no goal space {name!r}{nearest(name, goal_space_names())}")
    return _LABELLED.get(name)


# ------------------------------------------------------------------------------------------------- opponent model


@dataclass(frozen=True)
class OpponentModel:
    """Model of other agents (MOA): action probabilities of each co-player under each goal."""

    game: Game[Any]
    space: str
    """Name of the goal space."""
    network: nn.Module
    """Action model conditioned on goals and, with preference models, on preferences; or the subgoal VAE
    (`space="gaussian"`)."""
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
    def labelled(self) -> LabelledGoals | None:
        """Labelled goals; None if the goals have no labels."""
        return labelled_goals(self.space)

    @property
    def goal_names(self) -> tuple[str, ...]:
        """Names of the goals."""
        if self.labelled is not None:
            return self.labelled.names(self.game)
        prefix = {"codes": "code", "gaussian": "particle"}.get(self.space, "any")
        return tuple(f"{prefix} {number}" for number in range(self.num_goals))

    @property
    def goals_can_vanish(self) -> bool:
        """True if goals can become unavailable during an episode."""
        return self.labelled is not None

    def available(self, observation: Observation) -> Bool[Array, " K"]:
        """Returns the mask of goals that are available now."""
        return self.labelled.available(self.game, observation) if self.labelled else jnp.ones(self.num_goals, bool)

    def features(self, observations: Observation) -> Features:
        """Encodes the co-players' observations [n-1, F], each in its own frame, from all players' observations [n]."""
        return encode(jax.tree.map(lambda leaf: leaf[1:], observations), self.game.last_step)

    def sparse_inputs(self, observations: Observation, state: Any) -> Features | SparseInputs:
        """Encodes the co-players' observations for `policies`.

        For grid games and the networks of this package as sparse boards, which are much faster than features.

        Args:
            observations: all players' observations [n, ...], ego first.
            state: the game state of these observations, the ego in seat 0.
        """
        if not isinstance(self.game, GridGame) or type(self.network) not in SPARSE_NETWORKS:
            return self.features(observations)
        boards = jax.tree.map(lambda leaf: leaf[1:], sparse_board(self.game, state))
        return SparseInputs(self.features(without_board(observations)), boards)

    def policies(
        self, params: Params, features: Features | SparseInputs, particles: Float[Array, "n-1 K Z"] | None = None
    ) -> Float[Array, "n-1 H A"]:
        """Returns each co-player's action probabilities under each goal, then by each preference model.

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

    def ego_policies(self, params: Params, observation: Observation) -> Float[Array, "H A"]:
        """Returns the model's action probabilities for the ego's observation, as `policies` (finite spaces only)."""
        params = jax.tree.map(lambda leaf: leaf[0], params) if self.network_per_co_player else params
        return jax.nn.softmax(self.network.apply({"params": params}, encode(observation, self.game.last_step)))  # pyright: ignore[reportArgumentType]

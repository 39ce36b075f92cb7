"""LIAM: PPO on a recurrent state that is trained to reconstruct the co-players' observations and actions.

The co-players' observations and actions are inputs of the loss only; the acting network sees its own history.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, UInt8

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics, State
from hopplus.algorithms.parameters import value_scale
from hopplus.algorithms.recurrent import RecurrentPPO
from hopplus.configs import LiamConfig
from hopplus.core.struct import struct
from hopplus.games import Game, board_shape
from hopplus.networks.encoders import ILLEGAL
from hopplus.networks.recurrent import LiamNetwork
from hopplus.rollouts import RolloutState, Trajectory
from hopplus.rollouts.trajectory import observations

ACCURACIES = ("co_player_board_accuracy", "co_player_action_accuracy")
METRIC_NAMES = (*ppo_update.METRIC_NAMES, *ACCURACIES, "co_players_alive")
"""Per-transition metrics of an update; both accuracies are sums over the co-players alive."""


@struct
class TransitionsWithOthers(ppo_update.Transitions):
    """Transitions with the observations and actions of the co-players [n-1], ego-first."""

    co_player_board: UInt8[Array, "*rows n-1 cells"]
    """Board as each co-player observes it."""
    co_player_action: Int[Array, "*rows n-1"]
    co_player_legal: Bool[Array, "*rows n-1 A"]
    co_player_alive: Bool[Array, "*rows n-1"]


@dataclass(frozen=True)
class Liam(LiamConfig, RecurrentPPO):
    """LIAM (Papoudakis 2021) on PPO."""

    name: ClassVar[str] = "liam"
    traced: ClassVar[tuple[str, ...]] = (*RecurrentPPO.traced, "reconstruction_weight")
    metric_names: ClassVar[tuple[str, ...]] = METRIC_NAMES

    def network(self, game: Game[Any]) -> nn.Module:
        return LiamNetwork(
            game.num_actions,
            game.last_step,
            value_scale(game),
            self.hidden,
            self.encoder,
            **self.input_widths(game),
            co_players=game.num_players - 1,
            cells=math.prod(board_shape(game)),
        )

    def transitions(
        self, state: State, phase: CurriculumPhase, rollout_state: RolloutState | None, trajectory: Trajectory
    ) -> TransitionsWithOthers:
        transitions = super().transitions(state, phase, rollout_state, trajectory)
        players, learners = phase.game.num_players, np.array(phase.seats.learners)
        co_players = (learners[:, None] + np.arange(1, players)) % players
        observation = observations(phase.game, trajectory)
        board = observation.view[:, :, co_players].astype(jnp.uint8)
        return TransitionsWithOthers(
            **vars(transitions),
            co_player_board=board,
            co_player_action=trajectory.actions[..., co_players],
            co_player_legal=observation.legal[:, :, :, 0][:, :, co_players],
            co_player_alive=trajectory.alive[..., co_players],
        )

    def loss(self) -> Any:
        return partial(loss, weight=self.reconstruction_weight)

    def update_metrics(
        self, phase: CurriculumPhase, state: State, batch: ppo_update.Transitions, sums: ppo_update.Metrics
    ) -> Metrics:
        alive = sums["co_players_alive"].sum(0)
        accuracies: Mapping[str, Mean] = {name: Mean(sums[name].sum(0), alive) for name in ACCURACIES}
        return {**super().update_metrics(phase, state, batch, sums), **accuracies}


def loss(
    params: ppo_update.Params,
    network: ppo_update.Network,
    rows: TransitionsWithOthers,
    counts: Bool[Array, "*rows"],
    settings: ppo_update.PPOUpdateConfig,
    value_scale: float,
    ent_coef: Float[Array, ""] | float,
    weight: float,
) -> tuple[Float[Array, ""], ppo_update.Metrics]:
    """PPO's loss plus the weighted reconstruction loss; the network also returns logits of boards and actions."""
    logits, value, (boards, actions) = network(params, rows.features)
    ppo_loss, metrics = ppo_update.loss(
        params, lambda params, features: (logits, value), rows, counts, settings, value_scale, ent_coef
    )
    error, accuracies = reconstruction(boards, actions, rows, counts)
    return ppo_loss + weight * error, {**metrics, **accuracies}


def reconstruction(
    boards: Float[Array, "*rows n-1 cells"],
    actions: Float[Array, "*rows n-1 A"],
    rows: TransitionsWithOthers,
    counts: Bool[Array, "*rows"],
) -> tuple[Float[Array, ""], ppo_update.Metrics]:
    """Mean cross-entropy per cell plus per action over co-players alive, and accuracies by transition."""
    alive = counts[..., None] & rows.co_player_alive
    board_loss = optax.sigmoid_binary_cross_entropy(boards, rows.co_player_board.astype(jnp.float32)).mean(-1)
    log_policy = jax.nn.log_softmax(jnp.where(rows.co_player_legal, actions, ILLEGAL))
    action_loss = -jnp.take_along_axis(log_policy, rows.co_player_action[..., None], -1)[..., 0]
    right_board = ((boards > 0) == (rows.co_player_board > 0)).mean(-1)
    right_action = log_policy.argmax(-1) == rows.co_player_action
    return ppo_update.masked_mean(board_loss + action_loss, alive), {
        "co_player_board_accuracy": jnp.where(alive, right_board, 0.0).sum(-1),
        "co_player_action_accuracy": jnp.where(alive, right_action, 0.0).sum(-1),
        "co_players_alive": alive.sum(-1).astype(jnp.float32),
    }

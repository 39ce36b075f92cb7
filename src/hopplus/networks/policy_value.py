"""The network of a player that learns: one trunk over what it sees, a policy and a value on top."""

from typing import Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import variance_scaling
from jaxtyping import Array, Float, Int8, UInt8

from hopplus.games import Observation

Encoder = Literal["dense", "centred"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
ILLEGAL = -1e9
"""The logit of an action that is not legal: its probability is exactly 0, and 0 times its logarithm is 0."""
CLOCK = 255
"""Time, and the time left, are bytes: this is the whole of T."""

Features = UInt8[Array, "... F"]
"""What is seen as bytes: the board, where everybody stands, the clock (2), what the ego may do (A)."""


class PolicyValue(nn.Module):
    """Masked logits [..., A] and value [...] from observations of one seat each, [...] being any batch axes.

    It has no idea which seat it sits in: observations are ego-first.
    """

    num_actions: int
    last_step: int
    """T of the game: time is seen as a share of it."""
    value_scale: float
    """What the value head's 1 stands for, so that its outputs are of the order of 1 in every game."""
    hidden: tuple[int, ...] = (64, 64)
    encoder: Encoder = "centred"

    def setup(self) -> None:
        self.layers = [_dense(width, 2.0, f"hidden_{number}") for number, width in enumerate(self.hidden)]
        self.policy = _dense(self.num_actions, 1e-4, "policy")
        self.value = _dense(1, 1.0, "value")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        return self.from_features(self.encode(observation))

    def encode(self, observation: Observation) -> Features:
        """What the first layer takes. It depends on no parameter: whoever learns from a row often encodes it once."""
        board, players = observation.grid, observation.legal.shape[-2]
        batch = board.shape[:-3]
        left = observation.deadline - observation.time
        clock = jnp.stack([observation.time, left], -1) * CLOCK // self.last_step
        parts = [clock.clip(0, CLOCK), observation.legal[..., 0, :]]
        if self.encoder == "centred":
            parts = [board[..., :players].any(axis).reshape(*batch, -1) for axis in (-2, -3)] + parts
            board = centred(board, players)
        return jnp.concatenate([part.astype(jnp.uint8) for part in (board.reshape(*batch, -1), *parts)], axis=-1)

    def from_features(self, features: Features) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value of what `encode` made."""
        legal = features[..., -self.num_actions :] > 0
        scale = np.ones(features.shape[-1], np.float32)
        scale[-self.num_actions - 2 : -self.num_actions] = 1 / CLOCK
        hidden = features.astype(jnp.float32) * scale
        for layer in self.layers:
            hidden = nn.relu(layer(hidden))
        return jnp.where(legal, self.policy(hidden), ILLEGAL), self.value(hidden)[..., 0] * self.value_scale


def _dense(width: int, scale: float, name: str) -> nn.Dense:
    return nn.Dense(width, kernel_init=variance_scaling(scale, "fan_in", "truncated_normal"), name=name)


def centred(grid: Int8[Array, "... H W C"], players: int) -> Int8[Array, "... 2H-1 2W-1 C-n+1"]:
    """The board as seen from the ego's cell, which is in the middle; what lies outside the board is all 0.

    The first `players` channels, of which the ego's is the first, become one: how many co-players stand on each cell.
    (Who stands where the network is told by rows and columns, which is a tenth of the features.) Where the ego has
    left, the board is seen from its first cell.
    """
    *batch, height, width, channels = grid.shape
    co_players = grid[..., 1:players].sum(-1, keepdims=True, dtype=grid.dtype)
    merged = jnp.concatenate([co_players, grid[..., players:]], axis=-1)

    def one(ego: Array, board: Array) -> Array:
        cell = jnp.argmax(ego.reshape(-1))
        padded = jnp.pad(board, ((height - 1, height - 1), (width - 1, width - 1), (0, 0)))
        start = (cell // width, cell % width, 0)
        return jax.lax.dynamic_slice(padded, start, (2 * height - 1, 2 * width - 1, board.shape[-1]))

    flat = (-1, height, width)
    seen = jax.vmap(one)(grid[..., 0].reshape(flat), merged.reshape(*flat, channels - players + 1))
    return seen.reshape(*batch, 2 * height - 1, 2 * width - 1, channels - players + 1)

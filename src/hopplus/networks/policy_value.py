"""The network of a player that learns: one trunk over what it sees, a policy and a value on top."""

from typing import Literal, get_args

import flax.linen as nn
import jax.numpy as jnp
from flax.linen.initializers import variance_scaling
from jaxtyping import Array, Float

from hopplus.games import Observation

Encoder = Literal["dense", "conv"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
ILLEGAL = -1e9
"""The logit of an action that is not legal: its probability is exactly 0, and 0 times its logarithm is 0."""


class PolicyValue(nn.Module):
    """Masked logits [..., A] and value [...] from observations of one seat each, [...] being any batch axes.

    It has no idea which seat it sits in: observations are ego-first.
    """

    num_actions: int
    last_step: int
    """T of the game: time is seen as a share of it."""
    value_scale: float
    """What the value head's 1 stands for, so that its outputs are of the order of 1 in every game."""
    hidden: tuple[int, ...] = (128, 128)
    encoder: Encoder = "dense"

    @nn.compact
    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        legal = observation.legal[..., 0, :]
        board = observation.grid.astype(jnp.float32)
        if self.encoder == "conv":
            for channels in (16, 32):
                board = nn.relu(nn.Conv(channels, (3, 3), name=f"conv_{channels}")(board))
        clock = jnp.stack([observation.time, observation.deadline - observation.time], -1) / self.last_step
        features = jnp.concatenate([board.reshape(*board.shape[:-3], -1), clock, legal], axis=-1)
        for number, width in enumerate(self.hidden):
            features = nn.relu(self._dense(width, 2.0, f"hidden_{number}")(features))
        logits = self._dense(self.num_actions, 1e-4, "policy")(features)
        value = self._dense(1, 1.0, "value")(features)[..., 0] * self.value_scale
        return jnp.where(legal, logits, ILLEGAL), value

    @staticmethod
    def _dense(width: int, scale: float, name: str) -> nn.Dense:
        return nn.Dense(width, kernel_init=variance_scaling(scale, "fan_in", "truncated_normal"), name=name)

"""Layers shared by several networks."""

from collections.abc import Sequence

import flax.linen as nn
from flax.linen.initializers import variance_scaling
from jaxtyping import Array, Float


def dense(width: int, scale: float, name: str | None = None) -> nn.Dense:
    """Dense layer whose outputs initially have `scale` times the variance of its inputs."""
    return nn.Dense(width, kernel_init=variance_scaling(scale, "fan_in", "truncated_normal"), name=name)


class Trunk(nn.Module):
    """Hidden layers with ReLU."""

    hidden: Sequence[int]

    @nn.compact
    def __call__(self, inputs: Float[Array, "... F"]) -> Float[Array, "... H"]:
        for number, width in enumerate(self.hidden):
            inputs = nn.relu(dense(width, 2.0, f"hidden_{number}")(inputs))
        return inputs

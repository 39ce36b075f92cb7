"""Policies that remember: one line of figures, changed by everything that is seen, over all episodes with somebody."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import orthogonal
from jaxtyping import Array, Bool, Float, UInt8

from hopplus.games import Observation
from hopplus.networks.encoding import Features, encode, scaled
from hopplus.networks.layers import dense
from hopplus.networks.policy_value import SocialPolicyValue
from hopplus.struct import struct

News = UInt8[Array, "... N"]
"""What a memory takes of an observation: what everybody did last (n A), then the features."""


@struct
class History:
    """What somebody saw on a line of steps [..., T]: all that its network needs to say again what it said."""

    seen: Features
    """What it acted on."""
    news: News
    """What it had seen since its action before; the end of the episode before, at the first step of one."""
    remembers: Bool[Array, "..."]
    """Whether it had seen anything before; where not, it remembers nothing."""
    hidden: Float[Array, "... H"]
    """What it remembered before the news [..., T, H]; of a line only the first is needed [..., H]."""


class Matrix(nn.Module):
    """A matrix by itself."""

    shape: tuple[int, int]

    @nn.compact
    def __call__(self) -> Float[Array, "I O"]:
        return self.param("kernel", orthogonal(), self.shape)


class RecurrentPolicyValue(SocialPolicyValue):
    """Policy and value that see `social` figures of memory (a gated recurrent unit) beside the features."""

    def setup(self) -> None:
        super().setup()
        self.gates = dense(3 * self.social, 1.0, "gates")
        self.recurrent = Matrix((self.social, 3 * self.social), name="recurrent")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Of somebody who remembers nothing but this."""
        nothing = jnp.zeros((*observation.time.shape, self.social))
        return self.from_features((self.encode(observation), self.remember(nothing, self.news(observation))))

    def news(self, observation: Observation) -> News:
        """What there is to remember of what is seen."""
        done = jax.nn.one_hot(observation.last_actions, self.num_actions, dtype=jnp.uint8)
        seen = encode(observation, self.last_step, "centred" if self.encoder == "full" else self.encoder)
        return jnp.concatenate([done.reshape(*done.shape[:-2], -1), seen], -1)

    def remember(self, hidden: Float[Array, "... H"], news: News) -> Float[Array, "... H"]:
        """The memory after some news."""
        return gated(hidden, self.gates(scaled(news, self.num_actions)), self.recurrent())

    def recall(self, history: History) -> Float[Array, "... T H"]:
        """What was remembered at each step of lines [..., T]."""
        gates = jnp.moveaxis(self.gates(scaled(history.news, self.num_actions)), -2, 0)
        remembers, recurrent = jnp.moveaxis(history.remembers, -1, 0), self.recurrent()

        def step(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            gates, remembers = row
            hidden = jnp.where(remembers[..., None], gated(hidden, gates, recurrent), 0.0)
            return hidden, hidden

        return jnp.moveaxis(jax.lax.scan(step, history.hidden, (gates, remembers))[1], 0, -2)

    def from_history(self, history: History) -> tuple[Float[Array, "... T A"], Float[Array, "... T"]]:
        """Masked logits and values of lines [..., T]."""
        return self.from_features((history.seen, self.recall(history)))


class Liam(RecurrentPolicyValue):
    """A memory that is made to tell what the co-players see and do, and not by the policy, which only reads it."""

    co_players: int = 0
    cells: int = 0
    """Figures of a co-player's board."""

    def setup(self) -> None:
        super().setup()
        self.decoder = dense(self.social, 2.0, "decoder")
        self.others_see = dense(self.co_players * self.cells, 1.0, "others_see")
        self.others_do = dense(self.co_players * self.num_actions, 1.0, "others_do")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        nothing = jnp.zeros((*observation.time.shape, self.social))
        self.decode(nothing)
        return super().__call__(observation)

    def from_history(self, history: History) -> Any:
        """The same, and what `decode` makes of the memory."""
        hidden = self.recall(history)
        logits, value = self.from_features((history.seen, jax.lax.stop_gradient(hidden)))
        return logits, value, self.decode(hidden)

    def decode(self, hidden: Float[Array, "... H"]) -> tuple[Float[Array, "... n-1 cells"], Float[Array, "... n-1 A"]]:
        """Logits of what stands on the co-players' boards, as they see them, and of what they do, legal or not."""
        inner = nn.relu(self.decoder(hidden))
        shape = (*hidden.shape[:-1], self.co_players)
        return self.others_see(inner).reshape(*shape, -1), self.others_do(inner).reshape(*shape, -1)


def gated(
    hidden: Float[Array, "... H"], gates: Float[Array, "... 3H"], recurrent: Float[Array, "H 3H"]
) -> Float[Array, "... H"]:
    """A gated recurrent unit's next state, from what its gates make of the input."""
    width = hidden.shape[-1]
    before = hidden @ recurrent
    reset, update = (
        nn.sigmoid(gates[..., start : start + width] + before[..., start : start + width]) for start in (0, width)
    )
    candidate = jnp.tanh(gates[..., 2 * width :] + reset * before[..., 2 * width :])
    return (1 - update) * candidate + update * hidden

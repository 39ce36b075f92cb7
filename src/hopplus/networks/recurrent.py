"""Recurrent actor-critic networks, whose hidden state lasts over all episodes of a trial."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import orthogonal
from jaxtyping import Array, Bool, Float, UInt8

from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.networks.actor_critic import BeliefActorCritic
from hopplus.networks.encoders import Features, encode, scaled
from hopplus.networks.layers import dense

MemoryInputs = UInt8[Array, "... N"]
"""Input of the recurrent cell: last actions of all players (n A), then the features."""


@struct
class History:
    """Inputs of one agent over steps [..., T]: all that is needed to recompute the outputs of its network."""

    seen: Features
    """Features that it acted on."""
    memory_inputs: MemoryInputs
    """Input since its previous action; at the first step of an episode, the end of the previous episode."""
    remembers: Bool[Array, "..."]
    """False if there was no earlier input in the trial; the hidden state is then 0."""
    hidden: Float[Array, "... H"]
    """Hidden state before the memory input [..., T, H]; to recompute a sequence, only the first [..., H]."""
    preference: Float[Array, "... P"] | None
    """The agent's own preference; None if the network does not observe it."""
    is_restored: Bool[Array, "... T"] | None = None
    """The hidden state before the step is not that after the step before, but an earlier one, which was restored after
    a late start; None without late starts. A sequence with late starts keeps the hidden states of all its steps."""


class Matrix(nn.Module):
    """A weight matrix without bias."""

    shape: tuple[int, int]

    @nn.compact
    def __call__(self) -> Float[Array, "I O"]:
        return self.param("kernel", orthogonal(), self.shape)


class RecurrentActorCritic(BeliefActorCritic):
    """Actor-critic with a gated recurrent unit.

    Inputs are the features, the hidden state of the unit, of size `social`, and the agent's own preference.
    """

    preference_inputs: int = 0
    """Number of inputs about the own preference."""

    def setup(self) -> None:
        super().setup()
        self.gates = dense(3 * self.social, 1.0, "gates")
        self.recurrent = Matrix((self.social, 3 * self.social), name="recurrent")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        """Masked logits and value after a single observation."""
        initial = jnp.zeros((*observation.time.shape, self.social))
        hidden = self.update_memory(initial, self.memory_inputs(observation))
        preference = jnp.zeros((*observation.time.shape, self.preference_inputs))
        return self.from_features((self.encode(observation), jnp.concatenate([hidden, preference], -1)))

    def memory_inputs(self, observation: Observation) -> MemoryInputs:
        """Memory inputs of observations."""
        last_actions = jax.nn.one_hot(observation.last_actions, self.num_actions, dtype=jnp.uint8)
        features = encode(observation, self.last_step, "centred" if self.encoder == "full" else self.encoder)
        return jnp.concatenate([last_actions.reshape(*last_actions.shape[:-2], -1), features], -1)

    def update_memory(self, hidden: Float[Array, "... H"], inputs: MemoryInputs) -> Float[Array, "... H"]:
        """Hidden state after new inputs."""
        return gated(hidden, self.gates(scaled(inputs, self.num_actions)), self.recurrent())

    def hidden_states(self, history: History) -> Float[Array, "... T H"]:
        """Hidden states at the steps of sequences [..., T]."""
        gates = jnp.moveaxis(self.gates(scaled(history.memory_inputs, self.num_actions)), -2, 0)
        remembers, recurrent = jnp.moveaxis(history.remembers, -1, 0), self.recurrent()
        initial, restored = history.hidden, None
        if history.is_restored is not None:
            kept = jnp.moveaxis(history.hidden, -2, 0)
            initial, restored = kept[0], (kept, jnp.moveaxis(history.is_restored, -1, 0))

        def step(hidden: Array, row: tuple[Array, Array, tuple[Array, Array] | None]) -> tuple[Array, Array]:
            gates, remembers, restored = row
            if restored is not None:
                hidden = jnp.where(restored[1][..., None], restored[0], hidden)
            hidden = jnp.where(remembers[..., None], gated(hidden, gates, recurrent), 0.0)
            return hidden, hidden

        return jnp.moveaxis(jax.lax.scan(step, initial, (gates, remembers, restored))[1], 0, -2)

    def from_history(
        self, history: History, critic: Float[Array, "... T C"] | None = None
    ) -> tuple[Float[Array, "... T A"], Float[Array, "... T"]]:
        """Masked logits and values of sequences [..., T], and the inputs of the critic alone."""
        return self._from_hidden(history, self.hidden_states(history), critic)

    def _from_hidden(
        self, history: History, hidden: Float[Array, "... T H"], critic: Float[Array, "... T C"] | None
    ) -> tuple[Float[Array, "... T A"], Float[Array, "... T"]]:
        inputs = hidden if history.preference is None else jnp.concatenate([hidden, history.preference], -1)
        return self.from_features((history.seen, inputs), critic)


class LiamNetwork(RecurrentActorCritic):
    """LIAM: a hidden state trained only to decode the co-players' observations and actions; the policy reads it."""

    co_players: int = 0
    cells: int = 0
    """Entries of a co-player's observed board."""

    def setup(self) -> None:
        super().setup()
        self.decoder = dense(self.social, 2.0, "decoder")
        self.others_see = dense(self.co_players * self.cells, 1.0, "others_see")
        self.others_do = dense(self.co_players * self.num_actions, 1.0, "others_do")

    def __call__(self, observation: Observation) -> tuple[Float[Array, "... A"], Float[Array, "..."]]:
        initial = jnp.zeros((*observation.time.shape, self.social))
        self.decode(initial)
        return super().__call__(observation)

    def from_history(self, history: History, critic: Float[Array, "... T C"] | None = None) -> Any:
        """Masked logits, values, and the outputs of `decode`, of sequences [..., T]."""
        hidden = self.hidden_states(history)
        logits, value = self._from_hidden(history, jax.lax.stop_gradient(hidden), critic)
        return logits, value, self.decode(hidden)

    def decode(self, hidden: Float[Array, "... H"]) -> tuple[Float[Array, "... n-1 cells"], Float[Array, "... n-1 A"]]:
        """Logits of the co-players' boards, as they observe them, and of their actions, without action mask."""
        inner = nn.relu(self.decoder(hidden))
        shape = (*hidden.shape[:-1], self.co_players)
        return self.others_see(inner).reshape(*shape, -1), self.others_do(inner).reshape(*shape, -1)


def gated(
    hidden: Float[Array, "... H"], gates: Float[Array, "... 3H"], recurrent: Float[Array, "H 3H"]
) -> Float[Array, "... H"]:
    """Next hidden state of a gated recurrent unit.

    Args:
        hidden: Hidden state.
        gates: Input contributions to the reset gate, the update gate and the candidate.
        recurrent: Recurrent weights.
    """
    width = hidden.shape[-1]
    recurrence = hidden @ recurrent
    reset, update = (
        nn.sigmoid(gates[..., start : start + width] + recurrence[..., start : start + width]) for start in (0, width)
    )
    candidate = jnp.tanh(gates[..., 2 * width :] + reset * recurrence[..., 2 * width :])
    return (1 - update) * candidate + update * hidden

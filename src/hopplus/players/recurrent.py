"""Player that acts by a recurrent policy network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.networks.recurrent import History, MemoryInputs, RecurrentActorCritic
from hopplus.players.player import Info, Memory, Params, as_action
from hopplus.players.policy import PolicyInfo, PolicyPlayer, encode, evaluate_features


@struct
class RecurrentMemory:
    """Recurrent state and the input that it has not processed yet."""

    hidden: Float[Array, " H"]
    """Hidden state at the last action."""
    news: MemoryInputs
    """Encoded result of the last step."""
    remembers: Bool[Array, ""]
    """False before the first step; the hidden state is then zero."""


@dataclass(frozen=True)
class RecurrentPlayer(PolicyPlayer):
    """Samples from the policy of a recurrent network.

    The hidden state is updated with every watched observation, including an episode's last. It is reset at the start
    of a trial or, if the player `forgets`, of an episode.
    """

    forgets: bool = False
    """Reset the hidden state after each episode."""

    def init(self, key: Key, params: Params) -> RecurrentMemory:
        width, news = params["recurrent"]["kernel"].shape[-2], params["gates"]["kernel"].shape[-2]
        return RecurrentMemory(jnp.zeros(width), jnp.zeros(news, jnp.uint8), jnp.bool_(False))

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], RecurrentMemory, Info]:
        hidden, features, logits, value = self._evaluate(params, memory, observation)
        action = jnp.argmax(logits) if self.greedy else jax.random.categorical(fast(key), logits)
        history = History(features, memory.news, memory.remembers, memory.hidden) if self.keeps_features else None
        info = PolicyInfo(jax.nn.log_softmax(logits)[action], value, history)
        return as_action(action), RecurrentMemory(hidden, memory.news, memory.remembers), info

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        return self._evaluate(params, memory, observation)[3]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits = self._evaluate(params, memory, observation)[2]
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    def watch(self, params: Params, memory: Memory, observation: Observation) -> RecurrentMemory:
        news = self.network.apply({}, observation, method=RecurrentActorCritic.memory_inputs)
        return RecurrentMemory(memory.hidden, news, jnp.ones_like(memory.remembers))  # pyright: ignore[reportArgumentType]

    def end(self, memory: Memory) -> RecurrentMemory:
        return jax.tree.map(jnp.zeros_like, memory) if self.forgets else memory

    def _evaluate(
        self, params: Params, memory: RecurrentMemory, observation: Observation
    ) -> tuple[Array, Array, Array, Array]:
        """Returns the hidden state, the encoded observation, the logits and the value."""
        variables = {"params": params}
        updated = self.network.apply(variables, memory.hidden, memory.news, method=RecurrentActorCritic.update_memory)
        hidden = jnp.where(memory.remembers, updated, 0.0)  # pyright: ignore[reportArgumentType]
        features = encode(self.network, observation)
        logits, value = evaluate_features(self.network, params, (features, hidden))
        return hidden, features, logits, value

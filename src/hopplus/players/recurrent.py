"""Player that acts by a recurrent policy network."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.preferences import Preference
from hopplus.networks.recurrent import History, MemoryInputs, RecurrentActorCritic
from hopplus.players.player import Info, Memory, Params
from hopplus.players.policy import PolicyPlayer, encode, evaluate_features
from hopplus.players.preferences import PreferenceMemory, init_preference, meet_preference, preference_features


@struct
class RecurrentMemory:
    """Recurrent state and the input that it has not processed yet."""

    hidden: Float[Array, " H"]
    """Hidden state at the last action."""
    news: MemoryInputs
    """Encoded result of the last step."""
    remembers: Bool[Array, ""]
    """False before the first step; the hidden state is then zero."""
    preference: PreferenceMemory | None
    """The own preference; None unless it is sampled."""


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
        preference = init_preference(self._preference_game, key, params) if self.samples_preference else None
        return RecurrentMemory(jnp.zeros(width), jnp.zeros(news, jnp.uint8), jnp.bool_(False), preference)

    def meet(self, key: Key, memory: Memory) -> RecurrentMemory:
        if not self.samples_preference:
            return memory
        return replace(memory, preference=meet_preference(self._preference_game, key, memory.preference))

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], RecurrentMemory, Info]:
        history = self.inputs(params, memory, observation)
        hidden, logits, value = self._evaluate(params, history)
        preference = self.preference(memory)
        action, intended = self.choose(key, logits, preference, observation)
        info = self.info(logits, value, history, action, intended, preference)
        return action, replace(memory, hidden=hidden), info

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        return self._evaluate(params, self.inputs(params, memory, observation))[2]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits = self._evaluate(params, self.inputs(params, memory, observation))[1]
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    def watch(self, params: Params, memory: Memory, observation: Observation) -> RecurrentMemory:
        news = self.network.apply({}, observation, method=RecurrentActorCritic.memory_inputs)
        return replace(memory, news=news, remembers=jnp.ones_like(memory.remembers))

    def end(self, memory: Memory) -> RecurrentMemory:
        if not self.forgets:
            return memory
        return replace(jax.tree.map(jnp.zeros_like, memory), preference=memory.preference)

    # -- parts, for learners

    def inputs(self, params: Params, memory: Memory, observation: Observation) -> History:
        """Returns the inputs of one step, with the hidden state before it."""
        preference = self.preference(memory)
        return History(
            encode(self.network, observation),
            memory.news,
            memory.remembers,
            memory.hidden,
            None if preference is None else preference_features(preference),
        )

    def centralized_value(self, params: Params, inputs: History, critic: Float[Array, " C"]) -> Float[Array, ""]:
        return self._evaluate(params, inputs, critic)[2]

    def sampled_preference(self, memory: Memory) -> Preference:
        return memory.preference.preference

    def _evaluate(self, params: Params, history: History, *critic: Array) -> tuple[Array, Array, Array]:
        """Returns the hidden state, the logits and the value of one step."""
        variables, update = {"params": params}, RecurrentActorCritic.update_memory
        updated = self.network.apply(variables, history.hidden, history.memory_inputs, method=update)
        hidden = jnp.where(history.remembers, updated, 0.0)  # pyright: ignore[reportArgumentType]
        inputs = hidden if history.preference is None else jnp.concatenate([hidden, history.preference])
        logits, value = evaluate_features(self.network, params, (history.seen, inputs), *critic)
        return hidden, logits, value

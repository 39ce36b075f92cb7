"""A player whose network remembers what it has seen."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.keys import Key, fast
from hopplus.networks.recurrent import History, News, RecurrentPolicyValue
from hopplus.players.network import Choice, NetworkPlayer, encode, evaluate_features
from hopplus.players.player import Info, Memory, Params, as_action
from hopplus.struct import struct


@struct
class Recollection:
    """What is remembered, and what was seen since."""

    hidden: Float[Array, " H"]
    """As it was when the player acted last."""
    news: News
    """What the step after that led to."""
    remembers: Bool[Array, ""]
    """Whether there was such a step."""


@dataclass(frozen=True)
class RecurrentPlayer(NetworkPlayer):
    """Draws from the policy of a network that sees its own memory. The memory takes in everything that is watched, an
    episode's last observation too, and lives as long as the acquaintance, or as an episode if it `forgets`."""

    forgets: bool = False

    def init(self, key: Key, params: Params) -> Recollection:
        width, news = params["recurrent"]["kernel"].shape[-2], params["gates"]["kernel"].shape[-2]
        return Recollection(jnp.zeros(width), jnp.zeros(news, jnp.uint8), jnp.bool_(False))

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Recollection, Info]:
        hidden, seen, logits, value = self._look(params, memory, observation)
        action = jnp.argmax(logits) if self.greedy else jax.random.categorical(fast(key), logits)
        history = History(seen, memory.news, memory.remembers, memory.hidden) if self.keeps_features else ()
        said = Choice(jax.nn.log_softmax(logits)[action], value, history)
        return as_action(action), Recollection(hidden, memory.news, memory.remembers), said

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        return self._look(params, memory, observation)[3]

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        logits = self._look(params, memory, observation)[2]
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Recollection:
        news = self.network.apply({}, observation, method=RecurrentPolicyValue.news)
        return Recollection(memory.hidden, news, jnp.ones_like(memory.remembers))  # pyright: ignore[reportArgumentType]

    def end(self, memory: Memory) -> Recollection:
        return jax.tree.map(jnp.zeros_like, memory) if self.forgets else memory

    def _look(
        self, params: Params, memory: Recollection, observation: Observation
    ) -> tuple[Array, Array, Array, Array]:
        """What it remembers now, what it sees, and what its policy and value make of both."""
        variables = {"params": params}
        after = self.network.apply(variables, memory.hidden, memory.news, method=RecurrentPolicyValue.remember)
        hidden = jnp.where(memory.remembers, after, 0.0)  # pyright: ignore[reportArgumentType]
        seen = encode(self.network, observation)
        logits, value = evaluate_features(self.network, params, (seen, hidden))
        return hidden, seen, logits, value

"""Rationality hypotheses: how far a co-player deviates from the opponent model.

The opponent model is trained on the players of one training. Another player with the same goal may be noisier, or more
consistent, than those. A rationality hypothesis is a sharpness s and a tremble e. With the model's policy p it predicts

    (1 - e) p(a)^s / sum_b p(b)^s + e / (number of legal actions).

A co-player's hypothesis is a pair of a rationality [B] and a goal [K]. Goals may switch within an episode,
rationalities do not. With `random`, the last rationality is a uniformly random player (e = 1).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

MODEL_NOISE = 0.02
"""Default tremble of a co-player that follows the model: keeps beliefs from locking in where the model is wrong."""
FIRST_SHARE, RANDOM_SHARE = 0.6, 0.1
"""Prior probabilities of the first tremble (if there are several) and of the uniformly random player."""


def mix_uniform(
    probability: Float[Array, "..."], choices: Float[Array, "..."], share: Float[Array, "..."] | float
) -> Float[Array, "..."]:
    """Mixes an action probability with a uniform choice among `choices` legal actions."""
    return (1 - share) * probability + share / choices


@dataclass(frozen=True)
class Rationality:
    """Finite set of rationality hypotheses, ordered by sharpness and tremble; the random player is last."""

    trembles: tuple[float, ...] = (MODEL_NOISE,)
    """Probabilities of a uniformly random action; the first is the most likely a priori."""
    sharpness: tuple[float, ...] = (1.0,)
    """Exponents of the model's policy."""
    random: bool = False
    """Include the uniformly random player."""

    @property
    def num_blocks(self) -> int:
        """Number of hypotheses, B."""
        return len(self.trembles) * len(self.sharpness) + self.random

    @property
    def names(self) -> tuple[str, ...]:
        """Short names of the hypotheses."""
        named = [
            (f"sharpness {sharpness:g}, " if len(self.sharpness) > 1 else "") + f"tremble {tremble:g}"
            for sharpness in self.sharpness
            for tremble in self.trembles
        ]
        return (*named, "random") if self.random else tuple(named)

    @property
    def block_trembles(self) -> Float[np.ndarray, " B"]:
        """Tremble of each hypothesis."""
        trembles = [*self.trembles * len(self.sharpness), *[1.0] * self.random]
        return np.array(trembles, np.float32)

    @property
    def block_sharpness(self) -> Int[np.ndarray, " B"]:
        """Index of each hypothesis into `sharpness`."""
        index = np.repeat(np.arange(len(self.sharpness)), len(self.trembles))
        return np.concatenate([index, np.zeros(int(self.random), index.dtype)])

    @property
    def prior(self) -> Float[np.ndarray, " B"]:
        """Prior probabilities of the hypotheses."""
        others = len(self.trembles) - 1
        by_tremble = [FIRST_SHARE, *[(1 - FIRST_SHARE) / max(others, 1)] * others] if others else [1.0]
        regular = np.tile(np.array(by_tremble) / len(self.sharpness), len(self.sharpness))
        return np.concatenate([regular * (1 - RANDOM_SHARE * self.random), [RANDOM_SHARE] * self.random])

    def sharpened(self, policy: Float[Array, "... K A"]) -> Float[Array, "... S K A"]:
        """Returns the policies under each sharpness; a probability of 0 stays 0."""
        if self.sharpness == (1.0,):
            return policy[..., None, :, :]
        log_policy = jnp.log(jnp.maximum(policy, 1e-30))
        scaled = jnp.stack([exponent * log_policy for exponent in self.sharpness], -3)
        return jax.nn.softmax(jnp.where(policy[..., None, :, :] > 0, scaled, -jnp.inf))

    def likelihoods(self, policy: Float[Array, "... K A"], action: Int[Array, "..."]) -> Float[Array, "... B K"]:
        """Returns the log-likelihood of an action under each hypothesis.

        Args:
            policy: The model's action probabilities under each goal.
            action: The action taken.
        """
        index = action.reshape(*action.shape, 1, 1, 1)
        chosen = jnp.take_along_axis(self.sharpened(policy), index, -1)[..., 0]
        choices = self._choices(policy)[..., None, None]
        by_block = jnp.take(chosen, self.block_sharpness, axis=-2)
        return jnp.log(jnp.maximum(mix_uniform(by_block, choices, jnp.asarray(self.block_trembles)[:, None]), 1e-30))

    def mixture(self, policy: Float[Array, "... K A"], belief: Float[Array, "... B K"]) -> Float[Array, "... A"]:
        """Returns the action probabilities averaged over a belief (probabilities) about the hypothesis."""
        one_hot = (
            np.eye(len(self.sharpness), dtype=np.float32)[self.block_sharpness] * (1 - self.block_trembles)[:, None]
        )
        weights = jnp.einsum("...bk,bs->...sk", belief, one_hot)
        trembling = (belief.sum(-1) * self.block_trembles).sum(-1, keepdims=True)
        legal = self._legal(policy)
        uniform = legal / legal.sum(-1, keepdims=True)
        return jnp.einsum("...sk,...ska->...a", weights, self.sharpened(policy)) + trembling * uniform

    def policy_of(self, policy: Float[Array, "n-1 K A"], hypothesis: Int[Array, " n-1"]) -> Float[Array, "n-1 A"]:
        """Returns the action probabilities of co-players under one hypothesis each, numbered b K + k."""
        block, goal = jnp.divmod(hypothesis, policy.shape[-2])
        given_goal = jnp.take_along_axis(policy, goal[:, None, None], 1)
        exponents = jnp.asarray(self.sharpness)[jnp.asarray(self.block_sharpness)[block]]
        if self.sharpness != (1.0,):
            log_policy = jnp.log(jnp.maximum(given_goal, 1e-30))
            scaled = jnp.where(given_goal > 0, exponents[:, None, None] * log_policy, -jnp.inf)
            given_goal = jax.nn.softmax(scaled)
        legal = self._legal(policy)
        trembles = jnp.asarray(self.block_trembles)[block][:, None]
        return jnp.where(legal, mix_uniform(given_goal[:, 0], legal.sum(-1, keepdims=True), trembles), 0.0)

    def _legal(self, policy: Float[Array, "... K A"]) -> Array:
        """Mask of the legal actions: those with a positive probability under some goal."""
        return (policy > 0).any(-2)

    def _choices(self, policy: Float[Array, "... K A"]) -> Float[Array, "..."]:
        """Number of legal actions."""
        return self._legal(policy).sum(-1)


EXACT, NOISY_MODEL = Rationality((0.0,)), Rationality()
"""The single hypothesis that a player follows the model exactly, or with a little noise."""

"""Hypotheses about a co-player beside its goal: which model it follows, and how far it deviates from that.

The opponent model is trained on the players of one training. Another player with the same goal may be noisier, or more
consistent, than those. A rationality hypothesis is a sharpness s and a tremble e. With the model's policy p it predicts

    (1 - e) p(a)^s / sum_b p(b)^s + e / (number of legal actions).

A co-player may also act as the learners with one of the preferences of reward randomisation do (a preference model),
whatever goal it has: p is then the policy of these learners, and s is 1.

A co-player's hypothesis is a pair of a rationality [B] and a goal [K]. Goals may switch within an episode,
rationalities do not. With `random`, the last rationality is a uniformly random player (e = 1). Policies [H, A] of a
co-player are those under each goal, then those of the preference models: H = K + W.
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
PREFERENCE_SHARE = 0.5
"""Prior probability of all preference models together, if there are any, of a player that is not uniformly random."""
SMALLEST = 1e-30
"""Least probability of an action, so that its logarithm is finite."""


def _power(probability: Float[Array, "..."], exponent: float) -> Float[Array, "..."]:
    return jax.lax.integer_pow(probability, int(exponent)) if exponent == int(exponent) else probability**exponent


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
    preferences: tuple[str, ...] = ()
    """Names of the preferences with a model."""

    @property
    def num_variants(self) -> int:
        """Number of policies given a goal: one for each sharpness, one for each preference model."""
        return len(self.sharpness) + len(self.preferences)

    @property
    def num_blocks(self) -> int:
        """Number of hypotheses, B."""
        return len(self.trembles) * self.num_variants + self.random

    @property
    def names(self) -> tuple[str, ...]:
        """Short names of the hypotheses."""
        sharp = [f"sharpness {sharpness:g}, " if len(self.sharpness) > 1 else "" for sharpness in self.sharpness]
        variants = [*sharp, *(f"preference {preference}, " for preference in self.preferences)]
        named = [f"{variant}tremble {tremble:g}" for variant in variants for tremble in self.trembles]
        return (*named, "random") if self.random else tuple(named)

    @property
    def block_trembles(self) -> Float[np.ndarray, " B"]:
        """Tremble of each hypothesis."""
        trembles = [*self.trembles * self.num_variants, *[1.0] * self.random]
        return np.array(trembles, np.float32)

    @property
    def block_variant(self) -> Int[np.ndarray, " B"]:
        """Index of each hypothesis into the policies given a goal."""
        index = np.repeat(np.arange(self.num_variants), len(self.trembles))
        return np.concatenate([index, np.zeros(int(self.random), index.dtype)])

    @property
    def prior(self) -> Float[np.ndarray, " B"]:
        """Prior probabilities of the hypotheses."""
        others = len(self.trembles) - 1
        by_tremble = [FIRST_SHARE, *[(1 - FIRST_SHARE) / max(others, 1)] * others] if others else [1.0]
        of_preferences = PREFERENCE_SHARE if self.preferences else 0.0
        by_variant = [
            *[(1 - of_preferences) / len(self.sharpness)] * len(self.sharpness),
            *[of_preferences / max(len(self.preferences), 1)] * len(self.preferences),
        ]
        regular = np.outer(by_variant, by_tremble).reshape(-1)
        return np.concatenate([regular * (1 - RANDOM_SHARE * self.random), [RANDOM_SHARE] * self.random])

    def variants(self, policy: Float[Array, "... H A"]) -> Float[Array, "... V K A"]:
        """Returns the policies given a goal, under each sharpness and by each preference model.

        A probability of 0 stays 0.
        """
        goals = policy.shape[-2] - len(self.preferences)
        by_goal = policy[..., None, :goals, :]
        if self.sharpness != (1.0,):
            by_goal = jnp.concatenate([_power(by_goal, exponent) for exponent in self.sharpness], -3)
            by_goal = by_goal / jnp.maximum(by_goal.sum(-1, keepdims=True), SMALLEST)
        if not self.preferences:
            return by_goal
        by_preference = policy[..., goals:, None, :]
        shape = (*by_preference.shape[:-2], goals, policy.shape[-1])
        return jnp.concatenate([by_goal, jnp.broadcast_to(by_preference, shape)], -3)

    def likelihoods(self, policy: Float[Array, "... H A"], action: Int[Array, "..."]) -> Float[Array, "... B K"]:
        """Returns the probability of an action under each hypothesis.

        Args:
            policy: Action probabilities under each goal, then by each preference model.
            action: The action taken.
        """
        index = action.reshape(*action.shape, 1, 1, 1)
        chosen = jnp.take_along_axis(self.variants(policy), index, -1)[..., 0]
        choices = self._choices(policy)[..., None, None]
        by_block = jnp.take(chosen, self.block_variant, axis=-2)
        return jnp.maximum(mix_uniform(by_block, choices, jnp.asarray(self.block_trembles)[:, None]), SMALLEST)

    def mixture(self, policy: Float[Array, "... H A"], belief: Float[Array, "... B K"]) -> Float[Array, "... A"]:
        """Returns the action probabilities averaged over a belief (probabilities) about the hypothesis."""
        one_hot = np.eye(self.num_variants, dtype=np.float32)[self.block_variant] * (1 - self.block_trembles)[:, None]
        weights = jnp.einsum("...bk,bv->...vk", belief, one_hot)
        trembling = (belief.sum(-1) * self.block_trembles).sum(-1, keepdims=True)
        legal = self._legal(policy)
        uniform = legal / legal.sum(-1, keepdims=True)
        return jnp.einsum("...vk,...vka->...a", weights, self.variants(policy)) + trembling * uniform

    def policy_of(self, policy: Float[Array, "n-1 H A"], hypothesis: Int[Array, " n-1"]) -> Float[Array, "n-1 A"]:
        """Returns the action probabilities of co-players under one hypothesis each, numbered b K + k."""
        goals = policy.shape[-2] - len(self.preferences)
        block, goal = jnp.divmod(hypothesis, goals)
        variant = jnp.asarray(self.block_variant)[block]
        preference = variant - len(self.sharpness)
        row = jnp.where(preference >= 0, goals + preference, goal)
        given_goal = jnp.take_along_axis(policy, row[:, None, None], 1)
        exponents = jnp.array([*self.sharpness, *[1.0] * len(self.preferences)])[variant]
        if self.sharpness != (1.0,):
            log_policy = jnp.log(jnp.maximum(given_goal, 1e-30))
            scaled = jnp.where(given_goal > 0, exponents[:, None, None] * log_policy, -jnp.inf)
            given_goal = jax.nn.softmax(scaled)
        legal = self._legal(policy)
        trembles = jnp.asarray(self.block_trembles)[block][:, None]
        return jnp.where(legal, mix_uniform(given_goal[:, 0], legal.sum(-1, keepdims=True), trembles), 0.0)

    def _legal(self, policy: Float[Array, "... H A"]) -> Array:
        """Mask of the legal actions: those with a positive probability under some goal or model."""
        return (policy > 0).any(-2)

    def _choices(self, policy: Float[Array, "... H A"]) -> Float[Array, "..."]:
        """Number of legal actions."""
        return self._legal(policy).sum(-1)


EXACT, NOISY_MODEL = Rationality((0.0,)), Rationality()
"""The single hypothesis that a player follows the model exactly, or with a little noise."""

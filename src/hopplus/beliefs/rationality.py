"""Hypotheses about a co-player beside its goal: which model it follows, and how far it deviates from that.

The opponent model is trained on the players of one training. Another player with the same goal may be noisier, or more
consistent, than those. A rationality hypothesis is a sharpness s and a tremble e. With the model's policy p it predicts

    (1 - e) p(a)^s / sum_b p(b)^s + e / (number of legal actions).

A co-player may also act as the learners with one of the preferences of reward randomisation do (a preference model):
p is then the policy p_w of these learners, and s is 1. Its goal is inferred by the policies p_k of the goals: with the
belief b about it before the action,

    p(a | w, k) = p_w(a) p_k(a) / sum_k' b(k') p_k'(a), each p with tremble e.

A co-player's hypothesis is a pair of a rationality [B] and a goal [K]. Goals may switch within an episode,
rationalities do not. With `random`, the last rationality is a uniformly random player (e = 1). Policies [H, A] of a
co-player are those under each goal, then those of the preference models: H = K + W.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.beliefs.hmm import SMALLEST

MODEL_NOISE = 0.02
"""Default tremble of a co-player that follows the model: keeps beliefs from locking in where the model is wrong."""
FIRST_SHARE, RANDOM_SHARE = 0.6, 0.1
"""Prior probabilities of the first tremble (if there are several) and of the uniformly random player."""
PREFERENCE_SHARE = 0.5
"""Prior probability of all preference models together, if there are any, of a player that is not uniformly random."""


def _power(probability: Float[Array, "..."], exponent: float) -> Float[Array, "..."]:
    return jax.lax.integer_pow(probability, int(exponent)) if exponent == int(exponent) else probability**exponent


def mix_uniform(
    probability: Float[Array, "..."], choices: Float[Array, "..."], share: Float[Array, "..."] | float
) -> Float[Array, "..."]:
    """Mixes an action probability with a uniform choice among `choices` legal actions."""
    return (1 - share) * probability + share / choices


def _relative_likelihood(likelihood: Float[Array, "... K"], belief: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Returns the likelihoods of goals divided by their mean over a belief, which need not be normalised."""
    likelihood, total = jnp.maximum(likelihood, SMALLEST), belief.sum(-1, keepdims=True)
    weights = jnp.where(total > SMALLEST, belief / jnp.maximum(total, SMALLEST), 1 / belief.shape[-1])
    return likelihood / jnp.maximum((weights * likelihood).sum(-1, keepdims=True), SMALLEST)


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
        """Names of the hypotheses."""
        sharp = [f"sharpness {sharpness:g}, " if len(self.sharpness) > 1 else "" for sharpness in self.sharpness]
        variants = [*sharp, *(f"preference {preference}, " for preference in self.preferences)]
        named = [f"{variant}tremble {tremble:g}" for variant in variants for tremble in self.trembles]
        return (*named, "random") if self.random else tuple(named)

    @property
    def short_names(self) -> tuple[str, ...]:
        """Names of the hypotheses without the trembles of preference models, which therefore share names."""
        by_preference = [f"preference {preference}" for preference in self.preferences for _ in self.trembles]
        first = len(self.sharpness) * len(self.trembles)
        return (*self.names[:first], *by_preference, *self.names[first + len(by_preference) :])

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

    def sharpened(self, policy: Float[Array, "... H A"]) -> Float[Array, "... R A"]:
        """Returns the R = S K + W policies: under each sharpness and goal, then by each preference model.

        A probability of 0 stays 0.
        """
        if self.sharpness == (1.0,):
            return policy
        goals = policy.shape[-2] - len(self.preferences)
        powers = jnp.concatenate([_power(policy[..., :goals, :], exponent) for exponent in self.sharpness], -2)
        by_goal = powers / jnp.maximum(powers.sum(-1, keepdims=True), SMALLEST)
        return jnp.concatenate([by_goal, policy[..., goals:, :]], -2)

    def likelihoods(
        self,
        policy: Float[Array, "... H A"],
        action: Int[Array, "..."],
        belief: Float[Array, "... B K"] | None = None,
    ) -> Float[Array, "... B K"]:
        """Returns the probability of an action under each hypothesis.

        Averaged over the belief about the goal, that of a preference model is its own prediction.

        Args:
            policy: Action probabilities under each goal, then by each preference model.
            action: The action taken.
            belief: Belief before the action, which need not be normalised; only preference models use it.
        """
        chosen = jnp.take_along_axis(self.sharpened(policy), action[..., None, None], -1)[..., 0]
        choices, trembles = self._choices(policy), jnp.array(self.trembles)
        shape, goals = choices.shape, policy.shape[-2] - len(self.preferences)
        sharpened_goals = goals * len(self.sharpness)
        by_goal = chosen[..., :sharpened_goals].reshape(*shape, len(self.sharpness), 1, goals)
        trembling = mix_uniform(by_goal, choices[..., None, None, None], trembles[:, None])
        blocks = [trembling.reshape(*shape, -1, goals)]
        if self.preferences:
            assert belief is not None
            own = mix_uniform(chosen[..., sharpened_goals:, None], choices[..., None, None], trembles)
            first = len(self.sharpness) * len(self.trembles)
            about_goal = belief[..., first : first + own.shape[-2] * own.shape[-1], :].reshape(*own.shape, goals)
            plain = jnp.take_along_axis(policy[..., :goals, :], action[..., None, None], -1)[..., None, None, :, 0]
            of_goal = mix_uniform(plain, choices[..., None, None, None], trembles[:, None])
            relative = _relative_likelihood(of_goal, about_goal)
            blocks.append((own[..., None] * relative).reshape(*shape, -1, goals))
        if self.random:
            blocks.append(jnp.broadcast_to(1 / choices[..., None, None], (*shape, 1, goals)))
        return jnp.maximum(jnp.concatenate(blocks, -2), SMALLEST)

    def mixture(self, policy: Float[Array, "... H A"], belief: Float[Array, "... B K"]) -> Float[Array, "... A"]:
        """Returns the action probabilities averaged over a belief (probabilities) about the hypothesis."""
        number, goals = self.num_variants * len(self.trembles), belief.shape[-1]
        shape = belief.shape[:-2]
        regular = belief[..., :number, :].reshape(*shape, self.num_variants, -1, goals)
        kept = jnp.einsum("...vtk,t->...vk", regular, 1 - np.array(self.trembles, np.float32))
        sharpness = len(self.sharpness)
        weights = jnp.concatenate([kept[..., :sharpness, :].reshape(*shape, -1), kept[..., sharpness:, :].sum(-1)], -1)
        trembling = (belief.sum(-1) * self.block_trembles).sum(-1, keepdims=True)
        legal = self._legal(policy)
        uniform = legal / legal.sum(-1, keepdims=True)
        return jnp.einsum("...r,...ra->...a", weights, self.sharpened(policy)) + trembling * uniform

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

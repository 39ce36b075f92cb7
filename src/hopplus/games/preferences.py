"""Reward randomisation: preferences that make the learners of one training differ.

In self-play all learners have the same goals, so that none learns to respond to a co-player with other goals. With
reward randomisation every learner has a preference: weights of its rewards by the action that earned them, and a
probability of trembling. Its policy observes its own preference, and no co-player's.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game

TREMBLE = 0.5
"""Tremble probability of the trembling preference."""
TREMBLES, REPLACEMENT = range(2)
"""Purposes of the tremble's random key."""


@struct
class Preference:
    """Preference of one player."""

    reward_weights: Float[Array, " A"]
    """Weight of a reward, by the action that earned it."""
    tremble: Float[Array, ""]
    """Probability that a uniformly drawn legal action replaces the intended one."""


def neutral(game: Game[Any]) -> Preference:
    """The preference without effect: all weights are 1, and no tremble."""
    return Preference(jnp.ones(game.num_actions), jnp.float32(0))


def preferences(game: Game[Any]) -> Preference:
    """All preferences [preferences, ...] of learners; the neutral one is first, the trembling one last.

    Every action that takes an item (hunting a stag, hunting a hare) has a weight of 1 or -1, in all combinations. If
    there are several such actions, the combination of only -1 is left out: it has nothing to learn. The weight is -1
    rather than 0, because a learner without rewards for stags still hunts them: hares pay so much less that it hardly
    learns to prefer them.
    """
    takes = game.num_actions - game.idle_action - 1
    signs = [signs for signs in itertools.product((1, -1), repeat=takes) if max(signs) > 0 or takes < 2]
    take_weights = np.array([*signs, (1,) * takes], np.float32)
    other_weights = np.ones((len(take_weights), game.idle_action + 1), np.float32)
    tremble = np.array([0.0] * len(signs) + [TREMBLE], np.float32)
    return Preference(jnp.asarray(np.concatenate([other_weights, take_weights], axis=1)), jnp.asarray(tremble))


def with_tremble(key: Key, preference: Preference, action: Int[Array, ""], legal: Bool[Array, " A"]) -> Int[Array, ""]:
    """Returns the executed action: the intended one, or a random legal one with the tremble probability."""
    replacement = jax.random.categorical(jax.random.fold_in(key, REPLACEMENT), jnp.where(legal, 0.0, -jnp.inf))
    trembles = jax.random.uniform(jax.random.fold_in(key, TREMBLES)) < preference.tremble
    return jnp.where(trembles, replacement, action).astype(action.dtype)

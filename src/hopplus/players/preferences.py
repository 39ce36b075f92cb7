"""Preferences of learners: drawn for a trial and observed by the own policy.

A learner in reward randomisation has a preference for a trial (`PreferenceMemory`); other players with the same network
have the neutral one.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Game
from hopplus.games.preferences import Preference, draw_preference, neutral, preference_set


@struct
class PreferenceMemory:
    """Preference of a learner for a trial."""

    preference: Preference
    draw: Float[Array, ""]
    """Uniform number of the seat, which selects the preference."""


def init_preference(game: Game[Any], key: Key) -> PreferenceMemory:
    """Returns a memory with the neutral preference, from the key of a seat."""
    return PreferenceMemory(neutral(game), jax.random.uniform(fast(key)))


def meet_preference(game: Game[Any], key: Key, memory: PreferenceMemory) -> PreferenceMemory:
    """Returns the memory with the preference for a trial, from the key that all its seats have in common."""
    return replace(memory, preference=draw_preference(preference_set(game), fast(key), memory.draw))


def preference_width(game: Game[Any]) -> int:
    """Returns the width of `preference_features`."""
    return len(game.component_names) + 2


def preference_features(preference: Preference) -> Float[Array, "... P"]:
    """Returns a policy's inputs about a preference: the reward weights, the step cost and the tremble."""
    rest = jnp.stack([preference.step_cost, preference.tremble], -1)
    return jnp.concatenate([preference.reward_weights, rest], -1)

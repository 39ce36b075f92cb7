"""Preferences of learners: drawn for a trial and observed by the own policy.

A learner in reward randomisation has a preference for a trial (`PreferenceMemory`); other players with the same network
have the neutral one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Game
from hopplus.games.preferences import Preference, RegretSampling, draw_preference, neutral, preference_set
from hopplus.players.player import Params

REGRET_SAMPLING = "regret sampling"
"""Source of `RegretSampling`, and its name among the params of a learner."""


@struct
class PreferenceMemory:
    """Preference of a learner for a trial."""

    preference: Preference
    draw: Float[Array, ""]
    """Uniform number of the seat, which selects the preference."""
    regret: RegretSampling | None = None
    """Regret sampling; None after the preference is drawn, and without regret sampling."""


def init_preference(game: Game[Any], key: Key, params: Params) -> PreferenceMemory:
    """Returns a memory with the neutral preference, from the key and the params of a seat."""
    return PreferenceMemory(neutral(game), jax.random.uniform(fast(key)), params.get(REGRET_SAMPLING))


def meet_preference(game: Game[Any], key: Key, memory: PreferenceMemory) -> PreferenceMemory:
    """Returns the memory with the preference for a trial, from the key that all its seats have in common."""
    drawn = draw_preference(preference_set(game), fast(key), memory.draw, memory.regret)
    return replace(memory, preference=drawn, regret=None)


def with_regret_sampling(params: Params, sources: Mapping[str, Params]) -> Params:
    """Returns a learner's params with those of regret sampling, if there is any."""
    regret = sources.get(REGRET_SAMPLING)
    return params if regret is None else {**params, REGRET_SAMPLING: regret}


def preference_width(game: Game[Any]) -> int:
    """Returns the width of `preference_features`."""
    return len(game.component_names) + 2


def preference_features(preference: Preference) -> Float[Array, "... P"]:
    """Returns a policy's inputs about a preference: the reward weights, the step cost and the tremble."""
    rest = jnp.stack([preference.step_cost, preference.tremble], -1)
    return jnp.concatenate([preference.reward_weights, rest], -1)

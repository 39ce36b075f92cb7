"""Reward randomisation: preferences that make the learners of one training differ.

In self-play all learners have the same goals, so that none learns to respond to a co-player with other goals. With
reward randomisation (compare RPG, Tang et al., 2021, and HSP, Yu et al., 2023) every learner has a preference for a
whole trial: weights of the components of its reward, a cost per step, and a probability of trembling. Its policy
observes its own preference, and no co-player's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.specs import nearest
from hopplus.core.struct import struct
from hopplus.games.game import Game, NamedPreference

TREMBLES = (0.0, 0.25, 0.5)
"""Tremble probabilities of the preferences of a training."""
NEUTRAL_SHARE = 0.4
"""Expected share of the neutral preference without tremble."""
TREMBLING_SHARE = 0.25
"""Expected share of all preferences with a tremble together."""
CONCENTRATION = 2.0
"""Sum of the Dirichlet distribution's parameters for the shares in one trial. It is small, so that three players with
equal preferences are frequent."""
STICKS = 32
"""Sticks of a draw from that distribution; the probability that a seat needs more is (2/3)**32."""
IS_TREMBLE, REPLACEMENT = range(2)
"""Purposes of the tremble's random key."""
SHARES, IS_BY_REGRET = range(1, 3)
"""Purposes of the key of a trial with regret sampling; a pool in the same trial has 0."""


@struct
class Preference:
    """Preference of one player."""

    reward_weights: Float[Array, " C"]
    """Weight of each component of the reward."""
    step_cost: Float[Array, ""]
    """Cost of every step in the game."""
    tremble: Float[Array, ""]
    """Probability that a uniformly drawn legal action replaces the intended one."""

    @property
    def is_neutral(self) -> Bool[Array, ""]:
        """Whether the preference is for the game's own reward, without tremble."""
        return (self.reward_weights == 1).all(-1) & (self.step_cost == 0) & (self.tremble == 0)


@dataclass(frozen=True, eq=False)
class PreferenceSet:
    """Preferences [K] of a training, from which each learner draws one per trial."""

    names: tuple[str, ...]
    preferences: Preference
    """Fields [K, ...]."""
    shares: Float[np.ndarray, " K"]
    """Expected share of each."""

    def index_of(self, preference: Preference) -> Int[Array, "*rows"]:
        """Returns the index of preferences with fields `[*rows, ...]`, which must be of this set."""
        members = self.preferences
        is_equal = (preference.reward_weights[..., None, :] == members.reward_weights).all(-1)
        is_equal &= preference.step_cost[..., None] == members.step_cost
        is_equal &= preference.tremble[..., None] == members.tremble
        return is_equal.argmax(-1)


@struct
class RegretSampling:
    """Regret sampling: in a share of the trials, other expected shares of the preferences."""

    trial_share: Float[Array, ""]
    """Share of these trials."""
    shares: Float[Array, " K"]
    """Expected share of each preference in these trials."""


def neutral(game: Game[Any]) -> Preference:
    """The preference for the game's own reward, without tremble."""
    return Preference(jnp.ones(len(game.component_names)), jnp.float32(0), jnp.float32(0))


def preference_set(game: Game[Any]) -> PreferenceSet:
    """Every preference of the game with every tremble; the neutral one without tremble is first.

    The neutral preference has `NEUTRAL_SHARE`, all with a tremble together `TREMBLING_SHARE`, and the others without
    tremble the rest, in equal parts. If the game has no other preference, the rest is the neutral one's.
    """
    members = [(preference, tremble) for tremble in TREMBLES for preference in game.preferences]
    calm = len(game.preferences)
    others = 1 - NEUTRAL_SHARE - TREMBLING_SHARE
    shares = np.full(len(members), TREMBLING_SHARE / (len(members) - calm))
    shares[:calm] = others / max(calm - 1, 1)
    shares[0] = NEUTRAL_SHARE if calm > 1 else NEUTRAL_SHARE + others
    return PreferenceSet(
        tuple(_name(preference, tremble) for preference, tremble in members),
        Preference(
            jnp.array([preference.reward_weights for preference, _ in members], jnp.float32),
            jnp.array([preference.step_cost for preference, _ in members], jnp.float32),
            jnp.array([tremble for _, tremble in members], jnp.float32),
        ),
        shares,
    )


def _name(preference: NamedPreference, tremble: float) -> str:
    return f"{preference.name}, tremble {tremble:g}" if tremble else preference.name


def base_plans(game: Game[Any], names: Sequence[str] = ()) -> tuple[NamedPreference, ...]:
    """Preferences of the ego's base plans in planning: the neutral one, then those with these names (default: all).

    Raises:
        InputError: If the game has no such preference.
    """
    first, *others = game.preferences
    known = {preference.name: preference for preference in others}
    for name in names:
        if name not in (first.name, *known):
            raise InputError(f"{game.name} has no preference {name!r}{nearest(name, (first.name, *known))}")
    return (first, *(known[name] for name in (names or known) if name != first.name))


def stack_preferences(preferences: Sequence[NamedPreference]) -> Preference:
    """Preferences [W] without tremble."""
    return Preference(
        jnp.array([preference.reward_weights for preference in preferences], jnp.float32),
        jnp.array([preference.step_cost for preference in preferences], jnp.float32),
        jnp.zeros(len(preferences)),
    )


def draw_preference(
    preferences: PreferenceSet, key: Key, uniform: Float[Array, ""], regret: RegretSampling | None = None
) -> Preference:
    """Samples one seat's preference for a trial.

    The shares of the preferences in a trial are a sample of a Dirichlet distribution with the expected shares, and all
    seats of the trial draw with the same shares. They are sampled by stick breaking (Sethuraman, 1994), which needs no
    Gamma variables: stick i has a preference drawn by the expected shares, and takes a Beta(1, CONCENTRATION) part of
    what the sticks before have left.

    Args:
        key: Key that all seats of the trial have in common.
        uniform: Uniform number of the seat, which selects a stick.
        regret: Regret sampling; None: all trials have the expected shares of the set.
    """
    if regret is None:
        bounds = np.cumsum(preferences.shares)[:-1].astype(np.float32)
    else:
        by_regret = jax.random.uniform(jax.random.fold_in(key, IS_BY_REGRET)) < regret.trial_share
        bounds = jnp.cumsum(jnp.where(by_regret, regret.shares, preferences.shares))[:-1]
        key = jax.random.fold_in(key, SHARES)
    member, part = jax.random.uniform(key, (2, STICKS))
    left = jnp.cumprod(part ** (1 / CONCENTRATION))
    stick = jnp.minimum((uniform >= 1 - left).sum(), STICKS - 1)
    index = (member[stick] >= bounds).sum()
    return jax.tree.map(lambda leaf: leaf[index], preferences.preferences)


def preferred_reward(
    preference: Preference, components: Float[Array, "*rows C"], alive: Bool[Array, "*rows"] | bool
) -> Float[Array, "*rows"]:
    """Reward of a learner: the weighted sum of the components, less the step cost; 0 where it is not in the game.

    Args:
        preference: Fields `[*rows, ...]`.
        components: The learner's reward by component.
        alive: Whether the learner was in the game when the step began.
    """
    weighted = (preference.reward_weights * components).sum(-1)
    return jnp.where(alive, weighted - preference.step_cost, 0.0)


def with_tremble(key: Key, preference: Preference, action: Int[Array, ""], legal: Bool[Array, " A"]) -> Int[Array, ""]:
    """Returns the executed action: the intended one, or a random legal one with the tremble probability."""
    replacement = jax.random.categorical(jax.random.fold_in(key, REPLACEMENT), jnp.where(legal, 0.0, -jnp.inf))
    trembles = jax.random.uniform(jax.random.fold_in(key, IS_TREMBLE)) < preference.tremble
    return jnp.where(trembles, replacement, action).astype(action.dtype)

"""Tastes: what a player likes of what can be earned, and how sure its hand is, so that those who learn together are not
all alike.

In self-play everybody wants the same, and nobody learns what to do beside somebody who does not. Where learners have
tastes, each is after its own: what it earns by an action counts as its reward as far as it likes that action. Its
policy sees its own taste, and nobody else's.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Game
from hopplus.keys import Key
from hopplus.struct import struct

CLUMSY = 0.5
"""How often the hand of somebody clumsy slips."""
SLIPS, SLIPPED = range(2)
"""Purposes of a slip's key."""


@struct
class Taste:
    """One player's."""

    likes: Float[Array, " A"]
    """What counts of a reward that was earned by each action."""
    slips: Float[Array, ""]
    """How often it does something else than it meant to, any legal action."""


def usual(game: Game[Any]) -> Taste:
    """To like what the game pays for, with a sure hand."""
    return Taste(jnp.ones(game.num_actions), jnp.float32(0))


def tastes(game: Game[Any]) -> Taste:
    """All tastes [tastes, ...] of learners, the usual one first. Each kind of work (hunting a stag, hunting a hare) is
    liked or disliked, in every combination; who likes none of several has nothing to learn, and is left out. One more
    likes everything, and is clumsy. (Disliked, not merely unpaid: who is not paid for stags goes on hunting them, where
    hares pay so much less that it hardly learns to want them.)"""
    work = game.num_actions - game.idle_action - 1
    likes = [combination for combination in itertools.product((1, -1), repeat=work) if max(combination) > 0 or work < 2]
    every = np.array([*likes, (1,) * work], np.float32)
    rest = np.ones((len(every), game.idle_action + 1), np.float32)
    slips = np.array([0.0] * len(likes) + [CLUMSY], np.float32)
    return Taste(jnp.asarray(np.concatenate([rest, every], axis=1)), jnp.asarray(slips))


def slipping(key: Key, taste: Taste, action: Int[Array, ""], legal: Bool[Array, " A"]) -> Int[Array, ""]:
    """What the hand does where an action was meant."""
    instead = jax.random.categorical(jax.random.fold_in(key, SLIPPED), jnp.where(legal, 0.0, -jnp.inf))
    slips = jax.random.uniform(jax.random.fold_in(key, SLIPS)) < taste.slips
    return jnp.where(slips, instead, action).astype(action.dtype)

"""Tastes: what a player likes of what can be earned, so that those who learn together are not all alike.

In self-play everybody wants the same, and nobody learns what to do beside somebody who does not. Where learners have
tastes, each is after its own: what it earns by an action counts as its reward as far as it likes that action. Its
policy sees its own taste, and nobody else's.
"""

import itertools
from typing import Any

import numpy as np
from jaxtyping import Float

from hopplus.games import Game


def tastes(game: Game[Any]) -> Float[np.ndarray, "tastes A"]:
    """All tastes of a game, as what counts of a reward that was earned by each action. Each kind of work (hunting a
    stag, hunting a hare) is liked or not, in every combination; the first taste, to like all of it, is the game's."""
    work = game.num_actions - game.idle_action - 1
    likes = np.array(list(itertools.product((1.0, 0.0), repeat=work)), np.float32)
    return np.concatenate([np.ones((len(likes), game.idle_action + 1), np.float32), likes], axis=1)

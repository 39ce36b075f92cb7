"""Beliefs of a run's planner over the episodes of a trial, as arrays."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.specs import Spec
from hopplus.games import make
from hopplus.players import CastSpec
from hopplus.players.cast import info_of
from hopplus.players.planner import Planner
from hopplus.rollouts import play_episodes
from hopplus.training.casting import seat_cast
from hopplus.training.policies import Policy


@dataclass(frozen=True, eq=False)
class EpisodeBeliefs:
    """Beliefs of the ego in seat 0 at every step of one episode."""

    goal_names: tuple[str, ...]
    belief: Float[np.ndarray, "T n-1 K"]
    """Posterior over every co-player's goals."""
    action_probs: Float[np.ndarray, "T n-1 A"]
    """Predicted actions of every co-player."""
    actions: Int[np.ndarray, "T n"]
    """Actions of all players, the ego first."""
    alive: Bool[np.ndarray, "T n"]
    returns: Float[np.ndarray, " n"]

    def __repr__(self) -> str:
        return f"EpisodeBeliefs({len(self.belief)} steps, goals {', '.join(self.goal_names)})"


def episode_beliefs(policy: Policy, co_players: CastSpec, episodes: int = 1, seed: int = 0) -> list[EpisodeBeliefs]:
    """Plays one trial and returns the beliefs of every episode; InputError for a policy without beliefs.

    Args:
        policy: Policy of the ego, in seat 0.
        co_players: Players of the other seats.
    """
    game = make(policy.game)
    seated = seat_cast(CastSpec((Spec("self"), *co_players.players)), game, lambda seat: policy)
    player = seated.cast.players[0]
    if not isinstance(player, Planner):
        raise InputError(f"{policy.algorithm} has no beliefs: load a run of hopplus or hop")
    names = player.tracker.opponent_model.goal_names
    params, memories, results = tuple(seated.params()), None, []
    for number in range(episodes):
        key = jax.random.fold_in(jax.random.key(seed), number)
        memories, trajectory = play_episodes(key, game, seated.cast, 1, params, memories)
        steps = int(np.asarray(trajectory.lengths)[0].max())
        decision: Any = info_of(seated.cast, trajectory.info, 0)

        def of_episode(values: Any, steps: int = steps) -> np.ndarray:
            return np.asarray(values)[:steps, 0]

        results.append(
            EpisodeBeliefs(
                tuple(names),
                of_episode(decision.belief),
                of_episode(decision.action_probs),
                of_episode(trajectory.actions),
                of_episode(trajectory.alive),
                np.asarray(trajectory.returns)[0],
            )
        )
    return results

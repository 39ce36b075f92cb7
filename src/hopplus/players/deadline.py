"""Player that waits with one rule and takes an item with another in time for the end of the episode."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key
from hopplus.games import Observation
from hopplus.games.board import STAY
from hopplus.players.player import Info, Memory, Params, Player
from hopplus.players.scripted import Seeker


@dataclass(frozen=True)
class Deadline(Player):
    """Plays as `patient` until there is just enough time left for `hasty` to take an item.

    Neither player may need params or a memory.
    """

    patient: Player
    hasty: Seeker
    name: str = "deadline"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        waiting, _, _ = self.patient.act(jax.random.fold_in(key, 0), params, memory, observation)
        taking, _, _ = self.hasty.act(jax.random.fold_in(key, 1), params, memory, observation)
        return jnp.where(self._is_time(observation)[waiting], taking, waiting), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        waiting, taking = (player.probabilities(params, memory, observation) for player in (self.patient, self.hasty))
        is_time = self._is_time(observation)
        return jnp.where(is_time, 0.0, waiting) + (is_time * waiting).sum() * taking

    def _is_time(self, observation: Observation) -> Bool[Array, " A"]:
        """Returns, by the action of the patient player, whether the other acts instead.

        A step away from the item costs two steps, any other action one.
        """
        needed, left = self.hasty.steps_to_take(observation), observation.deadline - observation.time
        is_move = jnp.arange(observation.legal.shape[-1]) < STAY
        return (needed > 0) & (needed <= left) & (left - needed <= is_move)

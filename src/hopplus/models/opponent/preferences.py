"""The online opponent model: a goal-conditioned model that also predicts the learners with each preference."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.beliefs.rationality import Rationality
from hopplus.core.keys import Key
from hopplus.games import Game
from hopplus.models.base import Data, Terms
from hopplus.models.opponent import loss
from hopplus.models.opponent.model import MOA
from hopplus.networks.opponent_model import check_opponent_model, make_opponent_model
from hopplus.players import Params


@dataclass(frozen=True)
class OnlineMOA(MOA):
    """Model of other agents in a training, with an output for each goal and, optionally, for each preference.

    The outputs of a preference are trained on the learners that have it: with reward randomisation, their preferences
    are known in training.
    """

    has_preferences: bool = False
    """Predict the learners with each preference of the game, with outputs behind those of the goals."""

    def num_outputs(self, game: Game[Any]) -> int:
        """Number of policies that the network predicts at once."""
        return self.num_goals(game) + (len(game.preferences) if self.has_preferences else 0)

    def network(self, game: Game[Any]) -> Any:
        if not self.has_preferences:
            return super().network(game)
        return make_opponent_model(self.moa, game, self.num_outputs(game), self.hidden)

    def check_network(self, game: Game[Any]) -> None:
        super().check_network(game)
        if self.has_preferences:
            check_opponent_model(self.moa, game, self.num_outputs(game), self.hidden)

    def _terms(self, network: Any, params: Params, key: Key, batch: Data, game: Game[Any]) -> Terms:
        terms = super()._terms(network, params, key, batch, game)
        if not self.has_preferences:
            return terms
        rationality, goals, parts = Rationality(self.trembles), self.num_goals(game), []
        for group in batch:
            assert group.preference is not None
            label, rows = goals + jnp.maximum(group.preference, 0), group.alive & (group.preference >= 0)
            parts.append(loss.cross_entropy(network, params["network"], group, rows, label, rationality))
        return {**terms, "preference": jax.tree.map(lambda *values: sum(values), *parts)}

    def _objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        total, terms = super()._objective(params, key, batch, game, progress)
        if self.has_preferences:
            value, count = terms["preference"]
            total += value / jnp.maximum(count, 1)
        return total, terms

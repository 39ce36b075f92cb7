"""World models fitted to recorded steps: next observation, rewards, leaving players, legal actions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import Game
from hopplus.games.grid import GridGame
from hopplus.models.base import Data, MakePopulation, Model, Terms
from hopplus.models.world import metrics
from hopplus.models.world.loss import Network, different_delays, different_rewards, init_params, mean_loss
from hopplus.models.world.metrics import tally_windows
from hopplus.models.world.rows import observed_at_random, windows
from hopplus.networks.world_model import KINDS, MOST_DELAYS, MOST_REWARDS, Kind, make_network
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.population import Recorded

FAR_AHEAD = 10
"""Largest number of steps ahead at which a world model is evaluated."""
HIDDEN = {"structured": (64,), "dense": (512, 512)}
"""Default widths of the hidden layers."""


@dataclass(frozen=True)
class WorldModel(Model):
    """Predicts one seat's next observation and all rewards from its observation and all actions."""

    name: ClassVar[str] = "world-model"

    kind: Kind = "structured"
    """structured: each player moves, stays or leaves, each item stays or goes; dense: a value for every grid cell."""
    epochs: int = 10
    """Passes over the data."""
    batch: int = 256
    """Steps per minibatch."""
    learning_rate: float = 3e-3
    """Initial learning rate of Adam; it decays to 0 along a cosine."""
    hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers; by default 64 for structured, 512 and 512 for dense."""
    horizon: int = 2
    """Steps of a training rollout, in which the model continues from its own predictions."""
    channel_weights: tuple[float, ...] | None = None
    """Loss weight of each channel of the grid; by default 1 each. Metrics are never weighted."""

    def check(self, game: Game[Any]) -> None:
        super().check(game)
        if not isinstance(game, GridGame):
            raise InputError(f"a world model needs a grid game, and {game.name} is not one")
        if self.kind not in KINDS:
            raise InputError(f"the kind of a world model must be {' or '.join(KINDS)}, not {self.kind!r}")
        if self.horizon < 1 or not all(width >= 1 for width in self.hidden or ()):
            raise InputError("horizon and the widths of hidden layers must be at least 1")
        if game.reseat([*range(1, game.players), 0]) != game:
            raise InputError(f"a world model needs identical seats, and those of {game.name} differ")
        names = game.channel_names
        weights = self.channel_weights
        if weights and not (
            len(weights) == len(names) and all(np.isfinite(weights)) and min(weights) >= 0 and any(weights)
        ):
            raise InputError(
                f"channel weights must be {len(names)} numbers of at least 0, one for each of {', '.join(names)},"
                f" and not all 0: not {','.join(f'{weight:g}' for weight in weights)}"
            )

    def network(self, game: Game[Any]) -> Network:
        """Returns the network for a game."""
        return make_network(self.kind, _grid(game), self.hidden or HIDDEN[self.kind])

    def data(self, game: Game[Any], recorded: Recorded) -> Data:
        """Returns one group: windows that hold every step that took place."""
        self.check(game)
        rows = windows(recorded, self.horizon, apart=self.horizon)
        for name, values, most in (
            ("rewards", different_rewards(rows), MOST_REWARDS),
            ("deadlines", different_delays(rows), MOST_DELAYS),
        ):
            if self.kind == "structured" and len(values) > most:
                raise InputError(
                    f"{game.name} has {len(values)} different {name}, and a structured model supports at most {most}"
                )
        return (rows,)

    def num_rows(self, data: Data) -> int:
        return int(data[0].played.sum())

    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        return init_params(key, self.network(game), _grid(game), data[0])

    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        weights = jnp.asarray(self.channel_weights or (1.0,) * len(_grid(game).channel_names), jnp.float32)
        rows = observed_at_random(key, _grid(game), batch[0])
        return mean_loss(self.network(game), params, rows, weights)

    def evaluator(
        self, dataset: Dataset, recorded: Recorded, population: MakePopulation
    ) -> Callable[[Params], dict[str, Any]]:
        """Returns metrics one step ahead, and the share of exactly right states ten steps ahead."""
        game = _grid(dataset.game)
        rows = jax.tree.map(jnp.asarray, windows(recorded, FAR_AHEAD))

        def evaluate(params: Params) -> dict[str, Any]:
            tally = tally_windows(self.network(game), params, game, rows)
            near, far = (metrics.figures(tally, ahead, game.channel_names) for ahead in (1, FAR_AHEAD))
            return {**near, f"exact_{FAR_AHEAD}": far["exact"]} if far["predictions"] else near

        return evaluate


def _grid(game: Game[Any]) -> GridGame:
    """The game as a grid game, which `check` has made sure of."""
    assert isinstance(game, GridGame)
    return game

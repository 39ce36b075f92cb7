"""A world model fitted to recorded steps: what will be seen next, what everybody earns, who leaves, what is legal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.games.grid import GridGame
from hopplus.keys import Key
from hopplus.learning import world_model as learning
from hopplus.learning.moa import Terms
from hopplus.networks.world_model import KINDS, MOST_DELAYS, MOST_REWARDS, Kind, make_network
from hopplus.play.dataset import Dataset, Recorded
from hopplus.players import Params
from hopplus.training.fit import Data, Model

FAR_AHEAD = 10
"""How many steps ahead a world model is judged."""
HIDDEN = {"structured": (64,), "dense": (512, 512)}


@dataclass(frozen=True)
class WorldModel(Model):
    """What one seat will see next, and what everybody will get, from what it sees and what everybody does."""

    name: ClassVar[str] = "world-model"

    kind: Kind = "structured"
    """Whether players take a step or leave and things stay or go, or every cell of the next grid has a value."""
    epochs: int = 10
    """Passes over the steps."""
    batch: int = 256
    """Steps that one change of the parameters learns from."""
    learning_rate: float = 3e-3
    """Of Adam, at the start; it falls to 0 along a cosine."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers; empty: 64 for structured, 512 and 512 for dense."""
    horizon: int = 2
    """How many steps the model is rolled out on its own predictions while it learns."""
    channel_weights: tuple[float, ...] = ()
    """How much an error in each channel of the grid counts in the loss; empty: 1 each. Figures are never weighted."""

    def check(self, game: Game[Any]) -> None:
        super().check(game)
        if not isinstance(game, GridGame):
            raise InputError(f"a world model needs a game on a grid, and {game.name} is not one")
        if self.kind not in KINDS:
            raise InputError(f"the kind of a world model is {' or '.join(KINDS)}, not {self.kind!r}")
        if self.horizon < 1 or not all(width >= 1 for width in self.hidden):
            raise InputError("horizon and the widths of hidden layers must be at least 1")
        rolled = [*range(1, game.players), 0]
        if game.reseat(rolled) != game:
            raise InputError(f"a world model takes all seats for alike, and those of {game.name} are not")
        names = game.channel_names
        given = self.channel_weights
        if given and not (len(given) == len(names) and all(np.isfinite(given)) and min(given) >= 0 and any(given)):
            raise InputError(
                f"channel weights must be {len(names)} numbers of at least 0, one for each of {', '.join(names)},"
                f" and not all 0: not {','.join(f'{weight:g}' for weight in given)}"
            )

    def network(self, game: Game[Any]) -> learning.Network:
        """The network for a game."""
        return make_network(self.kind, _grid(game), self.hidden or HIDDEN[self.kind])

    def data(self, game: Game[Any], recorded: Recorded) -> Data:
        """One group: stretches of play that hold every step that took place."""
        self.check(game)
        rows = learning.windows(recorded, self.horizon, apart=self.horizon)
        for what, found, most in (
            ("rewards", learning.different_rewards(rows), MOST_REWARDS),
            ("deadlines", learning.different_delays(rows), MOST_DELAYS),
        ):
            if self.kind == "structured" and len(found) > most:
                raise InputError(f"{game.name} pays {len(found)} different {what}, and the model can tell {most} apart")
        return (rows,)

    def units(self, data: Data) -> int:
        return int(data[0].played.sum())

    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        return learning.first_params(key, self.network(game), _grid(game), data[0])

    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        weights = jnp.asarray(self.channel_weights or (1.0,) * len(game.channel_names), jnp.float32)
        rows = learning.seen_at_random(key, _grid(game), batch[0])
        return learning.mean_loss(self.network(game), params, rows, weights)

    def judge(self, dataset: Dataset, recorded: Recorded) -> Callable[[Params], dict[str, Any]]:
        """Figures one step ahead, and the share of exactly right states ten steps ahead."""
        game = _grid(dataset.game)
        rows = jax.tree.map(jnp.asarray, learning.windows(recorded, FAR_AHEAD))

        def figures(params: Params) -> dict[str, Any]:
            tally = learning.tally_windows(self.network(game), params, game, rows)
            near, far = (learning.figures(tally, ahead, game.channel_names) for ahead in (1, FAR_AHEAD))
            return {**near, f"exact_{FAR_AHEAD}": far["exact"]} if far["predictions"] else near

        return figures


def _grid(game: Game[Any]) -> GridGame:
    """The game as what `check` has found it to be."""
    assert isinstance(game, GridGame)
    return game

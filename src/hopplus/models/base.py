"""Interface of models that are fitted to recorded episodes: opponent models, subgoals, world models."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from jaxtyping import Array, Float

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import Game
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.population import Population, Recorded

Terms = dict[str, tuple[Array, Array]]
"""Loss terms by name: the sum over rows and the number of rows."""
MakePopulation = Callable[[], Population]
"""Makes the recorded players; called only if exact predictions are needed."""

Data = tuple[Any, ...]
"""Training data: groups, each a tree of arrays [units, ...]; every minibatch has its share of each group."""


class Model(ABC):
    """A model as a frozen dataclass of its settings. Subclasses implement the abstract members."""

    name: ClassVar[str]
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float = 0.0
    """Weight decay, in units of the learning rate."""

    @property
    def restarts(self) -> int:
        """Number of initialisations; the one with the lowest validation loss is used."""
        return 1

    def check(self, game: Game[Any]) -> None:
        """Raises InputError if the settings are invalid for a game."""
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise InputError("epochs and batch must be at least 1, and the learning rate greater than 0")

    @abstractmethod
    def data(self, game: Game[Any], recorded: Recorded) -> Data:
        """Returns training data from recorded episodes."""

    def validation_data(self, game: Game[Any], recorded: Recorded) -> Data:
        """Returns data that only choose between restarts, in few groups so that they compile fast."""
        return self.data(game, recorded)

    @abstractmethod
    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        """Returns initial parameters. Only counts of the training data may enter them (frequencies, vocabularies)."""

    @abstractmethod
    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        """Returns the loss of a minibatch and its terms; `progress` goes from 0 to 1 over the whole fit."""

    def augment(self, key: Key, batch: Data, game: Game[Any]) -> Data:
        """Returns a minibatch with random augmentations that leave the rules of the game unchanged."""
        return batch

    @abstractmethod
    def num_rows(self, data: Data) -> int:
        """Returns the number of rows in the data; `batch` of them make a minibatch."""

    @abstractmethod
    def evaluator(
        self, dataset: Dataset, recorded: Recorded, population: MakePopulation
    ) -> Callable[[Params], dict[str, Any]]:
        """Returns a function from fitted parameters to metrics on recorded episodes, named as in metrics.jsonl."""

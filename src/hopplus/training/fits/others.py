"""Models of another player: its actions, with goals of several kinds or none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.keys import Key
from hopplus.learning import codes, moa, subgoals
from hopplus.learning.lives import Lives, laid_anew_at_random, lives_of, number_of_rows
from hopplus.learning.moa import Predictions, Terms
from hopplus.learning.scores import expected_scores, scores
from hopplus.networks.action_model import ActionModel
from hopplus.networks.encoding import encode
from hopplus.networks.subgoals import GaussianSubgoals
from hopplus.planning.goals import prey_names
from hopplus.play.dataset import Dataset, Recorded
from hopplus.play.laws import Knowledge, know
from hopplus.players import Params
from hopplus.training.fit import Data, Model
from hopplus.training.troupe import make_troupe

Goals = Literal["none", "prey", "gaussian", "codes"]


@dataclass(frozen=True)
class OthersModel(Model):
    """What all models of another player have in common. Settings of goals that are not used are left alone."""

    epochs: int = 10
    """How many times the data are gone through."""
    batch: int = 512
    """Rows in a batch, on average."""
    learning_rate: float = 3e-3
    """Of Adam, at first; it falls to 0 along a cosine."""
    weight_decay: float = 0.01
    """How fast weights decay, in units of the learning rate."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers."""
    networks: Literal["shared", "seat"] = "shared"
    """One network for all players, or one for each seat, which learns from that seat's players only."""
    turned: bool = True
    """Whether lives are learnt from as they would be on boards turned and mirrored at random."""
    codes: int = 4
    """How many codes there are. (codes)"""
    switch: float = 0.0
    """The chance that a code is drawn anew in a step; 0 makes it one for life. (codes)"""
    balance: float = 0.05
    """How much unequal use of the codes costs at first; it falls to 0. (codes)"""
    begun: int = 1
    """How many times codes are begun; the best on the validation part is kept. (codes)"""
    dimensions: int = 16
    """Dimensions of a subgoal. (gaussian)"""
    loss: Literal["reconstruction", "action"] = "action"
    """What forms the subgoals: boards that they stand for, or actions that they explain. (gaussian)"""
    alpha: float = 1e-3
    """The weight of the subgoals' divergence from the standard normal distribution. (gaussian)"""
    select: subgoals.Select = "optimistic"
    """Which of the next states is the subgoal: of the highest value, of the lowest, or the last. (gaussian)"""
    horizon: int = 5
    """How many states ahead a subgoal is looked for. (gaussian)"""

    @property
    def space(self) -> Goals:
        """The kind of goals."""
        raise NotImplementedError

    @property
    def only_earning(self) -> bool:
        """Whether players who earned nothing are left out of the data."""
        return False

    @property
    def restarts(self) -> int:
        return self.begun if self.space == "codes" else 1

    def check(self, game: Game[Any]) -> None:
        super().check(game)
        if self.space == "prey":
            prey_names(game)
        if min(self.hidden, default=0) < 1:
            raise InputError("hidden needs at least one layer, each of at least 1 unit")
        if self.codes < 2 or not 0 <= self.switch < 1 or self.balance < 0 or self.begun < 1:
            raise InputError(
                "codes must be at least 2, switch from 0 to less than 1, balance at least 0, begun at least 1"
            )
        if self.dimensions < 1 or self.alpha < 0 or self.horizon < 1:
            raise InputError("dimensions and horizon must be at least 1, and alpha at least 0")

    def network(self, game: Game[Any]) -> Any:
        """The network of this model for a game."""
        if self.space == "gaussian":
            board = jax.eval_shape(game.observe, jax.eval_shape(game.init, jax.random.key(0))).grid.shape[1:]
            scale = game.ceilings["player"] or 1.0
            return GaussianSubgoals(game.num_actions, board, scale, self.dimensions, self.hidden)
        return ActionModel(game.num_actions, self.number_of_goals(game), hidden=self.hidden)

    def number_of_goals(self, game: Game[Any]) -> int:
        return {"none": 1, "codes": self.codes, "prey": 0, "gaussian": 0}[self.space] or len(prey_names(game))

    def goal_names(self, game: Game[Any]) -> tuple[str, ...]:
        """What finite goals are called."""
        if self.space == "prey":
            return prey_names(game)
        return tuple(f"code {number}" for number in range(self.codes)) if self.space == "codes" else ()

    def data(self, game: Game[Any], recorded: Recorded) -> tuple[Lives, ...]:
        return self._seated(self.lives(game, recorded, grouped=self.networks == "shared"), game)

    def validation_data(self, game: Game[Any], recorded: Recorded) -> tuple[Lives, ...]:
        return self._seated(self.lives(game, recorded, self._judged_in_groups), game)

    @property
    def _judged_in_groups(self) -> bool:
        """Gaussian subgoals pass all groups through one network; seats must find lives of each in one group."""
        return self.space == "gaussian" and self.networks == "shared"

    def _seated(self, lives: tuple[Lives, ...], game: Game[Any]) -> tuple[Lives, ...]:
        return by_seat(lives, game.num_players) if self.networks == "seat" else lives

    def lives(self, game: Game[Any], recorded: Recorded, grouped: bool = False) -> tuple[Lives, ...]:
        """The lives that this model is about, all in one group unless they are to be grouped by length."""
        found = lives_of(game, recorded, self.space == "gaussian", self.space == "prey", grouped)
        if self.only_earning:
            found = tuple(filter(len_of, (_earning(group) for group in found)))
        if not found:
            raise InputError("no player earned anything in these episodes: there is nothing to learn from")
        return found

    def vary(self, key: Key, batch: Data, game: Game[Any]) -> Data:
        if not self.turned:
            return batch
        keys = (jax.random.fold_in(key, number) for number in range(len(batch)))
        return tuple(laid_anew_at_random(key, lives, game) for key, lives in zip(keys, batch, strict=True))

    def units(self, data: Data) -> int:
        return number_of_rows(data)

    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        if self.networks == "shared":
            return self._init(key, game, data)
        keys = jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(game.num_players))
        return jax.vmap(lambda key, lives: self._init(key, game, lives), in_axes=(0, 1))(keys, data)

    def _init(self, key: Key, game: Game[Any], data: tuple[Lives, ...]) -> Params:
        params = self.fresh(key, game)
        if self.space == "gaussian":
            return params
        return {**params, "prior": _frequencies(data, self.number_of_goals(game))}

    def fresh(self, key: Key, game: Game[Any]) -> Params:
        """Parameters of one who has seen nothing yet."""
        network = self.network(game)
        shape = jax.eval_shape(lambda key: encode(game.observe(game.init(key)), game.last_step), key).shape[1:]
        features = jnp.zeros(shape, jnp.uint8)
        if self.space == "gaussian":
            return {"network": network.init(key, features, jnp.int32(0), method="everything")["params"]}
        return {"network": network.init(key, features)["params"], "prior": jnp.zeros(self.number_of_goals(game))}

    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        """Sums over the groups of a batch, divided by its rows."""
        if self.networks == "shared":
            return self._objective(params, key, batch, game, progress)
        each = jax.vmap(lambda own, lives: self._objective(own, key, lives, game, progress), in_axes=(0, 1))
        losses, terms = each(params, batch)
        return losses.mean(), jax.tree.map(lambda leaf: leaf.sum(0), terms)

    def _objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        terms = self._terms(self.network(game), params, key, batch, game)
        means = {name: value / jnp.maximum(count, 1) for name, (value, count) in terms.items() if name != "usage"}
        if self.space == "gaussian":
            # Told per entry; but what forms subgoals is the error of a whole board, or the divergence outweighs it.
            entries = math.prod(self.network(game).board) if self.loss == "reconstruction" else 1
            learnt = jnp.stack([means[name] for name in ("action", "inference", "value")]).sum()
            return learnt + entries * means["reconstruction"] + self.alpha * means["kl"], terms
        if self.space != "codes":
            return means["action"], terms
        usage, count = terms.pop("usage")
        divergence = codes.divergence_from_uniform(usage / jnp.maximum(count, 1))
        terms["unequal_use"] = divergence, jnp.float32(1)
        return means["likelihood"] + self.balance * (1 - progress) * divergence, terms

    def _terms(self, network: Any, params: Params, key: Key, batch: Data, game: Game[Any]) -> Terms:
        if self.space == "codes":
            other_side = (self.vary(key, batch, game),) if self.turned else ()
            return self._code_terms(network, params, (batch, *other_side))
        if self.space == "gaussian":
            return subgoals.loss_terms(network, params["network"], key, batch, self.horizon, self.select, self.loss)
        by_goal = self.space == "prey"
        parts = [moa.cross_entropy(network, params["network"], lives, lives.alive, by_goal) for lives in batch]
        return {"action": jax.tree.map(lambda *values: sum(values), *parts)}

    def _code_terms(self, network: Any, params: Params, views: tuple[Data, ...]) -> Terms:
        """One code must explain a life from whichever side one looks at the board: it cannot merely be a direction. All
        groups pass through one filter, which compiles once."""
        longest = max(lives.alive.shape[1] for lives in views[0])

        def joined(values: Sequence[Array]) -> Array:
            return jnp.concatenate(
                [jnp.pad(one, [(0, 0), (0, longest - one.shape[1]), *[(0, 0)] * (one.ndim - 2)]) for one in values]
            )

        by_view = [joined([codes.likelihoods(network, params["network"], lives) for lives in view]) for view in views]
        seen, alive = jnp.stack(by_view).mean(0), joined([lives.alive for lives in views[0]])
        starts = joined([lives.starts for lives in views[0]])
        filtered = codes.evidence(params["prior"], seen, alive, self.switch, starts)
        posterior = codes.hindsight(params["prior"], seen, filtered, alive, self.switch, starts)
        rows = alive.sum().astype(jnp.float32)
        return {
            "likelihood": moa.total(-filtered.evidence, alive),
            "usage": (codes.usage(posterior, alive) * rows, rows),
        }

    def predict(self, params: Params, game: Game[Any], groups: tuple[Lives, ...]) -> tuple[Predictions, ...]:
        """What fitted parameters say of lives."""
        if self.networks == "shared":
            return self._predict(params, game, groups)
        every = jax.vmap(lambda own: self._predict(own, game, groups))(params)
        return tuple(
            jax.tree.map(lambda leaf, seat=lives.seat: leaf[seat, jnp.arange(leaf.shape[1])], said)
            for said, lives in zip(every, groups, strict=True)
        )

    def _predict(self, params: Params, game: Game[Any], groups: tuple[Lives, ...]) -> tuple[Predictions, ...]:
        network, own = self.network(game), params["network"]
        if self.space == "gaussian":
            return subgoals.predict_by_inference(network, own, jax.random.key(0), groups, self.horizon, self.select)
        if self.space == "none":
            return tuple(moa.predict_without_goals(network, own, lives) for lives in groups)
        switch, labelled = (self.switch, False) if self.space == "codes" else (0.0, True)
        return tuple(moa.predict_by_belief(network, own, params["prior"], lives, switch, labelled) for lives in groups)

    def judge(self, dataset: Dataset, recorded: Recorded) -> Callable[[Params], dict[str, Any]]:
        game = dataset.game
        rows = Rows.of(dataset, self.lives(game, recorded, self._judged_in_groups), recorded)
        predict = predictor(self, game)

        def figures(params: Params) -> dict[str, Any]:
            filtered, given_goal = rows.predictions(predict, params)
            found = {**scores(filtered, rows.actions)}
            known = {} if self.space == "none" else scores(given_goal, rows.actions)
            ceilings = rows.ceilings()
            return {
                **found,
                **{f"given_goal_{name}": value for name, value in known.items()},
                **{f"ceiling_{which}_{name}": value for which, one in ceilings.items() for name, value in one.items()},
                **({"share_of_ceiling": found["top1"] / ceilings["history"]["top1"]} if ceilings else {}),
                **recalls(filtered, rows.actions, game.action_names),
                **self.own_figures(params, game, rows.lives),
            }

        return figures

    def own_figures(self, params: Params, game: Game[Any], lives: tuple[Lives, ...]) -> dict[str, float]:
        """What there is to tell of the goals themselves on held-out lives: the loss's terms, one by one."""
        if self.space not in ("gaussian", "codes"):
            return {}
        seated = self._seated(lives, game)
        _, terms = jitted_loss(self, game)(params, jax.random.key(1), seated, jnp.float32(1.0))
        found = {f"held_out_{name}": float(value / jnp.maximum(count, 1)) for name, (value, count) in terms.items()}
        if self.space == "codes":
            found["codes_in_use"] = self.codes / float(np.exp(found["held_out_unequal_use"]))
        return found


@dataclass(frozen=True)
class MOA(OthersModel):
    """The model of other agents: what a player will do next, from what it sees and what it may be after."""

    name: ClassVar[str] = "moa"
    goals: Goals = "codes"
    """What a player may be after: nothing, prey (as HOP), a point in a space (as HOP+ in the notes), or a code."""
    earning: bool = False
    """Learn only from players who earned something, as the notes did."""

    @property
    def space(self) -> Goals:
        return self.goals

    @property
    def only_earning(self) -> bool:
        return self.earning


@dataclass(frozen=True)
class Subgoals(OthersModel):
    """Goals that nobody has named, learnt from what players do."""

    name: ClassVar[str] = "subgoals"
    kind: Literal["gaussian", "codes"] = "codes"
    """A point in a space, from an autoencoder and an inference of it from history; or one of a few codes."""

    @property
    def space(self) -> Goals:
        return self.kind


def by_seat(groups: tuple[Lives, ...], seats: int) -> tuple[Lives, ...]:
    """Lives [N, n, ...], as many of every seat: those of the seats that have more are cut off."""
    found = []
    for lives in groups:
        seat = np.asarray(lives.seat)
        least = min(int((seat == one).sum()) for one in range(seats))
        index = np.stack([np.flatnonzero(seat == one)[:least] for one in range(seats)], axis=1)
        found.append(jax.tree.map(lambda leaf, index=index: leaf[index], lives))
    return tuple(found)


def len_of(lives: Lives) -> int:
    """How many lives there are."""
    return lives.action.shape[0]


def _earning(lives: Lives) -> Lives:
    """The lives of those who earned something."""
    earned = np.asarray(lives.value[:, 0]) > 0
    return jax.tree.map(lambda leaf: leaf[earned], lives)


def _frequencies(data: tuple[Lives, ...], goals: int) -> Float[Array, " K"]:
    """The logarithm of how often each goal is a life's first, counted from one; equal where goals are not known."""
    if not data[0].available.shape[-1]:
        return jnp.zeros(goals)
    counts = sum((group.goal[:, :1] == jnp.arange(goals)).sum(0) for group in data)
    return jnp.log(counts + 1.0) - jnp.log(jnp.sum(counts + 1.0))


@partial(jax.jit, static_argnames=("model", "game"))
def _predict(params: Params, groups: tuple[Lives, ...], model: OthersModel, game: Game[Any]) -> tuple[Predictions, ...]:
    return model.predict(params, game, groups)


Predictor = Callable[[Params, tuple[Lives, ...]], tuple[Predictions, ...]]


def predictor(model: OthersModel, game: Game[Any]) -> Predictor:
    """The compiled prediction of a model."""
    return partial(_predict, model=model, game=game)


@partial(jax.jit, static_argnames=("model", "game"))
def _loss(params: Params, key: Key, lives: Data, progress: Array, model: Model, game: Game[Any]) -> Any:
    return model.objective(params, key, lives, game, progress)


def jitted_loss(model: Model, game: Game[Any]) -> Callable[..., Any]:
    """The compiled loss of a model."""
    return partial(_loss, model=model, game=game)


def recalls(
    probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"], names: Sequence[str]
) -> dict[str, float]:
    """The recall of every action that occurs: rare ones must not be lost in an average."""
    right = probabilities.argmax(-1) == actions
    return {
        f"recall_{name}": float(right[actions == number].mean())
        for number, name in enumerate(names)
        if (actions == number).any()
    }


# ------------------------------------------------------------------------------------------------------ rows to judge


@dataclass(frozen=True, eq=False)
class Rows:
    """The living rows of lives, in one order for everything that is said of them."""

    dataset: Dataset
    recorded: Recorded
    lives: tuple[Lives, ...]
    actions: Int[np.ndarray, " R"]
    time: Int[np.ndarray, " R"]
    episode: Int[np.ndarray, " R"]
    seat: Int[np.ndarray, " R"]
    kind: Int[np.ndarray, " R"]
    goal: Int[np.ndarray, " R"]

    @cached_property
    def knowledge(self) -> Knowledge | None:
        """What could be known, computed when somebody asks; None where the law of some kind is not known."""
        game = self.dataset.game
        try:
            return know(game, make_troupe(game, self.dataset.kinds), self.dataset.casting, self.recorded)
        except InputError:
            return None

    @staticmethod
    def of(dataset: Dataset, lives: tuple[Lives, ...], recorded: Recorded) -> "Rows":
        def flat(value: Callable[[Lives], Any]) -> np.ndarray:
            return flatten(lives, [value(group) for group in lives])

        def of_life(values: Any, group: Lives) -> np.ndarray:
            return np.broadcast_to(np.asarray(values)[:, None], group.alive.shape)

        return Rows(
            dataset,
            recorded,
            lives,
            actions=flat(lambda group: group.action),
            time=flat(lambda group: np.broadcast_to(np.arange(group.alive.shape[1]), group.alive.shape)),
            episode=flat(lambda group: of_life(group.episode, group)),
            seat=flat(lambda group: of_life(group.seat, group)),
            kind=flat(lambda group: of_life(group.kind, group)),
            goal=flat(lambda group: group.goal),
        )

    def predictions(
        self, predict: Predictor, params: Params
    ) -> tuple[Float[np.ndarray, "R A"], Float[np.ndarray, "R A"]]:
        """Filtered predictions, and those given the goal."""
        found = predict(params, self.lives)
        filtered = flatten(self.lives, [one.filtered for one in found])
        return filtered, flatten(self.lives, [one.given_goal for one in found])

    def at(self, values: np.ndarray) -> np.ndarray:
        """Values [T, E, n, ...] at these rows."""
        return values[self.time, self.episode, self.seat]

    def laws(self) -> dict[str, Float[np.ndarray, "R A"]]:
        """The best predictions of one who knows each player's kind, and of one who knows the history only."""
        if self.knowledge is None:
            return {}
        by_kind = self.at(self.knowledge.laws)[np.arange(len(self.kind)), self.kind]
        return {"kind": by_kind, "history": self.at(self.knowledge.knowing_history())}

    def ceilings(self) -> dict[str, dict[str, float]]:
        """The best possible figures, for both sorts of knowledge."""
        return {which: expected_scores(law) for which, law in self.laws().items()}


def flatten(lives: tuple[Lives, ...], values: Sequence[Any]) -> np.ndarray:
    """Values [N, L, ...] of every group at the living rows, one after the other."""
    return np.concatenate(
        [np.asarray(value)[np.asarray(group.alive)] for group, value in zip(lives, values, strict=True)]
    )

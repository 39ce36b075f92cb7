"""Opponent models: settings, losses and predictions, with several goal spaces or none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.beliefs.goal_space import LabelledGoals, labelled_goals
from hopplus.beliefs.rationality import Rationality
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import Game, board_shape
from hopplus.models.agent_trajectories import (
    AgentTrajectories,
    by_seat,
    num_agents,
    num_transitions,
    random_symmetry,
    split_by_agent,
    with_reward,
)
from hopplus.models.base import Data, MakePopulation, Model, Terms
from hopplus.models.opponent import codes, loss, subgoals
from hopplus.models.opponent.evaluation import EvalRows, Predictor, recalls
from hopplus.models.opponent.loss import Predictions
from hopplus.models.opponent.scores import scores
from hopplus.networks.encoders import encode
from hopplus.networks.opponent_model import DEFAULT, check_opponent_model, make_opponent_model
from hopplus.networks.subgoal_vae import GaussianSubgoals
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.population import Recorded


@dataclass(frozen=True)
class OpponentModelFit(Model):
    """Common base of the opponent models. Settings of other goal spaces than the chosen one are ignored."""

    epochs: int = 10
    """Passes over the data."""
    batch: int = 512
    """Mean number of rows per minibatch."""
    learning_rate: float = 3e-3
    """Initial learning rate of Adam; it decays to 0 along a cosine."""
    weight_decay: float = 0.01
    """Weight decay, in units of the learning rate."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers."""
    moa: str = DEFAULT
    """Network: mlp or a registered opponent model. (all goals but gaussian)"""
    networks: Literal["shared", "seat"] = "shared"
    """One network for all players, or one per seat, trained on that seat's players only."""
    augment_symmetries: bool = True
    """Augment trajectories with random rotations and reflections of the board."""
    trembles: tuple[float, ...] = (0.0,)
    """Trembles of the players: probabilities of a uniformly random action, in the likelihood instead of in the network.
    (all goals but gaussian)"""
    codes: int = 4
    """Number of codes. (codes)"""
    goal_switch_probability: float = 0.0
    """Per-step probability that a player's code is resampled; 0 keeps it for the whole episode. (codes)"""
    balance: float = 0.05
    """Initial loss weight of the codes' divergence from equal usage; it decays linearly to 0. (codes)"""
    num_restarts: int = 1
    """Number of initialisations; the one with the lowest validation loss is used. (codes)"""
    subgoal_dim: int = 16
    """Dimension of the subgoal space. (gaussian)"""
    loss: Literal["reconstruction", "action"] = "action"
    """Loss that trains the encoder of subgoals: reconstruction of boards, or prediction of actions. (gaussian)"""
    alpha: float = 1e-3
    """Loss weight of the subgoals' KL divergence from the standard normal distribution. (gaussian)"""
    select: subgoals.Select = "optimistic"
    """Next state that is the subgoal: of the highest value, of the lowest value, or the last. (gaussian)"""
    horizon: int = 5
    """Maximum number of steps ahead of a subgoal state. (gaussian)"""

    @property
    def space(self) -> str:
        """Goal space."""
        raise NotImplementedError

    @property
    def labelled(self) -> LabelledGoals | None:
        """Labelled goals; None if the goals have no labels."""
        return labelled_goals(self.space)

    @property
    def only_earning(self) -> bool:
        """Players without reward are left out of the data."""
        return False

    @property
    def restarts(self) -> int:
        return self.num_restarts if self.space == "codes" else 1

    def check(self, game: Game[Any]) -> None:
        super().check(game)
        if self.space == "zero":
            raise InputError("goals zero is a constant input of a policy: a model without goals has goals none")
        if self.labelled is not None:
            self.labelled.names(game)
        if min(self.hidden, default=0) < 1:
            raise InputError("hidden needs at least one layer, each of at least 1 unit")
        if self.codes < 2 or not 0 <= self.goal_switch_probability < 1 or self.balance < 0 or self.num_restarts < 1:
            raise InputError(
                "codes must be at least 2, goal_switch_probability at least 0 and less than 1, balance at least 0, and"
                " num_restarts at least 1"
            )
        if self.subgoal_dim < 1 or self.alpha < 0 or self.horizon < 1:
            raise InputError("subgoal_dim and horizon must be at least 1, and alpha at least 0")
        self.check_network(game)

    def check_network(self, game: Game[Any]) -> None:
        """Raises InputError if the chosen network does not exist or does not fit the goals."""
        if self.space == "gaussian" and self.moa != DEFAULT:
            raise InputError(f"goals gaussian has a network of its own: moa must be {DEFAULT}, not {self.moa!r}")
        if self.moa != DEFAULT:
            check_opponent_model(self.moa, game, self.num_goals(game), self.hidden)

    def network(self, game: Game[Any]) -> Any:
        """Returns the network for a game."""
        if self.space == "gaussian":
            board = board_shape(game)
            scale = game.ceilings["player"] or 1.0
            return GaussianSubgoals(game.num_actions, board, scale, self.subgoal_dim, self.hidden)
        return make_opponent_model(self.moa, game, self.num_goals(game), self.hidden)

    def num_goals(self, game: Game[Any]) -> int:
        """Returns the number of goals; 1 for the model without goals."""
        if self.labelled is not None:
            return len(self.labelled.names(game))
        return self.codes if self.space == "codes" else 1

    def goal_names(self, game: Game[Any]) -> tuple[str, ...]:
        """Returns the names of the goals; none if they are not finitely many."""
        if self.labelled is not None:
            return self.labelled.names(game)
        return tuple(f"code {number}" for number in range(self.codes)) if self.space == "codes" else ()

    def data(self, game: Game[Any], recorded: Recorded) -> tuple[AgentTrajectories, ...]:
        return self._by_seat(self.trajectories(game, recorded, grouped=self.networks == "shared"), game)

    def validation_data(self, game: Game[Any], recorded: Recorded) -> tuple[AgentTrajectories, ...]:
        return self._by_seat(self.trajectories(game, recorded, self._evaluates_in_groups), game)

    @property
    def _evaluates_in_groups(self) -> bool:
        """Gaussian subgoals apply the network to all groups at once; networks per seat need all seats in one group."""
        return self.space == "gaussian" and self.networks == "shared"

    def _by_seat(self, groups: tuple[AgentTrajectories, ...], game: Game[Any]) -> tuple[AgentTrajectories, ...]:
        return by_seat(groups, game.num_players) if self.networks == "seat" else groups

    def trajectories(self, game: Game[Any], recorded: Recorded, grouped: bool = False) -> tuple[AgentTrajectories, ...]:
        """Returns the trajectories that this model learns from, in one group or grouped by length."""
        groups = split_by_agent(game, recorded, self.space == "gaussian", self.labelled, grouped)
        if self.only_earning:
            groups = tuple(filter(num_agents, (with_reward(group) for group in groups)))
        if not groups:
            raise InputError("no player has a reward in these episodes: there is nothing to learn from")
        return groups

    def augment(self, key: Key, batch: Data, game: Game[Any]) -> Data:
        if not self.augment_symmetries or (self.labelled is not None and not self.labelled.is_symmetric(game)):
            return batch
        keys = (jax.random.fold_in(key, number) for number in range(len(batch)))
        return tuple(random_symmetry(key, group, game) for key, group in zip(keys, batch, strict=True))

    def num_rows(self, data: Data) -> int:
        return num_transitions(data)

    def init(self, key: Key, game: Game[Any], data: Data) -> Params:
        if self.networks == "shared":
            return self._init(key, game, data)
        keys = jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(game.num_players))
        return jax.vmap(lambda key, groups: self._init(key, game, groups), in_axes=(0, 1))(keys, data)

    def _init(self, key: Key, game: Game[Any], data: tuple[AgentTrajectories, ...]) -> Params:
        params = self.init_params(key, game)
        if self.space == "gaussian":
            return params
        return {**params, "prior": _goal_frequencies(data, self.num_goals(game))}

    def init_params(self, key: Key, game: Game[Any]) -> Params:
        """Returns initial parameters, with a uniform prior."""
        network = self.network(game)
        shape = jax.eval_shape(lambda key: encode(game.observe(game.init(key)), game.last_step), key).shape[1:]
        features = jnp.zeros(shape, jnp.uint8)
        if self.space == "gaussian":
            return {"network": network.init(key, features, jnp.int32(0), method="init_all")["params"]}
        return {"network": network.init(key, features)["params"], "prior": jnp.zeros(self.num_goals(game))}

    def objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        """Returns the sums over the groups of a minibatch, divided by its rows."""
        if self.networks == "shared":
            return self._objective(params, key, batch, game, progress)
        per_seat = jax.vmap(lambda params, groups: self._objective(params, key, groups, game, progress), in_axes=(0, 1))
        losses, terms = per_seat(params, batch)
        return losses.mean(), jax.tree.map(lambda leaf: leaf.sum(0), terms)

    def _objective(
        self, params: Params, key: Key, batch: Data, game: Game[Any], progress: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Terms]:
        terms = self._terms(self.network(game), params, key, batch, game)
        means = {name: value / jnp.maximum(count, 1) for name, (value, count) in terms.items() if name != "usage"}
        if self.space == "gaussian":
            # Reported per entry; but the loss is the error of a whole board, or the divergence would outweigh it.
            entries = math.prod(self.network(game).board) if self.loss == "reconstruction" else 1
            others = jnp.stack([means[name] for name in ("action", "inference", "value")]).sum()
            return others + entries * means["reconstruction"] + self.alpha * means["kl"], terms
        if self.space != "codes":
            return means["action"], terms
        usage, count = terms.pop("usage")
        divergence = codes.divergence_from_uniform(usage / jnp.maximum(count, 1))
        terms["unequal_use"] = divergence, jnp.float32(1)
        return means["likelihood"] + self.balance * (1 - progress) * divergence, terms

    def _terms(self, network: Any, params: Params, key: Key, batch: Data, game: Game[Any]) -> Terms:
        if self.space == "codes":
            views = (batch, self.augment(key, batch, game)) if self.augment_symmetries else (batch,)
            return self._code_terms(network, params, views)
        if self.space == "gaussian":
            return subgoals.loss_terms(network, params["network"], key, batch, self.horizon, self.select, self.loss)
        rationality, weights = Rationality(self.trembles), params["network"]
        parts = [
            loss.cross_entropy(
                network, weights, group, group.alive, group.goal if self.labelled else 0 * group.goal, rationality
            )
            for group in batch
        ]
        return {"action": jax.tree.map(lambda *values: sum(values), *parts)}

    def _code_terms(self, network: Any, params: Params, views: tuple[Data, ...]) -> Terms:
        """Terms of the mean likelihood over several symmetric views of the board: a code cannot merely be a direction.

        All groups pass through one filter, which compiles once.
        """
        longest = max(group.alive.shape[1] for group in views[0])

        def joined(values: Sequence[Array]) -> Array:
            return jnp.concatenate(
                [
                    jnp.pad(value, [(0, 0), (0, longest - value.shape[1]), *[(0, 0)] * (value.ndim - 2)])
                    for value in values
                ]
            )

        rationality, weights = Rationality(self.trembles), params["network"]
        by_view = [
            joined([codes.likelihoods(network, weights, group, rationality) for group in view]) for view in views
        ]
        likelihood, alive = jnp.stack(by_view).mean(0), joined([group.alive for group in views[0]])
        is_first = joined([group.is_first for group in views[0]])
        prior = codes.joint_prior(params["prior"], rationality)
        filtered = codes.evidence(prior, likelihood, alive, self.goal_switch_probability, is_first)
        posterior = codes.hindsight(prior, likelihood, filtered, alive, self.goal_switch_probability, is_first)
        posterior = posterior.reshape(*alive.shape, -1, posterior.shape[-1]).sum(-2)
        rows = alive.sum().astype(jnp.float32)
        return {
            "likelihood": loss.total(-filtered.evidence, alive),
            "usage": (codes.usage(posterior, alive) * rows, rows),
        }

    def predict(
        self, params: Params, game: Game[Any], groups: tuple[AgentTrajectories, ...]
    ) -> tuple[Predictions, ...]:
        """Returns predictions for groups of trajectories."""
        if self.networks == "shared":
            return self._predict(params, game, groups)
        per_seat = jax.vmap(lambda params: self._predict(params, game, groups))(params)
        return tuple(
            jax.tree.map(lambda leaf, seat=group.seat: leaf[seat, jnp.arange(leaf.shape[1])], predictions)
            for predictions, group in zip(per_seat, groups, strict=True)
        )

    def _predict(
        self, params: Params, game: Game[Any], groups: tuple[AgentTrajectories, ...]
    ) -> tuple[Predictions, ...]:
        network, weights = self.network(game), params["network"]
        if self.space == "gaussian":
            return subgoals.predict_by_inference(network, weights, jax.random.key(0), groups, self.horizon, self.select)
        if self.space == "none":
            return tuple(loss.predict_without_goals(network, weights, group) for group in groups)
        switch, labelled = (self.goal_switch_probability, False) if self.space == "codes" else (0.0, True)
        return tuple(
            loss.predict_by_belief(network, weights, params["prior"], group, switch, labelled) for group in groups
        )

    def evaluator(
        self, dataset: Dataset, recorded: Recorded, population: MakePopulation
    ) -> Callable[[Params], dict[str, Any]]:
        game = dataset.game
        rows = EvalRows.of(dataset, self.trajectories(game, recorded, self._evaluates_in_groups), recorded, population)
        predict = predictor(self, game)

        def evaluate(params: Params) -> dict[str, Any]:
            filtered, given_goal = rows.predictions(predict, params)
            metrics = {**scores(filtered, rows.actions)}
            given_goal_metrics = {} if self.space == "none" else scores(given_goal, rows.actions)
            ceilings = rows.ceilings()
            return {
                **metrics,
                **{f"given_goal_{name}": value for name, value in given_goal_metrics.items()},
                **{
                    f"ceiling_{which}_{name}": value
                    for which, ceiling in ceilings.items()
                    for name, value in ceiling.items()
                },
                **({"share_of_ceiling": metrics["top1"] / ceilings["history"]["top1"]} if ceilings else {}),
                **recalls(filtered, rows.actions, game.action_names),
                **self.goal_figures(params, game, rows.trajectories),
            }

        return evaluate

    def goal_figures(self, params: Params, game: Game[Any], groups: tuple[AgentTrajectories, ...]) -> dict[str, float]:
        """Returns the loss terms of goals on held-out trajectories."""
        if self.space not in ("gaussian", "codes"):
            return {}
        data = self._by_seat(groups, game)
        _, terms = jitted_loss(self, game)(params, jax.random.key(1), data, jnp.float32(1.0))
        metrics = {f"held_out_{name}": float(value / jnp.maximum(count, 1)) for name, (value, count) in terms.items()}
        if self.space == "codes":
            metrics["codes_in_use"] = self.codes / float(np.exp(metrics["held_out_unequal_use"]))
        return metrics


@dataclass(frozen=True)
class MOA(OpponentModelFit):
    """Model of other agents: predicts a player's next action from its observation and a belief over its goals."""

    name: ClassVar[str] = "moa"
    goals: str = "codes"
    """Goal space: none, prey (as in HOP), gaussian (a point in a space, as in the HOP+ notes), codes, or a registered
    one."""
    only_rewarded_players: bool = False
    """Train only on players with a positive return, as in the notes."""

    @property
    def space(self) -> str:
        return self.goals

    @property
    def only_earning(self) -> bool:
        return self.only_rewarded_players


@dataclass(frozen=True)
class Subgoals(OpponentModelFit):
    """Unlabelled goals, learnt from behaviour."""

    name: ClassVar[str] = "subgoals"
    kind: Literal["gaussian", "codes"] = "codes"
    """gaussian: a point in a space, with an autoencoder and inference from history; codes: one of a few codes."""

    @property
    def space(self) -> str:
        return self.kind


def _goal_frequencies(data: tuple[AgentTrajectories, ...], goals: int) -> Float[Array, " K"]:
    """Log-frequency of each initial goal, with a count of one added; uniform if goals are not labelled."""
    if not data[0].available.shape[-1]:
        return jnp.zeros(goals)
    counts = sum((group.goal[:, :1] == jnp.arange(goals)).sum(0) for group in data)
    return jnp.log(counts + 1.0) - jnp.log(jnp.sum(counts + 1.0))


@partial(jax.jit, static_argnames=("model", "game"))
def _predict(
    params: Params, groups: tuple[AgentTrajectories, ...], model: OpponentModelFit, game: Game[Any]
) -> tuple[Predictions, ...]:
    return model.predict(params, game, groups)


def predictor(model: OpponentModelFit, game: Game[Any]) -> Predictor:
    """Returns the compiled prediction function of a model."""
    return partial(_predict, model=model, game=game)


@partial(jax.jit, static_argnames=("model", "game"))
def _loss(params: Params, key: Key, batch: Data, progress: Array, model: Model, game: Game[Any]) -> Any:
    return model.objective(params, key, batch, game, progress)


def jitted_loss(model: Model, game: Game[Any]) -> Callable[..., Any]:
    """Returns the compiled loss of a model."""
    return partial(_loss, model=model, game=game)

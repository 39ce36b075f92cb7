"""Evaluation of opponent models: predictions and exact ceilings, row by row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hopplus.core.errors import InputError
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.models.base import MakePopulation
from hopplus.models.opponent.loss import Predictions
from hopplus.models.opponent.scores import expected_scores
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset
from hopplus.rollouts.exact_predictions import ExactPredictions, exact_predictions
from hopplus.rollouts.population import Recorded

Predictor = Callable[[Params, tuple[AgentTrajectories, ...]], tuple[Predictions, ...]]


def recalls(
    probabilities: Float[np.ndarray, "R A"], actions: Int[np.ndarray, " R"], names: Sequence[str]
) -> dict[str, float]:
    """Returns the recall of every action that occurs, so that rare actions are not lost in an average."""
    right = probabilities.argmax(-1) == actions
    return {
        f"recall_{name}": float(right[actions == number].mean())
        for number, name in enumerate(names)
        if (actions == number).any()
    }


@dataclass(frozen=True, eq=False)
class EvalRows:
    """Valid rows [R] of per-agent trajectories, in one order for all metrics."""

    dataset: Dataset
    recorded: Recorded
    trajectories: tuple[AgentTrajectories, ...]
    actions: Int[np.ndarray, " R"]
    time: Int[np.ndarray, " R"]
    episode: Int[np.ndarray, " R"]
    seat: Int[np.ndarray, " R"]
    agent_type: Int[np.ndarray, " R"]
    goal: Int[np.ndarray, " R"]
    population: MakePopulation

    @cached_property
    def exact(self) -> ExactPredictions | None:
        """Exact predictions, computed on demand; None if an agent type's action probabilities are unknown."""
        game = self.dataset.game
        try:
            return exact_predictions(game, self.population(), self.dataset.cast_distribution, self.recorded)
        except InputError:
            return None

    @staticmethod
    def of(
        dataset: Dataset, groups: tuple[AgentTrajectories, ...], recorded: Recorded, population: MakePopulation
    ) -> "EvalRows":
        """Returns the rows of all groups of trajectories."""

        def flat(value: Callable[[AgentTrajectories], Any]) -> np.ndarray:
            return flatten(groups, [value(group) for group in groups])

        def by_row(values: Any, group: AgentTrajectories) -> np.ndarray:
            return np.broadcast_to(np.asarray(values)[:, None], group.alive.shape)

        return EvalRows(
            dataset,
            recorded,
            groups,
            actions=flat(lambda group: group.action),
            time=flat(lambda group: np.broadcast_to(np.arange(group.alive.shape[1]), group.alive.shape)),
            episode=flat(lambda group: by_row(group.episode, group)),
            seat=flat(lambda group: by_row(group.seat, group)),
            agent_type=flat(lambda group: by_row(group.agent_type, group)),
            goal=flat(lambda group: group.goal),
            population=population,
        )

    def predictions(
        self, predict: Predictor, params: Params
    ) -> tuple[Float[np.ndarray, "R A"], Float[np.ndarray, "R A"]]:
        """Returns filtered predictions, and predictions given the goal."""
        predicted = predict(params, self.trajectories)
        filtered = flatten(self.trajectories, [group.filtered for group in predicted])
        return filtered, flatten(self.trajectories, [group.given_goal for group in predicted])

    def at(self, values: np.ndarray) -> np.ndarray:
        """Returns values [T, E, n, ...] at these rows."""
        return values[self.time, self.episode, self.seat]

    def exact_predictions(self) -> dict[str, Float[np.ndarray, "R A"]]:
        """Returns the optimal predictions given the agent types, and given the history only; empty if unknown."""
        if self.exact is None:
            return {}
        given_type = self.at(self.exact.action_probabilities)[np.arange(len(self.agent_type)), self.agent_type]
        return {"agent_type": given_type, "history": self.at(self.exact.given_history())}

    def ceilings(self) -> dict[str, dict[str, float]]:
        """Returns the expected scores of each optimal predictor."""
        return {name: expected_scores(optimal) for name, optimal in self.exact_predictions().items()}


def flatten(groups: tuple[AgentTrajectories, ...], values: Sequence[Any]) -> np.ndarray:
    """Concatenates values [N, L, ...] of every group at its valid rows."""
    return np.concatenate(
        [np.asarray(value)[np.asarray(group.alive)] for group, value in zip(groups, values, strict=True)]
    )

"""The interface of an algorithm, and the phase of a curriculum that it trains in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.algorithms.seats import Seats
from hopplus.configs import check_fields
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, observation_shapes
from hopplus.players import Params, PolicyPlayer
from hopplus.rollouts import Trajectory

State = Any
"""Training state of one seed, a tree of arrays that determines all that follows; `steps` counts environment steps."""
Metrics = dict[str, "Mean"]
NO_PARAMS: Mapping[str, Params] = MappingProxyType({})


@struct
class Mean:
    """Sum and count of a mean, so that means over parts can be merged; usually by seat [n]."""

    total: Float[Array, "..."]
    count: Float[Array, "..."]


@dataclass(frozen=True)
class CurriculumPhase:
    """Part of a training with a fixed game and fixed seats."""

    traced: ClassVar[tuple[str, ...]] = ("total_steps", "partner_share", "partner_steps")
    """Fields that only change numbers: see `Algorithm.traced`."""
    game: Game[Any]
    """Game of this phase."""
    final_game: Game[Any]
    """Game of the last phase, for which networks are made."""
    seats: Seats
    total_steps: int
    """Environment steps of the whole training."""
    partner_share: float = 0.0
    """Share of episodes with a curriculum partner in a learner's seat, at the start of the training."""
    partner_steps: int = 1
    """Step at which that share, annealed linearly, reaches 0."""
    has_plan_targets: bool = False
    """States receive planned targets in this phase, if the algorithm has any."""

    def partner_share_at(self, steps: Array) -> Float[Array, ""]:
        """Share of episodes with a curriculum partner after so many steps."""
        return self.partner_share * jnp.clip(1.0 - steps / self.partner_steps, 0.0, 1.0)

    def progress(self, steps: Array) -> Float[Array, ""]:
        """Share of the whole training that is done after so many steps."""
        return steps / self.total_steps


class Algorithm(ABC):
    """A training algorithm: a frozen dataclass of its settings, whose methods are pure functions of one seed's state.

    The trainer batches them over seeds and compiles them.
    """

    name: ClassVar[str]
    traced: ClassVar[tuple[str, ...]] = ()
    """Settings that only change numbers. In a compiled program they are traced scalars (no Python `if` on them), so
    that another value does not compile again."""
    num_envs: int
    """Parallel environments: a setting of every algorithm."""

    @property
    def has_trials(self) -> bool:
        """Whether members of pools stay the same over the episodes of a trial."""
        return False

    @property
    def has_memory(self) -> bool:
        """Whether the trained player carries memory from episode to episode."""
        return False

    def first_planned_step(self, steps: int, iterations_per_call: int) -> int | None:
        """First step of the part, at the end of a training, in which states receive planned targets; None without it.

        Args:
            steps: Steps of the training.
            iterations_per_call: Iterations of one compiled call. The part begins with a call.
        """
        return None

    def for_learners(self, number: int) -> Self:
        """The same algorithm with settings for this number of learning seats."""
        return self

    @property
    def default_partner(self) -> str | None:
        """Curriculum partner of a training in which several seats learn, unless it names another."""
        return None

    @abstractmethod
    def network(self, game: Game[Any]) -> nn.Module:
        """Acting network: `(observation) -> (masked logits, value)`."""

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> PolicyPlayer:
        """Returns the player that this algorithm trains.

        Args:
            source: Name of its parameters.
            greedy: Take the most probable action instead of sampling.
            shares: Equal players in several seats share one parameter set.
            learns: Return in `info` what a learner needs.
        """
        return PolicyPlayer(self.network(game), source, greedy, shares, learns, self.name)

    def evaluated_player(self, game: Game[Any], source: str) -> PolicyPlayer:
        """Returns the player that is evaluated during and after a training: greedy, by default otherwise as played."""
        return self.player(game, source, greedy=True, shares=self.shares_params)

    @property
    @abstractmethod
    def shares_params(self) -> bool:
        """Whether all learning seats share one parameter set."""

    def check(self, games: Sequence[Game[Any]]) -> None:
        """Raises InputError for settings out of range, or unfit for the games of the phases."""
        check_fields(self)

    @abstractmethod
    def for_fine_tuning(self, game: Game[Any]) -> Self:
        """The same algorithm with settings for further learning in a single environment."""

    @abstractmethod
    def init(
        self,
        key: Key,
        phase: CurriculumPhase,
        frozen: Mapping[str, Params],
        init_params: Mapping[str, Params] = NO_PARAMS,
    ) -> State:
        """Returns the state before the first iteration.

        Args:
            frozen: Parameters of frozen players by source.
            init_params: Initial parameters by module (`modules`), one set or [P, ...]; other modules start afresh.
        """

    @abstractmethod
    def train_step(
        self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> tuple[State, Trajectory, Metrics]:
        """Collects a batch and learns from it.

        Returns:
            The next state, the trajectory [T, E], and metrics by seat [n]; `trained_on` is [P, n], by parameter set
            and seat.
        """

    def iterate(self, state: State, phase: CurriculumPhase, frozen: Mapping[str, Params]) -> tuple[State, Metrics]:
        """One training step, with metrics of the episodes that ended in it."""
        state, trajectory, metrics = self.train_step(state, phase, frozen)
        return state, {**episode_metrics(phase.game, trajectory), **metrics}

    def timed_parts(
        self, phase: CurriculumPhase, frozen: Mapping[str, Params]
    ) -> dict[str, Callable[[State, Mapping[str, Any]], Any]]:
        """Parts of an iteration that can be timed alone, in order: each takes the state and the earlier results."""
        return {}

    def modules(self, params: Params) -> dict[str, Params]:
        """Parameters by module, as `--init MODULE=RUN` names them."""
        return {"policy": params}

    @abstractmethod
    def params(self, state: State) -> Params:
        """Parameter sets [P, ...] of the acting network, from a state or from nested mappings of its arrays."""


def initial_params(network: nn.Module, game: Game[Any], key: Key) -> Params:
    """Fresh parameters of a network for one seat's observation of a game."""
    one_seat = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), observation_shapes(game))
    return network.init(key, one_seat)["params"]


def episode_metrics(game: Game[Any], trajectory: Trajectory) -> Metrics:
    """Returns, lengths and items taken, by seat, over the episodes that ended; those that began late do not count."""
    over = trajectory.over & trajectory.alive.any(-1) & trajectory.counts
    ended = jnp.broadcast_to(over.sum().astype(jnp.float32), (game.num_players,))

    def at_the_end(values: Array) -> Mean:
        return Mean(jnp.where(over[..., None], values, 0).sum((0, 1)).astype(jnp.float32), ended)

    metrics = {"return": at_the_end(trajectory.total_reward), "length": at_the_end(trajectory.total_steps)}
    for index, item in enumerate(game.taken_names[1:], start=1):
        took = (trajectory.took == index) & trajectory.counts[..., None]
        metrics[f"took_{item}"] = Mean(took.sum((0, 1)).astype(jnp.float32), ended)
    return metrics

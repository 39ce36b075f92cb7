"""What is trained how: the interface of a recipe, and what every recipe trains on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.games import Game
from hopplus.keys import Key
from hopplus.play import Episode
from hopplus.players import NetworkPlayer, Params
from hopplus.struct import struct
from hopplus.training.seats import Seats

State = Any
"""Everything that determines a training's future, as a tree of arrays; `steps` are the environment steps so far."""
Metrics = dict[str, "Mean"]


@struct
class Mean:
    """A mean in the making, so that means over parts add up: usually by seat."""

    total: Float[Array, "..."]
    count: Float[Array, "..."]


@dataclass(frozen=True)
class Stage:
    """A part of a training during which neither the game nor who sits where changes."""

    traced: ClassVar[tuple[str, ...]] = ("total_steps", "guest_share", "guest_steps")
    """Fields that only change numbers, as `Recipe.traced`."""
    game: Game[Any]
    """As it is played now."""
    final_game: Game[Any]
    """As it is played at the end: networks are made for this one."""
    seats: Seats
    total_steps: int
    """Environment steps of the whole training."""
    guest_share: float = 0.0
    """In which share of episodes a guest sits in a learner's seat at the start of the training."""
    guest_steps: int = 1
    """When that share, falling linearly, has come to none."""

    def share_of_guests(self, steps: Array) -> Float[Array, ""]:
        return self.guest_share * jnp.clip(1.0 - steps / self.guest_steps, 0.0, 1.0)

    def progress(self, steps: Array) -> Float[Array, ""]:
        """Which share of the whole training is done."""
        return steps / self.total_steps


class Recipe(ABC):
    """An algorithm with its settings: a frozen dataclass of JSON's values. Everything it does is a pure function of
    one seed's state; the trainer batches it over seeds and compiles it."""

    name: ClassVar[str]
    traced: ClassVar[tuple[str, ...]] = ()
    """Settings that only change numbers. Within a compiled program they are traced scalars (no Python `if` on them), so
    that another value of one does not compile again."""
    environments: int
    """Environments played side by side: a setting of every recipe."""

    @property
    def stays_together(self) -> bool:
        """Whether whoever is drawn from a pool stays at the table for several episodes."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether its player keeps anything from episode to episode."""
        return False

    @abstractmethod
    def network(self, game: Game[Any]) -> nn.Module:
        """The network that acts: `(observation) -> (masked logits, value)`."""

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> NetworkPlayer:
        """The player that it trains, with parameters from a source; `shares` whether equal ones have one set between
        them, `learns` whether it is to say what a learner needs."""
        return NetworkPlayer(self.network(game), source, greedy, shares, learns, self.name)

    @property
    @abstractmethod
    def shares_params(self) -> bool:
        """Whether all seats that learn have one parameter set between them."""

    @abstractmethod
    def check(self, games: Sequence[Game[Any]]) -> None:
        """InputError for settings that cannot be with the games of a training, stage by stage."""

    @abstractmethod
    def at_one_table(self, game: Game[Any]) -> Self:
        """The same algorithm as it goes on learning from a single table, after its training."""

    @abstractmethod
    def init(self, key: Key, stage: Stage, frozen: Mapping[str, Params], learnt: Params | None = None) -> State:
        """The state at the start; with parameter sets [P, ...] that have `learnt` something, from there."""

    @abstractmethod
    def advance(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[State, Episode, Metrics]:
        """Play and learn: the state after it, what was played [T, E], and metrics of the learning: [n] by seat,
        `trained_on` [P, n] by parameter set and seat."""

    def iterate(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[State, Metrics]:
        """Play, learn, and tell of both."""
        state, episode, metrics = self.advance(state, stage, frozen)
        return state, {**episode_metrics(stage.game, episode), **metrics}

    def stages(
        self, stage: Stage, frozen: Mapping[str, Params]
    ) -> dict[str, Callable[[State, Mapping[str, Any]], Any]]:
        """The parts of an iteration that can be timed by themselves, in order: each takes the state and what the parts
        before it gave, by name."""
        return {}

    def modules(self, learnt: Params) -> dict[str, Params]:
        """What was learnt, by the name under which `--init MODULE=RUN` speaks of it."""
        return {"policy": learnt}

    @abstractmethod
    def learnt(self, state: State) -> Params:
        """The acting network's parameter sets [P, ...] in a state, or in nested mappings of its arrays."""


def initial_params(network: nn.Module, game: Game[Any], key: Key) -> Params:
    """Fresh parameters of a network that sees one seat's observation of a game."""
    seen = jax.eval_shape(lambda key: game.observe(game.init(key)), key)
    one_seat = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), seen)
    return network.init(key, one_seat)["params"]


def episode_metrics(game: Game[Any], episode: Episode) -> Metrics:
    """Returns, lengths and what was taken, by seat, over the episodes that ended."""
    over = episode.over & episode.alive.any(-1)
    ended = jnp.broadcast_to(over.sum().astype(jnp.float32), (game.num_players,))

    def at_the_end(values: Array) -> Mean:
        return Mean(jnp.where(over[..., None], values, 0).sum((0, 1)).astype(jnp.float32), ended)

    metrics = {"return": at_the_end(episode.total_reward), "length": at_the_end(episode.total_steps)}
    for kind, what in enumerate(game.taken_names[1:], start=1):
        metrics[f"took_{what}"] = Mean((episode.took == kind).sum((0, 1)).astype(jnp.float32), ended)
    return metrics

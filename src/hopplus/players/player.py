"""Player interface, for scripted rules, policies and planners."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import Game, Observation

Params = Any
"""Parameters of a player, as a tree of arrays; () for a scripted player."""
Memory = Any
"""State of a player between steps and between episodes of a trial, as a tree of arrays; () for none."""
Info = Any
"""Auxiliary outputs of a decision (log-probability, value, beliefs), as a tree of arrays; None for none.

A field `goals` [n, kinds] holds beliefs about the next item of each player, ego first (`game.taken_names` from 1 on);
`hopplus adapt` reports their accuracy."""


class Player:
    """A player of one seat, which receives only that seat's observations.

    Players are immutable and hashable; equal players may be computed together.

    Once per trial: `init`, then `meet`. In every episode: `begin`; at every step `act`, then `watch` on the next
    observation, including the last; then `end`. `act` and `watch` are also called after the ego has left, when its
    actions have no effect.
    """

    name: str
    shares_params: bool = False
    """Equal players in several seats share one parameter set."""

    def default_params(self) -> Params:
        """Returns the params that are used if none are given; () for scripted players."""
        return ()

    def bind(self, sources: Mapping[str, Params]) -> Params:
        """Returns this player's params, given the params of trained players by source."""
        return self.default_params()

    def init(self, key: Key, params: Params) -> Memory:
        """Returns the memory at the start of a trial."""
        return ()

    def meet(self, key: Key, memory: Memory) -> Memory:
        """Returns the memory after the players of a trial are drawn.

        All seats receive the same key, for common random numbers.
        """
        return memory

    def begin(self, memory: Memory) -> Memory:
        """Returns the memory at the start of an episode."""
        return memory

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        """Returns the action for one seat's observation, the next memory, and info about the decision."""
        raise NotImplementedError

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        """Returns the exact distribution from which `act` samples."""
        raise InputError(f"the action probabilities of {self.name!r} are not known")

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Memory:
        """Returns the memory after observing the result of a step."""
        return memory

    def end(self, memory: Memory) -> Memory:
        """Returns the memory at the end of an episode, which the next episode of the trial receives."""
        return memory


def own_mask(observation: Observation) -> Array:
    """Returns the observer's own action mask: bool[A]."""
    return observation.legal[0]


def action_number(game: Game[Any], name: str) -> int:
    """Returns the number of a named action.

    Raises:
        InputError: if the game has no such action.
    """
    if name not in game.action_names:
        raise InputError(f"{game.name} has no action {name} (its actions: {', '.join(game.action_names)})")
    return game.action_names.index(name)


def uniform(choices: Bool[Array, "... A"]) -> Float[Array, "... A"]:
    """Returns the uniform distribution over the true entries; all 0 if there are none."""
    return choices / jnp.maximum(choices.sum(-1, keepdims=True), 1)


def as_action(number: Array | int) -> Int[Array, ""]:
    """Converts an action number to int32[], the type that all players return."""
    return jnp.asarray(number, jnp.int32)

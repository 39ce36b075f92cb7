"""The Player interface: whoever sits in a seat, whether a scripted rule, a network or a planner with beliefs."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.keys import Key

Params = Any
"""What a player has learnt, as a tree of arrays; () for a scripted one."""
Memory = Any
"""What a player carries from step to step and from episode to episode, as a tree of arrays; () for none."""
Info = Any
"""What a player says about its choice (log-probability, value, beliefs), as a tree of arrays; () for nothing.

A field `goals` [n, kinds] holds beliefs about what each player, ego-first, will take (`game.taken_names` from 1 on):
`hopplus adapt` tells how often they come true."""


class Player:
    """A player of one seat, seeing only that seat's observations. Immutable and hashable; two equal players may be
    computed together.

    Once at every table: `init`, then `meet`. In every episode: `begin`; then, step by step, `act` and `watch` on the
    observation that follows the step, both also once the ego has left (what it does then is nothing to the game),
    `watch` also on the last one; then `end`.
    """

    name: str
    shares_params: bool = False
    """Whether equal players in several seats have one parameter set between them, rather than one each."""

    def default_params(self) -> Params:
        """What it has learnt where nobody says otherwise: a scripted player has nothing to learn."""
        return ()

    def init(self, key: Key, params: Params) -> Memory:
        """The memory of one who has met nobody yet."""
        return ()

    def meet(self, key: Key, memory: Memory) -> Memory:
        """The memory at a table where nobody has met anybody yet; all who sit there get the same key, for what they
        have in common."""
        return memory

    def begin(self, memory: Memory) -> Memory:
        """The memory at the start of an episode."""
        return memory

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        """The action for one seat's observation, the memory after it, and what there is to say about it."""
        raise NotImplementedError

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        """The law from which `act` draws, exactly: what the best model of this player would predict."""
        raise InputError(f"the action probabilities of {self.name!r} are not known")

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Memory:
        """The memory after seeing what a step led to."""
        return memory

    def end(self, memory: Memory) -> Memory:
        """The memory at the end of an episode; what is kept is there in the next."""
        return memory


def own_mask(observation: Observation) -> Array:
    """What the observer itself may do: bool[A]."""
    return observation.legal[0]


def action_number(game: Game[Any], name: str) -> int:
    """The number of a named action; ValueError where the game has no such action."""
    if name not in game.action_names:
        raise InputError(f"{game.name} has no action {name} (its actions: {', '.join(game.action_names)})")
    return game.action_names.index(name)


def uniform(choices: Bool[Array, "... A"]) -> Float[Array, "... A"]:
    """The probabilities of a uniform choice; all 0 where there is none."""
    return choices / jnp.maximum(choices.sum(-1, keepdims=True), 1)


def as_action(number: Array | int) -> Int[Array, ""]:
    """An action number as every player returns it: int32[]."""
    return jnp.asarray(number, jnp.int32)

"""The Game interface, what every game means by it, and fresh states for a batch of environments.

Fixed here once, for every game:

- An action that is not legal, or not an action at all, counts as the game's `idle_action`.
- A player who has left may only idle; it earns nothing.
- A step after the end changes nothing: the same state, rewards of 0, `over` true.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int8

from hopplus.errors import InputError
from hopplus.keys import Key, fast
from hopplus.struct import struct


@struct
class Observation:
    """What the players see. Axis 0 is the observer; every other player axis is ego-first: i, i+1, ..., i-1 (cyclic).

    One player's observation is the same struct without axis 0.
    """

    grid: Int8[Array, "n H W C"]
    """Binary; channels as in `Game.channel_names`."""
    time: Int[Array, " n"]
    deadline: Int[Array, " n"]
    """The step at which the game will be over at the latest."""
    legal: Bool[Array, "n n A"]
    last_actions: Int[Array, "n n"]
    """The actions executed in the last step; the idle action before the first."""


@struct
class Outcome:
    """What a step brought."""

    reward: Float[Array, " n"]
    left: Bool[Array, " n"]
    """Who has left by now (in this step or before)."""
    over: Bool[Array, ""]
    truncated: Bool[Array, ""]
    """Cut off from outside. Never set by our games: their end at T is a rule, and time is observed."""
    took: Int[Array, " n"]
    """What each player took in this step: an index into `Game.taken_names`, 0 for nothing."""
    cell: Int[Array, " n"]
    """Where it took it (row * width + column), -1 for nowhere: equal cells are a joint catch."""


State = TypeVar("State")


class Game(ABC, Generic[State]):
    """Rules as pure functions of one environment; batches are made with `jax.vmap`.

    A game is immutable and hashable, so that it can be a static argument of a compiled function. A new game implements
    the abstract members; `hopplus.games.check_game` tells whether they keep the laws.
    """

    name: str
    version: ClassVar[str]
    """Changes whenever the behaviour of any setting changes, and never otherwise; stored with every run."""
    action_names: ClassVar[tuple[str, ...]]
    idle_action: ClassVar[int]
    """What an illegal action counts as; always legal."""

    @property
    @abstractmethod
    def channel_names(self) -> tuple[str, ...]:
        """What the channels of the observed grid show; the players first, ego-first."""

    @property
    @abstractmethod
    def taken_names(self) -> tuple[str, ...]:
        """What can be taken, by index: ("nothing", ...)."""

    @property
    @abstractmethod
    def num_players(self) -> int: ...

    @property
    def rules(self) -> str:
        """The rules in a few sentences, for a person who takes a seat; nothing where the game tells none."""
        return ""

    @property
    def num_actions(self) -> int:
        return len(self.action_names)

    @property
    @abstractmethod
    def last_step(self) -> int:
        """T: the most steps that an episode can take."""

    @property
    @abstractmethod
    def ceilings(self) -> Mapping[str, float]:
        """Upper bounds of an episode's return: `mean` (over the players), `player` (of any one), and the game's own."""

    @abstractmethod
    def draw(self, key: Key) -> tuple[State, Bool[Array, ""]]:
        """A candidate for a first state, and whether it is accepted; `init` draws until one is."""

    @abstractmethod
    def transition(
        self, key: Key, state: State, actions: Int[Array, " n"]
    ) -> tuple[State, Float[Array, " n"], Int[Array, " n"], Int[Array, " n"]]:
        """The next state, rewards, and what was taken where, for legal actions in a game that is not over."""

    @abstractmethod
    def left(self, state: State) -> Bool[Array, " n"]:
        """Who has left."""

    @abstractmethod
    def over(self, state: State) -> Bool[Array, ""]:
        """Whether the game has ended."""

    @abstractmethod
    def legal(self, state: State) -> Bool[Array, "n A"]:
        """What each player may do; the idle action always, and nothing else once it has left."""

    @abstractmethod
    def observe(self, state: State) -> Observation:
        """What all seats see, at once."""

    @abstractmethod
    def restore(self, observation: Observation) -> State:
        """The state behind one seat's observation, that seat as seat 0: observe(restore(o))[0] == o.

        Where seats differ by a setting, use the game as that seat sees it: `game.reseat(order).restore(o)`.
        """

    def from_layout(self, *args: Any, **kwargs: Any) -> State:
        """A state by hand, from what a person would write down of it; what that is, each game says."""
        raise NotImplementedError(f"{self.name} has no layouts")

    @abstractmethod
    def permute(self, state: State, order: Sequence[int] | Int[Array, " n"]) -> State:
        """The same state with player order[i] in seat i."""

    def reseat(self, order: Sequence[int]) -> "Game[State]":
        """The same game with seat order[i]'s settings at seat i; itself unless seats have settings of their own."""
        return self

    def init(self, key: Key) -> State:
        """A fresh first state; attempt k of its drawing uses fold_in(key, k)."""
        key = fast(key)

        def attempt(number: Array) -> tuple[State, Bool[Array, ""]]:
            return self.draw(jax.random.fold_in(key, number))

        def again(carry: tuple[Array, State, Array]) -> tuple[Array, State, Array]:
            number = carry[0] + 1
            return number, *attempt(number)

        first = jnp.int32(0)
        return jax.lax.while_loop(lambda carry: ~carry[2], again, (first, *attempt(first)))[1]

    def step(self, key: Key, state: State, actions: Int[Array, " n"]) -> tuple[State, Outcome]:
        """One step of all players at once, with the meaning that the head of this file gives to odd cases."""
        actions = jnp.asarray(actions)
        if actions.shape != (self.num_players,) or not jnp.issubdtype(actions.dtype, jnp.integer):
            raise InputError(
                f"{self.name} takes {self.num_players} whole-number actions, one a player,"
                f" not {actions.dtype}{list(actions.shape)}"
            )
        was_over = self.over(state)
        chosen = self.legal(state) & (actions[:, None] == jnp.arange(self.num_actions))
        executed = jnp.where(chosen.any(-1), actions, self.idle_action).astype(jnp.int32)
        after, reward, took, cell = self.transition(key, state, executed)
        after = jax.tree.map(lambda old, new: jnp.where(was_over, old, new), state, after)
        outcome = Outcome(
            reward=jnp.where(was_over, 0.0, reward),
            left=self.left(after),
            over=self.over(after),
            truncated=jnp.bool_(False),
            took=jnp.where(was_over, 0, took),
            cell=jnp.where(was_over, -1, cell),
        )
        return after, outcome


def ego_first(values: Array) -> Array:
    """Values [n, ...] by seat as every seat sees them: [n observers, n ego-first, ...]."""
    return jnp.stack([jnp.roll(values, -seat, axis=0) for seat in range(values.shape[0])])


def one_seat(observation: Observation, seat: int) -> Observation:
    """The observation of one seat."""
    return jax.tree.map(lambda values: values[seat], observation)


def init_batch(game: Game[State], keys: Key) -> State:
    """Fresh states [E] for keys [E]: what `init` gives for each, but a rejected draw does not hold up the others."""
    shapes = jax.eval_shape(jax.vmap(game.init), keys)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return _draw_where(game, lambda where: fast(keys).at[where].get(mode="clip"), nothing, jnp.ones(keys.shape, bool))


def reset_finished(game: Game[State], keys: Key, purpose: int, states: State, finished: Bool[Array, " E"]) -> State:
    """The states with fresh ones, init(fold_in(keys[e], purpose)), where finished; none is ever handed out twice.

    Costs nothing for environments that go on: not even their keys are derived.
    """

    def key_of(where: Array) -> Key:
        return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(fast(keys).at[where].get(mode="clip"))

    return _draw_where(game, key_of, states, finished)


def _draw_where(game: Game[State], key_of: Callable[[Array], Key], states: State, wanted: Bool[Array, " E"]) -> State:
    """The states with freshly drawn ones where wanted; environment e draws from key_of(e).

    The few that are wanted are gathered into a block, drawn together and put back, until none is left to draw: the
    cost is that of the states really needed, and a rejected candidate only joins the next block.
    """
    environments = wanted.shape[0]
    block = min(environments, max(8, environments // 32))

    def draw_block(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        states, pending, attempts = carry
        where = jnp.nonzero(pending, size=block, fill_value=environments)[0]
        attempt_keys = jax.vmap(jax.random.fold_in)(key_of(where), attempts.at[where].get(mode="clip"))
        candidates, accepted = jax.vmap(game.draw)(attempt_keys)
        accepted_at = jnp.where(accepted, where, environments)
        states = jax.tree.map(lambda old, new: old.at[accepted_at].set(new, mode="drop"), states, candidates)
        return states, pending.at[accepted_at].set(False, mode="drop"), attempts.at[where].add(1, mode="drop")

    carry = (states, wanted, jnp.zeros(environments, jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[1].any(), draw_block, carry)[0]

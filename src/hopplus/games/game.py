"""The Game interface, its semantics, and initial states for a batch of environments.

These rules hold for every game:

- An action that is not legal, or not an action at all, is replaced by the game's `idle_action`.
- A player who has left may only idle, and its rewards are 0.
- A step after the end returns the same state, rewards of 0 and `over` true.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int8

from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct


@struct
class Observation:
    """Observations of all players. Axis 0 is the observer; other player axes are ego-first: i, i+1, ..., i-1 (cyclic).

    The observation of a single player is the same struct without axis 0. A kind of game adds its own fields, and shows
    them to networks as a `view`: see `GridObservation` and `VectorObservation`.
    """

    time: Int[Array, " n"]
    """Steps played in the episode."""
    deadline: Int[Array, " n"]
    """The step at which the game ends at the latest."""
    legal: Bool[Array, "n n A"]
    """Action masks of all players."""
    last_actions: Int[Array, "n n"]
    """The actions executed in the last step; the idle action before the first."""

    @property
    def view(self) -> Int[Array, "n F"]:
        """The game's own fields as integers from 0 to 255, which networks receive; preferably binary."""
        raise NotImplementedError(f"{type(self).__name__} does not implement view")

    @property
    def board(self) -> Int[Array, "n H W C"]:
        """The view as a board; a single cell if there is no board."""
        return self.view[..., None, None, :]

    @property
    def present(self) -> Bool[Array, "n n"]:
        """Players who have not left: a player who has left has no legal action but the idle one."""
        return self.legal.sum(-1) > 1


@struct
class GridObservation(Observation):
    """Observations of a board."""

    grid: Int8[Array, "n H W C"]
    """Binary; channels as in `GridGame.channel_names`: the players, ego first, blocks, and items."""

    @property
    def view(self) -> Int8[Array, "n F"]:
        return self.grid.reshape(*self.grid.shape[:-3], -1)

    @property
    def board(self) -> Int8[Array, "n H W C"]:
        return self.grid

    @property
    def present(self) -> Bool[Array, "n n"]:
        return self.grid[..., : self.legal.shape[-2]].any((-3, -2))


@struct
class VectorObservation(Observation):
    """Observations of a game without a board."""

    vector: Int[Array, "n F"]
    """Integers from 0 to 255, preferably binary; in the order of the ego's view."""

    @property
    def view(self) -> Int[Array, "n F"]:
        return self.vector


@struct
class Outcome:
    """Result of a step."""

    reward: Float[Array, " n"]
    components: Float[Array, "n C"]
    """The reward by component (`Game.component_names`); sums to `reward`."""
    left: Bool[Array, " n"]
    """Players who have left, in this step or before."""
    over: Bool[Array, ""]
    """True if the game has ended."""
    truncated: Bool[Array, ""]
    """Truncation from outside. Never set by the games here: their end at T is a rule, and time is observed."""
    took: Int[Array, " n"]
    """Item that each player took in this step: an index into `Game.taken_names`, 0 for nothing."""
    cell: Int[Array, " n"]
    """Cell of that item (row * width + column), -1 for none; equal cells are a joint catch."""


State = TypeVar("State")
NEUTRAL = "neutral"
"""Name of the preference for the game's own reward."""


@dataclass(frozen=True)
class NamedPreference:
    """Preference of a learner in reward randomisation: the weighted components of its reward, less a cost per step."""

    name: str
    reward_weights: tuple[float, ...]
    """Weight of each component of the reward."""
    step_cost: float = 0.0
    """Cost of every step in the game."""


class Game(ABC, Generic[State]):
    """Rules as pure functions of one environment; use `jax.vmap` for batches.

    A game is immutable and hashable, so that it can be a static argument of a compiled function. A new game implements
    the abstract members; `hopplus.games.check_game` tests them.
    """

    name: str
    version: ClassVar[str]
    """Changes if and only if the behaviour of any setting changes; stored with every run."""
    action_names: ClassVar[tuple[str, ...]]
    idle_action: ClassVar[int]
    """Replacement of an illegal action; always legal."""

    @property
    @abstractmethod
    def taken_names(self) -> tuple[str, ...]:
        """Names of what can be taken, by index: ("nothing", ...)."""

    @property
    @abstractmethod
    def num_players(self) -> int:
        """Number of players."""

    @property
    def rules(self) -> str:
        """The rules in a few sentences, for human players; empty if the game has no text."""
        return ""

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.action_names)

    @property
    @abstractmethod
    def last_step(self) -> int:
        """T: the maximum number of steps of an episode."""

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of the components of the reward; a single component by default."""
        return ("reward",)

    @property
    def preferences(self) -> tuple[NamedPreference, ...]:
        """Preferences of learners in reward randomisation; the neutral one is first.

        By default, if the reward has several components, there is one more preference per component: that component
        has the weight 1 and all others -1. The weight is not 0, because a learner without a reward for the others
        would hardly learn to avoid them.
        """
        names = self.component_names
        only = [NamedPreference(name, tuple(1.0 if other == name else -1.0 for other in names)) for name in names]
        return (NamedPreference(NEUTRAL, (1.0,) * len(names)), *(only if len(names) > 1 else ()))

    @property
    @abstractmethod
    def ceilings(self) -> Mapping[str, float]:
        """Upper bounds of an episode's return: `mean` (over players), `player` (of any player), and others by game."""

    @abstractmethod
    def draw(self, key: Key) -> tuple[State, Bool[Array, ""]]:
        """Samples a candidate for an initial state, and whether it is accepted; `init` repeats until acceptance."""

    @abstractmethod
    def transition(
        self, key: Key, state: State, actions: Int[Array, " n"]
    ) -> tuple[State, Float[Array, "n C"], Int[Array, " n"], Int[Array, " n"]]:
        """Next state, rewards by component, items taken and their cells, for legal actions before the end."""

    @abstractmethod
    def left(self, state: State) -> Bool[Array, " n"]:
        """Players who have left."""

    @abstractmethod
    def over(self, state: State) -> Bool[Array, ""]:
        """True if the game has ended."""

    @abstractmethod
    def legal(self, state: State) -> Bool[Array, "n A"]:
        """Action masks. The idle action is always legal; a player who has left has no other legal action."""

    @abstractmethod
    def observe(self, state: State) -> Observation:
        """Observations of all seats."""

    @abstractmethod
    def restore(self, observation: Observation) -> State:
        """Reconstructs the state from one seat's observation, with that seat as seat 0: observe(restore(o))[0] == o.

        If seats have settings of their own, call it on the rotated game: `game.reseat(order).restore(o)`.
        """

    def from_layout(self, *args: Any, **kwargs: Any) -> State:
        """Builds a state from a hand-written layout; the parameters depend on the game."""
        raise NotImplementedError(f"{self.name} does not implement from_layout")

    @abstractmethod
    def permute(self, state: State, order: Sequence[int] | Int[Array, " n"]) -> State:
        """Returns the state with player order[i] in seat i."""

    def reseat(self, order: Sequence[int]) -> "Game[State]":
        """Returns the game with the settings of seat order[i] at seat i; itself if all seats have the same settings."""
        return self

    def init(self, key: Key) -> State:
        """Samples an initial state; attempt k uses fold_in(key, k)."""
        key = fast(key)

        def attempt(number: Array) -> tuple[State, Bool[Array, ""]]:
            return self.draw(jax.random.fold_in(key, number))

        def retry(carry: tuple[Array, State, Array]) -> tuple[Array, State, Array]:
            number = carry[0] + 1
            return number, *attempt(number)

        first = jnp.int32(0)
        return jax.lax.while_loop(lambda carry: ~carry[2], retry, (first, *attempt(first)))[1]

    def step(self, key: Key, state: State, actions: Int[Array, " n"]) -> tuple[State, Outcome]:
        """Plays one step of all players; illegal actions and steps after the end are handled as described above."""
        actions = jnp.asarray(actions)
        if actions.shape != (self.num_players,) or not jnp.issubdtype(actions.dtype, jnp.integer):
            raise InputError(
                f"{self.name} takes {self.num_players} integer actions, one per player,"
                f" not {actions.dtype}{list(actions.shape)}"
            )
        was_over = self.over(state)
        chosen = self.legal(state) & (actions[:, None] == jnp.arange(self.num_actions))
        executed = jnp.where(chosen.any(-1), actions, self.idle_action).astype(jnp.int32)
        after, components, took, cell = self.transition(key, state, executed)
        components = jnp.where(was_over, 0.0, components)
        after = jax.tree.map(lambda old, new: jnp.where(was_over, old, new), state, after)
        outcome = Outcome(
            reward=components.sum(-1),
            components=components,
            left=self.left(after),
            over=self.over(after),
            truncated=jnp.bool_(False),
            took=jnp.where(was_over, 0, took),
            cell=jnp.where(was_over, -1, cell),
        )
        return after, outcome


def ego_first(values: Array) -> Array:
    """Rotates values [n, ...] by seat into the view of every seat: [n observers, n ego-first, ...]."""
    return jnp.stack([jnp.roll(values, -seat, axis=0) for seat in range(values.shape[0])])


def observation_shapes(game: Game[Any]) -> Observation:
    """Observation of a game with the shapes and types of its arrays in their place."""
    return jax.eval_shape(lambda key: game.observe(game.init(key)), jax.random.key(0))


def board_shape(game: Game[Any]) -> tuple[int, int, int]:
    """Height, width and channels of what one player observes; 1, 1 and the size of the view without a board."""
    return jax.eval_shape(lambda key: game.observe(game.init(key)).board, jax.random.key(0)).shape[1:]  # pyright: ignore[reportReturnType]


def one_seat(observation: Observation, seat: int) -> Observation:
    """Observation of one seat."""
    return jax.tree.map(lambda values: values[seat], observation)


def init_batch(game: Game[State], keys: Key) -> State:
    """Samples initial states [E] from keys [E], equal to `init` of each key; a rejection delays no other state."""
    shapes = jax.eval_shape(jax.vmap(game.init), keys)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return _draw_where(game, lambda rows: fast(keys).at[rows].get(mode="clip"), empty, jnp.ones(keys.shape, bool))


def reset_finished(game: Game[State], keys: Key, purpose: int, states: State, finished: Bool[Array, " E"]) -> State:
    """Replaces finished environments' states by init(fold_in(keys[e], purpose)). Every state is a fresh draw.

    Unfinished environments cost nothing: not even their keys are derived.
    """

    def key_of(rows: Array) -> Key:
        return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(fast(keys).at[rows].get(mode="clip"))

    return _draw_where(game, key_of, states, finished)


def _draw_where(
    game: Game[State], key_of: Callable[[Array], Key], states: State, requested: Bool[Array, " E"]
) -> State:
    """Replaces the requested states by initial states; environment e samples from key_of(e).

    Pending environments are gathered into a block, sampled together and scattered back, until none is pending. So the
    cost is that of the requested states only, and a rejected candidate joins the next block.
    """
    environments = requested.shape[0]
    block = min(environments, max(8, environments // 32))

    def draw_block(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        states, pending, attempts = carry
        rows = jnp.nonzero(pending, size=block, fill_value=environments)[0]
        attempt_keys = jax.vmap(jax.random.fold_in)(key_of(rows), attempts.at[rows].get(mode="clip"))
        candidates, accepted = jax.vmap(game.draw)(attempt_keys)
        accepted_at = jnp.where(accepted, rows, environments)
        states = jax.tree.map(lambda old, new: old.at[accepted_at].set(new, mode="drop"), states, candidates)
        return states, pending.at[accepted_at].set(False, mode="drop"), attempts.at[rows].add(1, mode="drop")

    carry = (states, requested, jnp.zeros(environments, jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[1].any(), draw_block, carry)[0]

"""Play turn by turn, for a seat whose actions come from outside: what a rollout plays, one step at a time.

Every player has programs of its own, instead of the table having one for all: whoever sits down together, nothing is
compiled that has been compiled before. Keys are those of a rollout with one environment, so that the same decisions
played by `play_episodes` come to the same episode.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Game, Observation, Outcome, init_batch
from hopplus.keys import Key, environment_keys
from hopplus.play.episode import Episode
from hopplus.play.rollout import FIRST_MEMORY, FIRST_STATE, FIRST_STEP, executed, step_purpose
from hopplus.players.player import Info, Memory, Params, Player


@dataclass(frozen=True, eq=False)
class Company:
    """Who sits at a table, by seat, one of them a person."""

    game: Game[Any]
    players: tuple[Player, ...]
    params: tuple[Params, ...]
    """The person's are not used."""
    person: int
    """The person's seat."""

    @property
    def seats(self) -> range:
        return range(len(self.players))


@dataclass(frozen=True, eq=False)
class Moment:
    """A table before a step."""

    key: Key
    """Of the episode."""
    clock: int
    """Steps played in this episode."""
    state: Any
    observation: Observation
    """What all seats see."""
    memories: tuple[Memory, ...]
    """By seat."""
    left: Bool[np.ndarray, " n"]
    """Who has left."""
    over: bool = False
    """Whether the episode has ended: the memories are then those of its end."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A step that was taken: what was before it, and what it brought."""

    before: Moment
    actions: Int[np.ndarray, " n"]
    """What was executed."""
    alive: Bool[np.ndarray, " n"]
    """Who was still there when the step began."""
    outcome: Outcome
    thoughts: tuple[Info, ...]
    """What each player said about its choice, by seat."""


def first_moment(company: Company, key: Key) -> Moment:
    """The first episode of players who have met nobody yet."""
    own = _episode_key(key)
    memory_key = _purpose_key(own, FIRST_MEMORY)
    memories = tuple(
        _meet(_plain(player), memory_key, params, seat, len(company.players))
        for seat, (player, params) in enumerate(zip(company.players, _params(company, 0), strict=True))
    )
    return _begin(company, own, memories)


def next_moment(company: Company, key: Key, last: Moment) -> Moment:
    """The next episode of the same players, with another key; they remember what they do."""
    return _begin(company, _episode_key(key), last.memories)


def take_turn(company: Company, moment: Moment, action: int) -> tuple[Turn, Moment]:
    """A step in which the person does an action, everybody else what they decide: what happened, and what follows."""
    key = _purpose_key(moment.key, FIRST_STEP + moment.clock)
    actions, memories, thoughts = [], [], []
    learnt = _params(company, action)
    for seat, player in enumerate(company.players):
        chosen, memory, said = _act(_plain(player), key, learnt[seat], moment.memories[seat], moment.observation, seat)
        actions.append(chosen)
        memories.append(memory)
        thoughts.append(said)
    did, alive, state, outcome, seen = _advance(company.game, key, moment.state, tuple(actions))
    over = bool(outcome.over)
    for seat, player in enumerate(company.players):
        memories[seat] = _watch(_plain(player), learnt[seat], memories[seat], seen, seat, over)
    turn = Turn(moment, np.asarray(did), np.asarray(alive), _on_host(outcome), tuple(map(_on_host, thoughts)))
    return turn, Moment(moment.key, moment.clock + 1, state, seen, tuple(memories), np.asarray(outcome.left), over)


def episode_of(game: Game[Any], turns: Sequence[Turn], last: Moment) -> Episode:
    """The turns of a whole episode as arrays [T, 1, ...], as `play_episodes` gives them, without what players said."""
    steps, idle = game.last_step, np.full(game.num_players, game.idle_action, np.int32)
    nothing = np.zeros(game.num_players, np.int32)
    states = [_on_host(turn.before.state) for turn in turns]
    last_state, missing = _on_host(last.state), steps - len(turns)

    def by_time(values: Sequence[Any], after: Any) -> np.ndarray:
        return np.stack([*map(np.asarray, values), *[np.asarray(after)] * missing])[:, None]

    reward = by_time([turn.outcome.reward for turn in turns], np.zeros(game.num_players, np.float32))
    alive = by_time([turn.alive for turn in turns], nothing.astype(bool))
    fields: dict[str, Any] = {
        "state": jax.tree.map(lambda after, *leaves: by_time(leaves, after), last_state, *states),
        "actions": by_time([turn.actions for turn in turns], idle),
        "alive": alive,
        "reward": reward,
        "left": by_time([turn.outcome.left for turn in turns], turns[-1].outcome.left),
        "over": by_time([turn.outcome.over for turn in turns], True),
        "took": by_time([turn.outcome.took for turn in turns], nothing),
        "cell": by_time([turn.outcome.cell for turn in turns], nothing - 1),
        "total_reward": np.cumsum(reward, 0),
        "total_steps": np.cumsum(alive, 0, dtype=np.int32),
        "info": (),
        "last_state": jax.tree.map(lambda leaf: leaf[None], last_state),
    }
    return Episode(**fields)


def returns_of(turns: Sequence[Turn]) -> Float[np.ndarray, " n"]:
    """What each player has got in these turns."""
    return np.sum([turn.outcome.reward for turn in turns], 0)


# ----------------------------------------------------------------------------------------------------- programs


def _params(company: Company, action: int) -> tuple[Params, ...]:
    """Everybody's params, the person's being an action for every step."""
    decided = np.full(company.game.last_step, action, np.int32)
    return tuple(decided if seat == company.person else company.params[seat] for seat in company.seats)


def _plain(player: Player) -> Player:
    """The player without what it is called and where its params come from: these change nothing of its programs."""
    named = {field.name for field in fields(player)} if is_dataclass(player) else set()
    return replace(player, **{name: "" for name in ("name", "source") if name in named})  # type: ignore[type-var]


def _on_host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _begin(company: Company, key: Key, memories: tuple[Memory, ...]) -> Moment:
    state, seen, left = _fresh(company.game, key)
    begun = (_start(_plain(player), memory) for player, memory in zip(company.players, memories, strict=True))
    return Moment(key, 0, state, seen, tuple(begun), np.asarray(left))


def _own(observation: Observation, seat: Array | int) -> Observation:
    return jax.tree.map(lambda values: values[seat], observation)


def _settled(memory: Memory) -> Memory:
    """The memory with types that stay: a number whose type JAX still takes for open (weak) has another one after a
    step, and everything would be compiled once more for it."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), memory)


@jax.jit
def _episode_key(key: Key) -> Key:
    return environment_keys(key, 1)[0]


@jax.jit
def _purpose_key(key: Key, purpose: Array | int) -> Key:
    return jax.random.fold_in(key, purpose)


@partial(jax.jit, static_argnames=("player", "players"))
def _meet(player: Player, key: Key, params: Params, seat: Array | int, players: int) -> Memory:
    return _settled(player.meet(jax.random.fold_in(key, players), player.init(jax.random.fold_in(key, seat), params)))


@partial(jax.jit, static_argnames="player")
def _start(player: Player, memory: Memory) -> Memory:
    return _settled(player.begin(memory))


@partial(jax.jit, static_argnames="game")
def _fresh(game: Game[Any], key: Key) -> tuple[Any, Observation, Bool[Array, " n"]]:
    drawn = init_batch(game, jax.random.fold_in(key, FIRST_STATE)[None])
    state = jax.tree.map(lambda leaf: leaf[0], drawn)
    return state, game.observe(state), game.left(state)


@partial(jax.jit, static_argnames="player")
def _act(
    player: Player, key: Key, params: Params, memory: Memory, observation: Observation, seat: Array | int
) -> tuple[Int[Array, ""], Memory, Info]:
    return player.act(jax.random.fold_in(key, seat), params, memory, _own(observation, seat))


@partial(jax.jit, static_argnames="game")
def _advance(
    game: Game[Any], key: Key, state: Any, actions: tuple[Int[Array, ""], ...]
) -> tuple[Int[Array, " n"], Bool[Array, " n"], Any, Outcome, Observation]:
    alive = ~game.left(state) & ~game.over(state)
    did = executed(game, game.legal(state), jnp.stack(actions), alive)
    after, outcome = game.step(jax.random.fold_in(key, step_purpose(game)), state, did)
    return did, alive, after, outcome, game.observe(after)


@partial(jax.jit, static_argnames="player")
def _watch(
    player: Player, params: Params, memory: Memory, observation: Observation, seat: Array | int, over: Array | bool
) -> Memory:
    watched = player.watch(params, memory, _own(observation, seat))
    return jax.tree.map(lambda new, kept: jnp.where(over, new, kept), player.end(watched), watched)

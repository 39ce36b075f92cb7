"""Play turn by turn, for one seat whose actions come from outside: a rollout with one environment, step by step.

Programs are compiled per player, not per cast: a new mixture of known players compiles nothing. Keys are those of a
rollout with one environment, so the same decisions played by `play_episodes` give the same trajectory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, environment_keys
from hopplus.games import Game, Observation, Outcome, init_batch
from hopplus.players.player import Info, Memory, Params, Player
from hopplus.rollouts.rollout import FIRST_MEMORY, FIRST_STATE, FIRST_STEP, executed, step_purpose
from hopplus.rollouts.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class SessionPlayers:
    """Players of a session by seat, one of them human."""

    game: Game[Any]
    players: tuple[Player, ...]
    params: tuple[Params, ...]
    """By seat; those of the human seat are not used."""
    human_seat: int

    @property
    def seats(self) -> range:
        """All seats."""
        return range(len(self.players))


@dataclass(frozen=True, eq=False)
class SessionState:
    """State of a session before a step."""

    key: Key
    """Key of the episode."""
    clock: int
    """Steps played in this episode."""
    state: Any
    observation: Observation
    """Observations of all seats."""
    memories: tuple[Memory, ...]
    """By seat."""
    left: Bool[np.ndarray, " n"]
    """Players who have left."""
    over: bool = False
    """The episode has ended; the memories are then those of its end."""


@dataclass(frozen=True, eq=False)
class Turn:
    """One step of a session: the state before it and its outcome."""

    before: SessionState
    actions: Int[np.ndarray, " n"]
    """Executed actions."""
    alive: Bool[np.ndarray, " n"]
    """Players still in the game when the step began."""
    outcome: Outcome
    infos: tuple[Info, ...]
    """Auxiliary outputs of the players' decisions, by seat."""


def begin_session(session: SessionPlayers, key: Key) -> SessionState:
    """Returns the start of the first episode of a trial."""
    episode_key = _episode_key(key)
    memory_key = _purpose_key(episode_key, FIRST_MEMORY)
    memories = tuple(
        _meet(_plain(player), memory_key, params, seat, len(session.players))
        for seat, (player, params) in enumerate(zip(session.players, _params(session, 0), strict=True))
    )
    return _begin(session, episode_key, memories)


def begin_next_episode(session: SessionPlayers, key: Key, last: SessionState) -> SessionState:
    """Returns the start of the next episode of the same trial. The key must be another; memories persist."""
    return _begin(session, _episode_key(key), last.memories)


def take_turn(session: SessionPlayers, state: SessionState, action: int) -> tuple[Turn, SessionState]:
    """Plays one step, with the human's action given; returns the turn and the following state."""
    key = _purpose_key(state.key, FIRST_STEP + state.clock)
    actions, memories, infos = [], [], []
    params = _params(session, action)
    for seat, player in enumerate(session.players):
        chosen, memory, info = _act(_plain(player), key, params[seat], state.memories[seat], state.observation, seat)
        actions.append(chosen)
        memories.append(memory)
        infos.append(info)
    done, alive, after, outcome, observation = _advance(session.game, key, state.state, tuple(actions))
    over = bool(outcome.over)
    for seat, player in enumerate(session.players):
        memories[seat] = _watch(_plain(player), params[seat], memories[seat], observation, seat, over)
    turn = Turn(state, np.asarray(done), np.asarray(alive), _on_host(outcome), tuple(map(_on_host, infos)))
    following = SessionState(
        state.key, state.clock + 1, after, observation, tuple(memories), np.asarray(outcome.left), over
    )
    return turn, following


def to_trajectory(game: Game[Any], turns: Sequence[Turn], last: SessionState) -> Trajectory:
    """Returns the turns of a whole episode as a trajectory [T, 1, ...], as `play_episodes` does, without `info`."""
    steps, idle = game.last_step, np.full(game.num_players, game.idle_action, np.int32)
    nothing = np.zeros(game.num_players, np.int32)
    states = [_on_host(turn.before.state) for turn in turns]
    last_state, missing = _on_host(last.state), steps - len(turns)

    def by_time(values: Sequence[Any], after: Any) -> np.ndarray:
        return np.stack([*map(np.asarray, values), *[np.asarray(after)] * missing])[:, None]

    reward = by_time([turn.outcome.reward for turn in turns], np.zeros(game.num_players, np.float32))
    no_components = np.zeros((game.num_players, len(game.component_names)), np.float32)
    alive = by_time([turn.alive for turn in turns], nothing.astype(bool))
    fields: dict[str, Any] = {
        "state": jax.tree.map(lambda after, *leaves: by_time(leaves, after), last_state, *states),
        "actions": by_time([turn.actions for turn in turns], idle),
        "alive": alive,
        "reward": reward,
        "components": by_time([turn.outcome.components for turn in turns], no_components),
        "left": by_time([turn.outcome.left for turn in turns], turns[-1].outcome.left),
        "over": by_time([turn.outcome.over for turn in turns], True),
        "took": by_time([turn.outcome.took for turn in turns], nothing),
        "cell": by_time([turn.outcome.cell for turn in turns], nothing - 1),
        "total_reward": np.cumsum(reward, 0),
        "total_steps": np.cumsum(alive, 0, dtype=np.int32),
        "info": (),
        "last_state": jax.tree.map(lambda leaf: leaf[None], last_state),
    }
    return Trajectory(**fields)


def returns_of(turns: Sequence[Turn]) -> Float[np.ndarray, " n"]:
    """Returns each player's cumulative reward in these turns."""
    return np.sum([turn.outcome.reward for turn in turns], 0)


# ------------------------------------------------------------------------------------------------- compiled programs


def _params(session: SessionPlayers, action: int) -> tuple[Params, ...]:
    """Parameters by seat; those of the human are an action for every step."""
    human_params = np.full(session.game.last_step, action, np.int32)
    return tuple(human_params if seat == session.human_seat else session.params[seat] for seat in session.seats)


def _plain(player: Player) -> Player:
    """The player without its name and the source of its parameters, which do not affect its programs."""
    names = {field.name for field in fields(player)} if is_dataclass(player) else set()
    return replace(player, **{name: "" for name in ("name", "source") if name in names})  # type: ignore[type-var]


def _on_host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _begin(session: SessionPlayers, key: Key, memories: tuple[Memory, ...]) -> SessionState:
    state, observation, left = _fresh(session.game, key)
    first = (_start(_plain(player), memory) for player, memory in zip(session.players, memories, strict=True))
    return SessionState(key, 0, state, observation, tuple(first), np.asarray(left))


def _of_seat(observation: Observation, seat: Array | int) -> Observation:
    return jax.tree.map(lambda values: values[seat], observation)


def _strongly_typed(memory: Memory) -> Memory:
    """The memory without weak types, which would change after a step and cause recompilation."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), memory)


@jax.jit
def _episode_key(key: Key) -> Key:
    return environment_keys(key, 1)[0]


@jax.jit
def _purpose_key(key: Key, purpose: Array | int) -> Key:
    return jax.random.fold_in(key, purpose)


@partial(jax.jit, static_argnames=("player", "players"))
def _meet(player: Player, key: Key, params: Params, seat: Array | int, players: int) -> Memory:
    return _strongly_typed(
        player.meet(jax.random.fold_in(key, players), player.init(jax.random.fold_in(key, seat), params))
    )


@partial(jax.jit, static_argnames="player")
def _start(player: Player, memory: Memory) -> Memory:
    return _strongly_typed(player.begin(memory))


@partial(jax.jit, static_argnames="game")
def _fresh(game: Game[Any], key: Key) -> tuple[Any, Observation, Bool[Array, " n"]]:
    drawn = init_batch(game, jax.random.fold_in(key, FIRST_STATE)[None])
    state = jax.tree.map(lambda leaf: leaf[0], drawn)
    return state, game.observe(state), game.left(state)


@partial(jax.jit, static_argnames="player")
def _act(
    player: Player, key: Key, params: Params, memory: Memory, observation: Observation, seat: Array | int
) -> tuple[Int[Array, ""], Memory, Info]:
    return player.act(jax.random.fold_in(key, seat), params, memory, _of_seat(observation, seat))


@partial(jax.jit, static_argnames="game")
def _advance(
    game: Game[Any], key: Key, state: Any, actions: tuple[Int[Array, ""], ...]
) -> tuple[Int[Array, " n"], Bool[Array, " n"], Any, Outcome, Observation]:
    alive = ~game.left(state) & ~game.over(state)
    done = executed(game, game.legal(state), jnp.stack(actions), alive)
    after, outcome = game.step(jax.random.fold_in(key, step_purpose(game)), state, done)
    return done, alive, after, outcome, game.observe(after)


@partial(jax.jit, static_argnames="player")
def _watch(
    player: Player, params: Params, memory: Memory, observation: Observation, seat: Array | int, over: Array | bool
) -> Memory:
    watched = player.watch(params, memory, _of_seat(observation, seat))
    return jax.tree.map(lambda new, old: jnp.where(over, new, old), player.end(watched), watched)

"""Compiled rollouts of a cast in many environments: whole episodes, or a number of steps with auto-reset.

Keys: environment e of a rollout has fold_in(key, e) and, at its step t, fold_in of that and t; from there seat i acts
with fold_in i, and the game steps and resets with the numbers after the seats. An environment's play does not depend
on the number of environments beside it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, environment_keys
from hopplus.core.sharding import AXIS, REPLICATED, shard_environments, spec
from hopplus.core.struct import struct, where_first
from hopplus.games import Game, init_batch, reset_finished
from hopplus.players.cast import Cast
from hopplus.players.player import Memory, Params
from hopplus.rollouts.late_starts import LateStarts, begin_late, draw_starts, forget_late
from hopplus.rollouts.trajectory import Trajectory

FIRST_STATE, FIRST_MEMORY, FIRST_STEP = range(3)
"""Purposes of an environment's key; step t has FIRST_STEP + t."""


@struct
class RolloutState:
    """State of E environments between two steps, with the memories of their players."""

    keys: Key
    clock: Int[Array, ""]
    """Steps since the start of the rollout."""
    state: Any
    memories: tuple[Memory, ...]
    """By group of the cast: [E, seats, ...]."""
    total_reward: Float[Array, "E n"]
    total_steps: Int[Array, "E n"]
    late: LateStarts | None = None
    """None without late starts."""


@dataclass(frozen=True)
class Resets:
    """Reset of environments whose episode has ended."""

    auto_reset: bool = True
    """Begin another episode."""
    trial_end_probability: float = 0.0
    """Probability that a trial ends with an episode: its players then start with new memories."""
    late_start_share: float = 0.0
    """Share of the episodes that begin late."""


def step_purpose(game: Game[Any]) -> int:
    """Returns the number that is folded into a step's key for the game's transition; the seats have lower numbers."""
    return game.num_players


def step_keys(game: Game[Any], rollout_state: RolloutState, ahead: Array | int = 0) -> Key:
    """Returns the keys [E] with which the game makes its transition `ahead` steps from now."""
    return _fold(_fold(rollout_state.keys, FIRST_STEP + rollout_state.clock + ahead), step_purpose(game))


def reset_purpose(game: Game[Any]) -> int:
    """Returns the number that is folded into a step's key for the state that follows the end of an episode."""
    return game.num_players + 1


@partial(jax.jit, static_argnames=("game", "cast", "environments", "late_starts"))
def init_rollout(
    key: Key,
    game: Game[Any],
    cast: Cast,
    environments: int,
    params: tuple[Params, ...] | None = None,
    late_starts: bool = False,
) -> RolloutState:
    """Returns fresh environments, with players at the beginning of the first episode of a trial.

    Args:
        params: Parameters by seat, here and below; None if no player has any.
        late_starts: Episodes may begin late in the rollout; the first ones do not.
    """
    keys = environment_keys(key, environments)
    initial = first_memories(keys, game, cast, params)
    memories = _each(cast.begin, environments)(initial)
    n = game.num_players
    return RolloutState(
        keys=keys,
        clock=jnp.int32(0),
        state=init_batch(game, _fold(keys, FIRST_STATE)),
        memories=memories,
        total_reward=jnp.zeros((environments, n), jnp.float32),
        total_steps=jnp.zeros((environments, n), jnp.int32),
        late=LateStarts(jnp.zeros(environments, bool), initial) if late_starts else None,
    )


@partial(jax.jit, static_argnames=("game", "cast"))
def first_memories(keys: Key, game: Game[Any], cast: Cast, params: tuple[Params, ...] | None) -> tuple[Memory, ...]:
    """Returns memories [E, ...] of players at the start of a trial, for environments' keys [E]."""
    return _new_trials(_fold(keys, FIRST_MEMORY), game, cast, cast.stack(params))


def _new_trials(keys: Key, game: Game[Any], cast: Cast, params: tuple[Params, ...]) -> tuple[Memory, ...]:
    """`first_memories` for keys [E] that nothing else may use.

    The purpose after those of the seats makes the key that all players of an environment have in common.
    """

    def init(key: Key) -> tuple[Memory, ...]:
        return cast.init(_seat_keys(game, key), jax.random.fold_in(key, game.num_players), params)

    return jax.vmap(init)(keys)


@partial(jax.jit, static_argnames=("game", "cast", "steps", "trial_end_probability", "late_start_share"))
def rollout(
    rollout_state: RolloutState,
    game: Game[Any],
    cast: Cast,
    steps: int,
    params: tuple[Params, ...] | None = None,
    trial_end_probability: float = 0.0,
    late_start_share: float = 0.0,
) -> tuple[RolloutState, Trajectory]:
    """Continues a rollout for a number of steps. Environments that end are reset to fresh, independent states.

    Args:
        trial_end_probability: Probability that a trial ends with an episode: its players then start with new memories.
        late_start_share: Share of the episodes that begin late; it needs `init_rollout` with `late_starts`.
    """
    resets = Resets(True, trial_end_probability, late_start_share)
    return _play_sharded(rollout_state, game, cast, steps, params, resets)


@partial(jax.jit, static_argnames=("game", "cast", "environments"))
def play_episodes(
    key: Key,
    game: Game[Any],
    cast: Cast,
    environments: int,
    params: tuple[Params, ...] | None = None,
    memories: tuple[Memory, ...] | None = None,
) -> tuple[tuple[Memory, ...], Trajectory]:
    """Plays one whole episode in each environment.

    Args:
        memories: Memories from a previous call, to play the next episode of the same trials; the key must be another.

    Returns:
        The players' memories after the episode, and the trajectory.
    """
    rollout_state = init_rollout(key, game, cast, environments, params)
    if memories is not None:
        rollout_state = _replace(rollout_state, memories=_each(cast.begin, environments)(memories))
    resets = Resets(auto_reset=False)
    rollout_state, trajectory = _play_sharded(rollout_state, game, cast, game.last_step, params, resets)
    return rollout_state.memories, trajectory


def _each(function: Callable[..., Any], environments: int) -> Callable[..., Any]:
    """The function over environments, also if its arguments hold no arrays."""
    return jax.vmap(function, axis_size=environments)


def _fold(keys: Key, purpose: int | Array) -> Key:
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)


def _seat_keys(game: Game[Any], key: Key) -> Key:
    return jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(game.num_players))


def _replace(rollout_state: RolloutState, **changes: Any) -> RolloutState:
    return RolloutState(**{**vars(rollout_state), **changes})


def _play_sharded(
    rollout_state: RolloutState,
    game: Game[Any],
    cast: Cast,
    steps: int,
    params: tuple[Params, ...] | None,
    resets: Resets,
) -> tuple[RolloutState, Trajectory]:
    """`_play` with the environments divided among the devices."""

    def play(rollout_state: RolloutState, params: tuple[Params, ...] | None) -> tuple[RolloutState, Trajectory]:
        return _play(rollout_state, game, cast, steps, params, resets)

    state_specs = jax.tree.map(lambda leaf: spec(leaf, 0), rollout_state)
    fields: dict[str, Any] = {field.name: PartitionSpec(None, AXIS) for field in dataclasses.fields(Trajectory)}
    trajectory_specs = Trajectory(**{**fields, "last_state": PartitionSpec(AXIS)})
    sharded = shard_environments(
        play, rollout_state.keys.shape[0], (state_specs, REPLICATED), (state_specs, trajectory_specs)
    )
    return sharded(rollout_state, params)


def _play(
    rollout_state: RolloutState,
    game: Game[Any],
    cast: Cast,
    steps: int,
    params: tuple[Params, ...] | None,
    resets: Resets,
) -> tuple[RolloutState, Trajectory]:
    stacked = cast.stack(params)

    def step(carry: tuple[RolloutState, Any], _: None) -> tuple[tuple[RolloutState, Any], dict[str, Any]]:
        rollout_state, after, rows = _step(carry[0], game, cast, stacked, resets)
        return (rollout_state, after), rows

    carry = (rollout_state, rollout_state.state)
    (rollout_state, last_state), rows = jax.lax.scan(step, carry, None, length=steps)
    return rollout_state, Trajectory(**rows, last_state=last_state)


def _step(
    rollout_state: RolloutState,
    game: Game[Any],
    cast: Cast,
    params: tuple[Params, ...],
    resets: Resets,
) -> tuple[RolloutState, Any, dict[str, Any]]:
    """One step of all environments: act, step, watch; if the game is over, end and begin again.

    Returns:
        The next rollout state, the states after the step before any reset, and the step's fields of a `Trajectory`.
    """
    environments = rollout_state.keys.shape[0]
    keys = _fold(rollout_state.keys, FIRST_STEP + rollout_state.clock)
    was_over = jax.vmap(game.over)(rollout_state.state)
    alive = ~jax.vmap(game.left)(rollout_state.state) & ~was_over[:, None]
    observation = jax.vmap(game.observe)(rollout_state.state)
    act = jax.vmap(lambda key, memories, seen: cast.act(_seat_keys(game, key), params, memories, seen))
    actions, acted, info = act(keys, rollout_state.memories, observation)
    memories = where_first(~was_over, acted, rollout_state.memories)
    actions = executed(game, observation.legal[:, :, 0], actions, alive)
    after, outcome = jax.vmap(game.step)(_fold(keys, step_purpose(game)), rollout_state.state, actions)
    watched = jax.vmap(cast.watch, in_axes=(None, 0, 0))(params, memories, jax.vmap(game.observe)(after))
    memories = where_first(~was_over, watched, memories)

    total_reward = rollout_state.total_reward + outcome.reward
    total_steps = rollout_state.total_steps + alive
    rows = {
        "state": rollout_state.state,
        "actions": actions,
        "alive": alive,
        "reward": outcome.reward,
        "components": outcome.components,
        "left": outcome.left,
        "over": outcome.over,
        "took": outcome.took,
        "cell": outcome.cell,
        "total_reward": total_reward,
        "total_steps": total_steps,
        "info": info,
        "is_late": None if rollout_state.late is None else rollout_state.late.is_late,
    }
    ended = outcome.over & ~was_over
    memories = where_first(ended, _each(cast.end, environments)(memories), memories)
    following = RolloutState(
        rollout_state.keys, rollout_state.clock + 1, after, memories, total_reward, total_steps, rollout_state.late
    )
    if resets.auto_reset:
        following = _reset(following, keys, game, cast, params, ended, resets)
    return following, after, rows


def _reset(
    rollout_state: RolloutState,
    keys: Key,
    game: Game[Any],
    cast: Cast,
    params: tuple[Params, ...],
    ended: Bool[Array, " E"],
    resets: Resets,
) -> RolloutState:
    """Begins another episode in the environments whose episode has ended, of the same trial or of another."""
    environments, memories, late = ended.shape[0], rollout_state.memories, rollout_state.late
    state = reset_finished(game, keys, reset_purpose(game), rollout_state.state, ended)
    trial_episode_ended = ended
    if late is not None:
        trial_episode_ended, memories = forget_late(late, ended, memories)
    if probability := resets.trial_end_probability:
        memories = _end_trials(keys, game, cast, params, memories, trial_episode_ended, probability)
    if late is not None:
        begins_late, times = draw_starts(_fold(keys, reset_purpose(game) + 3), game, resets.late_start_share)
        state = begin_late(state, ended & begins_late, times)
        is_late = jnp.where(ended, begins_late, late.is_late)
        late = LateStarts(is_late, where_first(ended, memories, late.memories))
    return _replace(
        rollout_state,
        state=state,
        memories=where_first(ended, _each(cast.begin, environments)(memories), memories),
        total_reward=jnp.where(ended[:, None], 0.0, rollout_state.total_reward),
        total_steps=jnp.where(ended[:, None], 0, rollout_state.total_steps),
        late=late,
    )


def _end_trials(
    keys: Key,
    game: Game[Any],
    cast: Cast,
    params: tuple[Params, ...],
    memories: tuple[Memory, ...],
    ended: Bool[Array, " E"],
    probability: float,
) -> tuple[Memory, ...]:
    """Replaces the memories in a random share of the environments whose episode has ended."""
    draw_keys = _fold(keys, reset_purpose(game) + 1)
    trial_over = ended & jax.vmap(lambda key: jax.random.bernoulli(key, probability))(draw_keys)
    return where_first(trial_over, _new_trials(_fold(keys, reset_purpose(game) + 2), game, cast, params), memories)


def executed(
    game: Game[Any], legal: Bool[Array, "... n A"], actions: Int[Array, "... n"], alive: Bool[Array, "... n"]
) -> Int[Array, "... n"]:
    """Returns the executed actions: idle for illegal actions and for players who are not alive."""
    chosen = (legal & (actions[..., None] == np.arange(game.num_actions))).any(-1)
    return jnp.where(chosen & alive, actions, game.idle_action)

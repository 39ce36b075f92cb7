"""A cast plays: many environments at once, compiled, for whole episodes or for a number of steps with auto-reset.

Keys: environment e of a rollout has fold_in(key, e) and, at its step t, fold_in of that and t; from there seat i acts
with fold_in i, and the game steps and resets with the numbers after the seats. Nothing depends on how many
environments play beside it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from hopplus.devices import AXIS, EVERYWHERE, each_share, spec
from hopplus.games import Game, init_batch, reset_finished
from hopplus.keys import Key, environment_keys
from hopplus.play.episode import Episode
from hopplus.players.cast import Cast
from hopplus.players.player import Memory, Params
from hopplus.struct import struct, where_first

FIRST_STATE, FIRST_MEMORY, FIRST_STEP = range(3)
"""Purposes of an environment's key; step t has FIRST_STEP + t."""


@struct
class Table:
    """Environments [E] in the middle of play, with the memories of those who sit at them."""

    keys: Key
    clock: Int[Array, ""]
    """Steps played since the start."""
    state: Any
    memories: tuple[Memory, ...]
    """By group of the cast: [E, seats, ...]."""
    total_reward: Float[Array, "E n"]
    total_steps: Int[Array, "E n"]


def step_purpose(game: Game[Any]) -> int:
    """The purpose, beside those of the seats, for which a game's step uses its key."""
    return game.num_players


def step_keys(game: Game[Any], table: Table, ahead: Array | int = 0) -> Key:
    """The keys [E] with which the game itself will step the table's environments, so many steps ahead."""
    return _fold(_fold(table.keys, FIRST_STEP + table.clock + ahead), step_purpose(game))


def reset_purpose(game: Game[Any]) -> int:
    """The purpose for which a fresh state uses the key of the step that ended the one before."""
    return game.num_players + 1


@partial(jax.jit, static_argnames=("game", "cast", "environments"))
def start(key: Key, game: Game[Any], cast: Cast, environments: int, params: tuple[Params, ...] | None = None) -> Table:
    """Fresh environments, and players who have met nobody yet at the beginning of their first episode.

    Params, here and below, are by seat; None where nobody has learnt anything.
    """
    keys = environment_keys(key, environments)
    memories = _each(cast.begin, environments)(first_memories(keys, game, cast, params))
    n = game.num_players
    return Table(
        keys=keys,
        clock=jnp.int32(0),
        state=init_batch(game, _fold(keys, FIRST_STATE)),
        memories=memories,
        total_reward=jnp.zeros((environments, n), jnp.float32),
        total_steps=jnp.zeros((environments, n), jnp.int32),
    )


@partial(jax.jit, static_argnames=("game", "cast"))
def first_memories(keys: Key, game: Game[Any], cast: Cast, params: tuple[Params, ...] | None) -> tuple[Memory, ...]:
    """Memories [E, ...] of players who have met nobody yet, for environments' keys [E]."""
    learnt = cast.stack(params)
    return _strangers(_fold(keys, FIRST_MEMORY), game, cast, learnt)


def _strangers(keys: Key, game: Game[Any], cast: Cast, learnt: tuple[Params, ...]) -> tuple[Memory, ...]:
    """The same, for one key [E] a table, which nothing else may use: the purpose after those of the seats is what all
    at the table have in common."""

    def one(key: Key) -> tuple[Memory, ...]:
        return cast.init(_seat_keys(game, key), jax.random.fold_in(key, game.num_players), learnt)

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnames=("game", "cast", "steps", "parting"))
def rollout(
    table: Table,
    game: Game[Any],
    cast: Cast,
    steps: int,
    params: tuple[Params, ...] | None = None,
    parting: float = 0.0,
) -> tuple[Table, Episode]:
    """Play on for a number of steps; environments that end are reset to fresh, independent states. After an episode
    there is a chance of `parting`: whoever sits at the table next has met nobody yet."""
    return _play_divided(table, game, cast, steps, params, auto_reset=True, parting=parting)


@partial(jax.jit, static_argnames=("game", "cast", "environments"))
def play_episodes(
    key: Key,
    game: Game[Any],
    cast: Cast,
    environments: int,
    params: tuple[Params, ...] | None = None,
    memories: tuple[Memory, ...] | None = None,
) -> tuple[tuple[Memory, ...], Episode]:
    """One whole episode in each environment, and the players' memories after it.

    Give these memories to the next call, with another key, and the same players meet again.
    """
    table = start(key, game, cast, environments, params)
    if memories is not None:
        table = _with(table, memories=_each(cast.begin, environments)(memories))
    table, episode = _play_divided(table, game, cast, game.last_step, params, auto_reset=False)
    return table.memories, episode


def _each(function: Callable[..., Any], environments: int) -> Callable[..., Any]:
    """The function over environments, also where its arguments hold no arrays."""
    return jax.vmap(function, axis_size=environments)


def _fold(keys: Key, purpose: int | Array) -> Key:
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)


def _seat_keys(game: Game[Any], key: Key) -> Key:
    return jax.vmap(lambda seat: jax.random.fold_in(key, seat))(jnp.arange(game.num_players))


def _with(table: Table, **changes: Any) -> Table:
    return Table(**{**vars(table), **changes})


def _play_divided(
    table: Table, game: Game[Any], cast: Cast, steps: int, params: tuple[Params, ...] | None, **how: Any
) -> tuple[Table, Episode]:
    """`_play`, every device playing its own share of the environments where there are several."""

    def play(table: Table, params: tuple[Params, ...] | None) -> tuple[Table, Episode]:
        return _play(table, game, cast, steps, params, **how)

    tables = jax.tree.map(lambda leaf: spec(leaf, 0), table)
    rows: dict[str, Any] = {field.name: PartitionSpec(None, AXIS) for field in dataclasses.fields(Episode)}
    episode = Episode(**{**rows, "last_state": PartitionSpec(AXIS)})
    return each_share(play, table.keys.shape[0], (tables, EVERYWHERE), (tables, episode))(table, params)


def _play(
    table: Table,
    game: Game[Any],
    cast: Cast,
    steps: int,
    params: tuple[Params, ...] | None,
    auto_reset: bool,
    parting: float = 0.0,
) -> tuple[Table, Episode]:
    learnt = cast.stack(params)

    def step(carry: tuple[Table, Any], _: None) -> tuple[tuple[Table, Any], dict[str, Any]]:
        table, after, rows = _step(carry[0], game, cast, learnt, auto_reset, parting)
        return (table, after), rows

    (table, last_state), rows = jax.lax.scan(step, (table, table.state), None, length=steps)
    return table, Episode(**rows, last_state=last_state)


def _step(
    table: Table, game: Game[Any], cast: Cast, params: tuple[Params, ...], auto_reset: bool, parting: float
) -> tuple[Table, Any, dict[str, Any]]:
    """One step of all environments: act, step, watch, and, where the game ended, end and begin again.

    Returns the table, the states that the step led to before any reset, and the step's rows of an `Episode`.
    """
    environments = table.keys.shape[0]
    keys = _fold(table.keys, FIRST_STEP + table.clock)
    was_over = jax.vmap(game.over)(table.state)
    alive = ~jax.vmap(game.left)(table.state) & ~was_over[:, None]
    observation = jax.vmap(game.observe)(table.state)
    act = jax.vmap(lambda key, memories, seen: cast.act(_seat_keys(game, key), params, memories, seen))
    actions, acted, info = act(keys, table.memories, observation)
    memories = where_first(~was_over, acted, table.memories)
    actions = executed(game, observation.legal[:, :, 0], actions, alive)
    after, outcome = jax.vmap(game.step)(_fold(keys, step_purpose(game)), table.state, actions)
    watched = jax.vmap(cast.watch, in_axes=(None, 0, 0))(params, memories, jax.vmap(game.observe)(after))
    memories = where_first(~was_over, watched, memories)

    total_reward = table.total_reward + outcome.reward
    total_steps = table.total_steps + alive
    rows = {
        "state": table.state,
        "actions": actions,
        "alive": alive,
        "reward": outcome.reward,
        "left": outcome.left,
        "over": outcome.over,
        "took": outcome.took,
        "cell": outcome.cell,
        "total_reward": total_reward,
        "total_steps": total_steps,
        "info": info,
    }
    ended = outcome.over & ~was_over
    memories = where_first(ended, _each(cast.end, environments)(memories), memories)
    state = after
    if auto_reset:
        state = reset_finished(game, keys, reset_purpose(game), after, ended)
        if parting:
            part = _fold(keys, reset_purpose(game) + 1)
            parted = ended & jax.vmap(lambda key: jax.random.bernoulli(key, parting))(part)
            strangers = _strangers(_fold(keys, reset_purpose(game) + 2), game, cast, params)
            memories = where_first(parted, strangers, memories)
        memories = where_first(ended, _each(cast.begin, environments)(memories), memories)
        total_reward = jnp.where(ended[:, None], 0.0, total_reward)
        total_steps = jnp.where(ended[:, None], 0, total_steps)
    table = Table(table.keys, table.clock + 1, state, memories, total_reward, total_steps)
    return table, after, rows


def executed(
    game: Game[Any], legal: Bool[Array, "... n A"], actions: Int[Array, "... n"], alive: Bool[Array, "... n"]
) -> Int[Array, "... n"]:
    """The actions as the game will take them: the idle one for illegal ones and for those who are not there."""
    chosen = (legal & (actions[..., None] == np.arange(game.num_actions))).any(-1)
    return jnp.where(chosen & alive, actions, game.idle_action)

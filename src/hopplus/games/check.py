"""`check_game`: tests of the properties that the rest of the library expects of a game."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from hopplus.core.keys import Key, choose, environment_keys
from hopplus.core.struct import struct
from hopplus.games.game import (
    Game,
    GridObservation,
    Observation,
    Outcome,
    ego_first,
    init_batch,
    observation_shapes,
    one_seat,
)

ENVIRONMENTS = 32


@struct
class _Steps:
    """Steps [N] of random play with legal and illegal actions, also after the end of the game."""

    key: Key
    state: Any
    actions: Array
    after: Any
    outcome: Outcome


def check_game(game: Game[Any], seed: int = 0) -> None:
    """Plays random episodes and raises AssertionError for the first property that the game violates.

    Checked properties:

    - names, shapes, version and hash are consistent;
    - the idle action is always legal, and the only legal action of a player who has left;
    - illegal actions are replaced by the idle action, and steps after the end change nothing;
    - a player who has left has rewards of 0;
    - rewards are the sums of their components, and preferences have a weight for each of them, the neutral one first;
    - returns stay below the ceilings, and episodes end by the last step;
    - observations are ego-first, and restore to their state;
    - seats are symmetric: permuted players with permuted actions have exactly the permuted results (for a game without
      a board, whose order of features is not known, rotated players).
    """
    _check_description(game)
    steps = jax.jit(lambda key: _play(game, key))(jax.random.key(seed))
    _check_returns(game, steps)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps)
    laws = jax.jit(jax.vmap(lambda step: _step_laws(game, step)))(flat)
    _assert_all(game, laws)
    generator = np.random.default_rng(seed)
    n = game.num_players
    symmetry_laws = jax.jit(jax.vmap(_symmetry_laws, in_axes=(None, None, 0, None)), static_argnums=(0, 1))
    orders = [np.roll(np.arange(n), -1), np.arange(n)[::-1], generator.permutation(n)]
    has_board = isinstance(observation_shapes(game), GridObservation)
    for order in orders if has_board else [np.roll(np.arange(n), -shift) for shift in range(1, n)]:
        _assert_all(game, symmetry_laws(game, game.reseat(order.tolist()), flat, order))


def _assert_all(game: Game[Any], laws: Mapping[str, Bool[Array, " N"]]) -> None:
    for law, holds in laws.items():
        broken = int((~np.asarray(holds)).sum())
        if broken:
            raise AssertionError(f"{game.name}: {law}; violated in {broken} of {holds.size} steps of random play")


def _check_description(game: Game[Any]) -> None:
    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise AssertionError(f"{game.name}: {sentence}")

    require(isinstance(game.version, str) and game.version != "", "a game has a version")
    require(hash(game) == hash(game) and game == game, "a game can be hashed and compared")
    require(game.num_players >= 2, "a game has at least two players")
    require(0 <= game.idle_action < game.num_actions, "the idle action is one of the actions")
    require({"mean", "player"} <= set(game.ceilings), "ceilings have the keys 'mean' and 'player'")
    require(game.taken_names[:1] == ("nothing",), "taken_names begins with 'nothing'")
    first = game.preferences[0]
    require(set(first.reward_weights) == {1.0} and not first.step_cost, "the first preference is neutral")
    number = len(game.component_names)
    fits = all(len(preference.reward_weights) == number for preference in game.preferences)
    require(fits, "a preference has one weight per component of the reward")
    n, actions = game.num_players, game.num_actions
    state = jax.eval_shape(game.init, jax.random.key(0))
    seen = observation_shapes(game)
    view = jax.eval_shape(lambda seen: seen.view, seen)
    require(view.ndim == 2 and view.shape[0] == n, "the observation's view has the shape [n, F]")
    require(jnp.issubdtype(view.dtype, jnp.integer), "the observation's view is made of integers")
    if isinstance(seen, GridObservation):
        require(seen.grid.ndim == 4, "the observed grid has the shape [n, H, W, C]")
        names = getattr(game, "channel_names", ())
        require(seen.grid.shape[-1] == len(names), "channel_names names every channel of the grid")
    expected = {"time": (n,), "deadline": (n,), "legal": (n, n, actions), "last_actions": (n, n)}
    for field, shape in expected.items():
        require(getattr(seen, field).shape == shape, f"the observed {field} has the shape {list(shape)}")
    components = jax.eval_shape(game.transition, jax.random.key(0), state, jnp.zeros(n, jnp.int32))[1]
    require(components.shape == (n, number), f"rewards by component have the shape [{n}, {number}]")
    require(jax.eval_shape(game.legal, state).shape == (n, actions), f"legal has the shape [{n}, {actions}]")


def _play(game: Game[Any], key: Key) -> _Steps:
    """Plays T + 2 steps [T + 2, E] without resets, so that some steps follow the end."""
    keys = environment_keys(key, ENVIRONMENTS)
    states = init_batch(game, jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))

    def step_one(state: Any, key: Key, time: Array) -> tuple[Any, _Steps]:
        key = jax.random.fold_in(key, 1 + time)
        words = jax.random.bits(jax.random.fold_in(key, 0), (game.num_players,))
        arbitrary = jax.random.randint(jax.random.fold_in(key, 1), words.shape, -1, game.num_actions + 1)
        use_arbitrary = jax.random.bernoulli(jax.random.fold_in(key, 2), 0.3, words.shape)
        actions = jnp.where(use_arbitrary, arbitrary, choose(words, game.legal(state)))
        step_key = jax.random.fold_in(key, 3)
        after, outcome = game.step(step_key, state, actions)
        return after, _Steps(step_key, state, actions, after, outcome)

    def step(states: Any, time: Array) -> tuple[Any, _Steps]:
        return jax.vmap(step_one, in_axes=(0, 0, None))(states, keys, time)

    return jax.lax.scan(step, states, jnp.arange(game.last_step + 2))[1]


def _check_returns(game: Game[Any], steps: _Steps) -> None:
    returns = np.asarray(steps.outcome.reward, np.float64).sum(0)
    tolerance = 1e-4
    if not (returns.mean(-1) <= game.ceilings["mean"] + tolerance).all():
        raise AssertionError(f"{game.name}: no mean return exceeds the ceiling 'mean'")
    if not (returns <= game.ceilings["player"] + tolerance).all():
        raise AssertionError(f"{game.name}: no player's return exceeds the ceiling 'player'")
    if not np.asarray(steps.outcome.over)[game.last_step - 1].all():
        raise AssertionError(f"{game.name}: every episode is over by the last step, {game.last_step}")


def _equal(first: Any, second: Any) -> Bool[Array, ""]:
    same = jax.tree.map(lambda a, b: jnp.array_equal(a, b), first, second)
    return jnp.array(jax.tree.leaves(same)).all()


def _step_laws(game: Game[Any], step: _Steps) -> dict[str, Bool[Array, ""]]:
    legal, left, was_over = game.legal(step.state), game.left(step.state), game.over(step.state)
    idle = jnp.arange(game.num_actions) == game.idle_action
    allowed = (legal & (step.actions[:, None] == jnp.arange(game.num_actions))).any(-1)
    corrected = game.step(step.key, step.state, jnp.where(allowed, step.actions, game.idle_action))
    seen = game.observe(step.state)
    restored = jnp.array([_restores(game, seen, seat) for seat in range(game.num_players)])
    return {
        "the idle action is always legal": legal[:, game.idle_action].all(),
        "a player who has left may only idle": jnp.where(left[:, None], legal == idle, True).all(),
        "a player who has left has rewards of 0": jnp.where(left[:, None], step.outcome.components == 0, True).all(),
        "rewards are the sums of their components": jnp.allclose(
            step.outcome.components.sum(-1), step.outcome.reward, atol=1e-5
        ),
        "a player who has left does not return": jnp.where(left, step.outcome.left, True).all(),
        "an illegal action has the effect of the idle action": _equal(corrected, (step.after, step.outcome)),
        "a step after the end changes nothing": jnp.where(was_over, _equal(step.state, step.after), True),
        "a step after the end has rewards of 0": jnp.where(was_over, (step.outcome.reward == 0).all(), True),
        "a game that is over stays over": jnp.where(was_over, step.outcome.over, True),
        "observed action masks equal the legal actions, ego-first": _equal(seen.legal, ego_first(legal)),
        "an observation restores to a state with the same observation": restored.all(),
    }


def _restores(game: Game[Any], seen: Observation, seat: int) -> Bool[Array, ""]:
    """True if restoring one seat's observation, in the game rotated to that seat, reproduces the observation."""
    rotated = game.reseat(np.roll(np.arange(game.num_players), -seat).tolist())
    expected = one_seat(seen, seat)
    return _equal(one_seat(rotated.observe(rotated.restore(expected)), 0), expected)


def _symmetry_laws(
    game: Game[Any], reseated: Game[Any], step: _Steps, order: Int[Array, " n"]
) -> dict[str, Bool[Array, ""]]:
    """Properties under a permutation of the seats; `reseated` is the permuted game.

    A step whose result depends on its key is compared only in masks and observations.
    """
    permuted = game.permute(step.state, order)
    after, outcome = reseated.step(step.key, permuted, step.actions[order])
    random_step = ~_equal(
        game.step(jax.random.fold_in(step.key, 0), step.state, step.actions), (step.after, step.outcome)
    )
    expected = Outcome(
        reward=step.outcome.reward[order],
        components=step.outcome.components[order],
        left=step.outcome.left[order],
        over=step.outcome.over,
        truncated=step.outcome.truncated,
        took=step.outcome.took[order],
        cell=step.outcome.cell[order],
    )
    return {
        "permuted players have permuted action masks": _equal(reseated.legal(permuted), game.legal(step.state)[order]),
        "permuted players have permuted observations": _equal(
            reseated.observe(permuted), permuted_observation(game.observe(step.state), order)
        ),
        "permuted players and actions lead to the permuted state": random_step
        | _equal(after, game.permute(step.after, order)),
        "permuted players and actions have the permuted outcome": random_step | _equal(outcome, expected),
    }


def permuted_observation(observation: Observation, order: Int[Array, " n"]) -> Observation:
    """Observations once player order[i] sits in seat i: the observers and their player axes are permuted.

    Without a board the order must be a rotation, which leaves every ego-first view unchanged.
    """
    if not isinstance(observation, GridObservation):
        return jax.tree.map(lambda leaf: leaf[order], observation)
    n, channels = order.shape[0], observation.grid.shape[-1]
    # Seat i now holds player order[i]. The k-th player in its view is order[(i + k) % n], which was at position
    # (order[(i + k) % n] - order[i]) % n of that observer's view.
    view = (ego_first(order) - order[:, None]) % n
    rest = jnp.broadcast_to(jnp.arange(n, channels), (n, channels - n))
    return GridObservation(
        grid=jnp.take_along_axis(
            observation.grid[order], jnp.concatenate([view, rest], axis=1)[:, None, None, :], axis=-1
        ),
        time=observation.time[order],
        deadline=observation.deadline[order],
        legal=observation.legal[order[:, None], view],
        last_actions=observation.last_actions[order[:, None], view],
    )

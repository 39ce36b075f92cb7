"""Dynamic programming for the best response in the snowdrift game: see `exact_best_response`.

Outcomes X of a co-player's step: the cells, and the removal of each drift. Its places P are the cells.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.evaluation.backward_induction import (
    CO_PLAYER,
    TRIED,
    action_probabilities,
    best_nearby,
    cells_after_moves,
    is_left,
    mean_over_outcomes,
    state_at,
)
from hopplus.games import Snowdrift
from hopplus.games.grid import GridState
from hopplus.players import Player


def positions(game: Snowdrift) -> int:
    """Returns the number of positions of one layout of drifts."""
    return 2**game.drifts * game.num_cells**game.players


def check_rules(game: Snowdrift) -> None:
    """Raises InputError for settings that dynamic programming does not cover."""
    if game.blocks:
        raise InputError("exact best responses are for games without blocks")


def solve(layout: Int[Array, " drifts"], game: Snowdrift, co_players: tuple[Player, ...]) -> Float[Array, "E *P"]:
    """Returns the first values by the ego's cell and the co-players' cells.

    Co-players that never remove a drift do not matter to the ego: they are left out of the computation.
    """
    removes = [bool(_removes(layout, game, player)) for player in co_players]
    removers = tuple(player for player, matters in zip(co_players, removes, strict=True) if matters)
    values = _solve(layout, game, removers)
    unused = [axis for axis, matters in enumerate(removes, start=1) if not matters]
    return jnp.broadcast_to(jnp.expand_dims(values, unused), [game.num_cells] * game.players)


@partial(jax.jit, static_argnames=("game", "player"))
def _removes(layout: Int[Array, " drifts"], game: Snowdrift, player: Player) -> Bool[Array, ""]:
    return (_outcome_probabilities(layout, game, player)[..., game.num_cells :] > 0).any()


@partial(jax.jit, static_argnames=("game", "co_players"))
def _solve(layout: Int[Array, " drifts"], game: Snowdrift, co_players: tuple[Player, ...]) -> Float[Array, "E *P"]:
    """Backward induction; co-players may be fewer than the game's."""
    by_player = {player: _outcome_probabilities(layout, game, player) for player in dict.fromkeys(co_players)}
    probabilities = [by_player[player] for player in co_players]
    joint_places = game.num_cells ** len(co_players)
    places, removed, removers = _joint_outcomes(layout, game, len(co_players))
    gains = game.benefit * jax.lax.population_count(removed)[..., None]
    own_gains = _own_gains(removed, removers, game)
    left = jnp.arange(2**game.drifts).reshape(-1, *[1] * places.ndim) & ~removed
    following = left * joint_places + places
    own_following = (left[..., None] & ~(1 << jnp.arange(game.drifts))) * joint_places + places[..., None]

    def step(later: Float[Array, "S *P E"], _: None) -> tuple[Float[Array, "S *P E"], None]:
        by_ego = later.reshape(-1, game.num_cells)
        walking = mean_over_outcomes(by_ego[following] + gains, probabilities)
        removing = mean_over_outcomes(by_ego[own_following, layout] + own_gains, probabilities)
        return _best(layout, game, walking, removing), None

    last = jnp.zeros((2**game.drifts, *[game.num_cells] * (1 + len(co_players))))
    first, _ = jax.lax.scan(step, last, length=game.last_step)
    return jnp.moveaxis(first[-1], -1, 0)


def _outcome_probabilities(layout: Int[Array, " drifts"], game: Snowdrift, player: Player) -> Float[Array, "S P X"]:
    """Returns the probabilities of outcomes by subset of drifts left and the player's cell."""

    def at_cell(subset: Array, cell: Array) -> Array:
        return _outcomes_at(layout, game, player, state_at(layout, game, subset, jnp.full(game.players, cell)), subset)

    by_cell = jax.vmap(at_cell, (None, 0))
    return jax.vmap(by_cell, (0, None))(jnp.arange(2**game.drifts), jnp.arange(game.num_cells))


def _outcomes_at(layout: Array, game: Snowdrift, player: Player, state: GridState, subset: Array) -> Float[Array, " X"]:
    """Returns the probabilities of a co-player's outcomes in a state."""
    cell = state.cells[CO_PLAYER]
    here = (layout == cell) & is_left(subset, game.drifts)
    removal = jnp.where(here.any(), game.num_cells + jnp.argmax(here), cell)
    outcomes = jnp.concatenate([cells_after_moves(game, cell), removal[None]])
    chances = jnp.zeros(game.num_cells + game.drifts)
    return chances.at[outcomes].add(action_probabilities(game, player, state))


def _joint_outcomes(
    layout: Int[Array, " drifts"], game: Snowdrift, co_players: int
) -> tuple[Int[Array, "*X"], Int[Array, "*X"], Int[Array, "*X drifts"]]:
    """Returns, by the outcomes of all co-players, the number of their places, the removed drifts, and the removers."""
    drifts, outcomes = jnp.arange(game.drifts), game.num_cells + game.drifts
    outcome = jnp.indices([outcomes] * co_players)
    places = jnp.zeros([outcomes] * co_players, jnp.int32)
    for cells in jnp.concatenate([jnp.arange(game.num_cells), layout])[outcome]:
        places = places * game.num_cells + cells
    removers = (outcome[..., None] == game.num_cells + drifts).sum(0)
    return places, ((removers > 0) << drifts).sum(-1), removers


def _own_gains(
    removed: Int[Array, "*X"], removers: Int[Array, "*X drifts"], game: Snowdrift
) -> Float[Array, "*X drifts"]:
    """Returns the ego's reward for the removal of each drift, by the co-players' outcomes."""
    together = removed[..., None] | (1 << jnp.arange(game.drifts))
    return game.benefit * jax.lax.population_count(together) - game.cost / (1 + removers)


def _best(
    layout: Int[Array, " drifts"],
    game: Snowdrift,
    walking: Float[Array, "S *P E"],
    removing: Float[Array, "S *P drifts"],
) -> Float[Array, "S *P E"]:
    """Returns the value of the ego's best action: a move, staying, or the removal of the drift on its cell."""
    left = is_left(jnp.arange(len(walking)), game.drifts).reshape(-1, *[1] * (walking.ndim - 2), game.drifts)
    return best_nearby(walking, game).at[..., layout].max(jnp.where(left, removing, -jnp.inf))


@partial(jax.jit, static_argnames=("game", "player"))
def largest_error(layout: Int[Array, " drifts"], key: Array, game: Snowdrift, player: Player) -> Float[Array, ""]:
    """Returns the largest error of the assumed outcome probabilities in random positions."""
    assumed = _outcome_probabilities(layout, game, player)

    def error(key: Array) -> Array:
        keys = jax.random.split(key, 3)
        subset = jax.random.randint(keys[0], (), 0, 2**game.drifts)
        places = jax.random.randint(keys[1], (game.players,), 0, game.num_cells)
        time = jax.random.randint(keys[2], (), 0, game.last_step)
        state = GridState(**{**vars(state_at(layout, game, subset, places)), "time": time})
        outcomes = _outcomes_at(layout, game, player, state, subset)
        return jnp.abs(outcomes - assumed[subset, places[CO_PLAYER]]).max()

    return jax.vmap(error)(jax.random.split(key, TRIED)).max()

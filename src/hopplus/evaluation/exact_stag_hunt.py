"""Dynamic programming for the best response in the stag hunt: see `exact_best_response`.

Outcomes of a co-player's step: the cells, having left, and a hunt of each prey. Its places: the cells, having left, and
each stag in company. Value arrays cover the first two, C in number; action probabilities cover all P.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
from hopplus.games import StagHunt
from hopplus.games.grid import GridState
from hopplus.players import Player


def positions(game: StagHunt) -> int:
    """Returns the number of positions of one layout of prey."""
    return 2 ** sum(game.item_counts) * game.num_cells * (game.num_cells + 1) ** (game.players - 1)


def check_rules(game: StagHunt) -> None:
    """Raises InputError for settings that dynamic programming does not cover."""
    if game.blocks or game.dynamic_end or game.prosocial or game.strengths:
        raise InputError("exact best responses are for games without blocks, dynamic_end, prosocial and strengths")
    if game.stags > 1:
        raise InputError("exact best responses are for games with one stag at most")


@partial(jax.jit, static_argnames=("game", "co_players"))
def solve(layout: Int[Array, " items"], game: StagHunt, co_players: tuple[Player, ...]) -> Float[Array, "E *cells"]:
    """Returns first values; the value array is [subsets of prey, co-players' cells ..., ego's cell]."""
    by_player = {player: _outcome_probabilities(layout, game, player) for player in dict.fromkeys(co_players)}
    probabilities = [by_player[player] for player in co_players]
    following, catches = _after_hunts(layout, game)
    hares_now = _by_cell(layout, game, mean_over_outcomes(_hare_shares(catches, game), probabilities))
    before = jnp.zeros((2 ** len(layout), *[game.num_cells + 1] * len(co_players), game.num_cells))

    def step(later: Array, _: None) -> tuple[Array, None]:
        resolved = later.reshape(-1, game.num_cells)[following]
        walking = mean_over_outcomes(resolved, probabilities)
        stags_now = mean_over_outcomes(_stag_shares(catches, resolved[..., layout[: game.stags]], game), probabilities)
        return _best(layout, game, walking, hares_now, stags_now), None

    first, _ = jax.lax.scan(step, before, length=game.last_step)
    return jnp.moveaxis(first[-1], -1, 0)[(slice(None), *[slice(game.num_cells)] * len(co_players))]


def _outcomes(game: StagHunt) -> int:
    """Returns the number of outcomes of a co-player's step: cells, having left, and hunts of each prey."""
    return game.num_cells + 1 + sum(game.item_counts)


def _outcome_probabilities(layout: Int[Array, " items"], game: StagHunt, player: Player) -> Float[Array, "S P X"]:
    """Returns the probabilities of outcomes by subset of prey left and the player's place."""
    cells = jnp.concatenate([jnp.arange(game.num_cells), jnp.array([-1]), layout[: game.stags]])
    in_company = jnp.arange(len(cells)) > game.num_cells

    def at_place(subset: Array, cell: Array, company: Array) -> Array:
        places = jnp.where(jnp.arange(game.players) == CO_PLAYER, cell, jnp.where(company, cell, -1))
        actions = action_probabilities(game, player, state_at(layout, game, subset, places))
        outcomes = jnp.zeros(_outcomes(game)).at[_targets(layout, game, subset, cell)].add(actions)
        return jnp.where(cell < 0, jnp.arange(_outcomes(game)) == game.num_cells, outcomes)

    by_place = jax.vmap(at_place, (None, 0, 0))
    return jax.vmap(by_place, (0, None, None))(jnp.arange(2 ** len(layout)), cells, in_company)


def _targets(layout: Array, game: StagHunt, subset: Array, cell: Array) -> Int[Array, " A"]:
    """Returns the outcome of each action of a player on a cell; a hunt of absent prey leaves it there."""
    here = (layout == cell) & is_left(subset, len(layout))
    is_here = jnp.array([here[: game.stags].any(), here[game.stags :].any()])
    hunts = jnp.where(is_here, game.num_cells + 1 + jnp.argmax(here), cell)
    return jnp.concatenate([cells_after_moves(game, cell), hunts])


def _after_hunts(layout: Array, game: StagHunt) -> tuple[Int[Array, "S *X"], Int[Array, "items *X"]]:
    """Returns the index into the value array after the co-players' outcomes, and the number of hunters of each prey.

    Hunted prey and its hunters are gone; a stag takes two hunters. The ego is not included.
    """
    items, cells, axes = len(layout), game.num_cells, game.players - 1
    outcome = jnp.stack(jnp.meshgrid(*[jnp.arange(_outcomes(game))] * axes, indexing="ij"))
    catches = (outcome[None] == cells + 1 + jnp.arange(items).reshape(-1, *[1] * (axes + 1))).sum(1)
    is_stag = (jnp.arange(items) < game.stags).reshape(-1, *[1] * axes)
    caught = catches >= jnp.where(is_stag, 2, 1)
    prey = jnp.maximum(outcome - cells - 1, 0)
    hunted = jnp.take_along_axis(caught, prey, 0)
    places = jnp.where(outcome > cells, jnp.where(hunted, cells, layout[prey]), outcome)
    bits = (caught * (1 << jnp.arange(items)).reshape(-1, *[1] * axes)).sum(0)
    left_over = jnp.arange(2**items).reshape(-1, *[1] * axes) & ~bits
    index = left_over
    for number in range(axes):
        index = index * (cells + 1) + places[number]
    return index, catches


def _hare_shares(catches: Int[Array, "items *X"], game: StagHunt) -> Float[Array, "*X hares"]:
    """Returns the ego's share of each hare that it hunts, by the co-players' outcomes."""
    return jnp.moveaxis(game.hare_reward / (1 + catches[game.stags :]), 0, -1)[None]


def _stag_shares(catches: Array, staying: Float[Array, "S *X stags"], game: StagHunt) -> Float[Array, "S *X stags"]:
    """Returns the value of hunting each stag: the ego's share in company; alone, the value of staying there."""
    company = jnp.moveaxis(catches[: game.stags], 0, -1)
    return jnp.where(company >= 1, game.stag_reward / (1 + company), staying)


def _best(
    layout: Array,
    game: StagHunt,
    walking: Float[Array, "S *P E"],
    hares_now: Float[Array, "S *C hares"],
    stags_now: Float[Array, "S *P stags"],
) -> Float[Array, "S *C E"]:
    """Returns the value of the ego's best action: a move, staying, or a hunt on its cell."""
    nearby = best_nearby(walking, game)
    best, hunts = _by_cell(layout, game, nearby), hares_now
    if game.stags:
        stag = layout[0]
        best = best.at[..., stag].set(_by_cell(layout, game, nearby[..., stag], ego_at_stag=True))
        alone = -jnp.inf if game.stag_needs_company else None
        hunts = jnp.concatenate([_by_cell(layout, game, stags_now, ego_at_stag=True, alone=alone), hunts], -1)
    alive = is_left(jnp.arange(len(walking)), len(layout))
    alive = alive.reshape(len(walking), *[1] * (game.players - 1), len(layout))
    return best.at[..., layout].max(jnp.where(alive, hunts, -jnp.inf))


def _by_cell(
    layout: Array,
    game: StagHunt,
    values: Float[Array, "S *P"],
    ego_at_stag: bool = False,
    alone: float | None = None,
) -> Float[Array, "S *C"]:
    """Returns values by places as values by cells.

    Two or more co-players at the stag are in company, and so is one if the ego is there too. `alone` replaces the
    values of all positions without company.
    """
    axes, cells = game.players - 1, game.num_cells + 1
    by_cell = values[(slice(None), *[slice(cells)] * axes)]
    by_cell = by_cell if alone is None else jnp.full_like(by_cell, alone)
    if not game.stags:
        return by_cell
    for size in range(1 if ego_at_stag else 2, axes + 1):  # larger parties last: they overwrite their subsets
        for party in itertools.combinations(range(axes), size):
            there = [layout[0] if axis in party else slice(cells) for axis in range(axes)]
            in_company = [cells if axis in party else slice(cells) for axis in range(axes)]
            by_cell = by_cell.at[(slice(None), *there)].set(values[(slice(None), *in_company)])
    return by_cell


# ---------------------------------------------------------------------------------------------------------------- check


@partial(jax.jit, static_argnames=("game", "player"))
def largest_error(layout: Array, key: Array, game: StagHunt, player: Player) -> Float[Array, ""]:
    """Returns the largest error of the assumed outcome probabilities in random positions."""
    assumed = _outcome_probabilities(layout, game, player)

    def error(key: Array) -> Array:
        subset = jax.random.randint(jax.random.fold_in(key, 0), (), 0, 2 ** len(layout))
        places = jax.random.randint(jax.random.fold_in(key, 1), (game.players,), -1, game.num_cells)
        places = places.at[CO_PLAYER].max(0)
        together = jax.random.bernoulli(jax.random.fold_in(key, 2))  # often on one cell, and that a stag's
        places = jnp.where(together & (game.stags > 0), layout[0], places)
        time = jax.random.randint(jax.random.fold_in(key, 3), (), 0, game.last_step)
        state = state_at(layout, game, subset, places)
        actions = action_probabilities(game, player, GridState(**{**vars(state), "time": time}))
        outcomes = jnp.zeros(_outcomes(game)).at[_targets(layout, game, subset, places[CO_PLAYER])].add(actions)
        at_stag = layout[: game.stags] == places[CO_PLAYER]
        company = at_stag.any() & ((places == places[CO_PLAYER]).sum() >= 2)
        cell = places[CO_PLAYER]
        place = jnp.where(company, game.num_cells + 1 + jnp.argmax(at_stag), cell) if game.stags else cell
        return jnp.abs(outcomes - assumed[subset, place]).max()

    return jax.vmap(error)(jax.random.split(key, TRIED)).max()

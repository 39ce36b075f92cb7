"""Initial states have exactly the distribution of the specification.

An initial state is the first accepted attempt of its key, alone and in a batch (last section). So most tests use
accepted single attempts, which are faster to compile and to sample.

Every statistical comparison raises a false alarm with a probability of about `FALSE_ALARM` for a new seed. The seeds
are fixed, so that a test that passes once keeps passing until the sampling changes.
"""

import functools
import math
import random
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import reference
from common import QUICK_TO_RUN
from hopplus import games

FALSE_ALARM = 1e-4
DRAWS = 40_000
BATCH = 5_000
REFERENCE_DRAWS = 20_000

PLAIN = ("msh-6x6-4h1s", "msh-8x8-4h1s")
SMALL: dict[str, Any] = {"height": 4, "width": 5, "players": 2, "stags": 1, "hares": 2, "blocks": 2}
TINY: dict[str, Any] = {"height": 3, "width": 4, "players": 2, "stags": 1, "hares": 2, "blocks": 1}
CROWDED: dict[str, Any] = {"height": 5, "width": 9, "players": 8, "stags": 3, "hares": 6, "blocks": 6}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in games.names()),
    ("msh-8x8-4h1s", SMALL),
    ("msh-8x8-4h1s", TINY),
    ("msh-8x8-4h2s", CROWDED),
    ("msg-6x6", {"blocks": 4, "height": 7}),
    ("msg-4x4", {"height": 3, "width": 5, "blocks": 1, "drifts": 12}),
]

Map = frozenset[reference.Cell]


# ---------------------------------------------------------------------------------------- sampling and enumerating


def grids_of_first_seat(game: Any, states: Any) -> jax.Array:
    return jax.vmap(lambda state: game.observe(state).grid[0] > 0)(states)


@functools.partial(jax.jit, static_argnames="game", compiler_options=QUICK_TO_RUN)
def attempts_of(game: Any, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Boards of one attempt per key, as observed by seat 0, and whether they are accepted."""
    states, accepted = jax.vmap(game.draw)(keys)
    return grids_of_first_seat(game, states), accepted


@functools.partial(jax.jit, static_argnames="game", compiler_options=QUICK_TO_RUN)
def first_states(game: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
    """Initial states of a batch of environments, and the grids observed by seat 0."""
    states = games.init_batch(game, keys)
    return states, grids_of_first_seat(game, states)


@functools.cache
def attempts(name: str, options: tuple[tuple[str, Any], ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Boards of DRAWS attempts of the fast game, and whether they are accepted."""
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    boards, accepted = attempts_of(games.make(name, **dict(options)), keys)
    return np.asarray(boards), np.asarray(accepted)


@functools.cache
def accepted_boards(name: str, options: tuple[tuple[str, Any], ...], number: int) -> np.ndarray:
    drawn: list[np.ndarray] = []
    while sum(map(len, drawn)) < number:
        candidates, accepted = attempts(name, options, seed=len(drawn))
        drawn.append(candidates[accepted])
    return np.concatenate(drawn)[:number]


def boards(name: str, options: dict[str, Any], number: int = DRAWS) -> np.ndarray:
    """Accepted boards of the fast game as bool[number, H, W, C], channels as observed by seat 0."""
    return accepted_boards(name, tuple(options.items()), number)


def block_boards(name: str, options: dict[str, Any]) -> np.ndarray:
    """Blocks of the accepted boards, bool[draws, H, W]."""
    players = reference.make(name, **options).players
    return boards(name, options)[..., players]


def reference_blocks(slow: reference.Reference, draws: int, seed: int) -> np.ndarray:
    """Block maps sampled by the reference, bool[draws, H, W]."""
    generator = random.Random(seed)
    drawn = np.zeros((draws, slow.height, slow.width), bool)
    for board in drawn:
        for cell in slow.draw_blocks(generator):
            board[cell] = True
    return drawn


@functools.cache
def exact_maps(slow: reference.Reference) -> dict[Map, float]:
    """Probability of every block map, by enumeration of all placements of the pieces."""
    maps: dict[Map, float] = {frozenset(): 1.0}
    for _ in range(slow.blocks):
        maps = with_one_more_piece(maps, slow.height, slow.width)
    accepted = {blocks: chance for blocks, chance in maps.items() if slow.acceptable(slow.all_cells() - blocks)}
    total = math.fsum(accepted.values())
    return {blocks: chance / total for blocks, chance in accepted.items()}


def with_one_more_piece(maps: dict[Map, float], height: int, width: int) -> dict[Map, float]:
    result: dict[Map, float] = {}
    kinds = reference.piece_placements(height, width)
    for blocks, chance in maps.items():
        for variants in kinds:
            for positions in variants:
                for piece in positions or [frozenset()]:
                    after = blocks if piece & blocks else blocks | piece
                    share = chance / len(kinds) / len(variants) / max(1, len(positions))
                    result[after] = result.get(after, 0.0) + share
    return result


def as_map(board: np.ndarray) -> Map:
    return frozenset((row, column) for row, column in np.argwhere(board).tolist())


def map_counts(blocks: np.ndarray) -> dict[Map, int]:
    distinct, counts = np.unique(blocks, axis=0, return_counts=True)
    return {as_map(board): int(count) for board, count in zip(distinct, counts, strict=True)}


# --------------------------------------------------------------------------------------------------------- testing


def assert_frequencies(observed: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square test of counts; outcomes with an expected count below five are merged."""
    assert math.isclose(probabilities.sum(), 1.0, rel_tol=1e-9)
    assert observed[probabilities == 0].sum() == 0
    expected = probabilities * observed.sum()
    rare = expected < 5
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    possible = expected > 0
    assert possible.sum() >= 2, "a test needs at least two outcomes"
    assert stats.chisquare(observed[possible], expected[possible]).pvalue > FALSE_ALARM


def assert_homogeneous(table: np.ndarray) -> None:
    """Chi-square test that the rows of counts [samples, outcomes] come from one distribution."""
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    assert stats.chi2.sf(((table - expected) ** 2 / expected).sum(), freedom) > FALSE_ALARM


def assert_uniform(outcomes: np.ndarray, number: int) -> None:
    """Tests that outcomes in [0, number) are equally frequent."""
    assert_frequencies(np.bincount(outcomes, minlength=number), np.full(number, 1 / number))


def assert_cell_frequencies(blocks: np.ndarray, expected: np.ndarray, variance: np.ndarray) -> None:
    """Tests that cells are blocked as often as expected [H, W]; the false-alarm rate is for all cells together."""
    deviation = np.abs(blocks.mean(0) - expected)
    impossible = variance == 0
    assert (deviation[impossible] == 0).all()
    score = deviation[~impossible] / np.sqrt(variance[~impossible])
    assert 2 * stats.norm.sf(score.max()) * score.size > FALSE_ALARM


def four_connected(free: np.ndarray) -> np.ndarray:
    """True for boards [N, H, W] whose true cells are one region, by flood fill from the first true cell."""
    flat = free.reshape(len(free), -1)
    reached = np.zeros_like(flat)
    reached[np.arange(len(flat)), flat.argmax(-1)] = True
    reached = reached.reshape(free.shape) & free
    while True:
        padded = np.pad(reached, ((0, 0), (1, 1), (1, 1)))
        around = padded[:, :-2, 1:-1] | padded[:, 2:, 1:-1] | padded[:, 1:-1, :-2] | padded[:, 1:-1, 2:]
        grown = reached | (around & free)
        if (grown == reached).all():
            return (reached == free).all((1, 2))
        reached = grown


def ranks_among_free(board: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Number of free cells before the only true cell of each board [N, H, W]."""
    cell = board.reshape(len(board), -1).argmax(-1)
    before = np.cumsum(free.reshape(len(free), -1), axis=-1) - 1
    return before[np.arange(len(cell)), cell]


# ------------------------------------------------------------------------------------------------------ block maps


@pytest.mark.parametrize(("height", "width"), [(4, 5), (6, 6), (5, 3), (8, 8)])
def test_the_number_of_placements_of_the_reference_equals_the_count_by_hand(height: int, width: int) -> None:
    def straight(length: int) -> list[int]:
        return [(height - 2) * max(0, width - length + 1), max(0, height - length + 1) * (width - 2)]

    corner = [(height - 1) * (width - 1)] * 4
    lying, standing = [(height - 1) * (width - 2)] * 4, [(height - 2) * (width - 1)] * 4
    kinds = reference.piece_placements(height, width)
    assert [[len(set(positions)) for positions in variants] for variants in kinds] == [
        straight(3),
        corner,
        straight(4),
        lying + standing,
    ]
    sizes = [{len(piece) for positions in variants for piece in positions} for variants in kinds]
    assert [size or {4} for size in sizes] == [{3}, {3}, {4}, {4}]
    assert all(reference.connected(set(piece)) for kind in kinds for variant in kind for piece in variant)


@pytest.mark.parametrize(
    ("height", "width", "blocks"), [(4, 5, 1), (6, 6, 1), (3, 4, 1), (3, 3, 1), (2, 6, 1), (4, 5, 2), (5, 3, 3)]
)
def test_maps_have_exactly_the_enumerated_distribution(height: int, width: int, blocks: int) -> None:
    options = {**SMALL, "height": height, "width": width, "blocks": blocks}
    assert_enumerated(block_boards("msh-8x8-4h1s", options), reference.make("msh-8x8-4h1s", **options))


def test_maps_of_whole_batches_have_exactly_the_enumerated_distribution() -> None:
    game = games.make("msh-8x8-4h1s", **SMALL)
    drawn = [first_states(game, jax.random.split(jax.random.key(seed), BATCH))[1] for seed in range(DRAWS // BATCH)]
    assert_enumerated(np.concatenate(drawn)[..., SMALL["players"]], reference.make("msh-8x8-4h1s", **SMALL))


def assert_enumerated(drawn: np.ndarray, slow: reference.Reference) -> None:
    """Tests that block maps [draws, H, W], their cells and their sizes have the enumerated frequencies."""
    exact = exact_maps(slow)
    counts = map_counts(drawn)
    assert set(counts) <= set(exact), "an impossible map was sampled"
    chances = np.array(list(exact.values()))
    assert_frequencies(np.array([counts.get(blocks, 0) for blocks in exact]), chances)

    cells = np.zeros((slow.height, slow.width))
    sizes = np.zeros(slow.height * slow.width + 1)
    for cells_blocked, chance in exact.items():
        sizes[len(cells_blocked)] += chance
        for cell in cells_blocked:
            cells[cell] += chance
    never = np.isclose(cells, 0)
    assert_cell_frequencies(drawn, cells, np.where(never, 0, cells * (1 - cells) / len(drawn)))
    if (sizes > 0).sum() > 1:
        assert_frequencies(np.bincount(drawn.sum((1, 2)), minlength=sizes.size), sizes / sizes.sum())


def test_the_reference_has_exactly_the_enumerated_distribution() -> None:
    slow = reference.make("msh-8x8-4h1s", **SMALL)
    exact = exact_maps(slow)
    generator = random.Random(1)
    layouts = [slow.draw_layout(generator) for _ in range(REFERENCE_DRAWS)]
    counts = Counter(layout.blocks for layout in layouts)
    assert set(counts) <= set(exact)
    for layout in layouts:
        contents = [layout.blocks, *layout.items]
        assert len(frozenset().union(*contents)) == sum(map(len, contents)), "blocks and items do not overlap"
        assert tuple(map(len, layout.items)) == slow.item_counts
        assert not layout.blocks.intersection(layout.players)
    assert_frequencies(np.array([counts.get(blocks, 0) for blocks in exact]), np.array(list(exact.values())))


@pytest.mark.parametrize("name", PLAIN)
def test_maps_have_the_distribution_of_the_reference(name: str) -> None:
    fast = block_boards(name, {})
    slow = reference_blocks(reference.make(name), REFERENCE_DRAWS, seed=2)
    pooled = (fast.sum(0) + slow.sum(0)) / (len(fast) + len(slow))
    variance = pooled * (1 - pooled) * (1 / len(fast) + 1 / len(slow))
    assert_cell_frequencies(fast, slow.mean(0), variance)

    numbers = [np.bincount(blocks.sum((1, 2)), minlength=fast[0].size) for blocks in (fast, slow)]
    table = np.array(numbers)
    common = table.sum(0) >= 30
    table = np.column_stack([table[:, common], table[:, ~common].sum(1)])
    table = table[:, table.sum(0) > 0]
    assert table.shape[1] >= 4
    assert_homogeneous(table)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in PLAIN), ("msh-8x8-4h1s", SMALL), ("msh-8x8-4h2s", CROWDED), ("msg-6x6", {"blocks": 12})],
)
def test_a_map_is_accepted_exactly_if_it_is_connected_and_holds_all_prey(name: str, options: dict[str, Any]) -> None:
    slow = reference.make(name, **options)
    candidates, accepted = attempts(name, tuple(options.items()), seed=0)
    free = ~candidates[..., slow.players]
    expected = four_connected(free) & (free.sum((1, 2)) >= max(1, sum(slow.item_counts)))
    assert 0.01 < expected.mean() < 0.99
    np.testing.assert_array_equal(accepted, expected)


# ------------------------------------------------------------------------------------------------ players and prey


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_every_sampled_state_is_valid(name: str, options: dict[str, Any]) -> None:
    slow = reference.make(name, **options)
    drawn = boards(name, options)
    n = slow.players
    standing, blocks, items = drawn[..., :n], drawn[..., n], drawn[..., n + 1 :]
    assert four_connected(~blocks).all()
    assert (standing.sum((1, 2)) == 1).all(), "every player stands in one cell"
    assert (items.sum((1, 2)) == slow.item_counts).all(), "all items are on the board"
    assert (items.sum(-1) <= 1).all(), "no two items share a cell"
    assert not (standing | items.any(-1, keepdims=True))[blocks].any(), "nothing is on a block"
    assert ((~blocks).sum((1, 2)) >= max(1, sum(slow.item_counts))).all()
    if n + 1 < slow.height * slow.width:
        assert (standing.sum(-1) > 1).any(), "players may share a cell"
        assert (standing.any(-1) & items.any(-1)).any(), "players may share a cell with items"


def tiny_boards_by_free_cells() -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Boards with one block piece, grouped by the number of free cells: that number, the boards, and their free cells.

    Boards without blocks come from an upright straight piece of four, which fits nowhere.
    """
    drawn = boards("msh-8x8-4h1s", TINY, 3 * DRAWS)
    free = ~drawn[..., TINY["players"]]
    rooms = free.sum((1, 2))
    assert set(rooms.tolist()) == {8, 9, 12}
    return [(room, drawn[rooms == room], free[rooms == room]) for room in (8, 9, 12)]


def test_players_are_uniform_and_independent() -> None:
    for room, drawn, free in tiny_boards_by_free_cells():
        first, second = (ranks_among_free(drawn[..., seat], free) for seat in range(2))
        stag = ranks_among_free(drawn[..., 3], free)
        assert_uniform(first, room)
        assert_uniform(second, room)
        assert_uniform(first * room + second, room**2)
        assert_uniform((first * room + second) * room + stag, room**3)


def test_prey_are_uniform_over_all_their_placements() -> None:
    for room, drawn, free in tiny_boards_by_free_cells():
        stag, hares = ranks_among_free(drawn[..., 3], free), drawn[..., 4]
        first_hare = ranks_among_free(hares, free)
        second_hare = ranks_among_free(hares[:, ::-1, ::-1], free[:, ::-1, ::-1])
        second_hare = room - 1 - second_hare
        assert (first_hare < second_hare).all()
        assert_uniform(stag, room)
        placements = Counter(zip(stag.tolist(), first_hare.tolist(), second_hare.tolist(), strict=True))
        possible = room * math.comb(room - 1, 2)
        assert len(placements) == possible
        assert_frequencies(np.array(list(placements.values())), np.full(possible, 1 / possible))


def test_stags_and_players_are_uniform_on_every_map() -> None:
    options = {**SMALL, "blocks": 1}
    exact = exact_maps(reference.make("msh-8x8-4h1s", **options))
    drawn = boards("msh-8x8-4h1s", options, 3 * DRAWS)
    maps = list(exact)
    number_of = {blocks: number for number, blocks in enumerate(maps)}
    distinct, which = np.unique(drawn[..., 2], axis=0, return_inverse=True)
    number = np.array([number_of[as_map(board)] for board in distinct])[which.reshape(-1)]
    cells = SMALL["height"] * SMALL["width"]
    chances = np.zeros((len(maps), cells))
    for row, (blocks, chance) in enumerate(exact.items()):
        free = [cell not in blocks for cell in np.ndindex(SMALL["height"], SMALL["width"])]
        chances[row] = np.array(free) * chance / sum(free)
    for channel in (0, 1, 3):
        cell = drawn[..., channel].reshape(len(drawn), -1).argmax(-1)
        counts = np.bincount(number * cells + cell, minlength=chances.size)
        assert_frequencies(counts, chances.reshape(-1))


@pytest.mark.parametrize("name", [*PLAIN, "msh-4x4-4h1s"])
def test_stags_are_uniform_over_free_cells(name: str) -> None:
    slow = reference.make(name)
    drawn = boards(name, {})
    free = ~drawn[..., slow.players]
    rooms = free.sum((1, 2))
    stag = ranks_among_free(drawn[..., slow.players + 1], free)
    for room in np.unique(rooms):
        if (rooms == room).sum() >= 10 * room:
            assert_uniform(stag[rooms == room], int(room))


# ----------------------------------------------------------------------------------------------------------- keys


@functools.partial(jax.jit, static_argnames="game", compiler_options=QUICK_TO_RUN)
def attempt(game: Any, keys: jax.Array, number: int) -> tuple[Any, jax.Array]:
    return jax.vmap(lambda key: game.draw(jax.random.fold_in(key, number)))(keys)


def first_accepted(game: Any, keys: jax.Array) -> Any:
    """States of each key's first accepted attempt."""
    states, done = jax.tree.map(np.array, attempt(game, keys, 0))
    number = 0
    while not done.all():
        number += 1
        retried, accepted = jax.tree.map(np.asarray, attempt(game, keys, number))
        new = accepted & ~done
        for leaf, retried_leaf in zip(jax.tree.leaves(states), jax.tree.leaves(retried), strict=True):
            leaf[new] = retried_leaf[new]
        done |= accepted
    return states


def assert_first_rows(states: Any, many: Any) -> None:
    """Tests that states [k, ...] are the first k of many."""
    for leaf, expected in zip(jax.tree.leaves(states), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(leaf, expected[: len(leaf)])


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("msh-8x8-4h1s", SMALL, (1, 7, BATCH)),
        ("msh-8x8-4h1s", {}, (BATCH,)),
        ("msh-8x8-4h2s", CROWDED, (1000,)),
        ("msg-6x6", {}, (1000,)),
    ],
)
def test_a_batch_holds_the_first_accepted_state_of_every_key(
    name: str, options: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    game = games.make(name, **options)
    keys = jax.random.split(jax.random.key(3), max(sizes))
    expected = first_accepted(game, keys)
    for size in sizes:
        assert_first_rows(first_states(game, keys[:size])[0], expected)


@pytest.mark.parametrize(("name", "options"), [("msh-8x8-4h1s", SMALL), ("msg-6x6", {})])
def test_a_single_state_equals_that_of_a_batch(name: str, options: dict[str, Any]) -> None:
    game = games.make(name, **options)
    keys = jax.random.split(jax.random.key(3), BATCH if options else 1000)
    expected = first_accepted(game, keys)
    init = jax.jit(game.init)
    alone = [jax.tree.map(np.asarray, init(keys[row])) for row in range(50)]
    assert_first_rows(jax.tree.map(lambda *rows: np.stack(rows), *alone), expected)


def test_no_two_states_of_a_batch_are_the_same() -> None:
    """Every map has more than 10^14 equally likely placements: two of 5,000 samples are equal with a probability below
    10^-6, and always if two environments share a key."""
    drawn = np.asarray(first_states(games.make("msh-8x8-4h1s"), jax.random.split(jax.random.key(0), BATCH))[1])
    assert len(np.unique(np.packbits(drawn.reshape(BATCH, -1), axis=-1), axis=0)) == BATCH


def test_equal_keys_have_equal_states_and_other_keys_have_other_states() -> None:
    game, half = games.make("msh-8x8-4h1s"), BATCH // 2
    keys = jax.random.split(jax.random.key(5), half)
    order = np.concatenate([np.arange(half), np.arange(half)[::-1]])
    cells = np.asarray(first_states(game, keys[order])[1]).reshape(BATCH, -1)
    np.testing.assert_array_equal(cells[:half], cells[half:][::-1])
    assert len(np.unique(np.packbits(cells, axis=-1), axis=0)) == half

"""World models: losses and metrics by hand, limits of the structured model, and a small game learnt exactly."""

import csv
import functools
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import played_states
from hopplus.cli.diagnose_world_model import diagnose_world_model
from hopplus.core.errors import InputError
from hopplus.fitting.loop import FitSetup, describe, fit, split
from hopplus.games import Game, Observation, make
from hopplus.games.game import one_seat
from hopplus.games.grid import GridGame
from hopplus.models import WorldModel
from hopplus.models.world import metrics
from hopplus.models.world.loss import Network, dense_loss, mean_loss, structured_loss
from hopplus.models.world.rows import ObservedStep, Windows, observed_from, windows
from hopplus.networks.world_model import Dense, Kind, Outputs, Predicted, Structured, executed, make_network
from hopplus.planning.simulator import predict
from hopplus.players import make as make_player
from hopplus.rollouts.cast_distribution import parse_casts
from hopplus.rollouts.dataset import Dataset, collect
from hopplus.rollouts.population import Population
from hopplus.training.fitted import Fitted, open_fit
from hopplus.training.run import new_run

TINY = "msh-4x4-2h1s:height=2:width=2:hares=1:T=8:dynamic_end=True"
"""Small enough to enumerate; players often meet and hunt, and the deadline moves."""

SEEDS = (0, 1)
MOST_STATES = 512
"""Upper bound on the number of states at any time of play."""


def grid_game(name: str) -> GridGame:
    game = make(name)
    assert isinstance(game, GridGame)
    return game


@functools.partial(jax.jit, static_argnums=0)
def step_of(game: GridGame, state: Any, actions: Any) -> ObservedStep:
    """One step by the rules, as observed from seat 0."""
    actions = jnp.asarray(actions)
    after, outcome = game.step(jax.random.key(0), state, actions)
    both = jax.tree.map(lambda first, second: jnp.stack([jnp.asarray(first), jnp.asarray(second)]), state, after)
    window = Windows(
        state=both,
        actions=actions[None],
        alive=~game.left(state)[None],
        reward=outcome.reward[None],
        left=outcome.left[None],
        over=outcome.over[None],
        played=jnp.ones(1, bool),
    )
    return jax.tree.map(lambda leaf: leaf[0], observed_from(game, window, jnp.int32(0)))


STRUCTURED_LOSS, DENSE_LOSS = (jax.jit(loss, static_argnums=0) for loss in (structured_loss, dense_loss))
MEAN_LOSS = jax.jit(mean_loss, static_argnums=0)
IMPOSSIBLE = jax.jit(metrics.impossible)
TALLY_STEP = jax.jit(metrics.tally_step)
PREDICT = jax.jit(predict, static_argnums=0)


def step_by_hand(game: GridGame, state: Any, actions: list[int]) -> Any:
    """`step_of` as NumPy arrays, so that changes to them compile nothing."""
    return jax.device_get(step_of(game, state, np.array(actions, np.int32)))


def fresh_params(network: Network, step: ObservedStep, scale: float = 1.0) -> Any:
    """Random parameters, `scale` times as large as initial ones."""
    inputs = (step.before, step.actions, step.after) if isinstance(network, Structured) else (step.before, step.actions)
    fresh = jax.device_get(jax.jit(network.init)(jax.random.key(0), *inputs))
    return jax.tree.map(lambda leaf: np.float32(scale) * leaf, fresh)


# ------------------------------------------------------------------------------------------------------ losses by hand


def test_the_structured_loss_of_an_untrained_model_by_hand() -> None:
    game = grid_game("msh-4x4-4h1s")
    # Players in a corner, at the border, in the middle, and one who has left; one stag and one hare remain.
    state = game.from_layout([(0, 0), (0, 1), (1, 1), None], stags=[(3, 3)], hares=[(2, 0)], time=3)
    step = step_by_hand(game, state, [1, 4, 0, 4])
    network = Structured(4, 7, 2, game.idle_action, game.last_step, (8,))
    params = fresh_params(network, step, 0.0)
    logits: Any = jax.jit(network.apply)(params, step.before, step.actions, step.after)
    vocabularies = np.arange(64, dtype=np.float32), np.array([5.0] + [-1.0] * 7, np.float32)
    loss, terms = jax.device_get(STRUCTURED_LOSS(network, logits, vocabularies, step, np.ones(7, np.float32)))
    sums = {name: float(total) for name, (total, _) in terms.items()}
    expected = {
        "player_loss": np.log(4) + np.log(5) + np.log(6),
        "thing_loss": 2 * np.log(2),
        "reward_loss": 3 * np.log(64),
        # The parameters are all 0, so that eight delays and no change are equally likely.
        "deadline_loss": np.log(9),
        # For each player still in the game, all but the idle action.
        "legal_loss": 3 * 6 * np.log(2),
        "over_loss": np.log(2),
    }
    assert sums == pytest.approx(expected, rel=1e-5)
    assert float(loss) == pytest.approx(sum(expected.values()), rel=1e-5)
    counts = dict(zip(expected, [3, 2, 3, 1, 3, 1], strict=True))
    assert {name: int(count) for name, (_, count) in terms.items()} == counts
    weights = np.array([2.0, 0, 1, 9, 9, 3, 0], np.float32)
    weighted, weighted_terms = jax.device_get(STRUCTURED_LOSS(network, logits, vocabularies, step, weights))
    change = np.log(4) - np.log(5) + 2 * np.log(2) - np.log(2)
    assert float(weighted - loss) == pytest.approx(change, rel=1e-4)
    assert weighted_terms == terms


def test_the_dense_loss_by_hand() -> None:
    game = grid_game("msh-4x4-4h1s")
    state = game.from_layout([(0, 0), (0, 1), (2, 0), None], stags=[(3, 3)], hares=[(2, 0)], time=3)
    step = step_by_hand(game, state, [1, 4, 6, 4])
    network = Dense(4, 7, 2, game.idle_action, game.last_step, (8,))
    outputs = Outputs(
        grid=jnp.asarray(np.full((4, 4, 7), 0.5, np.float32)),
        rewards=jnp.asarray(np.array([0.0, 0.5, 3.0, 100.0], np.float32)),
        left=jnp.asarray(np.zeros(4, np.float32)),
        deadline=jnp.asarray(np.float32(0.1)),
        legal=jnp.asarray(np.zeros((4, 7), np.float32)),
        over=jnp.asarray(np.float32(0.0)),
    )
    loss, terms = jax.device_get(DENSE_LOSS(network, outputs, step, np.ones(7, np.float32)))
    sums = {name: float(total) for name, (total, _) in terms.items()}
    expected = {
        "grid_loss": 6 * 16 * 0.25,
        "reward_loss": 0.0 + 0.25 + 4.0,
        "deadline_loss": 0.01,
        "left_loss": 3 * np.log(2),
        "legal_loss": 3 * 7 * np.log(2),
        "over_loss": np.log(2),
    }
    assert sums == pytest.approx(expected, rel=1e-5)
    assert int(terms["grid_loss"][1]) == 6 * 16
    weights = np.array([2.0, 2, 2, 2, 1, 1, 1], np.float32)
    weighted, weighted_terms = jax.device_get(DENSE_LOSS(network, outputs, step, weights))
    assert float(weighted - loss) == pytest.approx(3 * 16 * 0.25, rel=1e-5)
    assert weighted_terms == terms


def test_a_step_is_seen_from_every_seat() -> None:
    game = grid_game("msh-4x4-4h1s")
    state = game.from_layout([(0, 0), (0, 1), (2, 0), None], stags=[(3, 3)], hares=[(2, 0), (0, 0)], time=3)
    actions, alive = jnp.array([6, 3, 1, 4]), jnp.array([True, True, True, False])

    @jax.jit
    def seen_by_all(state: Any) -> tuple[ObservedStep, Observation]:
        after, outcome = game.step(jax.random.key(0), state, actions)
        both = jax.tree.map(lambda first, second: jnp.stack([first, second]), state, after)
        by_player = (actions, alive, outcome.reward, outcome.left)
        window = Windows(both, *(rows[None] for rows in by_player), over=outcome.over[None], played=jnp.ones(1, bool))
        seen = jax.vmap(functools.partial(observed_from, game, window))(jnp.arange(4))
        return seen, jax.vmap(game.observe)(both)

    seen, observed = seen_by_all(state)
    for seat in range(4):
        assert seen.actions[seat, 0].tolist() == np.roll([6, 3, 1, 4], -seat).tolist()
        assert seen.alive[seat, 0].tolist() == np.roll([True, True, True, False], -seat).tolist()
        assert seen.reward[seat, 0].tolist() == np.roll([1, 0, 0, 0], -seat).tolist()
        assert seen.left[seat, 0].tolist() == np.roll([True, False, False, True], -seat).tolist()
        np.testing.assert_array_equal(seen.before.board[seat, 0], observed.grid[0, seat])
        np.testing.assert_array_equal(seen.after.legal[seat, 0], observed.legal[1, seat])


def test_an_illegal_action_counts_as_the_idle_one_for_a_world_model() -> None:
    game = grid_game("msh-4x4-2h1s")
    state = game.from_layout([(0, 0), None], stags=[(3, 3)], hares=[(1, 1)])
    executed_actions = jax.jit(lambda actions: executed(one_seat(game.observe(state), 0), actions, game.idle_action))
    assert executed_actions(jnp.array([0, 6])).tolist() == [4, 4]
    assert executed_actions(jnp.array([1, 4])).tolist() == [1, 4]


def test_metrics_by_hand() -> None:
    assert metrics.psnr(0.01) == pytest.approx(20)
    assert metrics.psnr(0.0) == pytest.approx(120)
    game = grid_game("msh-4x4-2h1s")
    state = game.from_layout([(0, 0), (0, 1)], stags=[(3, 3)], hares=[(0, 0), (1, 1)], time=3)
    step = step_by_hand(game, state, [6, 1])
    right = altered(step, {})
    values = np.array(right.values)
    values[0, 0, 3] += 0.4
    values[1, 1, 0] += 0.2
    wrong = replace(right, values=values, reward=np.array([0.7, 0.0], np.float32), over=~step.over)
    tallies = [jax.device_get(TALLY_STEP(step.before, predicted, step)) for predicted in (right, wrong)]
    tally = jax.tree.map(lambda *leaves: np.stack(leaves).sum(0)[None], *tallies)
    result = metrics.figures(tally, 1, game.channel_names)
    channels = dict(zip(game.channel_names, [0.04 / 32, 0, 0, 0.16 / 32, 0], strict=True))
    assert result["channel_mse"] == pytest.approx(channels, rel=1e-4)
    assert result["observation_mse"] == pytest.approx(0.2 / 160, rel=1e-4)
    assert result["reward_mse"] == pytest.approx(0.09 / 4, rel=1e-4)
    assert (result["predictions"], result["exact"], result["exact_over"], result["exact_board"]) == (2, 0.5, 0.5, 1.0)
    assert result["impossible"] == 0
    not_played = TALLY_STEP(step.before, wrong, replace(step, played=np.bool_(False)))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(not_played))


def altered(step: Any, changes: dict[tuple[int, int, int], int], reward: float = 0.0) -> Predicted:
    """Prediction of a step by the rules, with some cells changed."""
    grid = np.array(step.after.grid)
    for place, value in changes.items():
        grid[place] = value
    rewards = step.reward + np.float32(reward)
    return Predicted(replace(step.after, grid=grid), grid.astype(np.float32), rewards, step.left, step.over)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("violation", "changes", "reward"),
    [
        ("player_jumps", {(1, 0, 0): 0, (2, 0, 0): 1}, 0.0),
        ("player_jumps", {(1, 0, 0): 0, (0, 1, 0): 1}, 0.0),
        ("player_doubles", {(0, 0, 0): 1}, 0.0),
        ("player_appears", {(2, 2, 1): 1}, 0.0),
        ("player_vanishes", {(1, 0, 0): 0}, 0.0),
        ("thing_moves", {(3, 3, 3): 0, (3, 2, 3): 1}, 0.0),
        ("thing_appears", {(0, 3, 4): 1}, 0.0),
        ("block_changes", {(2, 2, 2): 1}, 0.0),
        ("reward_without_a_catch", {}, 1.0),
    ],
)
def test_impossible_transitions_are_named(violation: str, changes: dict[Any, int], reward: float) -> None:
    game = grid_game("msh-4x4-2h1s")
    state = game.from_layout([(0, 0), None], stags=[(3, 3)], hares=[(1, 1)], blocks=[(0, 1)], time=3)
    step = step_by_hand(game, state, [1, 4])
    assert not any(map(bool, IMPOSSIBLE(step.before, altered(step, {})).values()))
    violations = IMPOSSIBLE(step.before, altered(step, changes, reward))
    assert [name for name, value in violations.items() if value] == [violation]


# ------------------------------------------------------------------------------------ limits of the structured model


def many_steps(game: GridGame, number: int) -> tuple[Observation, np.ndarray]:
    """Observations of seat 0 in many states of play, and random actions of six steps for each."""
    states, actions = played_states(game, environments=max(2, number // game.last_step))
    observations = jax.device_get(jax.jit(jax.vmap(lambda state: one_seat(game.observe(state), 0)))(states))
    random_actions = np.random.default_rng(0).integers(0, game.num_actions, (len(actions), 6, game.players))
    return observations, random_actions


def roll_out(network: Network, params: Any, first: Observation, actions: jax.Array) -> Predicted:
    """Predictions [steps, ...] from one observation, each from the prediction before it."""

    def step(observation: Observation, actions: jax.Array) -> tuple[Observation, Predicted]:
        predicted = predict(network, params, observation, actions)
        return predicted.observation, predicted

    return jax.lax.scan(step, first, actions)[1]


@pytest.mark.parametrize("name", ["msh-6x6-4h1s", "msg-4x4"])
def test_a_structured_model_cannot_express_impossible_transitions(name: str) -> None:
    game = grid_game(name)
    network = make_network("structured", game, (16,))
    seen, actions = many_steps(game, 300)
    first = jax.tree.map(lambda leaf: leaf[0], seen)
    # Parameters far from any fit: every class is predicted somewhere.
    fresh = jax.device_get(jax.jit(network.init)(jax.random.key(1), first, actions[0, 0], first))
    params = jax.tree.map(lambda leaf: np.float32(20) * leaf, fresh)
    params["params"]["rewards"] = np.arange(64, dtype=np.float32)

    @jax.jit
    def count(seen: Observation, actions: jax.Array) -> dict[str, jax.Array]:
        def violations_of(seen: Observation, actions: jax.Array) -> dict[str, jax.Array]:
            predicted = roll_out(network, params, seen, actions)
            before = jax.tree.map(
                lambda start, rest: jnp.concatenate([start[None], rest[:-1]]), seen, predicted.observation
            )
            moved = (before.board[..., : game.players] != predicted.observation.board[..., : game.players]).any()
            return {
                **jax.vmap(metrics.impossible)(before, predicted),
                "moved": moved,
                "left": predicted.left.any() & ~predicted.left.all(),
                "gone": (before.board[..., game.players + 1 :] != predicted.observation.board[..., game.players + 1 :]),
            }

        return jax.tree.map(lambda leaf: leaf.sum(), jax.vmap(violations_of)(seen, actions))

    counts = {name: int(number) for name, number in count(seen, jnp.asarray(actions)).items()}
    assert all(counts.pop(name) > 0 for name in ("moved", "left", "gone"))
    # Rewards are learnt; possible positions are built into the model.
    counts.pop("reward_without_a_catch")
    assert not any(counts.values()), counts


def test_the_order_of_the_co_players_does_not_matter() -> None:
    game = grid_game("msh-4x4-4h1s")
    network = make_network("structured", game, (16,))
    seen, actions = many_steps(game, 100)
    first = jax.tree.map(lambda leaf: leaf[0], seen)
    fresh = jax.device_get(jax.jit(network.init)(jax.random.key(1), first, actions[0, 0], first))
    params = jax.tree.map(lambda leaf: np.float32(5) * leaf, fresh)
    params["params"]["rewards"] = np.arange(64, dtype=np.float32)
    order = np.array([2, 0, 3, 1])

    def reordered(seen: Any) -> Any:
        grid = np.concatenate([seen.grid[..., :4][..., order], seen.grid[..., 4:]], -1)
        return replace(seen, grid=grid, legal=seen.legal[..., order, :], last_actions=seen.last_actions[..., order])

    predict_all = jax.jit(jax.vmap(functools.partial(predict, network, params)))
    first_order = jax.device_get(predict_all(seen, actions[:, 0]))
    second_order = jax.device_get(predict_all(reordered(seen), actions[:, 0][:, order]))
    for expected, actual in zip(
        jax.tree.leaves(reordered(first_order.observation)), jax.tree.leaves(second_order.observation), strict=True
    ):
        np.testing.assert_array_equal(expected, actual)
    np.testing.assert_array_equal(first_order.reward[:, order], second_order.reward)
    np.testing.assert_array_equal(first_order.left[:, order], second_order.left)
    np.testing.assert_allclose(first_order.values[..., order], second_order.values[..., :4], atol=1e-5)


@pytest.mark.parametrize("kind", ["structured", "dense"])
def test_players_who_have_left_and_steps_after_the_end_do_not_count(kind: Kind) -> None:
    game = grid_game("msh-4x4-2h1s")
    network = make_network(kind, game, (8,))
    state = game.from_layout([(0, 0), None], stags=[(3, 3)], hares=[(1, 1), (2, 2)], time=3)
    step = step_by_hand(game, state, [1, 4])
    # With parameters of 0, the first direction is chosen and every player is predicted to stay in the game.
    for scale in (0.0, 3.0):
        params = fresh_params(network, step, scale)
        if kind == "structured":
            params["params"]["rewards"] = 1.0 + np.arange(64, dtype=np.float32)
        predicted = jax.device_get(PREDICT(network, params, step.before, np.array([1, 6], np.int32)))
        assert not predicted.observation.board[..., 1].any()
        assert bool(predicted.left[1])
        assert float(predicted.reward[1]) == 0
        assert predicted.observation.legal[1].tolist() == [False] * 4 + [True, False, False]
        assert int(predicted.observation.last_actions[1]) == int(step.before.last_actions[1])

    def loss(*steps: ObservedStep) -> tuple[float, dict[str, Any]]:
        rows = jax.tree.map(lambda *leaves: np.stack(leaves)[None], *steps)
        total, terms = MEAN_LOSS(network, params, rows, np.ones(5, np.float32))
        return float(total), jax.device_get(terms)

    after_end = replace(step, played=np.bool_(False))
    alone, terms = loss(step, after_end)
    spoilt = replace(step, reward=np.array([0.0, 77.0], np.float32), left=np.array([False, False]))
    assert loss(spoilt, after_end) == (alone, terms)
    changed = replace(
        after_end, reward=np.array([55.0, 77.0], np.float32), over=np.bool_(True), actions=np.array([3, 3])
    )
    assert loss(step, changed) == (alone, terms)
    assert terms["legal_loss"][1] == 1


def test_a_rollout_off_the_true_board_does_not_train_the_structured_model() -> None:
    game = grid_game("msh-4x4-2h1s")
    network = make_network("structured", game, (8,))
    state = game.from_layout([(0, 0), (3, 0)], stags=[(3, 3)], hares=[(1, 1), (2, 2)], time=3)
    step = step_by_hand(game, state, [1, 4])
    params = fresh_params(network, step, 0.0)
    # With equal logits the first possible direction, UP, is predicted: player 1 moves up although it stays.
    following, _ = jax.jit(game.step)(jax.random.key(0), state, np.array([1, 4], np.int32))
    after = step_by_hand(game, following, [1, 4])
    rows = jax.tree.map(lambda *leaves: np.stack(leaves)[None], step, after)
    _, terms = MEAN_LOSS(network, params, rows, np.ones(5, np.float32))
    assert [int(value) for value in terms["on_true_board"]] == [1, 2]
    assert int(terms["player_loss"][1]) == 2


# ------------------------------------------------------------------------------------------------------ a whole game


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    game = make(TINY)
    players = (make_player("random", game),)
    population = Population((players,) * 2, (((),),) * 2)
    cast_distribution = parse_casts(["random,random"], 2)
    return collect(tmp_path_factory.mktemp("data") / "tiny", game, population, cast_distribution, 16_000, 0)


def fit_tiny(played: Dataset, path: Path, kind: Kind = "structured", epochs: int = 6) -> Fitted:
    model = WorldModel(kind=kind, hidden=(32,), epochs=epochs, batch=128, learning_rate=1e-2)
    setup = FitSetup(model, played, SEEDS)
    with new_run(path, describe(setup)) as run:
        fit(run, setup)
    return open_fit(path)


@pytest.fixture(scope="module")
def fitted(played: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fit_tiny(played, tmp_path_factory.mktemp("runs") / "tiny")


def enumerate_transitions(game: Game[Any]) -> tuple[Any, np.ndarray]:
    """Every reachable state (apart from last actions, which have no effect) with all joint actions."""
    cells = list(itertools.product(range(2), range(2)))
    layouts = [
        game.from_layout([first, second], stags=[stag], hares=[hare])
        for first, second, stag, hare in itertools.product(cells, cells, cells, cells)
        if stag != hare
    ]
    joint = np.array(list(itertools.product(range(game.num_actions), repeat=2)), np.int32)
    step = jax.jit(
        jax.vmap(lambda state: jax.vmap(lambda actions: game.step(jax.random.key(0), state, actions))(joint))
    )
    frontier = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(layouts))
    states, actions = [], []
    while number := len(frontier.time):
        assert number <= MOST_STATES  # one shape compiles one program
        filled = jax.tree.map(lambda leaf, number=number: leaf[np.arange(MOST_STATES) % number], frontier)
        after, outcome = jax.tree.map(lambda leaf, number=number: leaf[:number], jax.device_get(step(filled)))
        states.append(jax.tree.map(lambda leaf: np.repeat(leaf, len(joint), 0), frontier))
        actions.append(np.tile(joint, (len(frontier.time), 1)))
        going = jax.tree.map(lambda leaf, on=~outcome.over: leaf[on], after)
        going = replace(going, last_actions=np.full_like(going.last_actions, game.idle_action))
        rows = [
            leaf.reshape(len(leaf), int(np.prod(leaf.shape[1:]))).astype(np.int64) for leaf in jax.tree.leaves(going)
        ]
        rows = np.concatenate(rows, 1)
        different = np.unique(rows, axis=0, return_index=True)[1]
        frontier = jax.tree.map(lambda leaf, different=different: leaf[different], going)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *states), np.concatenate(actions)


@pytest.fixture(scope="module")
def all_transitions() -> tuple[Any, np.ndarray]:
    return enumerate_transitions(grid_game(TINY))


@functools.partial(jax.jit, static_argnums=(0, 1))
def tally_transitions(
    game: GridGame, network: Network, params: Any, states: Any, actions: Any
) -> tuple[metrics.Tally, jax.Array]:
    """The tally of predicted steps, and the number of steps in which the deadline moves."""

    def tally(state: Any, actions: jax.Array) -> tuple[metrics.Tally, jax.Array]:
        step = step_of(game, state, actions)
        predicted = predict(network, params, step.before, step.actions)
        return metrics.tally_step(step.before, predicted, step), step.before.deadline != step.after.deadline

    return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(tally)(states, actions))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_transition_of_a_small_game_is_learnt(
    fitted: Fitted, all_transitions: tuple[Any, np.ndarray], seed: int
) -> None:
    game, model = grid_game(TINY), fitted.model
    assert isinstance(model, WorldModel)
    states, actions = all_transitions
    tally, num_moved = jax.device_get(
        tally_transitions(game, model.network(game), fitted.params(seed), states, actions)
    )
    result = metrics.figures(jax.tree.map(lambda leaf: leaf[None], tally), 1, game.channel_names)
    assert result["predictions"] == len(actions) > 50_000
    assert int(num_moved) > 1000
    assert result["exact"] == 1.0, result
    assert result["reward_mse"] == 0.0
    assert result["impossible"] == 0


def test_the_vocabulary_holds_the_recorded_rewards_and_is_not_trained(fitted: Fitted, played: Dataset) -> None:
    trajectory = split(played.load()).train.trajectory
    for epoch in (1, 6):
        vocabulary = np.asarray(fitted.params(epoch=epoch)["params"]["rewards"])
        np.testing.assert_array_equal(np.unique(vocabulary), np.unique(trajectory.reward))
        delays = np.asarray(fitted.params(epoch=epoch)["params"]["delays"])
        np.testing.assert_array_equal(np.unique(delays), [-1, 5])


class WithoutLeaving(Structured):
    """The fault of the notes: a world model that does not predict leaving."""

    def predict(self, before: Observation, actions: jax.Array) -> Predicted:
        return replace(super().predict(before, actions), left=~(before.board[..., : self.players] > 0).any((0, 1)))


class WithoutMask(Structured):
    """The fault of the notes: a world model that does not predict legal actions."""

    def predict(self, before: Observation, actions: jax.Array) -> Predicted:
        predicted = super().predict(before, actions)
        return replace(predicted, observation=replace(predicted.observation, legal=before.legal))


@pytest.mark.parametrize(("fault", "part"), [(WithoutLeaving, "left"), (WithoutMask, "legal")])
def test_metrics_detect_a_model_without_leaving_or_masks(
    fitted: Fitted, played: Dataset, fault: type[Structured], part: str
) -> None:
    game, model = grid_game(TINY), fitted.model
    assert isinstance(model, WorldModel)
    rows = windows(split(played.load()).held_out, 1)
    correct = model.network(game)
    faulty = fault(
        *(getattr(correct, name) for name in ("players", "num_actions", "kinds", "idle_action", "last_step")),
        hidden=correct.hidden,
    )
    results = {
        name: metrics.figures(metrics.tally_windows(network, fitted.params(), game, rows), 1, game.channel_names)
        for name, network in (("correct", correct), ("faulty", faulty))
    }
    assert results["correct"]["exact"] == results["correct"][f"exact_{part}"] == 1.0
    assert results["faulty"]["exact"] == results["faulty"][f"exact_{part}"] < 0.95


def test_metrics_do_not_depend_on_the_channel_weights(
    fitted: Fitted, played: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out, params, weights = split(played.load()).held_out, fitted.params(), (9.0, 1.0, 1.0, 1.0, 0.0)
    plain, weighted = fitted.model, replace(fitted.model, channel_weights=weights)  # pyright: ignore[reportArgumentType]

    def no_population() -> Any:
        pytest.fail("a world model is evaluated without players")

    def same() -> bool:
        evaluate, evaluate_weighted = (model.evaluator(played, held_out, no_population) for model in (plain, weighted))
        return evaluate(params) == evaluate_weighted(params)

    assert same()

    # The fault: reported metrics include the weights of the loss.
    def weighted_evaluator(self: WorldModel, dataset: Dataset, recorded: Any, population: Any) -> Any:
        def figures(params: Any) -> dict[str, Any]:
            result = correct(self, dataset, recorded, population)(params)
            weights = self.channel_weights or (1.0,) * len(result["channel_mse"])
            result["observation_mse"] = float(np.dot(weights, list(result["channel_mse"].values())) / len(weights))
            return result

        return figures

    correct = WorldModel.evaluator
    monkeypatch.setattr(WorldModel, "evaluator", weighted_evaluator)
    assert not same()


def assert_same_weights(first: Fitted, second: Fitted) -> None:
    for left, right in zip(*(jax.tree.leaves(fitted.params()) for fitted in (first, second)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_same_seed_and_data_give_the_same_weights(fitted: Fitted, played: Dataset, tmp_path: Path) -> None:
    assert_same_weights(fitted, fit_tiny(played, tmp_path / "again"))
    dense = [fit_tiny(played, tmp_path / name, "dense", 1) for name in ("one", "other")]
    assert_same_weights(*dense)
    assert 0 < dense[0].run.metrics()[-1]["exact"] < 1


def test_a_diagnosis_writes_tables_arrays_and_pictures(fitted: Fitted, tmp_path: Path) -> None:
    diagnose_world_model(fitted.run.path, examples=2, json=str(tmp_path / "figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["ahead"] for row in figures["ahead"]] == list(range(1, 9))
    assert [row["epoch"] for row in figures["epochs"]] == list(range(1, 7))
    assert figures["impossible"] == 0
    assert figures["ahead"][0]["exact"] == figures["epochs"][-1]["exact"] == 1.0
    directory = fitted.run.path / "diagnostics" / "world-model"
    written = {path.name for path in directory.iterdir()}
    epochs = {f"epoch-{number:02d}.csv" for number in range(1, 7)}
    examples = {f"example-{number:02d}.{ending}" for number in range(2) for ending in ("npz", "png")}
    assert written == {"ahead.csv", "summary.png"} | epochs | examples
    with (directory / "ahead.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[3]["exact"]) == figures["ahead"][3]["exact"]
    example = np.load(directory / "example-00.npz", allow_pickle=False)
    assert example["predicted"].shape == example["true"].shape == (2, 2, 5)


# ------------------------------------------------------------------------------------------------------ invalid input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channel_weights": (1.0, 1.0)}, "must be 7 numbers"),
        ({"channel_weights": (-1.0, 1, 1, 1, 1, 1, 1)}, "at least 0"),
        ({"channel_weights": (0.0,) * 7}, "not all 0"),
        ({"channel_weights": (float("nan"),) * 7}, "must be 7 numbers"),
        ({"kind": "sparse"}, "dense or structured"),
        ({"horizon": 0}, "at least 1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        WorldModel(**settings).check(make("msh-4x4-4h1s"))


def test_unsupported_games_are_refused(played: Dataset) -> None:
    with pytest.raises(InputError, match="needs identical seats"):
        WorldModel().check(make("msh-4x4-2h1s:strengths=1,2"))
    recorded = played.load()
    many = replace(
        recorded.trajectory,
        reward=np.arange(recorded.trajectory.reward.size, dtype=np.float32).reshape(recorded.trajectory.reward.shape),
    )
    with pytest.raises(InputError, match="different rewards, and a structured model supports at most 64"):
        WorldModel().data(played.game, replace(recorded, trajectory=many))
    assert WorldModel(kind="dense").data(played.game, replace(recorded, trajectory=many))

"""Opponent models: losses by hand, the faults of the notes, and small games with known answers."""

import contextlib
import io
import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus import games
from hopplus.beliefs.goal_space import CellGoals, PreyGoals, labelled_goals
from hopplus.cli.main import main
from hopplus.core.errors import InputError
from hopplus.fitting.diagnose_subgoals import diagnose, share_of_trajectory
from hopplus.fitting.loop import describe, fit, prepare, split
from hopplus.models import MOA, MODELS, Subgoals, make_model, register_model
from hopplus.models.agent_trajectories import (
    AgentTrajectories,
    hindsight_goals,
    num_transitions,
    random_symmetry,
    split_by_agent,
)
from hopplus.models.base import Model
from hopplus.models.opponent import codes, subgoals
from hopplus.models.opponent import loss as moa_loss
from hopplus.models.opponent.evaluation import EvalRows
from hopplus.models.opponent.model import predictor
from hopplus.models.opponent.scores import by_action, calibration, confusion, expected_scores, scores
from hopplus.networks.opponent_model import ActionModel
from hopplus.networks.subgoal_vae import Gaussian
from hopplus.rollouts.cast_distribution import parse_casts
from hopplus.rollouts.dataset import Dataset, collect
from hopplus.training import checkpoint
from hopplus.training.fitted import Fitted, open_fit
from hopplus.training.population import make_population
from hopplus.training.run import new_run

TINY = "msh-4x4-2h1s:height=2:width=3:hares=1:T=8"
PLAIN = MOA(goals="none", epochs=3, batch=256, hidden=(16,))
CODES = MOA(goals="codes", codes=3, epochs=8, batch=256, hidden=(64,), num_restarts=2)
Capture = pytest.CaptureFixture[str]


def collected(path: Path, casts: tuple[str, ...], steps: int, game: str = TINY) -> Dataset:
    the_game = games.make(game)
    cast_distribution = parse_casts(casts, the_game.num_players)
    population = make_population(the_game, cast_distribution.agent_types)
    return collect(path, the_game, population, cast_distribution, steps, seed=1)


def fitted(path: Path, dataset: Dataset, model: Model, seeds: tuple[int, ...] = (0,)) -> Fitted:
    setup = prepare(model, dataset, seeds)
    with new_run(path, describe(setup)) as run:
        fit(run, setup)
    return open_fit(path)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(tmp_path_factory.mktemp("data") / "tiny", ("all:ns,nh",), 12_000)


@pytest.fixture(scope="module")
def trajectories(mixed: Dataset) -> tuple[AgentTrajectories, ...]:
    return split_by_agent(mixed.game, mixed.load(), goals=labelled_goals("prey"))


@pytest.fixture(autouse=True)
def few_points_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """t-SNE of 1,500 points would take longer than all other tests here."""
    monkeypatch.setattr("hopplus.fitting.diagnose_subgoals.DRAWN", 60)


def make_trajectories(features: np.ndarray, action: list[list[int]], alive: list[list[bool]], goal: Any = None) -> Any:
    number, length = np.shape(action)
    arrays: dict[str, Any] = {
        "is_first": np.zeros((number, length), bool),
        "features": features,
        "board": np.zeros((number, length, 0, 0, 0), np.uint8),
        "action": np.asarray(action, np.int32),
        "alive": np.asarray(alive),
        "value": np.zeros((number, length), np.float32),
        "goal": np.zeros((number, length), np.int32) if goal is None else np.asarray(goal, np.int32),
        "available": np.ones((number, length, 2), bool),
        **{name: np.zeros(number, np.int32) for name in ("episode", "seat", "agent_type")},
    }
    return AgentTrajectories(**arrays)


def fresh_params(network: ActionModel, features: np.ndarray) -> Any:
    return jax.device_get(jax.jit(network.init)(jax.random.key(0), features)["params"])


def initial_params(model: MOA, game: games.Game[Any], data: Any) -> Any:
    return jax.jit(lambda key, data: model.init(key, game, data))(jax.random.key(0), data)


CROSS_ENTROPY = jax.jit(moa_loss.cross_entropy, static_argnums=0)


def some_of(trajectories: AgentTrajectories, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[:number], trajectories)


# ------------------------------------------------------------------------------------------------------- trajectories


def test_trajectories_hold_every_valid_row_once_as_observed_by_the_player(
    mixed: Dataset, trajectories: tuple[AgentTrajectories, ...]
) -> None:
    recorded = mixed.load()
    assert num_transitions(trajectories) == recorded.trajectory.alive.sum()
    observation = jax.jit(jax.vmap(jax.vmap(mixed.game.observe)))(recorded.trajectory.state)
    ego_legal = np.asarray(observation.legal)[:, :, :, 0]
    for group in trajectories:
        for agent in range(0, len(group.seat), 97):
            episode, seat, length = int(group.episode[agent]), int(group.seat[agent]), int(group.alive[agent].sum())
            steps = slice(0, length)
            np.testing.assert_array_equal(group.action[agent][steps], recorded.trajectory.actions[steps, episode, seat])
            np.testing.assert_array_equal(group.features[agent][steps, -7:], ego_legal[steps, episode, seat])
            assert group.agent_type[agent] == recorded.agent_types[episode, seat]
            episode_return = recorded.trajectory.reward[:, episode, seat].sum()
            assert group.value[agent][0] == pytest.approx(episode_return)


def test_no_seat_is_left_out(trajectories: tuple[AgentTrajectories, ...]) -> None:
    """Fault 6: the MOA was updated for seat 1 only."""
    for group in trajectories:
        assert set(np.asarray(group.seat)) == {0, 1}


def test_symmetries_change_directions_only(mixed: Dataset) -> None:
    """Only directions change, in the same way in a whole trajectory; the recorded actions stay legal."""
    groups = split_by_agent(mixed.game, mixed.load(), boards=True)
    trajectories = some_of(groups[-1], 64)
    turn = jax.jit(lambda key, trajectories: random_symmetry(key, trajectories, mixed.game))
    turned: Any = jax.device_get(turn(jax.random.key(3), trajectories))
    legal = turned.features[..., -mixed.game.num_actions :]
    assert np.take_along_axis(legal, turned.action[..., None], -1)[trajectories.alive].all()
    for field in ("alive", "value", "goal", "available", "episode", "seat", "agent_type"):
        np.testing.assert_array_equal(getattr(turned, field), getattr(trajectories, field))
    pairs = [
        {(int(a), int(b)) for a, b in zip(*actions, strict=True)}
        for actions in zip(trajectories.action, turned.action, strict=True)
    ]
    assert all(len({a for a, _ in mapping}) == len(mapping) for mapping in pairs), (
        "an action has one image in a trajectory"
    )
    mappings = {tuple(sorted(mapping)) for mapping in pairs}
    assert any(a != b for mapping in mappings for a, b in mapping)
    np.testing.assert_array_equal(turned.board.sum((2, 3)), trajectories.board.sum((2, 3)))
    assert (turned.board != trajectories.board).any()


def test_rows_of_groups_are_put_back_where_they_were(trajectories: tuple[AgentTrajectories, ...]) -> None:
    """The network is applied to all groups' rows at once; every row's subgoal is in the same trajectory."""

    @jax.jit
    def there_and_back(trajectories: tuple[AgentTrajectories, ...]) -> tuple[Any, Any]:
        rows = subgoals.rows_of(trajectories, lambda group: group.value)
        return subgoals.by_group(trajectories, rows), subgoals.subgoal_rows(trajectories, rows, 3, "last")

    by_group, chosen = jax.device_get(there_and_back(trajectories))
    for group, back in zip(trajectories, by_group, strict=True):
        np.testing.assert_array_equal(back, group.value)
    agent = [
        np.broadcast_to(np.asarray(group.episode * 2 + group.seat)[:, None], group.alive.shape)
        for group in trajectories
    ]
    owner = np.concatenate([part.reshape(-1) for part in agent])
    alive = np.concatenate([np.asarray(group.alive).reshape(-1) for group in trajectories])
    np.testing.assert_array_equal(owner[chosen][alive], owner[alive])
    assert alive[chosen][alive].all(), "no subgoal is a row after leaving"
    assert (chosen[alive] != np.flatnonzero(alive)).any()


def test_a_trajectory_with_a_gap_is_refused(mixed: Dataset) -> None:
    recorded = mixed.load()
    alive = np.array(recorded.trajectory.alive)
    alive[0, 0, 0], alive[1, 0, 0] = False, True
    faulty = type(recorded)(
        type(recorded.trajectory)(**{**vars(recorded.trajectory), "alive": alive}), recorded.agent_types
    )
    with pytest.raises(InputError, match="without gaps"):
        split_by_agent(mixed.game, faulty)


def test_prey_is_what_is_taken_next(mixed: Dataset) -> None:
    assert PreyGoals().names(mixed.game) == ("nothing", "stag", "hare")
    recorded = mixed.load()
    goal, available = hindsight_goals(PreyGoals(), mixed.game, recorded)
    final = recorded.trajectory.took.max(0)
    np.testing.assert_array_equal(goal[0], final)
    assert available[..., 0].all()
    assert (available[0, :, 1]).all(), "the stag is available at first"
    gone = (recorded.trajectory.took == 2).any(-1).cumsum(0)[:-1] > 0
    assert not available[1:][gone & recorded.played[1:]][:, 2].any(), "the only hare is unavailable once it is taken"


def test_goals_of_the_snowdrift_game_are_a_drift_or_its_cell(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "drifts", ("cleaner,exploiter,random,noisy(cleaner,0.2)",), 400, "msg-4x4")
    recorded = dataset.load()
    prey, _ = hindsight_goals(PreyGoals(), dataset.game, recorded)
    assert PreyGoals().names(dataset.game) == ("nothing", "drift")
    goal, available = hindsight_goals(CellGoals(), dataset.game, recorded)
    assert len(CellGoals().names(dataset.game)) == 17
    for time, episode, seat in np.argwhere(np.asarray(recorded.trajectory.took) > 0)[:50]:
        cell = recorded.trajectory.cell[time, episode, seat]
        assert goal[time, episode, seat] == cell + 1
        assert available[time, episode, cell + 1]
        assert prey[time, episode, seat] == 1
    np.testing.assert_array_equal(prey > 0, goal > 0)


# ------------------------------------------------------------------------------------------------------ losses by hand


def test_cross_entropy_by_hand_once_through_the_softmax() -> None:
    """Logits 0 and log 3 of two legal actions: -log(3/4) for the second. Through a softmax twice it could never fall
    below ln(1 + 6/e) = 1.165 with seven actions; here it is 0.2877."""
    network = ActionModel(num_actions=2, goals=1, hidden=(1,))
    features = np.zeros((1, 2, 5), np.uint8)
    features[..., -2:] = 1
    params = jax.tree.map(np.zeros_like, fresh_params(network, features))
    params["policy"]["bias"] = np.array([0.0, np.log(3.0)], np.float32)
    trajectories = make_trajectories(features, [[1, 0]], [[True, True]])
    total, rows = CROSS_ENTROPY(network, params, trajectories, trajectories.alive, trajectories.goal)
    assert rows == 2
    assert float(total) == pytest.approx(-np.log(3 / 4) - np.log(1 / 4), rel=1e-5)
    only_first = make_trajectories(features, [[1, 0]], [[True, False]])
    total, rows = CROSS_ENTROPY(network, params, only_first, only_first.alive, only_first.goal)
    assert (float(total), float(rows)) == (pytest.approx(-np.log(3 / 4), rel=1e-5), 1.0)
    sure = {**params, "policy": {**params["policy"], "bias": np.array([0.0, 30.0], np.float32)}}
    assert float(CROSS_ENTROPY(network, sure, only_first, only_first.alive, only_first.goal)[0]) < 1e-6


def test_masked_actions_have_probability_zero_and_no_gradient() -> None:
    """Fault 13: probabilities that the mask had zeroed went through log(p + 1e-30)."""
    network = ActionModel(num_actions=3, goals=2, hidden=(4,))
    features = np.zeros((1, 1, 6), np.uint8)
    features[..., -3:] = [1, 0, 1]
    params = fresh_params(network, features)
    trajectories = make_trajectories(features, [[2]], [[True]])
    policy = np.exp(jax.jit(moa_loss.log_probabilities, static_argnums=0)(network, params, trajectories))
    assert (policy[..., 1] == 0).all()
    np.testing.assert_allclose(policy.sum(-1), 1, rtol=1e-6)

    def loss(params: Any) -> jax.Array:
        return moa_loss.cross_entropy(network, params, trajectories, trajectories.alive, trajectories.goal)[0]

    gradients = np.asarray(jax.jit(jax.grad(loss))(params)["policy"]["bias"]).reshape(2, 3)
    assert (gradients[:, 1] == 0).all()
    assert np.isfinite(gradients).all()


def test_the_goal_chooses_the_policy() -> None:
    network = ActionModel(num_actions=2, goals=2, hidden=(1,))
    features = np.ones((1, 2, 5), np.uint8)
    params = jax.tree.map(np.zeros_like, fresh_params(network, features))
    params["policy"]["bias"] = np.log(np.array([0.9, 0.1, 0.2, 0.8], np.float32))
    trajectories = make_trajectories(features, [[0, 0]], [[True, True]], goal=[[0, 1]])
    total, _ = CROSS_ENTROPY(network, params, trajectories, trajectories.alive, trajectories.goal)
    assert float(total) == pytest.approx(-np.log(0.9) - np.log(0.2), rel=1e-5)


def test_codes_loss_is_the_likelihood_of_whole_trajectories() -> None:
    """Two codes that are never resampled: log of the mixture of products; steps after leaving do not count."""

    @jax.jit
    def evaluate(prior: Any, likelihood: Any, alive: Any) -> tuple[Any, Any, Any]:
        filtered = codes.evidence(prior, likelihood, alive, 0.0)
        posterior = codes.hindsight(prior, likelihood, filtered, alive, 0.0)
        return filtered.evidence.sum(), posterior, codes.usage(posterior, alive)

    likelihood = np.log(np.array([[[0.9, 0.2], [0.8, 0.3], [0.5, 0.5]]], np.float32))
    prior = np.log(np.array([0.25, 0.75], np.float32))
    evidence, posterior, usage = evaluate(prior, likelihood, np.array([[True, True, False]]))
    assert float(evidence) == pytest.approx(np.log(0.25 * 0.72 + 0.75 * 0.06), rel=1e-5)
    expected = np.array([0.18, 0.045]) / 0.225
    np.testing.assert_allclose(np.asarray(posterior)[0, :2], np.tile(expected, (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(usage, expected, rtol=1e-5)


def test_a_code_explains_a_trajectory_in_all_symmetric_views(mixed: Dataset) -> None:
    """From one view only, a code may be the direction in which a player mostly moves. The loss is that of the mean
    likelihood of two views, by hand; without augmentation it is that of one view."""
    for turned in (True, False):
        model = MOA(goals="codes", codes=2, hidden=(16,), augment_symmetries=turned)
        network = model.network(mixed.game)

        @jax.jit
        def by_hand_and_by_loss(batch: Any, model: MOA = model, network: Any = network) -> tuple[Any, Any, Any]:
            key, params = jax.random.key(5), model.init(jax.random.key(0), mixed.game, batch)
            views = (batch, model.augment(key, batch, mixed.game)) if model.augment_symmetries else (batch,)
            likelihoods = [codes.likelihoods(network, params["network"], view[0]) for view in views]
            by_hand = codes.evidence(params["prior"], jnp.stack(likelihoods).mean(0), batch[0].alive, 0.0).evidence
            _, terms = model.objective(params, key, batch, mixed.game, jnp.float32(1.0))
            return likelihoods, by_hand, terms["likelihood"][0]

        batch = (some_of(model.data(mixed.game, mixed.load())[-1], 32),)
        by_view, by_hand, likelihood = jax.device_get(by_hand_and_by_loss(batch))
        assert float(likelihood) == pytest.approx(-float(by_hand[batch[0].alive].sum()), rel=1e-5)
        assert len(by_view) == 1 or not np.allclose(by_view[0], by_view[1])


def test_divergence_from_equal_usage_by_hand() -> None:
    divergence = jax.jit(codes.divergence_from_uniform)
    assert float(divergence(np.array([0.5, 0.5], np.float32))) == pytest.approx(0, abs=1e-6)
    assert float(divergence(np.array([1.0, 0.0], np.float32))) == pytest.approx(np.log(2), rel=1e-5)


def test_gaussian_divergence_by_hand() -> None:
    divergences = jax.jit(
        lambda normal: (subgoals.divergence(normal, subgoals.standard(normal)), subgoals.divergence(normal, normal))
    )
    from_standard, from_itself = divergences(
        Gaussian(jnp.asarray([1.0, 0.0], jnp.float32), jnp.asarray([0.0, np.log(4.0)], jnp.float32))
    )
    expected = 0.5 * 1 + 0.5 * (4 - 1 - np.log(4))
    assert float(from_standard) == pytest.approx(expected, rel=1e-5)
    assert float(from_itself) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("select", "expected"),
    [("optimistic", [2, 2, 3, 3, 4]), ("conservative", [1, 3, 3, 3, 4]), ("last", [2, 3, 3, 3, 4])],
)
def test_which_state_is_the_subgoal(select: Any, expected: list[int]) -> None:
    """Values 0 1 5 2, then the player has left: at most two states ahead; the last state is its own subgoal."""
    value = np.array([[0.0, 1.0, 5.0, 2.0, 99.0]], np.float32)
    alive = np.array([[True, True, True, True, False]])
    chosen = np.asarray(jax.jit(subgoals.selected, static_argnums=(2, 3))(value, alive, 2, select))
    assert chosen[0].tolist()[:4] == expected[:4]


# ------------------------------------------------------------------------------------------------------------- scores


def test_scores_by_hand() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
    actions = np.array([0, 0, 1])
    result = scores(probabilities, actions)
    assert result["top1"] == pytest.approx((1 + 0 + 0.5) / 3), "ties count fractionally"
    assert result["top3"] == 1.0
    assert result["cross_entropy"] == pytest.approx(-np.log([0.5, 0.1, 0.4]).mean())
    assert scores(np.array([[1.0, 0.0]]), np.array([1]))["cross_entropy"] == np.inf
    matrix = confusion(probabilities, actions)
    np.testing.assert_allclose(matrix, [[1, 0, 1], [0.5, 0.5, 0], [0, 0, 0]])
    rows = by_action(matrix, ("a", "b", "c"))
    assert [row["count"] for row in rows] == [2, 1, 0]
    assert rows[0]["recall"] == 0.5
    assert rows[0]["precision"] == pytest.approx(1 / 1.5)
    assert rows[2]["recall"] == 0
    assert rows[2]["f1"] == 0
    best = expected_scores(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    assert best["top1"] == 0.75
    assert best["cross_entropy"] == pytest.approx(np.log(2) / 2)
    assert calibration(np.array([[0.95, 0.05]]), np.array([0]))[-1]["right"] == 1.0


def test_a_rare_action_is_not_lost_in_an_average() -> None:
    """Fault 11: always predicting the common action scores 95%, but the recall of the rare one is 0."""
    probabilities = np.tile([0.9, 0.1], (100, 1))
    actions = np.array([0] * 95 + [1] * 5)
    assert scores(probabilities, actions)["top1"] == 0.95
    assert by_action(confusion(probabilities, actions), ("STAY", "STAG"))[1]["recall"] == 0


# ------------------------------------------------------------------------------------------------ known answers, faults


@dataclass(frozen=True)
class CommandResult:
    """A fit made by the command, and its printed text."""

    fitted: Fitted
    printed: str


@pytest.fixture(scope="module")
def commanded(mixed: Dataset, tmp_path_factory: pytest.TempPathFactory) -> CommandResult:
    path = tmp_path_factory.mktemp("runs") / "codes"
    settings = {"goals": CODES.goals, "codes": CODES.codes, "epochs": CODES.epochs, "batch": CODES.batch}
    settings |= {
        "hidden": CODES.hidden[0],
        "num_restarts": CODES.num_restarts,
        "out": path,
        "json": path.parent / "fit.json",
    }
    argv = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["fit", "moa", str(mixed.path), *argv]) == 0
    return CommandResult(open_fit(path), printed.getvalue())


@pytest.fixture(scope="module")
def with_codes(commanded: CommandResult) -> Fitted:
    return commanded.fitted


@pytest.fixture(scope="module")
def plain(mixed: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(tmp_path_factory.mktemp("runs") / "plain", mixed, PLAIN)


def test_a_model_of_one_agent_type_learns_its_policy(tmp_path: Path) -> None:
    """On 2x3 cells with 8 steps, the policy of NH is learnt to a mean total variation below 0.03."""
    dataset = collected(tmp_path / "data", ("nh,nh",), 40_000)
    model = MOA(goals="none", epochs=10, batch=512, hidden=(64,))
    result = fitted(tmp_path / "run", dataset, model)
    held_out = split(dataset.load()).held_out
    rows = EvalRows.of(
        dataset,
        model.trajectories(dataset.game, held_out),
        held_out,
        partial(make_population, dataset.game, dataset.agent_types),
    )
    predicted, _ = rows.predictions(predictor(model, dataset.game), result.params())
    optimal = rows.exact_predictions()["agent_type"]
    assert 0.5 * np.abs(predicted - optimal).sum(-1).mean() < 0.03
    line = result.run.metrics()[-1]
    assert line["top1"] > 0.97 * line["ceiling_agent_type_top1"]


def test_codes_reach_the_bayesian_ceiling(with_codes: Fitted) -> None:
    line = with_codes.run.metrics()[-1]
    assert line["share_of_ceiling"] > 0.97
    assert line["cross_entropy"] < line["ceiling_history_cross_entropy"] + 0.05


def test_codes_reveal_the_agent_type_and_not_the_action(with_codes: Fitted, mixed: Dataset) -> None:
    """A code that may change at every step would merely encode the action. These persist: after two actions they reveal
    the agent type about as well as the exact posterior, and they do not determine the next action."""
    diagnosis = diagnose(with_codes, mixed)
    second = diagnosis.figures["by_time"][2]
    assert second["agent_type_accuracy"] > second["exact_alone"] - 0.05
    line = with_codes.run.metrics()[-1]
    assert line["cross_entropy"] > 0.9 * line["ceiling_history_cross_entropy"], (
        "predictions do not depend on the future"
    )


def test_long_trajectories_do_not_outvote_short_ones(mixed: Dataset) -> None:
    """A code is labelled with the agent type of most trajectories. Counted by rows, the long ones of NS prevailed."""
    recorded = mixed.load()
    rows = EvalRows.of(
        mixed, split_by_agent(mixed.game, recorded), recorded, partial(make_population, mixed.game, mixed.agent_types)
    )
    assert share_of_trajectory(rows).sum() == pytest.approx(len(recorded.agent_types) * mixed.game.num_players)
    first = rows.time == 0
    lengths = np.asarray(recorded.trajectory.alive).sum(0)[rows.episode, rows.seat]
    np.testing.assert_allclose(share_of_trajectory(rows)[first], 1 / lengths[first])


def test_codes_resampled_at_every_step_do_not_reveal_the_agent_type(with_codes: Fitted, mixed: Dataset) -> None:
    """The fault: a code that is resampled at every step carries no information to the next."""
    diagnosis = diagnose(replace(with_codes, model=replace(CODES, goal_switch_probability=0.999)), mixed)
    second = diagnosis.figures["by_time"][2]
    assert second["agent_type_accuracy"] < second["exact_alone"] - 0.1


def test_rows_after_leaving_would_bias_the_actions(mixed: Dataset, tmp_path: Path) -> None:
    """Fault 2: rows of players who have left, who can only STAY."""
    trajectories = split_by_agent(mixed.game, mixed.load())
    assert all(
        (np.asarray(group.features)[np.asarray(group.alive)][:, -7:].sum(-1) > 1).any() for group in trajectories
    )
    actions = np.concatenate([np.asarray(group.action)[np.asarray(group.alive)] for group in trajectories])
    stay = mixed.game.idle_action
    recorded = mixed.load()
    faulty = np.asarray(recorded.trajectory.actions)[np.repeat(recorded.played[..., None], 2, -1)]
    assert (faulty == stay).mean() > (actions == stay).mean() + 0.02


@pytest.fixture(scope="module")
def by_seat(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """NS sits in seat 0 and NH in seat 1."""
    return collected(tmp_path_factory.mktemp("data") / "by-seat", ("ns,nh",), 3000)


def test_networks_of_each_seat_model_the_players_of_their_own_seat(by_seat: Dataset, tmp_path: Path) -> None:
    """Fault 6, with one network per seat."""
    model = MOA(goals="codes", codes=2, epochs=6, batch=64, hidden=(32,), networks="seat", num_restarts=1)
    result = fitted(tmp_path / "run", by_seat, model)
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(result.params()))
    assert result.run.metrics()[-1]["share_of_ceiling"] > 0.9


@pytest.mark.parametrize("goals", ["none", "codes"])
def test_networks_of_each_seat_learn_from_their_own_seat_only(goals: Any, by_seat: Dataset) -> None:
    """Fault 6, with one network per seat: actions of seat 1 change no gradient of seat 0's network."""
    model = MOA(goals=goals, codes=2, hidden=(8,), networks="seat")
    data = model.data(by_seat.game, by_seat.load())
    assert all((np.asarray(group.seat) == [0, 1]).all() for group in data)

    @jax.jit
    def gradients(batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            return model.objective(params, jax.random.key(1), batch, by_seat.game, jnp.float32(1.0))[0]

        return jax.grad(loss)(model.init(jax.random.key(0), by_seat.game, batch))["network"]["policy"]["kernel"]

    batch = tuple(some_of(group, 8) for group in data)
    other = tuple(replace(group, action=np.where([[0], [1]], 4, group.action)) for group in batch)
    before, after = (np.asarray(gradients(data)) for data in (batch, other))
    np.testing.assert_array_equal(before[0], after[0], err_msg="seat 0 does not depend on seat 1")
    assert (before[1] != after[1]).any()


@pytest.mark.parametrize("goals", ["prey", "gaussian"])
def test_other_goal_spaces_are_fitted_and_evaluated(goals: Any, mixed: Dataset, tmp_path: Path) -> None:
    model = MOA(goals=goals, epochs=4, batch=256, hidden=(32,), subgoal_dim=4)
    line = fitted(tmp_path / "run", mixed, model).run.metrics()[-1]
    assert 0.8 < line["share_of_ceiling"] < 1.05
    assert line["given_goal_top1"] >= line["top1"] - 0.02, "hindsight has at least as much information"
    if goals == "gaussian":
        assert {"held_out_reconstruction", "held_out_kl", "held_out_action"} <= set(line), (
            "terms are reported separately"
        )


def test_beliefs_and_predictions_depend_on_the_past_only(mixed: Dataset) -> None:
    """Fault 8 and the leak of hindsight: later changes do not affect earlier predictions or beliefs."""
    for goals in ("codes", "gaussian", "prey"):
        model = MOA(goals=goals, hidden=(16,), codes=3, subgoal_dim=4)
        data = model.data(mixed.game, mixed.load())
        group = some_of(data[-1], 16)
        params = initial_params(model, mixed.game, (group,))
        action, features = group.action.copy(), group.features.copy()
        action[:, 3:], features[:, 4:] = 0, 1
        changed = replace(group, action=action, features=features)
        predict = predictor(model, mixed.game)
        (before,), (after,) = (jax.device_get(predict(params, (data,))) for data in (group, changed))
        np.testing.assert_allclose(before.filtered[:, :4], after.filtered[:, :4], atol=1e-5)
        np.testing.assert_allclose(before.belief[:, :4], after.belief[:, :4], atol=1e-5)
        spread = before.belief[:, :4].std(1).max()
        assert goals != "codes" or spread > 1e-3, "there is a belief at every step, not only at the last"


def test_every_parameter_is_trained(mixed: Dataset) -> None:
    """Fault 10: a module left out of the optimiser."""
    for goals in ("none", "prey", "codes", "gaussian"):
        model = MOA(goals=goals, hidden=(16,), codes=3, subgoal_dim=4)
        data = model.data(mixed.game, mixed.load())

        @jax.jit
        def gradients_of(batch: Any, model: MOA = model) -> Any:
            def loss(params: Any) -> jax.Array:
                return model.objective(params, jax.random.key(1), batch, mixed.game, jnp.float32(0.0))[0]

            return jax.grad(loss)(model.init(jax.random.key(0), mixed.game, batch))

        gradients = gradients_of(tuple(some_of(group, 64) for group in data))
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
            name = jax.tree_util.keystr(path)
            counted = "prior" in name and goals != "codes"
            assert counted or np.abs(np.asarray(leaf)).max() > 0, (goals, name)


@pytest.mark.parametrize(
    ("loss", "training_head", "other_head"), [("reconstruction", "decoded", "policy"), ("action", "policy", "decoded")]
)
def test_the_chosen_loss_trains_the_encoder(loss: Any, training_head: str, other_head: str, mixed: Dataset) -> None:
    """The encoder is trained by the chosen term and the divergence only; the other head sends no gradient into it."""
    model = MOA(goals="gaussian", loss=loss, hidden=(16,), subgoal_dim=4, alpha=0.0)
    data = model.data(mixed.game, mixed.load())
    network, names = model.network(mixed.game), {"decoded": "reconstruction", "policy": "action"}

    @jax.jit
    def by_head(trajectories: AgentTrajectories) -> dict[str, Any]:
        def term(params: Any, head: str) -> jax.Array:
            terms = subgoals.loss_terms(network, params, jax.random.key(2), (trajectories,), 5, "optimistic", loss)
            return terms[names[head]][0]

        params = model.init(jax.random.key(0), mixed.game, (trajectories,))["network"]
        return {head: jax.grad(term)(params, head)["encoded"] for head in names}

    gradients = by_head(some_of(data[-1], 32))
    for head, trains in ((training_head, True), (other_head, False)):
        largest = max(float(np.abs(np.asarray(leaf)).max()) for leaf in jax.tree.leaves(gradients[head]))
        assert (largest > 0) is trains, (loss, head)


# ---------------------------------------------------------------------------------------------------- runs and commands


def same_weights(first: Fitted, second: Fitted, seed: int = 0) -> bool:
    pairs = zip(jax.tree.leaves(first.params(seed)), jax.tree.leaves(second.params(seed)), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def test_fits_are_reproducible_and_resume_exactly(
    mixed: Dataset, plain: Fitted, tmp_path: Path, capsys: Capture
) -> None:
    whole = plain
    assert same_weights(whole, fitted(tmp_path / "again", mixed, PLAIN))
    shutil.copytree(whole.run.path, tmp_path / "cut")
    newest = sorted((tmp_path / "cut" / "checkpoints").iterdir())[-1]
    newest.unlink()
    shutil.rmtree(tmp_path / "cut" / "evaluation")
    assert main(["fit", "--resume", str(tmp_path / "cut")]) == 0
    cut = open_fit(tmp_path / "cut")
    assert same_weights(whole, cut)
    assert [line["iteration"] for line in cut.run.metrics()] == [1, 2, 3]
    damaged = sorted((tmp_path / "cut" / "checkpoints").iterdir())[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    capsys.readouterr()
    assert main(["fit", "--resume", str(tmp_path / "cut")]) == 0
    assert capsys.readouterr().err.count(f"the checkpoint {damaged.name} of {tmp_path / 'cut'} is damaged") == 1
    assert checkpoint.load(tmp_path / "cut" / "checkpoints").damaged == (), "the damaged checkpoint has been replaced"
    assert same_weights(whole, open_fit(tmp_path / "cut"))


def test_a_seed_does_not_depend_on_the_other_seeds(mixed: Dataset, plain: Fitted, tmp_path: Path) -> None:
    beside = fitted(tmp_path / "beside", mixed, PLAIN, (3, 0))
    for alone, together in zip(jax.tree.leaves(plain.params(0)), jax.tree.leaves(beside.params(0)), strict=True):
        np.testing.assert_allclose(alone, together, atol=2e-4)


def test_fit_and_diagnose_commands(commanded: CommandResult, tmp_path: Path, capsys: Capture) -> None:
    path = commanded.fitted.run.path
    assert "ceiling given the history" in commanded.printed
    assert json.loads((path.parent / "fit.json").read_text())["per_seed"][0]["iteration"] == CODES.epochs
    run = Path(shutil.copytree(path, tmp_path / "run"))
    for saved in sorted((run / "checkpoints").iterdir())[2:]:
        saved.unlink()
    assert main(["diagnose", "moa", str(run), "--json", str(tmp_path / "moa.json")]) == 0
    files = {path.name for path in (run / "diagnostics" / "moa").iterdir()}
    assert {"epoch-01.csv", "epoch-02.npz", "epoch-02.png", "by_time.csv", "calibration.csv", "summary.png"} <= files
    figures = json.loads((tmp_path / "moa.json").read_text())
    assert {"agent_type", "history"} == set(figures["ceilings"])
    assert main(["diagnose", "subgoals", str(run)]) == 0
    assert {"points.png", "meaning.png", "points.npz"} <= {
        path.name for path in (run / "diagnostics" / "subgoals").iterdir()
    }
    assert main(["runs", str(tmp_path)]) == 0
    assert "moa" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fit", "wolf", "DATA"], "no model 'wolf'"),
        (["fit", "moa"], "needs DATASET"),
        (["fit", "moa", "NOWHERE"], "is not a dataset"),
        (["fit", "moa", "DATA", "--goals", "codes", "--codes", "1"], "at least 2"),
        (["fit", "moa", "DATA", "--epochs", "0"], "at least 1"),
        (["fit", "moa", "DATA", "--golas", "codes"], "did you mean"),
        (["fit", "--resume", "NOWHERE"], "is not a run"),
        (["diagnose", "moa", "NOWHERE"], "is not a run"),
    ],
)
def test_invalid_input_is_refused(
    argv: list[str], message: str, mixed: Dataset, tmp_path: Path, capsys: Capture
) -> None:
    places = {"DATA": str(mixed.path), "NOWHERE": str(tmp_path / "nowhere")}
    assert main([places.get(word, word) for word in argv]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not list(tmp_path.iterdir())


def test_prey_needs_a_game_with_items(mixed: Dataset) -> None:
    class Bare(games.StagHunt):
        @property
        def taken_names(self) -> tuple[str, ...]:
            return ("nothing",)

    with pytest.raises(InputError, match="nothing to take"):
        MOA(goals="prey").check(Bare())


def test_another_dataset_must_be_of_the_same_game(
    with_codes: Fitted, mixed: Dataset, tmp_path: Path, capsys: Capture
) -> None:
    other = Path(shutil.copytree(mixed.path, tmp_path / "other"))
    header = json.loads((other / "header.json").read_text(encoding="utf-8"))
    (other / "header.json").write_text(json.dumps({**header, "game": "msh-4x4-2h1s"}), encoding="utf-8")
    assert main(["diagnose", "moa", str(with_codes.run.path), str(other)]) == 2
    assert "models" in capsys.readouterr().err


def test_a_fit_cannot_be_evaluated_as_a_training(with_codes: Fitted, capsys: Capture) -> None:
    assert main(["evaluate", str(with_codes.run.path)]) == 2
    assert "is a fit of moa" in capsys.readouterr().err


def test_a_dataset_too_small_to_split_is_refused(tmp_path: Path, capsys: Capture) -> None:
    small = collected(tmp_path / "small", ("ns,nh",), 5)
    assert main(["fit", "moa", str(small.path), "--out", str(tmp_path / "run")]) == 2
    assert "too few" in capsys.readouterr().err


def test_models_by_name(mixed: Dataset) -> None:
    assert make_model("subgoals", {"hidden": [8, 8], "kind": "gaussian"}) == Subgoals(hidden=(8, 8), kind="gaussian")
    with pytest.raises(InputError, match="already known"):
        register_model("moa", MODELS["moa"])

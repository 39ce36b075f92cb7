"""PPO: ratios, seats that may be exchanged, rows that count, minibatches, the loss by hand, buffers and keys."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import floats
from hopplus.algorithms import PPO, ppo_update
from hopplus.algorithms.base import CurriculumPhase
from hopplus.algorithms.ppo import PPOState
from hopplus.configs import TrainingConfig
from hopplus.evaluation.seat_symmetry import FirstSeatTransitions
from hopplus.games import Observation
from hopplus.networks.train_state import TrainState
from hopplus.players import PolicyPlayer
from hopplus.players.policy import encode, evaluate, evaluate_features
from hopplus.rollouts import Trajectory, observations
from hopplus.training.experiment import prepare

HUNT = "msh-4x4-4h1s"
INDEPENDENT = PPO(
    num_envs=32,
    num_steps=16,
    hidden=(32,),
    parameters="independent",
    minibatch_size=100,
    update_epochs=3,
    anneal_lr=False,
)


@partial(jax.jit, static_argnames="shared")
def arranged(rows: ppo_update.Transitions, shared: bool) -> ppo_update.Transitions:
    """Rows [T, E, L] as [P, M]."""
    return ppo_update.group_by_params(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows), shared)


@dataclass(frozen=True, eq=False)
class Player:
    """A recipe on a game, its compiled parts, and what it has played."""

    recipe: PPO
    stage: CurriculumPhase
    play: Callable[[PPOState], Any]
    state: PPOState
    rows: ppo_update.Transitions
    episode: Trajectory

    @property
    def network(self) -> Any:
        return self.recipe.network(self.stage.final_game)

    @cached_property
    def batch(self) -> ppo_update.Transitions:
        """Rows [P, M]."""
        return jax.tree.map(np.asarray, arranged(self.rows, self.recipe.shares_params))


def play_once(recipe: PPO) -> Player:
    stage = prepare(TrainingConfig(game=HUNT), recipe).phases[0][1]
    state = jax.jit(partial(recipe.init, phase=stage, frozen={}))(jax.random.key(0))
    play = jax.jit(partial(recipe.collect, phase=stage, frozen={}))
    rows, episode = jax.tree.map(np.asarray, play(state)[1:])
    return Player(recipe, stage, play, state, rows, episode)


@pytest.fixture(scope="module")
def independent() -> Player:
    return play_once(INDEPENDENT)


@pytest.fixture(scope="module")
def shared() -> Player:
    return play_once(replace(INDEPENDENT, parameters="shared"))


Update = Callable[..., tuple[TrainState, ppo_update.Metrics]]


@pytest.fixture(scope="module")
def update(independent: Player) -> Update:
    """`update(key, learner, rows)`, compiled for four parameter sets."""
    network = partial(evaluate_features, independent.network)

    @jax.jit
    def compiled(
        key: jax.Array, learner: TrainState, rows: ppo_update.Transitions
    ) -> tuple[TrainState, ppo_update.Metrics]:
        return ppo_update.update(key, network, learner, rows, INDEPENDENT, 5.0, jnp.float32(0), 4)

    return lambda *inputs: jax.tree.map(np.asarray, compiled(*inputs))


@pytest.fixture(scope="module")
def updated(independent: Player, update: Update) -> tuple[TrainState, ppo_update.Metrics]:
    return update(jax.random.key(1), independent.state.train_state, independent.batch)


def equal(one: Any, other: Any) -> bool:
    return jax.tree.structure(one) == jax.tree.structure(other) and jax.tree.all(
        jax.tree.map(lambda a, b: np.array_equal(a, b), one, other)
    )


# -------------------------------------------------------------------------------------------------------- the rows


def log_policies(network: Any) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A function of params and features [P, ...]: logarithms of action probabilities, and values."""

    @jax.jit
    @jax.vmap
    def compiled(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
        logits, value = evaluate_features(network, params, features)
        return jax.nn.log_softmax(logits), value

    return lambda *inputs: jax.tree.map(np.asarray, compiled(*inputs))


@pytest.mark.parametrize("which", ["independent", "shared"])
def test_the_ratio_is_1_before_the_first_update(which: str, request: pytest.FixtureRequest) -> None:
    player: Player = request.getfixturevalue(which)
    rows = player.batch
    assert rows.seat.shape == ((4, 512) if which == "independent" else (1, 2048))
    log_policy, value = log_policies(player.network)(player.state.train_state.params, rows.features)
    found = np.take_along_axis(log_policy, np.asarray(rows.action)[..., None], -1)[..., 0]
    assert 0.3 < rows.is_valid.mean() < 1
    ratio = np.exp(found - rows.log_probability)[rows.is_valid]
    np.testing.assert_allclose(ratio, 1, atol=1e-5)
    np.testing.assert_allclose(value[rows.is_valid], rows.value[rows.is_valid], atol=1e-4)
    assert len(np.unique(rows.log_probability[rows.is_valid])) > 100


def test_rows_are_what_their_own_seat_saw_and_did(independent: Player) -> None:
    rows, episode = independent.rows, independent.episode
    assert (rows.seat == np.arange(4)).all()
    np.testing.assert_array_equal(rows.is_valid, episode.alive)
    np.testing.assert_array_equal(rows.action, episode.actions)
    seen = jax.jit(lambda played: encode(independent.network, observations(independent.stage.game, played)))(episode)
    np.testing.assert_array_equal(rows.features, seen)
    np.testing.assert_array_equal(rows.target[rows.is_valid], (rows.advantage + rows.value)[rows.is_valid])
    batch = independent.batch
    assert (batch.seat == np.arange(4)[:, None]).all()
    np.testing.assert_array_equal(batch.action[2], episode.actions[..., 2].ravel())


# ------------------------------------------------------------------------------------------------------- symmetry


def shift(tree: Any, axis: int) -> Any:
    """Everybody one seat further."""
    return jax.tree.map(lambda leaf: np.roll(leaf, 1, axis), tree)


def test_a_shift_of_the_seats_commutes_with_the_making_of_rows(independent: Player) -> None:
    state, episode, stage = independent.state, independent.episode, independent.stage
    permute = partial(stage.game.permute, order=[3, 0, 1, 2])
    by_seat = ("actions", "alive", "reward", "left", "took", "cell", "total_reward", "total_steps", "info")
    moved = replace(
        episode,
        **{name: shift(getattr(episode, name), 2) for name in by_seat},
        **jax.jit(
            lambda state, last: {"state": jax.vmap(jax.vmap(permute))(state), "last_state": jax.vmap(permute)(last)}
        )(episode.state, episode.last_state),
    )
    make_rows = jax.jit(partial(independent.recipe.transitions, phase=stage, rollout_state=None))
    moved_state = replace(state, train_state=shift(state.train_state, 0))
    rows = jax.tree.map(np.asarray, make_rows(state, trajectory=episode))
    of_moved = jax.tree.map(np.asarray, make_rows(moved_state, trajectory=moved))
    assert not equal(rows.features, of_moved.features)
    assert equal(replace(shift(rows, 2), seat=rows.seat), of_moved)


def test_a_shift_of_the_seats_commutes_with_the_update(
    independent: Player, update: Update, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    # From the second update on, the optimisers' memories differ between seats too.
    learner, rows, key = updated[0], independent.batch, jax.random.key(2)
    after, metrics = update(key, learner, rows)
    relabelled = replace(shift(rows, 0), seat=rows.seat)
    of_moved, metrics_of_moved = update(key, shift(learner, 0), relabelled)
    assert not equal(after.params, of_moved.params)
    assert equal(shift(after, 0), of_moved)
    assert equal(shift(shift(metrics, 0), 1), metrics_of_moved)


# -------------------------------------------------------------------------------------------------- rows that count


@pytest.mark.parametrize("garbage", [np.nan, 1e6])
def test_rows_that_do_not_learn_never_matter(
    garbage: float, independent: Player, update: Update, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    rows = independent.batch
    assert (~rows.is_valid).sum() > 100
    spoilt = {
        name: np.where(rows.is_valid, getattr(rows, name), np.float32(garbage))
        for name in ("log_probability", "value", "advantage", "target")
    }
    dirty = replace(rows, **spoilt, action=np.where(rows.is_valid, rows.action, 6).astype(np.int32))
    found = update(jax.random.key(1), independent.state.train_state, dirty)
    assert np.isfinite(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(found)])).all()
    assert equal(found, updated)


def test_every_living_row_is_used_once_an_epoch_by_its_own_seats_parameters(
    independent: Player, updated: tuple[TrainState, ppo_update.Metrics]
) -> None:
    living = independent.batch.is_valid.sum(1)
    np.testing.assert_array_equal(updated[1]["rows"], np.diag(INDEPENDENT.update_epochs * living))


def test_learning_from_the_first_seats_rows_is_visible(independent: Player, update: Update) -> None:
    faulty = FirstSeatTransitions(**asdict(INDEPENDENT))
    rows = jax.jit(partial(faulty.transitions, phase=independent.stage, rollout_state=None))(
        independent.state, trajectory=independent.episode
    )
    batch = replace(independent, rows=jax.tree.map(np.asarray, rows)).batch
    _, metrics = update(jax.random.key(1), independent.state.train_state, batch)
    of_first = INDEPENDENT.update_epochs * int(independent.batch.is_valid[0].sum())
    np.testing.assert_array_equal(metrics["rows"], np.outer(np.ones(4), [of_first, 0, 0, 0]))


def test_every_seats_values_learn_alike(independent: Player, update: Update) -> None:
    """Independent self-play, by hand from its parts."""
    state, errors = independent.state, []
    for iteration in range(31):
        table, rows, _ = independent.play(state)
        rows = jax.tree.map(np.asarray, rows)
        squared = np.where(rows.is_valid, (rows.value - rows.target) ** 2, 0)
        errors.append(squared.sum((0, 1)) / rows.is_valid.sum((0, 1)))
        learner, _ = update(jax.random.key(iteration), state.train_state, replace(independent, rows=rows).batch)
        state = replace(state, rollout_state=table, train_state=learner, iteration=state.iteration + 1)
    late = np.mean(errors[-10:], 0)
    # A seat whose values nobody trains stays where it was: some ten times as far off.
    assert late.max() < 3 * late.min()
    assert (late < 0.5 * errors[0]).all()


# ---------------------------------------------------------------------------------------- minibatches, by a spy


def simple_network(params: Any, observation: Any) -> tuple[jax.Array, jax.Array]:
    """Says what the rows hold, moved by the parameters."""
    return observation["logits"] + params["logits"], observation["value"] + params["value"]


def simple_learner(settings: ppo_update.PPOUpdateConfig, actions: int = 3) -> TrainState:
    params = {"logits": jnp.zeros(actions), "value": jnp.float32(0)}
    return ppo_update.init_train_state(jax.random.split(jax.random.key(0), 1), lambda key: params, settings)


def simple_rows(number: int, learns: np.ndarray) -> ppo_update.Transitions:
    """Rows [1, number] that are known by what is in `written`."""
    generator = np.random.default_rng(0)
    logits, (value, advantage, target) = generator.normal(size=(1, number, 3)), generator.normal(size=(3, 1, number))
    places: Any = np.arange(number)[None]
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf,
        ppo_update.Transitions(
            features={"logits": logits, "value": value},
            seat=places % 2,
            action=places % 3,
            log_probability=np.full((1, number), -1.0),  # pyright: ignore[reportArgumentType]
            value=value,
            advantage=advantage,
            target=target,
            is_valid=learns[None],  # pyright: ignore[reportArgumentType]
            collected_at=places,
        ),
    )


@pytest.mark.parametrize(("number", "living", "minibatch"), [(50, 37, 8), (30, 4, 7)])
def test_minibatches_are_even_and_hold_every_living_row_once(number: int, living: int, minibatch: int) -> None:
    settings = ppo_update.PPOUpdateConfig(update_epochs=1, minibatch_size=minibatch)
    rows = simple_rows(number, np.random.default_rng(1).permutation(number) < living)
    used: list[np.ndarray] = []

    def spy(params: Any, network: Any, rows: ppo_update.Transitions, counts: jax.Array, **rest: Any) -> Any:
        jax.debug.callback(lambda place, counts: used.append(place[counts]), rows.collected_at, counts)
        return ppo_update.loss(params, network, rows, counts, **rest)

    _, metrics = jax.jit(
        lambda key, rows: ppo_update.update(
            key, simple_network, simple_learner(settings), rows, settings, 1.0, jnp.float32(0), 2, spy
        )
    )(jax.random.key(0), rows)
    jax.effects_barrier()
    sizes = [len(places) for places in used]
    assert len(sizes) == math.ceil(living / minibatch)
    assert sum(sizes) == living
    assert max(sizes) <= minibatch
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(used)), np.flatnonzero(rows.is_valid[0]))
    np.testing.assert_array_equal(metrics["rows"][0], np.bincount(rows.seat[0][rows.is_valid[0]], minlength=2))


def test_many_small_minibatches_still_hold_every_row() -> None:
    # 50,000 minibatches of 50,000 rows: their product is more than 32 bits hold, as with buffers of 20,000 episodes.
    settings = ppo_update.PPOUpdateConfig(update_epochs=1, minibatch_size=1)
    rows = simple_rows(50_000, np.ones(50_000, bool))
    _, metrics = jax.jit(
        lambda key, rows: ppo_update.update(
            key, simple_network, simple_learner(settings), rows, settings, 1.0, jnp.float32(0), 2
        )
    )(jax.random.key(0), rows)
    assert metrics["rows"].tolist() == [[25_000, 25_000]]


def test_a_parameter_set_learns_as_if_it_were_alone() -> None:
    """Gradients are shortened set by set; a set without a living row stays as it is, whatever its momentum."""
    settings = ppo_update.PPOUpdateConfig(update_epochs=2, minibatch_size=8, max_grad_norm=0.01)
    every = [simple_rows(12, learns) for learns in (np.ones(12, bool), np.ones(12, bool), np.zeros(12, bool))]
    every[1] = replace(every[1], target=1000 * every[1].target)
    momentum = jax.tree.map(lambda leaf: leaf + 1, simple_learner(settings))

    def learnt(rows: list[ppo_update.Transitions]) -> TrainState:
        start = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * len(rows)), momentum)
        stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
        return jax.jit(
            lambda key: ppo_update.update(key, simple_network, start, stacked, settings, 1.0, jnp.float32(0), 2)[0]
        )(jax.random.key(0))

    together = learnt(every)
    for number, rows in enumerate(every[:2]):
        alone = learnt([rows])
        for found, expected in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(found[number], expected[0], rtol=1e-5)
    for found, expected in zip(jax.tree.leaves(together), jax.tree.leaves(momentum), strict=True):
        np.testing.assert_array_equal(found[2], expected[0])


def test_living_rows_come_first_in_an_order_of_their_own_for_every_key() -> None:
    learns = np.random.default_rng(0).random((2, 60)) < 0.6
    keys = jax.random.split(jax.random.key(0), 5)
    orders = np.asarray(jax.jit(jax.vmap(ppo_update.shuffle_valid_first, (0, None)))(keys, learns))
    for order in orders:
        for own, mask in zip(order, learns, strict=True):
            assert np.sort(own).tolist() == list(range(60))
            assert mask[own].tolist() == sorted(mask.tolist(), reverse=True)
    living = int(learns[0].sum())
    assert len(np.unique(orders[:, 0, :living], axis=0)) == 5


# ------------------------------------------------------------------------------------------------- the loss by hand


def test_the_loss_is_the_one_worked_out_by_hand() -> None:
    # Three actions; the third is illegal in row 2, and row 4 does not count. Value scale 2, clip 0.2.
    settings = ppo_update.PPOUpdateConfig(clip_coef=0.2, vf_coef=0.5)
    policies = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]]
    logits = [[math.log(p) if p else -1e9 for p in policy] for policy in policies]
    actions = [0, 1, 1, 2, 0]
    old = [0.25, 0.5, 0.5, 0.5, 0.9]
    values, old_values, targets = [1.0, 3.0, 0.0, 2.0, 9.0], [1.0, 1.0, 1.0, 2.0, 0.0], [2.0, 2.5, 0.5, 2.0, -9.0]
    advantages = [3.0, -1.0, 1.0, 1.0, 1000.0]
    counts = np.array([True, True, True, True, False])

    # Advantages over the four rows that count: mean 1, squared deviations 4, 4, 0, 0, so variance 2.
    normal = [(a - 1.0) / math.sqrt(2.0 + 1e-8) for a in advantages[:4]]
    ratios = [2.0, 0.5, 1.0, 1.2]
    policy_losses = [
        -min(2.0 * normal[0], 1.2 * normal[0]),  # 2 is cut to 1.2, for the advantage is positive
        -min(0.5 * normal[1], 0.8 * normal[1]),  # 0.5 is raised to 0.8, for the advantage is negative
        -1.0 * normal[2],
        -1.2 * normal[3],
    ]
    # In units of 2: values .5 1.5 0 1, old .5 .5 .5 1, targets 1 1.25 .25 1; moved by 0, 1 -> .2, -.5 -> -.2, 0.
    value_losses = [
        0.5 * 0.5**2,
        0.5 * max((1.5 - 1.25) ** 2, (0.7 - 1.25) ** 2),
        0.5 * max((0.0 - 0.25) ** 2, (0.3 - 0.25) ** 2),
        0.0,
    ]
    entropies = [-sum(p * math.log(p) for p in policy if p) for policy in policies[:4]]
    expected = sum(p + 0.5 * v - 0.1 * e for p, v, e in zip(policy_losses, value_losses, entropies, strict=True)) / 4

    places: Any = np.zeros(5, np.int32)
    rows = ppo_update.Transitions(
        features={"logits": floats(logits), "value": floats(values)},
        seat=places,
        action=np.array(actions),  # pyright: ignore[reportArgumentType]
        log_probability=np.log(floats(old)),
        value=floats(old_values),
        advantage=floats(advantages),
        target=floats(targets),
        is_valid=counts,  # pyright: ignore[reportArgumentType]
        collected_at=places,
    )
    params = {"logits": floats([0, 0, 0]), "value": floats(0)}
    function = jax.jit(
        jax.value_and_grad(
            lambda params: ppo_update.loss(params, simple_network, rows, jnp.array(counts), settings, 2.0, 0.1),
            has_aux=True,
        )
    )
    (total, said), gradient = jax.tree.map(np.asarray, function(params))
    assert total == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(said["policy_loss"][:4], policy_losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(said["entropy"][:4], entropies, rtol=1e-5)
    # What is reported is the plain squared error, in the game's reward.
    np.testing.assert_allclose(said["value_loss"][:4], [1.0, 0.25, 0.25, 0.0], atol=1e-6)
    np.testing.assert_allclose(said["kl"][:4], [r - 1 - math.log(r) for r in ratios], atol=1e-6)
    np.testing.assert_array_equal(said["clip_fraction"][:3], [1, 1, 0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))

    # The gradient of the value: in rows 0 and 2 that of the plain error (-0.5 and -0.25), in row 1 the clipped error
    # is the greater and has none; times the weight 0.5, over 4 rows and the scale 2.
    assert gradient["value"] == pytest.approx(0.5 * (-0.5 - 0.25) / 4 / 2, rel=1e-4)
    assert not np.isclose(expected, sum(policy_losses) / 4, rtol=0.01), "every part shows in the sum"


def test_advantages_are_normalised_over_the_rows_that_count() -> None:
    mask: Any = np.array([True, True, False, True, False])
    advantage = floats([1.0, 3.0, 1e6, 5.0, -1e6])
    found, of_none = jax.jit(
        lambda rows: (ppo_update.normalize(rows, mask), ppo_update.masked_mean(rows, ~(mask | True)))
    )(advantage)
    np.testing.assert_allclose(np.asarray(found)[mask], [-math.sqrt(1.5), 0, math.sqrt(1.5)], atol=1e-5)
    assert of_none == 0


def test_what_is_annealed_falls_to_a_tenth() -> None:
    settings = ppo_update.PPOUpdateConfig(anneal_lr=True)
    steady = replace(settings, anneal_lr=False)
    both = jax.jit(lambda done: (ppo_update.anneal(settings, 2.0, done), ppo_update.anneal(steady, 2.0, done)))
    found, unchanged = both(floats([0, 0.5, 1, 2]))
    assert np.asarray(found) == pytest.approx([2, 1.1, 0.2, 0.2])
    assert (np.asarray(unchanged) == 2).all()


# -------------------------------------------------------------------------------------------------- illegal actions


def test_illegal_actions_have_probability_0_and_are_never_taken(independent: Player) -> None:
    network, game = independent.network, independent.stage.game
    all_seen = jax.tree.map(np.asarray, jax.jit(lambda played: observations(game, played))(independent.episode))
    seen: Observation = jax.tree.map(lambda leaf: leaf[:2, :, 0].reshape(64, *leaf.shape[3:]), all_seen)
    legal = np.asarray(seen.legal)[:, 0]
    assert (~legal).any(-1).all()
    params = jax.tree.map(lambda leaf: np.array(leaf[0]), independent.state.train_state.params)
    # A network that would like most what is illegal nearly everywhere: to hunt.
    params["policy"]["bias"] = np.array([0, 0, 0, 0, 0, 1e3, 1e3], np.float32)
    probability = np.asarray(jax.jit(lambda params: jax.nn.softmax(evaluate(network, params, seen)[0]))(params))
    assert (probability[~legal] == 0).all()
    np.testing.assert_allclose(probability.sum(-1), 1, rtol=1e-5)
    for greedy in (False, True):
        player = PolicyPlayer(network, "test", greedy=greedy)
        act = jax.vmap(jax.vmap(player.act, (0, None, None, None)), (None, None, None, 0))
        actions, _, choice = jax.jit(act)(jax.random.split(jax.random.key(0), 200), params, (), seen)
        actions = np.asarray(actions)
        assert np.take_along_axis(legal, actions, -1).all()
        found = np.take_along_axis(np.log(np.maximum(probability, 1e-30)), actions, -1)
        np.testing.assert_allclose(choice.log_probability, found, atol=1e-4)
        if greedy:
            np.testing.assert_array_equal(actions, np.broadcast_to(probability.argmax(-1)[:, None], (64, 200)))
        else:
            # Where nothing can be hunted the bias says nothing: every legal move is taken now and then.
            at_rest = np.flatnonzero(~legal[:, 5] & ~legal[:, 6])
            taken = (actions[at_rest][..., None] == np.arange(7)).any(1)
            np.testing.assert_array_equal(taken, legal[at_rest])


# ---------------------------------------------------------------------------------------------- buffers and keys


@dataclass(frozen=True, eq=False)
class Buffered:
    """States before and after iterations with a buffer of three iterations' episodes, metrics, and shuffling keys."""

    recipe: PPO
    stage: CurriculumPhase
    states: list[PPOState]
    metrics: list[dict[str, Any]]
    keys: list[bytes]
    """With which rows were shuffled, by epoch."""


@pytest.fixture(scope="module")
def buffered() -> Buffered:
    recipe = PPO(
        num_envs=8,
        buffer_episodes=24,
        hidden=(16,),
        update_epochs=2,
        minibatch_size=64,
        learning_rate=0.02,
        anneal_lr=False,
    )
    stage = prepare(TrainingConfig(game="msh-4x4-2h1s:height=2:width=2:stags=0:T=6"), recipe).phases[0][1]
    keys: list[bytes] = []
    living_first = ppo_update.shuffle_valid_first

    def spy(key: jax.Array, learns: jax.Array) -> jax.Array:
        jax.debug.callback(lambda data: keys.append(np.asarray(data).tobytes()), jax.random.key_data(key))
        return living_first(key, learns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo_update, "shuffle_valid_first", spy)
        iterate = jax.jit(partial(recipe.iterate, phase=stage, frozen={}))
        states, metrics = [jax.jit(partial(recipe.init, phase=stage, frozen={}))(jax.random.key(0))], []
        for _ in range(5):
            state, said = iterate(states[-1])
            states.append(state)
            metrics.append(jax.tree.map(np.asarray, said))
        jax.effects_barrier()
    return Buffered(recipe, stage, states, metrics, keys)


def test_staleness_grows_to_half_the_buffer(buffered: Buffered) -> None:
    for iteration, (state, said) in enumerate(zip(buffered.states[1:], buffered.metrics, strict=True)):
        rows = jax.tree.map(np.asarray, state.buffer)
        ages = iteration - rows.collected_at
        # By hand, from what is in the buffer; and about what it is where all episodes are equally long.
        expected = [ages[..., seat][rows.is_valid[..., seat]].mean() for seat in range(2)]
        np.testing.assert_allclose(said["staleness"].total / said["staleness"].count, expected, rtol=1e-5)
        np.testing.assert_allclose(expected, min(iteration, 2) / 2, atol=0.3 * (iteration > 0))
        assert set(ages[rows.is_valid].tolist()) == set(range(min(iteration, 2) + 1))


def test_a_buffer_keeps_rows_as_they_were_played(buffered: Buffered) -> None:
    for iteration in range(5):
        before, after = (jax.tree.map(np.asarray, state.buffer) for state in buffered.states[iteration : iteration + 2])
        new = np.arange(8) + 8 * (iteration % 3)
        old = np.setdiff1d(np.arange(24), new)
        kept = [jax.tree.map(lambda leaf, old=old: leaf[:, old], rows) for rows in (before, after)]
        assert equal(*kept)
        assert (after.collected_at[:, new] == iteration).all()
        assert after.is_valid[:, new].any()


def test_ratios_are_against_the_stored_probabilities(buffered: Buffered) -> None:
    # The last iteration's update began from the parameters before it: only its own rows have ratios of 1 then.
    before, after = buffered.states[-2:]
    rows = jax.tree.map(np.asarray, after.buffer)
    features = jax.tree.map(lambda leaf: leaf[None], rows.features)
    network = buffered.recipe.network(buffered.stage.final_game)
    log_policy, _ = log_policies(network)(before.train_state.params, features)
    found = np.take_along_axis(log_policy[0], rows.action[..., None], -1)[..., 0]
    ratio, fresh = np.exp(found - rows.log_probability), rows.collected_at == 4
    np.testing.assert_allclose(ratio[rows.is_valid & fresh], 1, atol=1e-5)
    for age in (1, 2):
        assert np.abs(ratio - 1)[rows.is_valid & (rows.collected_at == 4 - age)].mean() > 0.01


def test_steps_are_those_really_played(buffered: Buffered) -> None:
    for iteration in range(5):
        before, after = buffered.states[iteration : iteration + 2]
        new = np.asarray(after.buffer.is_valid)[:, 8 * (iteration % 3) : 8 * (iteration % 3) + 8]  # pyright: ignore[reportOptionalMemberAccess]
        assert int(after.steps - before.steps) == new.any(-1).sum()
    assert int(buffered.states[-1].steps) < 5 * 8 * 6, "some episodes end before T"


def test_no_randomness_is_used_twice(buffered: Buffered, independent: Player) -> None:
    # Two epochs in each of five iterations, each shuffled with a key of its own.
    assert len(buffered.keys) == 10
    assert len(set(buffered.keys)) == 10
    rows = jax.tree.map(np.asarray, buffered.states[3].buffer)
    firsts = [rows.features[0, 8 * number : 8 * number + 8] for number in range(3)]
    assert not np.array_equal(firsts[0], firsts[1])
    assert not np.array_equal(firsts[1], firsts[2])
    # On-policy: the same parameters play on from a table; nothing repeats, and from the same table everything does.
    table, _, _ = independent.play(independent.state)
    second = jax.tree.map(np.asarray, independent.play(replace(independent.state, rollout_state=table))[1])
    again = jax.tree.map(np.asarray, independent.play(independent.state)[1])
    assert equal(again, independent.rows)
    assert not np.array_equal(second.action, again.action)
    time = -2 - independent.stage.game.num_actions
    layouts = np.concatenate([rows.features[rows.features[..., time] == 0] for rows in (again, second)])
    assert len(layouts) > 64
    counts = np.unique(layouts, axis=0, return_counts=True)[1]
    assert (counts == 1).all()

"""PPO on games with known answers; seats of learners, scripted and frozen players, pools and curriculum partners."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float

from common import differs_by, floats, train
from hopplus import games, players, rollouts
from hopplus.algorithms import PPO, Prosocial
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.seats import LEARNER, PartnerPool
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games import Observation, catalog
from hopplus.players import Cast, Player, PolicyPlayer, Pool, PoolParams
from hopplus.players.pool import draw_member
from hopplus.training.casting import make_seats, parse_cast, parse_player, seat_cast
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, prepare
from hopplus.training.policies import Policy, save_policy
from hopplus.training.summary import log_lines
from toy_games import BANDIT, DILEMMA, PATIENCE, Medley

PARTNER_STEPS = 1_000_000_000


@pytest.fixture(scope="module", autouse=True)
def registered_game() -> Iterator[None]:
    games.register("test-medley", Medley)
    yield
    catalog._GAMES.pop("test-medley")


MEDLEY = Medley()
ALGORITHM = PPO(
    num_envs=64,
    num_steps=8,
    hidden=(32,),
    encoder="dense",
    minibatch_size=256,
    learning_rate=4e-3,
    anneal_lr=False,
    gamma=0.99,
    ent_coef=0.01,
)
TINY_HUNT = "msh-4x4-2h1s:height=2:width=2:hares=0:T=6"


# ---------------------------------------------------------------------------------------------------- known answers


@pytest.fixture(scope="module")
def partner_loop() -> tuple[Experiment, CompiledLoop]:
    """Independent self-play; the share of curriculum partners in both seats falls from 1 at step 0 to 0 at the end."""
    training = TrainingConfig(
        game="test-medley",
        steps=200 * 512,
        iterations_per_call=20,
        partner="stay",
        partner_share=1.0,
        partner_steps=PARTNER_STEPS,
    )
    experiment = prepare(training, replace(ALGORITHM, parameters="independent"))
    return experiment, CompiledLoop(experiment)


def check_medley(returns: Float[np.ndarray, "kinds seats"], dilemma: float, patience: float) -> None:
    np.testing.assert_allclose(returns[DILEMMA], dilemma, rtol=0.03, err_msg="dilemma")
    np.testing.assert_allclose(returns[BANDIT], 2.0, rtol=0.03, err_msg="bandit")
    np.testing.assert_allclose(returns[PATIENCE], patience, rtol=0.03, err_msg="patience")


def test_shared_parameters_learn_the_known_answers() -> None:
    trained = train(prepare(TrainingConfig(game="test-medley", steps=200 * 512, iterations_per_call=20), ALGORITHM))
    check_medley(trained.by_kind(), dilemma=1.0, patience=1.5)


def test_prosocial_agents_cooperate() -> None:
    # Together they earn 3 a step if both cooperate, 2.5 if one does, 1 if none does.
    settings = {name: getattr(ALGORITHM, name) for name in asdict(ALGORITHM)}
    trained = train(
        prepare(TrainingConfig(game="test-medley", steps=200 * 512, iterations_per_call=20), Prosocial(**settings))
    )
    check_medley(trained.by_kind(), dilemma=3.0, patience=1.5)


def test_independent_parameters_learn_the_known_answers(partner_loop: tuple[Experiment, CompiledLoop]) -> None:
    trained = train(*partner_loop, start_steps=PARTNER_STEPS)
    check_medley(trained.by_kind(), dilemma=1.0, patience=1.5)
    trained_on = np.array([line["trained_on"] for line in trained.lines])
    assert (trained_on[:, [0, 1], [0, 1]] > 0).all()
    assert (trained_on[:, [0, 1], [1, 0]] == 0).all(), "a parameter set was trained on the other seat's transitions"


def cooperator() -> Policy:
    """Saved policy that always idles."""
    params = jax.tree.map(
        np.asarray, jax.jit(partial(initial_params, ALGORITHM.network(MEDLEY), MEDLEY))(jax.random.key(5))
    )
    params["policy"]["bias"] = np.array([50.0, 0.0, 0.0, 0.0], np.float32)
    return Policy("ppo", asdict(ALGORITHM), "test-medley", seed=0, seat=0, params=params)


@pytest.mark.parametrize("cast", ["learner,stay", "saved,learner"])
def test_a_learner_in_any_seat_learns_the_best_response_to_a_fixed_player(cast: str) -> None:
    # The idle player is scripted in seat 1 and a frozen network in seat 0. With gamma = 0.5, a reward of 1 now is
    # better than 1.5 in the next step. Defecting against a cooperator pays 2.5 a step.
    policy = cooperator()
    before = jax.tree.map(np.array, policy.params)
    policies = {"run(saved,seed=None,trained_at=None) in seat 0": policy} if "saved" in cast else None
    training = TrainingConfig(game="test-medley", steps=100 * 512, iterations_per_call=20, cast=cast)
    trained = train(prepare(training, replace(ALGORITHM, gamma=0.5, parameters="independent"), policies))
    seat, returns = cast.split(",").index("learner"), trained.by_kind()
    check_medley(returns[:, [seat]], dilemma=5.0, patience=1.0)
    assert returns[DILEMMA, 1 - seat] == 0, "the other does not cooperate any more"
    assert trained.experiment.learners == (seat,)
    sets = {leaf.shape[1] for leaf in jax.tree.leaves(trained.states.train_state.params)}
    assert sets == {1}, "a seat without a learner has trained parameters"
    for line in trained.lines:
        assert line["trained_on"][0][seat] > 0
        assert line["trained_on"][0][1 - seat] == 0
    assert jax.tree.all(jax.tree.map(np.array_equal, before, policy.params))


def test_two_hunters_on_a_tiny_board_learn_to_share_the_stag() -> None:
    algorithm = replace(ALGORITHM, parameters="independent", learning_rate=1e-2)
    trained = train(prepare(TrainingConfig(game=TINY_HUNT, steps=100 * 512, iterations_per_call=20), algorithm))
    np.testing.assert_allclose(trained.returns()[0].mean(0), 5.0, rtol=0.03)
    losses = np.array([line["value_loss"] for line in trained.lines])
    assert losses.shape == (5, 2)
    # Both seats have similar transitions: after the first chunk their value losses are of similar size.
    assert (losses[1:].max(1) < 3 * losses[1:].min(1)).all()
    assert (losses[-1] < 0.5 * losses[0]).all()


# ---------------------------------------------------------------------------------------- curriculum partners and pools


def test_a_learner_replaced_by_a_curriculum_partner_is_not_trained(
    partner_loop: tuple[Experiment, CompiledLoop],
) -> None:
    experiment, loop = partner_loop
    first = loop.init_states()
    states, metrics, _ = loop.iterate(first, 0)
    assert int(states.steps[0]) == 20 * 512
    (line,) = log_lines(experiment, states, metrics, np.ones(1, bool), 1)
    assert np.array_equal(line["trained_on"], np.zeros((2, 2)))
    assert jax.tree.all(jax.tree.map(np.array_equal, first.train_state, states.train_state))


def test_the_partner_share_decides_which_episodes_the_learner_plays(
    partner_loop: tuple[Experiment, CompiledLoop],
) -> None:
    experiment, loop = partner_loop
    phase, algorithm = experiment.phases[0][1], experiment.algorithm
    assert isinstance(algorithm, PPO)
    state = jax.tree.map(lambda leaf: leaf[0], loop.init_states())
    compiled = jax.jit(algorithm.collect, static_argnums=1)
    for share, steps in ((1.0, 0), (0.5, PARTNER_STEPS // 2), (0.0, PARTNER_STEPS)):
        _, *played = compiled(replace(state, steps=jnp.int32(steps)), phase, {})
        rows, trajectory = jax.tree.map(np.asarray, played)
        learns, alive = rows.is_valid, trajectory.alive
        np.testing.assert_array_equal(learns & ~alive, False)
        first_steps = trajectory.state.time == 0
        by_learner = learns[first_steps]
        assert by_learner.shape[0] >= 64 * 4
        bound = differs_by(by_learner.size) if 0 < share < 1 else 0.0
        assert abs(by_learner.mean() - (1 - share)) <= bound
        if 0 < share < 1:
            assert abs((by_learner[:, 0] & by_learner[:, 1]).mean() - 0.25) <= differs_by(len(by_learner))
        # The player of the first step plays the whole episode; the partner, which idles, plays the other episodes.
        second = ~first_steps[1:] & ~trajectory.over[:-1]
        both = second[..., None] & alive[1:]
        np.testing.assert_array_equal(learns[1:][both], learns[:-1][both])
        assert (trajectory.actions[~learns] == 0).all()
        if share == 0:
            np.testing.assert_array_equal(learns, alive)


@dataclass(frozen=True)
class Constant(Player):
    """Player with one fixed action."""

    action: int
    name: str = "constant"

    def act(self, key: Key, params: Any, memory: Any, observation: Observation) -> Any:
        return jnp.int32(self.action), memory, ()


def test_a_pool_draws_a_member_per_episode_by_weight() -> None:
    pool = Pool(tuple(Constant(action) for action in range(4)))
    cast = Cast((players.make("stay", MEDLEY), pool))
    weights = np.array([0.5, 0.3, 0.0, 0.2], np.float32)
    params = ((), PoolParams(jnp.asarray(weights), ((),) * 4))
    rollout_state = rollouts.init_rollout(jax.random.key(0), MEDLEY, cast, 512, params)
    _, trajectory = rollouts.rollout(rollout_state, MEDLEY, cast, 12, params)
    member = np.asarray(trajectory.info[1].member)[..., 0]
    time, kind, actions = (
        np.asarray(leaf) for leaf in (trajectory.state.time, trajectory.state.kind, trajectory.actions[..., 1])
    )
    alive = np.asarray(trajectory.alive[..., 1])
    # All actions are legal in the bandit: the action played there is the member's.
    np.testing.assert_array_equal(actions[(kind == BANDIT) & alive], member[(kind == BANDIT) & alive])
    # All episodes last two steps here, since the other player never leaves: the same member in both.
    assert (time == np.tile([0, 1], 6)[:, None]).all()
    np.testing.assert_array_equal(member[::2], member[1::2])
    drawn = member[::2]
    frequencies = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    assert frequencies[2] == 0
    assert np.abs(frequencies - weights).max() <= differs_by(drawn.size, 1e-9 / 4)
    # The next episode's member is independent: the same as before with probability 0.25 + 0.09 + 0.04. Disjoint pairs.
    again = drawn[::2] == drawn[1::2]
    assert abs(again.mean() - 0.38) <= differs_by(again.size)


drawn_members = jax.jit(jax.vmap(draw_member, (0, None)))


@pytest.mark.parametrize(("weights", "members"), [([0, 1, 0], {1}), ([0, 0, 2], {2}), ([3, 0, 1], {0, 2})])
def test_members_of_weight_0_are_never_drawn(weights: list[float], members: set[int]) -> None:
    uniforms = floats([0.0, 1e-7, 0.3, 0.7499, 0.7501, 1 - 2**-23])
    assert set(np.asarray(drawn_members(uniforms, floats(weights))).tolist()) == members


# ------------------------------------------------------------------------------------------------------------ seats


def seats_of(cast: str, partner: str | None = None) -> Any:
    game = games.make("msh-4x4-2h1s")
    learner = PolicyPlayer(ALGORITHM.network(game), LEARNER)
    return make_seats(parse_cast(cast), game, learner, parse_player(partner) if partner else None)[0]


@pytest.mark.parametrize(
    ("cast", "partner", "complaint"),
    [
        ("ns,nh", None, "no seat learns"),
        ("noisy(learner,0.2),ns", None, "not in another player"),
        ("switching(learner,ns,every=2),ns", None, "not in another player"),
        ("pool(noisy(learner,0.2),nh),ns", None, "not in another player"),
        ("pool(learner,learner),ns", None, "learner"),
        ("pool(pool(learner,ns),nh),ns", None, "not in a pool in a pool"),
        ("learnr,ns", None, "learnr"),
        ("learner", None, "2 seats"),
        ("learner,ns,ns", None, "2 seats"),
        ("learner,ns", "nobody", "nobody"),
        ("learner,run(no/such/run)", None, "no/such/run"),
    ],
)
def test_invalid_seats_are_rejected(cast: str, partner: str | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        seats_of(cast, partner)


def test_seats_list_their_learners() -> None:
    assert seats_of("self-play").learners == (0, 1)
    assert seats_of("ns,learner").learners == (1,)
    assert seats_of("pool(learner,nh),ns").learners == (0,)
    with_partner = seats_of("ns,learner", "nh")
    assert with_partner.learners == (1,)
    assert isinstance(with_partner.cast.players[1], PartnerPool)
    assert not isinstance(with_partner.cast.players[0], Pool)


def test_learning_and_frozen_seats_play_with_separate_parameters() -> None:
    learner = PolicyPlayer(ALGORITHM.network(MEDLEY), LEARNER)
    source = "run(saved,seed=None,trained_at=None) in seat 1"
    seats, frozen = make_seats(parse_cast("learner,saved"), MEDLEY, learner, kept={source: cooperator()})
    assert list(frozen) == [source]
    assert seats.learners == (0,)
    sets = {"w": np.array([[1.0], [2.0]])}
    assert seats.params(sets, {source: "theirs"})[0]["w"].tolist() == [1.0]
    assert seats.params(sets, {source: "theirs"})[1] == "theirs"
    both, _ = make_seats(parse_cast("self-play"), MEDLEY, learner, partner=parse_player("stay"))
    first, second = both.params(sets, {}, partner_share=0.25)
    np.testing.assert_allclose(first.weights, [0.75, 0.25])
    assert [first.members[0]["w"].tolist(), second.members[0]["w"].tolist()] == [[1.0], [2.0]]
    shared, _ = make_seats(parse_cast("self-play"), MEDLEY, replace(learner, shares_params=True))
    assert [params["w"].tolist() for params in shared.params(sets, {})] == [[1.0], [1.0]]


def test_saved_networks_may_be_noisy_or_switch(tmp_path: Path) -> None:
    game = games.make("msh-4x4-2h1s:T=8")
    algorithm = PPO(hidden=(8,))
    params = jax.jit(partial(initial_params, algorithm.network(game), game))(jax.random.key(0))
    policy = Policy("ppo", {"hidden": (8,)}, game.name, 0, 0, jax.tree.map(np.asarray, params))
    save_policy(tmp_path / "p.safetensors", policy)
    run = f"run({tmp_path / 'p.safetensors'})"
    seated = seat_cast(parse_cast(f"switching({run},stay,every=1),noisy({run},0.5)"), game)
    memories, first = rollouts.play_episodes(jax.random.key(1), game, seated.cast, 8, seated.params())
    _, second = rollouts.play_episodes(jax.random.key(2), game, seated.cast, 8, seated.params(), memories)
    idle = [
        np.asarray(trajectory.actions)[..., 0][np.asarray(trajectory.alive)[..., 0]] == 4
        for trajectory in (first, second)
    ]
    assert not idle[0].all()
    assert idle[1].all()

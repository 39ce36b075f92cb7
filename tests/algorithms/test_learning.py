"""Learning where the answers are known, and who sits where: learners, scripted players, frozen ones, pools, guests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from common import differs_by, floats, train
from hopplus import games, players, rollouts
from hopplus.algorithms import PPO, Prosocial
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.seats import LEARNER, PartnerPool
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, below
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, catalog, ego_first
from hopplus.players import Cast, Player, PolicyPlayer, Pool, PoolParams
from hopplus.players.pool import draw_member
from hopplus.training.casting import make_seats, seat_cast
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, prepare
from hopplus.training.policies import Policy, save_policy
from hopplus.training.summary import log_lines

DILEMMA, BANDIT, PATIENCE = range(3)
GUEST_STEPS = 1_000_000_000


@struct
class MedleyState:
    kind: Int[Array, ""]
    arms: Int[Array, " n"]
    """Which arm pays whom, in the bandit."""
    gone: Bool[Array, " n"]
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Medley(Game[MedleyState]):
    """One of three games of two players and two steps, drawn for every episode and shown to both: one compiled program
    for three known answers.

    Dilemma: action 1 defects, which is better whatever the other does: 0.5 a step each in equilibrium, 2.5 a step
    against a player who always idles. Bandit: of four arms each player sees the one that pays it 1 a step (and the one
    that pays the other). Patience: action 1 takes 1 in the first step or 1.5 in the second, and whoever takes leaves;
    to wait is right where a step costs less than a third.
    """

    name: str = "test-medley"
    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE", "TWO", "THREE")
    idle_action: ClassVar[int] = 0

    @property
    def channel_names(self) -> tuple[str, ...]:
        return ("own arm", "other's arm", "kind")

    @property
    def taken_names(self) -> tuple[str, ...]:
        return ("nothing",)

    @property
    def num_players(self) -> int:
        return 2

    @property
    def last_step(self) -> int:
        return 2

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": 3.0, "player": 5.0}

    def draw(self, key: Key) -> tuple[MedleyState, Bool[Array, ""]]:
        kind, *arms = below(jax.random.bits(key, (3,)), jnp.array([3, 4, 4]))
        arms = jnp.where(kind == BANDIT, jnp.stack(arms), 0)
        nothing = jnp.zeros(2, jnp.int32)
        return MedleyState(kind, arms, nothing > 0, jnp.int32(0), nothing), jnp.bool_(True)

    def transition(
        self, key: Key, state: MedleyState, actions: Int[Array, " n"]
    ) -> tuple[MedleyState, Float[Array, " n"], Int[Array, " n"], Int[Array, " n"]]:
        defects = (actions == 1).astype(jnp.float32)
        dilemma = 1.5 + defects - (1.5 + defects * 0.5) * defects[::-1]
        bandit = (actions == state.arms).astype(jnp.float32)
        patience = defects * jnp.where(state.time == 0, 1.0, 1.5)
        reward = jnp.where(state.gone, 0.0, jnp.stack([dilemma, bandit, patience])[state.kind])
        after = MedleyState(
            kind=state.kind,
            arms=state.arms,
            gone=state.gone | ((state.kind == PATIENCE) & (actions == 1)),
            time=state.time + 1,
            last_actions=jnp.where(state.gone, state.last_actions, actions),
        )
        return after, reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)

    def left(self, state: MedleyState) -> Bool[Array, " n"]:
        return state.gone

    def over(self, state: MedleyState) -> Bool[Array, ""]:
        return (state.time >= 2) | state.gone.all()

    def legal(self, state: MedleyState) -> Bool[Array, "n A"]:
        number = jnp.where(state.gone, 1, jnp.where(state.kind == BANDIT, 4, 2))
        return jnp.arange(4) < number[:, None]

    def observe(self, state: MedleyState) -> Observation:
        arms = ego_first(state.arms[:, None] == jnp.arange(4))
        kind = jnp.broadcast_to(state.kind == jnp.arange(4), (2, 1, 4))
        return Observation(
            grid=jnp.moveaxis(jnp.concatenate([arms, kind], 1), 1, 2)[:, None].astype(jnp.int8),
            time=jnp.broadcast_to(state.time, 2),
            deadline=jnp.full(2, 2),
            legal=ego_first(self.legal(state)),
            last_actions=ego_first(state.last_actions),
        )

    def restore(self, observation: Observation) -> MedleyState:
        own, other, kind = observation.grid[0].argmax(0)
        gone = ~observation.legal[:, 1]
        return MedleyState(kind, jnp.stack([own, other]), gone, observation.time, observation.last_actions)

    def permute(self, state: MedleyState, order: Sequence[int] | Int[Array, " n"]) -> MedleyState:
        order = jnp.asarray(order)
        return MedleyState(state.kind, state.arms[order], state.gone[order], state.time, state.last_actions[order])


@pytest.fixture(scope="module", autouse=True)
def medley_is_known() -> Iterator[None]:
    games.register("test-medley", Medley)
    yield
    catalog._GAMES.pop("test-medley")


MEDLEY = Medley()
RECIPE = PPO(
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
def hosted() -> tuple[Experiment, CompiledLoop]:
    """Self-play with independent parameters, in which a guest sits in both seats at step 0 and nowhere at the end."""
    training = TrainingConfig(
        game="test-medley",
        steps=200 * 512,
        iterations_per_call=20,
        partner="stay",
        partner_share=1.0,
        partner_steps=GUEST_STEPS,
    )
    setup = prepare(training, replace(RECIPE, parameters="independent"))
    return setup, CompiledLoop(setup)


def check_medley(found: Float[np.ndarray, "kinds seats"], dilemma: float, patience: float) -> None:
    np.testing.assert_allclose(found[DILEMMA], dilemma, rtol=0.03, err_msg="dilemma")
    np.testing.assert_allclose(found[BANDIT], 2.0, rtol=0.03, err_msg="bandit")
    np.testing.assert_allclose(found[PATIENCE], patience, rtol=0.03, err_msg="patience")


def test_shared_parameters_learn_the_known_answers() -> None:
    learnt = train(prepare(TrainingConfig(game="test-medley", steps=200 * 512, iterations_per_call=20), RECIPE))
    check_medley(learnt.by_kind(), dilemma=1.0, patience=1.5)


def test_those_who_care_for_each_other_cooperate() -> None:
    # Together they earn 3 a step if both cooperate, 2.5 if one does, 1 if nobody does.
    settings = {name: getattr(RECIPE, name) for name in asdict(RECIPE)}
    learnt = train(
        prepare(TrainingConfig(game="test-medley", steps=200 * 512, iterations_per_call=20), Prosocial(**settings))
    )
    check_medley(learnt.by_kind(), dilemma=3.0, patience=1.5)


def test_independent_parameters_learn_the_known_answers(hosted: tuple[Experiment, CompiledLoop]) -> None:
    learnt = train(*hosted, start_steps=GUEST_STEPS)
    check_medley(learnt.by_kind(), dilemma=1.0, patience=1.5)
    trained_on = np.array([line["trained_on"] for line in learnt.lines])
    assert (trained_on[:, [0, 1], [0, 1]] > 0).all()
    assert (trained_on[:, [0, 1], [1, 0]] == 0).all(), "a set has learnt from the other seat's rows"


def cooperator() -> Policy:
    """A saved policy that always idles."""
    params = jax.tree.map(
        np.asarray, jax.jit(partial(initial_params, RECIPE.network(MEDLEY), MEDLEY))(jax.random.key(5))
    )
    params["policy"]["bias"] = np.array([50.0, 0.0, 0.0, 0.0], np.float32)
    return Policy("ppo", asdict(RECIPE), "test-medley", seed=0, seat=0, params=params)


@pytest.mark.parametrize("cast", ["learner,stay", "saved,learner"])
def test_a_learner_in_any_seat_learns_the_best_answer_to_a_player_who_stays_as_it_is(cast: str) -> None:
    # One who always idles is scripted in seat 1 and a frozen network in seat 0. A discount of a half: 1 now is better
    # than 1.5 in the next step. To defect against a cooperator pays 2.5 a step.
    policy = cooperator()
    before = jax.tree.map(np.array, policy.params)
    kept = {"run(saved,seed=None,trained_at=None) in seat 0": policy} if "saved" in cast else None
    training = TrainingConfig(game="test-medley", steps=100 * 512, iterations_per_call=20, cast=cast)
    learnt = train(prepare(training, replace(RECIPE, gamma=0.5, parameters="independent"), kept))
    seat, found = cast.split(",").index("learner"), learnt.by_kind()
    check_medley(found[:, [seat]], dilemma=5.0, patience=1.0)
    assert found[DILEMMA, 1 - seat] == 0, "the other does not cooperate any more"
    assert learnt.setup.learners == (seat,)
    sets = {leaf.shape[1] for leaf in jax.tree.leaves(learnt.states.train_state.params)}
    assert sets == {1}, "a seat that does not learn has a parameter set that does"
    for line in learnt.lines:
        assert line["trained_on"][0][seat] > 0
        assert line["trained_on"][0][1 - seat] == 0
    assert jax.tree.all(jax.tree.map(np.array_equal, before, policy.params))


def test_two_hunters_on_a_tiny_board_learn_to_share_the_stag() -> None:
    recipe = replace(RECIPE, parameters="independent", learning_rate=1e-2)
    learnt = train(prepare(TrainingConfig(game=TINY_HUNT, steps=100 * 512, iterations_per_call=20), recipe))
    np.testing.assert_allclose(learnt.returns()[0].mean(0), 5.0, rtol=0.03)
    losses = np.array([line["value_loss"] for line in learnt.lines])
    assert losses.shape == (5, 2)
    # Both seats see the same kind of rows: after the first chunk their value losses are of one size.
    assert (losses[1:].max(1) < 3 * losses[1:].min(1)).all()
    assert (losses[-1] < 0.5 * losses[0]).all()


# ------------------------------------------------------------------------------------------------- guests and pools


def test_a_learner_whose_seat_a_guest_has_learns_nothing(hosted: tuple[Experiment, CompiledLoop]) -> None:
    setup, programs = hosted
    first = programs.init_states()
    states, metrics, _ = programs.iterate(first, 0)
    assert int(states.steps[0]) == 20 * 512
    (line,) = log_lines(setup, states, metrics, np.ones(1, bool), 1)
    assert np.array_equal(line["trained_on"], np.zeros((2, 2)))
    assert jax.tree.all(jax.tree.map(np.array_equal, first.train_state, states.train_state))


def test_the_share_of_guests_decides_which_episodes_the_learner_has(hosted: tuple[Experiment, CompiledLoop]) -> None:
    setup, programs = hosted
    stage, recipe = setup.phases[0][1], setup.algorithm
    assert isinstance(recipe, PPO)
    state = jax.tree.map(lambda leaf: leaf[0], programs.init_states())
    compiled = jax.jit(recipe.collect, static_argnums=1)
    for share, steps in ((1.0, 0), (0.5, GUEST_STEPS // 2), (0.0, GUEST_STEPS)):
        _, *played = compiled(replace(state, steps=jnp.int32(steps)), stage, {})
        rows, episode = jax.tree.map(np.asarray, played)
        learns, alive = rows.is_valid, episode.alive
        np.testing.assert_array_equal(learns & ~alive, False)
        first_steps = episode.state.time == 0
        by_learner = learns[first_steps]
        assert by_learner.shape[0] >= 64 * 4
        bound = differs_by(by_learner.size) if 0 < share < 1 else 0.0
        assert abs(by_learner.mean() - (1 - share)) <= bound
        if 0 < share < 1:
            assert abs((by_learner[:, 0] & by_learner[:, 1]).mean() - 0.25) <= differs_by(len(by_learner))
        # Whoever has the first step has all of the episode; the guest, who idles, is the one that acted elsewhere.
        second = ~first_steps[1:] & ~episode.over[:-1]
        both = second[..., None] & alive[1:]
        np.testing.assert_array_equal(learns[1:][both], learns[:-1][both])
        assert (episode.actions[~learns] == 0).all()
        if share == 0:
            np.testing.assert_array_equal(learns, alive)


@dataclass(frozen=True)
class Constant(Player):
    """Always the same action."""

    action: int
    name: str = "constant"

    def act(self, key: Key, params: Any, memory: Any, observation: Observation) -> Any:
        return jnp.int32(self.action), memory, ()


def test_a_pool_draws_one_member_an_episode_with_its_weight() -> None:
    pool = Pool(tuple(Constant(action) for action in range(4)))
    cast = Cast((players.make("stay", MEDLEY), pool))
    weights = np.array([0.5, 0.3, 0.0, 0.2], np.float32)
    params = ((), PoolParams(jnp.asarray(weights), ((),) * 4))
    table = rollouts.init_rollout(jax.random.key(0), MEDLEY, cast, 512, params)
    _, episode = rollouts.rollout(table, MEDLEY, cast, 12, params)
    member = np.asarray(episode.info[1].member)[..., 0]
    time, kind, actions = (
        np.asarray(leaf) for leaf in (episode.state.time, episode.state.kind, episode.actions[..., 1])
    )
    alive = np.asarray(episode.alive[..., 1])
    # The bandit allows every action: what is done there is what the member does.
    np.testing.assert_array_equal(actions[(kind == BANDIT) & alive], member[(kind == BANDIT) & alive])
    # Every episode lasts two steps here, since the other never leaves: one member in both.
    assert (time == np.tile([0, 1], 6)[:, None]).all()
    np.testing.assert_array_equal(member[::2], member[1::2])
    drawn = member[::2]
    frequencies = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    assert frequencies[2] == 0
    assert np.abs(frequencies - weights).max() <= differs_by(drawn.size, 1e-9 / 4)
    # The next episode's member is drawn anew: the same as before with probability 0.25 + 0.09 + 0.04. Disjoint pairs.
    again = drawn[::2] == drawn[1::2]
    assert abs(again.mean() - 0.38) <= differs_by(again.size)


drawn_members = jax.jit(jax.vmap(draw_member, (0, None)))


@pytest.mark.parametrize(("weights", "members"), [([0, 1, 0], {1}), ([0, 0, 2], {2}), ([3, 0, 1], {0, 2})])
def test_members_of_weight_0_are_never_drawn(weights: list[float], members: set[int]) -> None:
    uniforms = floats([0.0, 1e-7, 0.3, 0.7499, 0.7501, 1 - 2**-23])
    assert set(np.asarray(drawn_members(uniforms, floats(weights))).tolist()) == members


# ------------------------------------------------------------------------------------------------------------ seats


def seats_of(cast: str, guest: str | None = None) -> Any:
    game = games.make("msh-4x4-2h1s")
    learner = PolicyPlayer(RECIPE.network(game), LEARNER)
    return make_seats(cast, game, learner, guest)[0]


@pytest.mark.parametrize(
    ("cast", "guest", "complaint"),
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
def test_seats_that_cannot_be_are_refused(cast: str, guest: str | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        seats_of(cast, guest)


def test_seats_know_who_learns() -> None:
    assert seats_of("self-play").learners == (0, 1)
    assert seats_of("ns,learner").learners == (1,)
    assert seats_of("pool(learner,nh),ns").learners == (0,)
    with_guest = seats_of("ns,learner", "nh")
    assert with_guest.learners == (1,)
    assert isinstance(with_guest.cast.players[1], PartnerPool)
    assert not isinstance(with_guest.cast.players[0], Pool)


def test_each_seat_plays_with_its_own_parameters_and_frozen_ones_with_theirs() -> None:
    learner = PolicyPlayer(RECIPE.network(MEDLEY), LEARNER)
    source = "run(saved,seed=None,trained_at=None) in seat 1"
    seats, frozen = make_seats("learner,saved", MEDLEY, learner, kept={source: cooperator()})
    assert list(frozen) == [source]
    assert seats.learners == (0,)
    sets = {"w": np.array([[1.0], [2.0]])}
    assert seats.params(sets, {source: "theirs"})[0]["w"].tolist() == [1.0]
    assert seats.params(sets, {source: "theirs"})[1] == "theirs"
    both, _ = make_seats("self-play", MEDLEY, learner, partner="stay")
    first, second = both.params(sets, {}, partner_share=0.25)
    np.testing.assert_allclose(first.weights, [0.75, 0.25])
    assert [first.members[0]["w"].tolist(), second.members[0]["w"].tolist()] == [[1.0], [2.0]]
    shared, _ = make_seats("self-play", MEDLEY, replace(learner, shares_params=True))
    assert [own["w"].tolist() for own in shared.params(sets, {})] == [[1.0], [1.0]]


def test_saved_networks_may_be_noisy_or_switch(tmp_path: Path) -> None:
    game = games.make("msh-4x4-2h1s:T=8")
    recipe = PPO(hidden=(8,))
    params = jax.jit(partial(initial_params, recipe.network(game), game))(jax.random.key(0))
    policy = Policy("ppo", {"hidden": (8,)}, game.name, 0, 0, jax.tree.map(np.asarray, params))
    save_policy(tmp_path / "p.safetensors", policy)
    run = f"run({tmp_path / 'p.safetensors'})"
    seated = seat_cast(f"switching({run},stay,every=1),noisy({run},0.5)", game)
    memories, first = rollouts.play_episodes(jax.random.key(1), game, seated.cast, 8, seated.params())
    _, second = rollouts.play_episodes(jax.random.key(2), game, seated.cast, 8, seated.params(), memories)
    idle = [np.asarray(episode.actions)[..., 0][np.asarray(episode.alive)[..., 0]] == 4 for episode in (first, second)]
    assert not idle[0].all()
    assert idle[1].all()

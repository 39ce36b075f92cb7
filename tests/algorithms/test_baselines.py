"""The rivals of HOP+: each learns a small task made for it, and what it remembers is what it has seen."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from common import differs_by, floats, hopplus, train
from hopplus import games, players, rollouts
from hopplus.algorithms import PPO, PRESETS, HopPlus, Liam, RecurrentPPO, liam, make_algorithm, ppo_update
from hopplus.algorithms.prosocial import expected_mean_reward, shared_rewards
from hopplus.configs import TrainingConfig
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, Observation, catalog, ego_first
from hopplus.networks.recurrent import History
from hopplus.players import Cast, Player
from hopplus.players.pool import Pool
from hopplus.rollouts import Trajectory
from hopplus.training.experiment import Experiment, prepare

HUNT = "msh-4x4-4h1s"
SMALL = {"num_envs": 32, "num_steps": 24, "hidden": (32,), "memory_size": 16, "learning_rate": 4e-3}


@struct
class GuessState:
    time: Int[Array, ""]
    last_actions: Int[Array, " n"]


@dataclass(frozen=True)
class Guess(Game[GuessState]):
    """Who does what the other does earns 1. What the other does is seen only afterwards: where there is one step, when
    the episode is over."""

    name: str = "test-guess"
    steps: int = 1
    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("ZERO", "ONE", "TWO", "THREE")
    channel_names: ClassVar[tuple[str, ...]] = ("nothing",)  # pyright: ignore[reportIncompatibleMethodOverride]
    taken_names: ClassVar[tuple[str, ...]] = ("nothing",)  # pyright: ignore[reportIncompatibleMethodOverride]
    idle_action: ClassVar[int] = 0
    num_players: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def last_step(self) -> int:
        return self.steps

    @property
    def ceilings(self) -> Mapping[str, float]:
        return {"mean": float(self.steps), "player": float(self.steps)}

    def draw(self, key: Key) -> tuple[GuessState, Bool[Array, ""]]:
        return GuessState(jnp.int32(0), jnp.zeros(2, jnp.int32)), jnp.bool_(True)

    def transition(
        self, key: Key, state: GuessState, actions: Int[Array, " n"]
    ) -> tuple[GuessState, Float[Array, " n"], Int[Array, " n"], Int[Array, " n"]]:
        reward = jnp.broadcast_to(actions[0] == actions[1], 2).astype(jnp.float32)
        return GuessState(state.time + 1, actions), reward, jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)

    def left(self, state: GuessState) -> Bool[Array, " n"]:
        return jnp.zeros(2, bool)

    def over(self, state: GuessState) -> Bool[Array, ""]:
        return state.time >= self.steps

    def legal(self, state: GuessState) -> Bool[Array, "n A"]:
        return jnp.ones((2, 4), bool)

    def observe(self, state: GuessState) -> Observation:
        return Observation(
            grid=jnp.zeros((2, 1, 1, 1), jnp.int8),
            time=jnp.broadcast_to(state.time, 2),
            deadline=jnp.full(2, self.steps),
            legal=ego_first(self.legal(state)),
            last_actions=ego_first(state.last_actions),
        )

    def restore(self, observation: Observation) -> GuessState:
        return GuessState(observation.time, observation.last_actions)

    def permute(self, state: GuessState, order: Sequence[int] | Int[Array, " n"]) -> GuessState:
        return GuessState(state.time, state.last_actions[jnp.asarray(order)])


@dataclass(frozen=True)
class Kind(Player):
    """Always does one thing, drawn when it meets nobody yet; says which, and in which episode it is."""

    name: str = "kind"

    def init(self, key: Key, params: Any) -> tuple[Array, Array]:
        return jax.random.randint(key, (), 0, 4), jnp.int32(0)

    def act(self, key: Key, params: Any, memory: Any, observation: Observation) -> Any:
        return memory[0], memory, memory

    def end(self, memory: Any) -> Any:
        return memory[0], memory[1] + 1


@pytest.fixture(scope="module", autouse=True)
def game_is_known() -> Iterator[None]:
    games.register("test-guess", Guess)
    yield
    catalog._GAMES.pop("test-guess")


@pytest.fixture(autouse=True)
def kind_is_known() -> None:
    players.register("kind", lambda game: Kind())


GUESSER: dict[str, Any] = {
    "num_envs": 64,
    "num_steps": 16,
    "hidden": (32,),
    "encoder": "dense",
    "memory_size": 16,
    "learning_rate": 1e-2,
    "trial_episodes": 10,
}


def guessing(recipe: RecurrentPPO) -> list[dict[str, Any]]:
    return train(
        prepare(TrainingConfig(game="test-guess", steps=80 * 1024, iterations_per_call=10, cast="learner,kind"), recipe)
    ).lines


# ----------------------------------------------------------------------------------------------------------- memory


def test_who_remembers_identifies_the_other() -> None:
    # An acquaintance lasts ten episodes on average, and one in ten is with a stranger: 0.9 + 0.1 / 4 at best.
    assert guessing(RecurrentPPO(**GUESSER))[-1]["return"][0] > 0.88


@pytest.mark.slow  # that memory ends with the episode is held by test_memory_ends_exactly_with_the_acquaintance
def test_who_forgets_cannot_identify_the_other() -> None:
    forgetful = [line["return"][0] for line in guessing(RecurrentPPO(**GUESSER, reset_memory=True))]
    assert max(forgetful[-4:]) < 0.3


def test_who_keeps_something_between_episodes() -> None:
    assert RecurrentPPO().has_memory
    assert HopPlus().has_memory
    assert hopplus(goals="prey").has_memory
    for forgetful in (PPO(), Liam(), RecurrentPPO(reset_memory=True), hopplus(inter=False), hopplus(goals="none")):
        assert not forgetful.has_memory


def test_presets_are_what_they_are_called() -> None:
    game = games.make(HUNT)
    recipe, settings = PRESETS["omg"]
    omg = make_algorithm(recipe, settings(game))
    assert isinstance(omg, HopPlus)
    assert (omg.beliefs.goals, omg.beliefs.inter, omg.planning.search) == ("gaussian", False, "off")
    recipe, settings = PRESETS["direct-om"]
    assert make_algorithm(recipe, settings(game)) == hopplus(goals="none")


@dataclass(frozen=True, eq=False)
class Played:
    setup: Experiment
    recipe: RecurrentPPO
    state: Any
    before: Any
    """The table before the rollout."""
    rows: Any
    episode: Trajectory


@functools.cache
def play_twice(recipe: RecurrentPPO, game: str = HUNT, cast: str = "self-play") -> Played:
    """A rollout that begins in the middle of play, when something is remembered already."""
    setup = prepare(TrainingConfig(game=game, cast=cast), recipe)
    stage = setup.phases[0][1]
    state = jax.jit(partial(recipe.init, phase=stage, frozen={}))(jax.random.key(0))
    rollout = jax.jit(partial(recipe.collect, phase=stage, frozen={}))
    state = replace(state, rollout_state=rollout(state)[0])
    rows, episode = jax.tree.map(np.asarray, rollout(state)[1:])
    return Played(setup, recipe, state, state.rollout_state, rows, episode)


@functools.partial(jax.jit, static_argnames="recipe")
def arranged(rows: Any, recipe: RecurrentPPO) -> Any:
    """Rows as they are learnt from [P, ...]."""
    return ppo_update.group_by_params(recipe.to_minibatches(rows), recipe.shares_params)


@pytest.mark.parametrize("recipe", [RecurrentPPO(**SMALL, parameters="independent", trial_episodes=0), Liam(**SMALL)])
def test_a_stored_line_says_again_what_was_said_when_it_was_played(recipe: RecurrentPPO) -> None:
    found = play_twice(recipe)
    batch = jax.tree.map(np.asarray, arranged(found.rows, recipe))
    network = recipe.network(found.setup.game)

    @jax.jit
    @jax.vmap
    def again(params: Any, history: Any) -> tuple[Array, Array]:
        logits, value, *_ = cast(Any, network.apply({"params": params}, history, method="from_history"))
        return jax.nn.log_softmax(logits), value

    log_policy, value = jax.tree.map(np.asarray, again(found.state.train_state.params, batch.features))
    said = np.take_along_axis(log_policy, batch.action[..., None], -1)[..., 0]
    learns = batch.is_valid
    assert 0.3 < learns.mean() < 1
    np.testing.assert_allclose(said[learns], batch.log_probability[learns], atol=2e-5)
    np.testing.assert_allclose(value[learns], batch.value[learns], atol=2e-4)
    # It matters what is remembered: with another memory before the first step, other things are said.
    other: History = replace(batch.features, hidden=batch.features.hidden + 1.0)
    changed = np.asarray(again(found.state.train_state.params, other)[0])
    assert np.abs(np.where(changed > -100, changed - log_policy, 0))[learns].max() > 1e-6


@pytest.mark.parametrize(
    ("recipe", "acquaintance", "forgets"),
    [
        (RecurrentPPO, 1, False),
        (RecurrentPPO, 0, False),
        (RecurrentPPO, 3, False),
        (RecurrentPPO, 3, True),
        (Liam, 3, True),
    ],
)
def test_memory_ends_exactly_with_the_acquaintance(
    recipe: type[RecurrentPPO], acquaintance: int, forgets: bool
) -> None:
    settings = {**GUESSER, "num_envs": 32, "num_steps": 24, "trial_episodes": acquaintance, "reset_memory": forgets}
    found = play_twice(recipe(**settings), "test-guess:steps=3", "learner,kind")
    first = np.asarray(found.episode.state.time) == 0
    met_before = np.asarray(found.episode.info[1][1])[:, :, 0] > 0
    remembers = np.asarray(found.rows.features.remembers)
    expected = ~first | (met_before & (not forgets))
    np.testing.assert_array_equal(remembers, np.broadcast_to(expected[..., None], remembers.shape))
    assert first.any()
    if acquaintance == 3:
        assert met_before[first].any()
        assert not met_before[first].all()
    # What is new at an episode's first step is how the one before ended; within an episode it is what is seen now.
    seen = found.rows.features.seen
    same = (found.rows.features.memory_inputs[..., -seen.shape[-1] :] == seen).all(-1)
    assert same[~first].all()
    assert not same[first].any()


def test_the_end_of_an_episode_is_remembered_in_the_next() -> None:
    found = play_twice(RecurrentPPO(**GUESSER), "test-guess", "learner,kind")
    done = np.asarray(found.episode.actions)[:-1]
    news, remembers = found.rows.features.memory_inputs[1:, :, 0, :8], found.rows.features.remembers[1:, :, 0]
    both = np.concatenate([np.eye(4)[done[..., seat]] for seat in (0, 1)], -1)
    np.testing.assert_array_equal(news[remembers], both[remembers])
    assert 0.8 < remembers.mean() < 1


# ------------------------------------------------------------------------------------------------------------- LIAM


def test_liam_tells_what_the_co_player_does_as_well_as_can_be() -> None:
    # What a stranger will do is anybody's guess; one met before does what it did.
    told = guessing(Liam(**GUESSER, reset_memory=False))[-1]
    assert 0.88 < told["co_player_action_accuracy"][0] < 0.97
    assert told["co_player_board_accuracy"][0] == 1, "the board of this game is always empty"


@pytest.mark.slow  # as above
def test_liam_that_forgets_cannot_tell_what_the_co_player_does() -> None:
    assert guessing(Liam(**GUESSER))[-1]["co_player_action_accuracy"][0] < 0.32


def one_row(**fields: Any) -> liam.TransitionsWithOthers:
    whole = {
        **dict.fromkeys(("log_probability", "value", "advantage", "target"), np.zeros(1, np.float32)),
        **dict.fromkeys(("seat", "action", "collected_at"), np.zeros(1, np.int32)),
        "features": (),
        "is_valid": np.ones(1, bool),
    }
    return liam.TransitionsWithOthers(**whole, **fields)


def test_reconstruction_by_hand() -> None:
    rows = one_row(
        co_player_board=np.array([[[1, 0], [1, 1]]], np.uint8),
        co_player_action=np.array([[0, 2]]),
        co_player_legal=np.array([[[True, True, False], [True, True, True]]]),
        co_player_alive=np.array([[True, False]]),
    )
    boards, actions = floats([[[0.0, 0.0], [9.0, 9.0]]]), floats([[[0.0, 0.0, 50.0], [0.0, 0.0, 0.0]]])
    error, told = jax.jit(liam.reconstruction)(boards, actions, rows, np.ones(1, bool))
    # Two cells and two legal actions of which nothing is known; the other co-player has left.
    np.testing.assert_allclose(error, 2 * np.log(2), rtol=1e-5)
    assert told["co_players_alive"][0] == 1
    assert told["co_player_board_accuracy"][0] == 0.5
    assert told["co_player_action_accuracy"][0] == 1


def test_liam_learns_what_the_co_players_of_each_seat_saw_and_did() -> None:
    found = play_twice(Liam(**SMALL))
    seen = jax.jit(lambda played: rollouts.observations(found.setup.game, played))(found.episode)
    for seat in range(4):
        others = [(seat + offset) % 4 for offset in (1, 2, 3)]
        for place, other in enumerate(others):
            for name, expected in (
                ("co_player_action", found.episode.actions[..., other]),
                ("co_player_alive", found.episode.alive[..., other]),
                ("co_player_legal", np.asarray(seen.legal)[:, :, other, 0]),
                ("co_player_board", np.asarray(seen.grid)[:, :, other].reshape(24, 32, -1)),
            ):
                np.testing.assert_array_equal(getattr(found.rows, name)[:, :, seat, place], expected, err_msg=name)


def test_the_policy_of_liam_does_not_form_its_memory() -> None:
    recipe = Liam(**SMALL)
    found = play_twice(recipe)
    network = recipe.network(found.setup.game)
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[0], arranged(found.rows, recipe))

    def loss(params: Any, weight: float) -> Array:
        says = lambda params, history: network.apply({"params": params}, history, method="from_history")  # noqa: E731
        return liam.loss(params, says, batch, batch.is_valid, recipe, 5.0, 0.01, weight)[0]

    params = jax.tree.map(lambda leaf: np.asarray(leaf)[0], found.state.train_state.params)
    gradient = jax.jit(jax.grad(loss))

    def size(gradients: Any, *names: str) -> float:
        return max(float(np.abs(leaf).max()) for name in names for leaf in jax.tree.leaves(gradients[name]))

    by_policy, by_both = (jax.tree.map(np.asarray, gradient(params, weight)) for weight in (0.0, 1.0))
    assert size(by_policy, "gates", "recurrent", "decoder", "others_see", "others_do") == 0
    assert size(by_policy, "hidden_0") > 0
    assert size(by_both, "gates") > 0
    assert size(by_both, "others_do") > 0
    np.testing.assert_allclose(by_both["hidden_0"]["kernel"], by_policy["hidden_0"]["kernel"], atol=1e-6)


# -------------------------------------------------------------------------------------------------------- prosocial


def test_what_others_earn_after_one_has_left_comes_to_it_when_it_leaves() -> None:
    # Seat 0 leaves in step 0 with 1; seat 1 earns 4 in step 2, when the episode ends; then another episode, cut.
    alive = np.array([[1, 1], [0, 1], [0, 1], [1, 1], [0, 1]], bool)
    left = np.array([[1, 0], [1, 0], [1, 1], [1, 0], [1, 0]], bool)
    reward = np.array([[1, 0], [0, 0], [0, 4], [1, 0], [0, 2]], np.float32)
    over = np.array([0, 0, 1, 0, 0], bool)
    fields: dict[str, Any] = {"alive": alive[:, None], "left": left[:, None], "reward": reward[:, None]}
    empty: dict[str, Any] = dict.fromkeys(
        ("state", "actions", "took", "cell", "total_reward", "total_steps", "info", "last_state"), ()
    )
    episode = Trajectory(**fields, over=over[:, None], **empty)  # pyright: ignore[reportArgumentType]
    to_come: Any = floats([8.0])
    share = jax.jit(lambda played: [shared_rewards(played, concern, 0.5, to_come) for concern in (1.0, 0.0)])
    found, alone = jax.tree.map(np.asarray, share(episode))
    # What the cut-off episode still brings is 8 after its last step, which seat 0 saw two steps after it had left.
    np.testing.assert_allclose(found[:, 0, 0], [0.5 + 0.5 * 0.5 * 2, 0, 0, 0.5 + 0.5 * (1 + 0.5 * 8), 0])
    np.testing.assert_allclose(found[:, 0, 1], [0.5, 0, 2, 0.5, 1])
    np.testing.assert_array_equal(alone[:, 0], np.where(alive, reward, 0))


@pytest.mark.parametrize("concern", [0.0, 0.3, 1.0])
def test_what_the_table_expects_is_told_by_those_who_are_there(concern: float) -> None:
    # Of three players two are there, who will earn 2 and 4: 2 in the mean of all three.
    values = floats([[(1 - concern) * own + concern * 2.0 for own in (2.0, 4.0)] + [99.0]])
    expected = jax.jit(lambda there: expected_mean_reward(values, there, 3, concern))
    np.testing.assert_allclose(expected(np.array([[True, True, False]])), 2.0, rtol=1e-6)
    assert expected(np.zeros((1, 3), bool)) == 0


# -------------------------------------------------------------------------------------------------------------- mix


def test_a_mix_makes_every_composition_of_a_table_equally_likely() -> None:
    game = games.make(HUNT)
    tables = 20_000

    def members(kind: str) -> tuple[Cast, np.ndarray]:
        """Which of two members sits in each of three seats [tables, 3]."""
        seated = players.make_cast(f"stay,{kind}(stay,random),{kind}(stay,random),{kind}(stay,random)", game)
        _, episode = rollouts.rollout(rollouts.init_rollout(jax.random.key(3), game, seated, tables), game, seated, 1)
        return seated, np.asarray(episode.info[1].member)[0]

    cast, mixed = members("mix")
    frequencies = np.bincount((mixed == 0).sum(-1), minlength=4) / tables
    assert np.abs(frequencies - 0.25).max() <= differs_by(tables)
    _, apart = members("pool")
    assert abs((apart.sum(-1) % 3 == 0).mean() - 0.25) <= differs_by(tables)
    assert isinstance(cast.players[1], Pool)

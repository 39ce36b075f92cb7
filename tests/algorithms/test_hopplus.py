"""HOP+ as it learns: whose rows teach what, what is stored, what moves, and that it goes on bit for bit."""

import contextlib
import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import hop, hopplus, shared_programs
from hopplus.algorithms import HopPlus, expert_iteration, make_algorithm, ppo_update
from hopplus.algorithms.base import CurriculumPhase, initial_params
from hopplus.algorithms.expert_iteration import PlannedTransitions
from hopplus.algorithms.hopplus import HopPlusState, acting, targets
from hopplus.algorithms.hopplus import algorithm as hopplus_algorithm
from hopplus.algorithms.hopplus.opponent_update import co_player_mask
from hopplus.algorithms.presets import hop_paper
from hopplus.cli import train as cli_train
from hopplus.cli.main import main
from hopplus.configs import TrainingConfig, replace_settings
from hopplus.core.errors import InputError
from hopplus.core.struct import names_and_leaves
from hopplus.games import make
from hopplus.games.game import one_seat
from hopplus.models import online
from hopplus.models.agent_trajectories import from_rollout
from hopplus.networks.encoders import encode
from hopplus.networks.train_state import TrainState
from hopplus.planning.imagination import ImaginedRollout, imagine
from hopplus.players.planner import PlannerView, social_features
from hopplus.training import checkpoint, compiled_loop, trainer
from hopplus.training.callbacks import note_return_drop
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import prepare
from hopplus.training.progress import Progress
from hopplus.training.run import open_run

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "hidden": (8,),
    "moa_hidden": (8,),
    "moa_batches": 2,
    "update_epochs": 1,
    "moa_refresh": 2,
}
GAME = "msh-4x4-4h1s"


def prepared(recipe: HopPlus, cast: str = "self-play") -> tuple[Any, Any]:
    """The stage of a training, and its first state."""
    setup = prepare(TrainingConfig(game=GAME, cast=cast, steps=10_000), recipe)
    stage = setup.phases[0][1]
    return stage, jax.jit(lambda key: recipe.init(key, stage, setup.frozen_params()))(jax.random.key(0))


@contextlib.contextmanager
def recorded(*functions: tuple[Any, str]) -> Iterator[dict[str, tuple[Sequence[Any], Any]]]:
    """Arguments and results of functions, by name, the last time that each was traced within this."""
    calls: dict[str, tuple[Sequence[Any], Any]] = {}

    def recording(name: str, method: Any) -> Any:
        def call(*args: Any) -> Any:
            result = method(*args)
            calls[name] = args, result
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in functions:
            patch.setattr(owner, name, recording(name, getattr(owner, name)))
        yield calls


@dataclasses.dataclass(frozen=True)
class Iterations:
    """Two iterations of a recipe in self-play; all but the states as NumPy arrays."""

    recipe: HopPlus
    stage: Any
    states: list[Any]
    episodes: list[Any]
    metrics: list[Mapping[str, Any]]
    lessons: list[PlannedTransitions]
    """All rows of the play [T, E, L]."""
    batches: list[PlannedTransitions]
    """All rows that the policy learnt from [P, M], imagined ones included."""
    shapes: dict[str, Any]
    """Of imagined play and its seats, as arrays of zeros."""


def iterations(recipe: HopPlus, cast: str = "self-play", number: int = 2) -> Iterations:
    stage, state = prepared(recipe, cast)
    shapes: dict[str, Any] = {}

    @jax.jit
    def advance(state: Any) -> tuple[Any, Any]:
        functions = ((HopPlus, "transitions"), (HopPlus, "update_policy"), (targets, "imagined_transitions"))
        with recorded(*functions) as calls:
            after, episode, metrics = recipe.train_step(state, stage, {})
        if "imagined_transitions" in calls:
            imagined = calls["imagined_transitions"][0][-3:]
            shapes["imagined"] = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), imagined)
        return after, (episode, metrics, calls["transitions"][1], calls["update_policy"][0][-1])

    states, told = [state], []
    for _ in range(number):
        state, rows = advance(states[-1])
        states.append(state)
        told.append(jax.tree.map(np.asarray, rows))
    episodes, metrics, lessons, batches = (list(rows) for rows in zip(*told, strict=True))
    return Iterations(recipe, stage, states, episodes, metrics, lessons, batches, shapes)


@partial(jax.jit, static_argnames=("game", "prey"))
def lives_of(episode: Any, game: Any, prey: bool = False) -> Any:
    """Lives in play, and the features of all observations [T, E, n, F]."""
    seen = jax.vmap(jax.vmap(game.observe))(episode.state)
    return from_rollout(game, episode, prey=prey), encode(seen, game.last_step)


@pytest.fixture(scope="module")
def whole() -> Iterations:
    """Imagination and a learned world; a search takes long to compile, and has its own test below."""
    settings = {"real_ratio": 0.5, "imagined_steps": 3, "world": "learned", "world_model_rows": 16}
    return iterations(hopplus(**{**SMALL, **settings}))


# ------------------------------------------------------------------------------------------------ what moves, and when


def test_every_module_learns_and_nothing_is_left_out_or_begun_anew(whole: Iterations) -> None:
    first, second, third = whole.states
    for module in ("train_state", "moa", "world"):
        before, after = (names_and_leaves(getattr(state, module).params) for state in (first, second))
        still = [name for name in before if np.array_equal(before[name], after[name])]
        # Vocabularies are counted, not learnt; and here no deadline ever changes.
        unlearnt = ("rewards", "delays") if module != "world" else ("rewards", "delays", "deadline")
        assert not [name for name in still if not any(part in name for part in unlearnt)], (module, still)
    # The acting copy waits for its turn, and then is the model as it has learnt, not a new one.
    for state in (first, second):
        np.testing.assert_array_equal(_flat(first.acting_moa), _flat(state.acting_moa))
    np.testing.assert_array_equal(_flat(third.acting_moa), _flat(third.moa.params))
    assert np.abs(_flat(third.acting_moa) - _flat(first.acting_moa)).max() < 0.2


def test_the_acting_copy_of_a_model_is_refreshed_every_so_many_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations in which nothing moves but the model of others, by 1 in each."""
    episode = types.SimpleNamespace(alive=np.ones((1, 1, 1), bool))
    stages: dict[str, Any] = {
        "collect": lambda *given: (None, episode),
        "transitions": lambda *given: types.SimpleNamespace(target=()),
        "agent_trajectories": lambda *given: (),
        "batch": lambda *given: (),
        "update_moa": lambda self, state, *given: TrainState(state.moa.params + 1, ()),
        "update_policy": lambda self, state, *given: (state.train_state, {}),
    }
    for name, stage in stages.items():
        monkeypatch.setattr(HopPlus, name, stage)
    for name in ("update_metrics", "belief_metrics"):
        monkeypatch.setattr(hopplus_algorithm, name, lambda *given: {})
    recipe, stage, copies = hopplus(moa_refresh=3), CurriculumPhase.__new__(CurriculumPhase), []
    object.__setattr__(stage, "game", types.SimpleNamespace(num_players=1))
    still = TrainState(np.float32(0), ())
    state = HopPlusState(jax.random.key(0), jnp.int32(0), jnp.int32(0), still, still, np.float32(0), None, None)
    for _ in range(7):
        state = recipe.train_step(state, stage, {})[0]
        copies.append(float(state.acting_moa))
    assert copies == [0, 0, 3, 3, 3, 6, 6]
    assert float(state.moa.params) == 7


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_one_iteration_is_one_play_and_all_learn_from_it(whole: Iterations) -> None:
    """Fault 7: a model of goals trained on a second play-through."""
    for number, (state, episode) in enumerate(zip(whole.states[1:], whole.episodes, strict=True), start=1):
        assert int(state.rollout_state.clock) == number * whole.recipe.num_steps
        assert int(state.steps) == sum(int(one.alive.any(-1).sum()) for one in whole.episodes[:number])
        lives, features = jax.tree.map(np.asarray, lives_of(episode, whole.stage.game))
        np.testing.assert_array_equal(lives.action.reshape(4, 4, 8), np.moveaxis(episode.actions, 0, 2))
        expected = np.moveaxis(features, 0, 2)
        np.testing.assert_array_equal(lives.features.reshape(expected.shape), expected)
        np.testing.assert_array_equal(lives.alive.reshape(4, 4, 8), np.moveaxis(episode.alive, 0, 2))


def test_lives_in_play_know_what_came_and_leave_out_what_has_not_come_yet(whole: Iterations) -> None:
    episode = whole.episodes[-1]
    lives, _ = lives_of(episode, whole.stage.game, prey=True)
    took, over, alive = episode.took, episode.over, episode.alive
    goal = np.asarray(lives.goal).reshape(4, 4, 8)
    known = np.asarray(lives.alive).reshape(4, 4, 8)
    for environment in range(4):
        for seat in range(4):
            for time in range(8):
                later = [
                    (took[step, environment, seat], over[step, environment], episode.left[step, environment, seat])
                    for step in range(time, 8)
                ]
                found, ended = 0, False
                for taken, is_over, left in later:
                    found = found or int(taken)
                    if is_over or left:
                        ended = True
                        break
                assert known[environment, seat, time] == (alive[time, environment, seat] and ended)
                if known[environment, seat, time]:
                    assert goal[environment, seat, time] == found


def test_what_is_made_of_others_is_stored_at_every_step(whole: Iterations) -> None:
    """Fault 8: inferred goals stored at the last step only."""
    thought, _ = whole.stage.seats.infos(whole.episodes[-1])
    knows = acting.make_belief_tracker(whole.recipe, whole.stage.game)
    social = jax.jit(jax.vmap(jax.vmap(jax.vmap(lambda mind: social_features(knows, mind)))))(thought.co_player_beliefs)
    np.testing.assert_array_equal(thought.features[1], social)
    np.testing.assert_allclose(thought.belief.sum(-1), 1, rtol=1e-4)
    moves = np.abs(np.diff(np.asarray(thought.belief), axis=0)).max((1, 2, 3, 4))
    assert (moves > 0).all()


def test_targets_are_the_advantages_and_values_of_the_play_itself(whole: Iterations) -> None:
    """Fault 12: advantages from fresh values but returns from the old ones."""
    for lessons, episode in zip(whole.lessons, whole.episodes, strict=True):
        np.testing.assert_allclose((lessons.target - lessons.advantage - lessons.value)[lessons.is_valid], 0, atol=1e-5)
        assert not lessons.advantage[~episode.alive].any()


def test_every_kind_of_action_is_judged_by_itself_at_every_seat(whole: Iterations) -> None:
    """Fault 11: rare actions lost in an average."""
    episode, told = whole.episodes[-1], whole.metrics[-1]
    thought, _ = whole.stage.seats.infos(episode)
    alive, actions = np.asarray(episode.alive), np.asarray(episode.actions)
    guessed = np.asarray(thought.action_probs).argmax(-1)
    for seat in range(4):
        others = (seat + 1 + np.arange(3)) % 4
        counts = alive[..., [seat]] & alive[..., others]
        for number, name in enumerate(whole.stage.game.action_names):
            kind = counts & (actions[..., others] == number)
            recall = told[f"moa_recall_{name}"]
            assert (recall.total[seat], recall.count[seat]) == (
                (kind & (guessed[:, :, seat] == number)).sum(),
                kind.sum(),
            )
        assert told["moa_top1"].count[seat] == counts.sum()


# -------------------------------------------------------------------------------------------------- whose rows, by seat


@pytest.mark.parametrize(
    ("settings", "cast", "expected"),
    [
        ({}, "self-play", [[1, 1, 1, 1]]),
        ({}, "learner,ns,nh,ns", [[0, 1, 1, 1]]),
        ({"parameters": "independent"}, "self-play", [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]),
        ({"moa_networks": "each"}, "ns,learner,nh,ns", [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]),
    ],
)
def test_models_of_others_learn_from_the_co_players_of_those_who_use_them(
    settings: dict[str, Any], cast: str, expected: list[list[int]]
) -> None:
    """Fault 6: the model updated for seat 1 only."""
    recipe = hopplus(**{**SMALL, **settings})
    stage = prepare(TrainingConfig(game=GAME, cast=cast), recipe).phases[0][1]
    assert co_player_mask(recipe, stage).astype(int).tolist() == expected


def test_rows_of_a_player_who_has_left_teach_nothing(whole: Iterations) -> None:
    """Fault 2: the model fitted on rows after a player left."""
    episode, stage, state = whole.episodes[0], whole.stage, whole.states[0]
    in_time = np.arange(len(episode.alive)) < 3
    gone = dataclasses.replace(episode, alive=episode.alive & in_time[:, None, None])
    other = dataclasses.replace(gone, actions=np.where(in_time[:, None, None], gone.actions, 0))
    learn = jax.jit(lambda episode: whole.recipe.update_moa(state, stage, episode, from_rollout(stage.game, episode)))
    assert not np.array_equal(gone.actions, other.actions)
    for name, leaf in names_and_leaves(learn(gone).params).items():
        np.testing.assert_array_equal(leaf, names_and_leaves(learn(other).params)[name])


# ---------------------------------------------------------------------------------------------------------- imagination


@pytest.mark.parametrize("goals", ["codes", "prey", "gaussian"])
def test_beliefs_in_imagination_are_those_of_real_play(goals: Any) -> None:
    """Fault 3: subgoals zero in imagined data but real when acting."""
    recipe, game, steps = hopplus(**{**SMALL, "goals": goals}), make(GAME), 6
    player = recipe.player(game, "test", learns=True)
    planning = recipe.planner(game)

    @jax.jit
    def both(key: jax.Array) -> tuple[ImaginedRollout, PlannerView]:
        """Imagined play, and what the player makes of the same steps when it sees them [H]."""
        keys = jax.random.split(key, 5)
        seen = one_seat(game.observe(game.init(keys[0])), 0)
        policy = initial_params(recipe.network(game), game, keys[1])
        params = {"policy": policy, "moa": acting.make_moa(recipe).init_params(keys[2], game)}
        memory = player.begin(player.init(keys[3], params))
        imagined = imagine(planning, keys[4], params, player.view(params, memory, seen).beliefs, seen, steps)

        def step(memory: Any, seen: Any) -> tuple[Any, PlannerView]:
            # Nobody is expected to do anything before the first step: to watch then would be a step too many.
            watched = player.watch(params, memory, seen)
            memory = jax.tree.map(lambda new, old: jnp.where(seen.time == 0, old, new), watched, memory)
            look = player.view(params, memory, seen)
            return look.memory, look

        return imagined, jax.lax.scan(step, memory, imagined.observation)[1]

    imagined, looks = jax.tree.map(np.asarray, both(jax.random.key(3)))
    alive = imagined.alive
    assert alive.sum() > 2
    assert np.abs(np.diff(imagined.beliefs.belief, axis=0)).max() > 1e-4
    np.testing.assert_allclose(looks.beliefs.belief[alive], imagined.beliefs.belief[alive], atol=1e-4)
    np.testing.assert_allclose(
        looks.beliefs.action_probs_by_goal[alive], imagined.beliefs.action_probs_by_goal[alive], atol=1e-5
    )
    np.testing.assert_allclose(looks.value[alive], imagined.value[alive], atol=1e-4)


def test_imagined_rows_teach_the_policy_and_not_the_value_unless_it_is_wished(whole: Iterations) -> None:
    mixed, rows = whole.batches[-1], 4 * 8 * 4
    imagined = mixed.is_valid.shape[1] - rows
    assert imagined == 3 * round(rows / 3)
    assert not mixed.trains_value[0, rows:].any()
    assert mixed.policy_acted[0, rows:].all()
    wished = replace_settings(whole.recipe, {"imagined_values": True})
    valued = jax.jit(lambda shapes: targets.imagined_transitions(wished, whole.stage, *shapes).trains_value)
    assert np.asarray(valued(whole.shapes["imagined"])).all()


# ----------------------------------------------------------------------------------------------------- expert iteration


def lessons(acted: list[bool], taught: list[bool]) -> PlannedTransitions:
    number = len(acted)
    teacher = np.tile([0.0, 1.0, 0.0], (number, 1))
    places: Any = np.zeros(number, np.int32)
    ones: Any = np.ones(number, np.float32)
    return PlannedTransitions(
        features=0 * ones[:, None],
        seat=places,
        action=places,
        log_probability=np.log(ones / 3),
        value=0 * ones,
        advantage=np.arange(number, dtype=np.float32),  # pyright: ignore[reportArgumentType]
        target=ones,
        is_valid=ones > 0,
        collected_at=places,
        policy_acted=np.array(acted),  # pyright: ignore[reportArgumentType]
        trains_value=ones > 0,
        has_plan_target=np.array(taught),  # pyright: ignore[reportArgumentType]
        plan_policy=teacher.astype(np.float32),  # pyright: ignore[reportArgumentType]
    )


def test_ppos_ratio_sees_only_rows_in_which_the_policy_acted_and_the_teacher_only_its_own() -> None:
    settings = ppo_update.PPOUpdateConfig(ent_coef=0.0, vf_coef=0.0)

    def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.broadcast_to(params, (features.shape[0], 3)), jnp.zeros(features.shape[0])

    @jax.jit
    def compiled(params: jax.Array, rows: PlannedTransitions, weight: float) -> jax.Array:
        counts = jnp.ones(rows.is_valid.shape, bool)
        return expert_iteration.loss(params, network, rows, counts, settings, 1.0, 0.0, weight)[0]

    differentiated = jax.jit(jax.grad(compiled))

    def gradient(rows: PlannedTransitions, weight: float = 1.0) -> np.ndarray:
        return np.asarray(differentiated(np.zeros(3, np.float32), rows, weight))

    searched = gradient(lessons([False] * 4, [True] * 4))
    np.testing.assert_allclose(searched, np.array([1 / 3, 1 / 3 - 1, 1 / 3]), atol=1e-6)
    np.testing.assert_allclose(gradient(lessons([False] * 4, [False] * 4)), 0, atol=1e-7)
    # Advantages are normalised over the rows in which the policy acted: two of them, -1 and 1.
    mixed = lessons([True, True, False, False], [False, False, True, True])
    acted_only = gradient(mixed, weight=0.0)
    np.testing.assert_allclose(acted_only, gradient(lessons([True, True], [False, False]), 0.0), atol=1e-6)
    np.testing.assert_allclose(gradient(mixed), acted_only + searched, atol=1e-6)


def test_rows_that_are_not_valued_teach_the_value_nothing() -> None:
    settings = ppo_update.PPOUpdateConfig(vf_coef=1.0)
    rows = dataclasses.replace(
        lessons([True] * 4, [False] * 4),
        target=jnp.array([1.0, 1.0, 50.0, 50.0]),
        trains_value=jnp.array([True, True, False, False]),
    )

    def total(value: jax.Array) -> jax.Array:
        def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((4, 3)), jnp.broadcast_to(params, 4)

        return expert_iteration.loss(value, network, rows, jnp.ones(4, bool), settings, 1.0, 0.0, 1.0)[0]

    # Half the squared error, 1 from the target: its slope is -1.
    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.float32(0)), -1.0, rtol=1e-5)


def test_hop_acts_by_its_search_and_learns_from_it_alone() -> None:
    recipe = hop(**{**SMALL, "belief_samples": 1, "simulations": 4})
    done = iterations(recipe, number=1)
    learnt, episode = done.lessons[0], done.episodes[0]
    plan = done.stage.seats.infos(episode)[0].plan
    assert not learnt.policy_acted.any()
    assert learnt.has_plan_target.all()
    np.testing.assert_array_equal(learnt.plan_policy, plan.policy)
    assert float(done.metrics[0]["search_depth"].total.sum()) > 0
    legal = np.asarray(jax.jit(jax.vmap(jax.vmap(done.stage.game.legal)))(episode.state))
    assert not plan.policy[~legal].any()


def test_the_papers_preset() -> None:
    published = hop(**hop_paper(make("msh-4x4-4h1s")))
    planning = published.planning
    assert (planning.belief_samples, planning.simulations, planning.exploration) == (5, 200, 1.0)
    assert (planning.temperature, published.gamma) == (0.5, 0.95)
    assert hop(**hop_paper(make("msg-4x4"))).planning.exploration == 15.0
    assert acting.make_belief_tracker(published, make("msh-4x4-4h1s")).inter == "counts"


# ------------------------------------------------------------------------------------------------------------- pieces


def test_rare_goals_are_met_as_often_as_common_ones(whole: Iterations) -> None:
    lives = jax.tree.map(np.asarray, lives_of(whole.episodes[0], whole.stage.game, prey=True)[0])
    alive, goal = np.zeros_like(lives.alive), np.zeros_like(lives.goal)
    alive[:, 0] = True
    goal[3] = 1
    value = np.where(goal == 1, 5.0, 1.0).astype(np.float32)
    lives = dataclasses.replace(lives, alive=alive, goal=goal, value=value)
    weights, worth = jax.jit(
        lambda lives: (online.inverse_frequency_weights(lives, 3), online.update_goal_returns(jnp.zeros(3), lives))
    )(lives)
    assert weights[3] == pytest.approx(np.delete(weights, 3).sum(), rel=0.02)
    np.testing.assert_allclose(worth, [1.0, 5.0, 0.0])


def test_a_fall_is_told_once_with_what_moved() -> None:
    progress = Progress()
    lines = []
    for step, earned in enumerate([1.0, 2.0, 2.5, 2.5, 2.5, 2.4, 2.3, 2.2, 2.6, 2.6, 2.6]):
        line: dict[str, Any] = {"seed": 0, "steps": step, "return": [earned], "entropy": [1.0 - step / 10]}
        note_return_drop(line, (0,), progress)
        lines.append(line)
    fell = [line for line in lines if "fell" in line]
    assert len(fell) == 1
    assert fell[0]["steps"] == 6
    assert fell[0]["fell"]["from"] == pytest.approx(2.5)
    assert fell[0]["fell"]["moved"]["entropy"][1] < fell[0]["fell"]["moved"]["entropy"][0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"world": "none", "search": "on"}, "need the rules or a learned world"),
        ({"buffer_episodes": 128}, "buffer_episodes must be 0"),
        ({"simulations": 0}, "simulations must be at least 1"),
        ({"real_ratio": 0.0}, "real_ratio"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_algorithm("hopplus", settings).check([make(GAME)])


def test_an_optimist_needs_a_model_of_prey() -> None:
    with pytest.raises(InputError, match="--goals prey"):
        prepare(TrainingConfig(game=GAME, partner="optimist"), hopplus(**SMALL))


# ------------------------------------------------------------------------------------------------------- as a command

WORDS = (
    f"train hopplus --game {GAME} --goals prey --partner optimist --num-envs 4 --num-steps 8 --hidden 8"
    " --moa-hidden 8 --moa-batches 2 --update-epochs 1 --iterations-per-call 2 --trial-episodes 2"
    " --randomize-rewards --no-anneal-lr --steps 512"
    " --parameters independent --moa-networks each --belief-samples 1 --simulations 4"
).split()


@contextlib.contextmanager
def first_states() -> Iterator[list[dict[str, Any]]]:
    """The first states of all trainings that begin within this, by name of their leaves."""
    found: list[dict[str, Any]] = []
    original = CompiledLoop.init_states

    def recording(programs: CompiledLoop) -> Any:
        states = original(programs)
        found.append(names_and_leaves(states))
        return states

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledLoop, "init_states", recording)
        yield found


@dataclasses.dataclass(frozen=True)
class TrainedByCommand:
    path: Path
    first: dict[str, Any]
    """The state before it, by name of its leaves [seeds, ...]."""

    @property
    def last(self) -> Mapping[str, np.ndarray]:
        return checkpoint.load(self.path / "checkpoints").arrays


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedByCommand]:
    """A short run; equal trainings share its programs, and what is trained is judged by a few episodes."""
    path = tmp_path_factory.mktemp("hopplus") / "one"
    with shared_programs(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_loop, "EVALUATION_EPISODES", 4)
        with first_states() as first:
            assert main([*WORDS, "--out", str(path)]) == 0
        yield TrainedByCommand(path, first[0])


def test_every_seat_has_its_own_models_and_trains_all_of_them(run: TrainedByCommand) -> None:
    last, moved = run.last, np.zeros(12)  # four seats, three co-players each
    for name, leaf in run.first.items():
        if name.startswith("moa/params/network"):
            moved = np.maximum(moved, np.abs(last[name] - np.asarray(leaf)).reshape(12, -1).max(1))
    assert (moved > 0).all()
    lines = open_run(run.path).metrics()
    # In a chunk in which a guest had a seat all the time there is nothing to tell of it.
    assert {seat for line in lines for seat, found in enumerate(line["moa_top1"]) if found is not None} == set(range(4))
    trained_on = np.array([line["trained_on"] for line in lines])
    assert ((trained_on.sum(0) > 0) == np.eye(4, dtype=bool)).all()


def test_twice_the_same_and_stopped_and_gone_on_with_bit_for_bit(run: TrainedByCommand, tmp_path: Path) -> None:
    other, stopped = (tmp_path / name for name in ("other", "stopped"))
    assert main([*WORDS, "--out", str(other)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_train, "_bar", lambda setup: contextlib.nullcontext(interrupt_after_two_chunks))
        assert main([*WORDS, "--out", str(stopped)]) == 130
    assert checkpoint.load(stopped / "checkpoints").notes["calls"] == 2
    assert main(["train", "--resume", str(stopped)]) == 0
    whole = run.last
    for path in (other, stopped):
        found = checkpoint.load(path / "checkpoints").arrays
        assert found.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(found[name], whole[name])
    assert any(name.startswith("rollout_state/memories") for name in whole)
    assert any(name.startswith("moa/opt_state") for name in whole)


def interrupt_after_two_chunks(lines: Sequence[Mapping[str, Any]], setup: trainer.Experiment) -> None:
    if lines[0]["iteration"] == 2 * setup.training.iterations_per_call:
        raise KeyboardInterrupt


def test_a_run_is_watched_and_evaluated_with_a_search(run: TrainedByCommand, tmp_path: Path) -> None:
    assert main(["watch", "--run", str(run.path), "--json", str(tmp_path / "seen.json")]) == 0
    cast = ["--cast", "self,stay,stay,stay"]
    assert main(["evaluate", str(run.path), *cast, "--episodes", "4", "--search", "on"]) == 0


def test_modules_begin_as_another_run_has_learnt_them(run: TrainedByCommand, tmp_path: Path) -> None:
    init = ["--init", f"moa={run.path}", f"policy={run.path}"]
    with first_states() as begun:
        assert main([*WORDS, "--out", str(tmp_path / "begun"), *init]) == 0
    learnt, first = run.last, begun[0]
    for part in ("train_state/params", "acting_moa"):
        names = [name for name in first if name.startswith(part)]
        assert names
        for name in names:
            # Every seat begins with what the first one has learnt.
            expected = np.broadcast_to(learnt[name][:, :1], first[name].shape)
            np.testing.assert_array_equal(first[name], expected, err_msg=name)
    assert main([*WORDS, "--out", str(tmp_path / "wrong"), "--init", "moa=nowhere"]) == 2
    assert not (tmp_path / "wrong").exists()

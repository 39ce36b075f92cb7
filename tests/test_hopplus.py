"""HOP+ as it learns: whose rows teach what, what is stored, what moves, and that it goes on bit for bit."""

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.cli.main import main
from hopplus.errors import InputError
from hopplus.games import make
from hopplus.games.game import one_seat
from hopplus.learning import expert_iteration, online, ppo
from hopplus.learning.expert_iteration import Lessons
from hopplus.learning.lives import lives_in_play
from hopplus.networks.encoding import encode
from hopplus.planning.imagination import imagine
from hopplus.players.planner import social_features
from hopplus.struct import names_and_leaves
from hopplus.training import checkpoint
from hopplus.training.recipe import Stage
from hopplus.training.recipes import Hop, HopPlus, make_recipe
from hopplus.training.recipes.hop import hop_paper
from hopplus.training.recipes.hopplus import HopState
from hopplus.training.trainer import Progress, Training, note_fall, prepare

SMALL: dict[str, Any] = {
    "environments": 4,
    "rollout_steps": 8,
    "hidden": (8,),
    "moa_hidden": (8,),
    "moa_batches": 2,
    "epochs": 1,
    "refresh": 2,
}
GAME = "msh-4x4-4h1s"


def prepared(recipe: HopPlus, cast: str = "self-play") -> tuple[Any, Any]:
    """The stage of a training, and its first state."""
    setup = prepare(Training(game=GAME, cast=cast, steps=10_000), recipe)
    stage = setup.stages[0][1]
    return stage, jax.jit(lambda key: recipe.init(key, stage, setup.frozen_params()))(jax.random.key(0))


@dataclasses.dataclass(frozen=True)
class Iterations:
    """Two iterations of a recipe in self-play."""

    recipe: HopPlus
    stage: Any
    states: list[Any]
    episodes: list[Any]
    metrics: list[Mapping[str, Any]]


def iterations(recipe: HopPlus, cast: str = "self-play", number: int = 2) -> Iterations:
    stage, state = prepared(recipe, cast)
    advance = jax.jit(lambda state: recipe.advance(state, stage, {}))
    states, episodes, metrics = [state], [], []
    for _ in range(number):
        state, episode, told = advance(states[-1])
        states.append(state)
        episodes.append(episode)
        metrics.append(told)
    return Iterations(recipe, stage, states, episodes, metrics)


@pytest.fixture(scope="module")
def whole() -> Iterations:
    """Imagination and a learned world; a search takes long to compile, and has its own test below."""
    settings = {"real_ratio": 0.5, "imagined_steps": 3, "world": "learned", "world_rows": 16}
    return iterations(HopPlus(**{**SMALL, **settings}))


@pytest.fixture(scope="module")
def independent() -> Iterations:
    return iterations(HopPlus(**{**SMALL, "parameters": "independent", "moa_networks": "each", "goals": "prey"}))


# ------------------------------------------------------------------------------------------------ what moves, and when


def test_every_module_learns_and_nothing_is_left_out_or_begun_anew(whole: Iterations) -> None:
    first, second, third = whole.states
    for module in ("learner", "moa", "world"):
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
        "play": lambda *given: ((), episode),
        "lessons": lambda *given: ((), ()),
        "learn_moa": lambda self, state, *given: ppo.Learner(state.moa.params + 1, ()),
        "learn_policy": lambda self, state, *given: (state.learner, {}),
        "_learning_metrics": lambda *given: {},
        "thought_metrics": lambda *given: {},
    }
    for name, stage in stages.items():
        monkeypatch.setattr(HopPlus, name, stage)
    monkeypatch.setattr("hopplus.training.recipes.hopplus.lives_in_play", lambda *given, **more: ())
    recipe, stage, acting = HopPlus(refresh=3), Stage.__new__(Stage), []
    object.__setattr__(stage, "game", None)
    still = ppo.Learner(np.float32(0), ())
    state = HopState(jax.random.key(0), jnp.int32(0), jnp.int32(0), still, still, np.float32(0), (), ())
    for _ in range(7):
        state = recipe.advance(state, stage, {})[0]
        acting.append(float(state.acting_moa))
    assert acting == [0, 0, 3, 3, 3, 6, 6]
    assert float(state.moa.params) == 7


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_one_iteration_is_one_play_and_all_learn_from_it(whole: Iterations) -> None:
    """Fault 7: a model of goals trained on a second play-through."""
    for number, (state, episode) in enumerate(zip(whole.states[1:], whole.episodes, strict=True), start=1):
        assert int(state.table.clock) == number * whole.recipe.rollout_steps
        assert int(state.steps) == sum(int(one.alive.any(-1).sum()) for one in whole.episodes[:number])
        game = whole.stage.game
        lives = lives_in_play(game, episode)
        np.testing.assert_array_equal(lives.action.reshape(4, 4, 8), jnp.moveaxis(episode.actions, 0, 2))
        seen = jax.vmap(jax.vmap(game.observe))(episode.state)
        expected = jnp.moveaxis(encode(seen, game.last_step), 0, 2)
        np.testing.assert_array_equal(lives.features.reshape(expected.shape), expected)
        np.testing.assert_array_equal(lives.alive.reshape(4, 4, 8), jnp.moveaxis(episode.alive, 0, 2))


def test_lives_in_play_know_what_came_and_leave_out_what_has_not_come_yet(independent: Iterations) -> None:
    game = make(GAME)
    episode = independent.episodes[-1]
    lives = lives_in_play(game, episode, prey=True)
    took, over, alive = (np.asarray(getattr(episode, name)) for name in ("took", "over", "alive"))
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
    thought, _ = whole.stage.seats.choices(whole.episodes[-1])
    knows = whole.recipe.acquainting(whole.stage.game)
    social = jax.vmap(jax.vmap(jax.vmap(lambda mind: social_features(knows, mind))))(thought.mind)
    np.testing.assert_array_equal(thought.features[1], social)
    np.testing.assert_allclose(thought.belief.sum(-1), 1, rtol=1e-4)
    moves = np.abs(np.diff(np.asarray(thought.belief), axis=0)).max((1, 2, 3, 4))
    assert (moves > 0).all()


def test_targets_are_the_advantages_and_values_of_the_play_itself(whole: Iterations) -> None:
    """Fault 12: advantages from fresh values but returns from the old ones."""
    state, stage = whole.states[1], whole.stage
    table, episode = jax.jit(lambda state: whole.recipe.play(state, stage, {}))(state)
    lessons, _ = jax.jit(lambda state: whole.recipe.lessons(state, stage, table, episode))(state)
    counts = np.asarray(lessons.learns)
    np.testing.assert_allclose((lessons.target - lessons.advantage - lessons.value)[counts], 0, atol=1e-5)
    assert not (np.asarray(lessons.advantage)[~np.asarray(episode.alive)]).any()


def test_every_kind_of_action_is_judged_by_itself_at_every_seat(whole: Iterations) -> None:
    """Fault 11: rare actions lost in an average."""
    episode, told = whole.episodes[-1], whole.metrics[-1]
    thought, _ = whole.stage.seats.choices(episode)
    alive, actions = np.asarray(episode.alive), np.asarray(episode.actions)
    guessed = np.asarray(thought.expected).argmax(-1)
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
    recipe = HopPlus(**{**SMALL, **settings})
    stage = prepare(Training(game=GAME, cast=cast), recipe).stages[0][1]
    assert recipe._about(stage).astype(int).tolist() == expected


def test_every_seat_has_its_own_models_and_trains_all_of_them(independent: Iterations) -> None:
    before, after = (_by_set(state.moa.params["network"]) for state in independent.states[:2])
    assert before.shape[0] == 12  # four seats, three co-players each
    assert (np.abs(after - before).max(1) > 0).all()
    assert set(np.asarray(independent.metrics[0]["moa_top1"].count > 0)) == {True}
    trained_on = np.asarray(independent.metrics[0]["trained_on"].total)
    assert ((trained_on > 0) == np.eye(4, dtype=bool)).all()


def _by_set(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)], 1)


def test_rows_of_a_player_who_has_left_teach_nothing() -> None:
    """Fault 2: the model fitted on rows after a player left."""
    recipe = HopPlus(**{**SMALL, "goals": "none"})
    stage, state = prepared(recipe)
    _, episode = jax.jit(lambda state: recipe.play(state, stage, {}))(state)
    gone = dataclasses.replace(episode, alive=episode.alive.at[3:].set(False))
    other = dataclasses.replace(gone, actions=gone.actions.at[3:].set(0))
    learn = jax.jit(lambda episode: recipe.learn_moa(state, stage, episode, lives_in_play(stage.game, episode)))
    for name, leaf in names_and_leaves(learn(gone).params).items():
        np.testing.assert_array_equal(leaf, names_and_leaves(learn(other).params)[name])


# ---------------------------------------------------------------------------------------------------------- imagination


@pytest.mark.parametrize("goals", ["codes", "prey", "gaussian"])
def test_beliefs_in_imagination_are_those_of_real_play(goals: Any) -> None:
    """Fault 3: subgoals zero in imagined data but real when acting."""
    recipe = HopPlus(**{**SMALL, "goals": goals})
    game = make(GAME)
    player = recipe.player(game, "test", learns=True)
    _, state = prepared(recipe)
    params = jax.tree.map(lambda leaf: leaf[0], recipe.learnt(state))
    seen = one_seat(game.observe(game.init(jax.random.key(3))), 0)
    memory = player.begin(player.init(jax.random.key(1), params))
    look = player.look(params, memory, seen)
    planning = player.planning(recipe.search_settings(game))
    imagined = jax.jit(lambda key: imagine(planning, key, params, look.mind, seen, 6))(jax.random.key(4))
    assert np.abs(np.diff(np.asarray(imagined.mind.belief), axis=0)).max() > 1e-4
    for step in range(6):
        now = jax.tree.map(lambda leaf, step=step: leaf[step], imagined.seen)
        if step:
            memory = player.watch(params, memory, now)
        if not bool(imagined.alive[step]):
            break
        look = player.look(params, memory, now)
        memory = look.memory
        np.testing.assert_allclose(look.mind.belief, imagined.mind.belief[step], atol=1e-4)
        np.testing.assert_allclose(look.mind.expected, imagined.mind.expected[step], atol=1e-5)
        np.testing.assert_allclose(look.value, imagined.value[step], atol=1e-4)


def test_imagined_rows_teach_the_policy_and_not_the_value_unless_it_is_wished(whole: Iterations) -> None:
    stage, state = whole.stage, whole.states[1]
    params = whole.recipe.learnt(state)
    table, episode = jax.jit(lambda state: whole.recipe.play(state, stage, {}))(state)

    def batch(recipe: HopPlus) -> Lessons:
        lessons, _ = recipe.lessons(state, stage, table, episode)
        real = ppo.arrange(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lessons), True)
        return recipe.with_imagined(state, stage, params, real, episode)  # pyright: ignore[reportArgumentType]

    mixed = batch(whole.recipe)
    rows = 4 * 8 * 4
    imagined = mixed.learns.shape[1] - rows
    assert imagined == 3 * round(rows / 3)
    assert not np.asarray(mixed.valued)[0, rows:].any()
    assert np.asarray(mixed.acted)[0, rows:].all()
    wished = batch(dataclasses.replace(whole.recipe, imagined_values=True))
    assert np.asarray(wished.valued)[0, rows:].all()


# ----------------------------------------------------------------------------------------------------- expert iteration


def lessons(acted: list[bool], taught: list[bool]) -> Lessons:
    number = len(acted)
    teacher = np.tile([0.0, 1.0, 0.0], (number, 1))
    return Lessons(
        features=jnp.zeros((number, 1)),
        seat=jnp.zeros(number, jnp.int32),
        action=jnp.zeros(number, jnp.int32),
        log_probability=jnp.full(number, np.log(1 / 3)),
        value=jnp.zeros(number),
        advantage=jnp.arange(number, dtype=jnp.float32),
        target=jnp.ones(number),
        learns=jnp.ones(number, bool),
        written=jnp.zeros(number, jnp.int32),
        acted=jnp.asarray(acted),
        valued=jnp.ones(number, bool),
        taught=jnp.asarray(taught),
        teacher=jnp.asarray(teacher, jnp.float32),
    )


def test_ppos_ratio_sees_only_rows_in_which_the_policy_acted_and_the_teacher_only_its_own() -> None:
    settings = ppo.PPOSettings(entropy_weight=0.0, value_weight=0.0)

    def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.broadcast_to(params, (features.shape[0], 3)), jnp.zeros(features.shape[0])

    def gradient(rows: Lessons, weight: float = 1.0) -> np.ndarray:
        def total(params: jax.Array) -> jax.Array:
            counts = jnp.ones(rows.learns.shape, bool)
            return expert_iteration.loss(params, network, rows, counts, settings, 1.0, 0.0, weight)[0]

        return np.asarray(jax.grad(total)(jnp.zeros(3)))

    searched = gradient(lessons([False] * 4, [True] * 4))
    np.testing.assert_allclose(searched, np.array([1 / 3, 1 / 3 - 1, 1 / 3]), atol=1e-6)
    np.testing.assert_allclose(gradient(lessons([False] * 4, [False] * 4)), 0, atol=1e-7)
    # Advantages are normalised over the rows in which the policy acted: two of them, -1 and 1.
    mixed = lessons([True, True, False, False], [False, False, True, True])
    acted_only = gradient(mixed, weight=0.0)
    np.testing.assert_allclose(acted_only, gradient(lessons([True, True], [False, False]), 0.0), atol=1e-6)
    np.testing.assert_allclose(gradient(mixed), acted_only + searched, atol=1e-6)


def test_rows_that_are_not_valued_teach_the_value_nothing() -> None:
    settings = ppo.PPOSettings(value_weight=1.0)
    rows = dataclasses.replace(
        lessons([True] * 4, [False] * 4),
        target=jnp.array([1.0, 1.0, 50.0, 50.0]),
        valued=jnp.array([True, True, False, False]),
    )

    def total(value: jax.Array) -> jax.Array:
        def network(params: Any, features: Any) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((4, 3)), jnp.broadcast_to(params, 4)

        return expert_iteration.loss(value, network, rows, jnp.ones(4, bool), settings, 1.0, 0.0, 1.0)[0]

    # Half the squared error, 1 from the target: its slope is -1.
    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.float32(0)), -1.0, rtol=1e-5)


def test_hop_acts_by_its_search_and_learns_from_it_alone() -> None:
    recipe = Hop(**{**SMALL, "draws": 1, "simulations": 4})
    done = iterations(recipe, number=1)
    thought, _ = done.stage.seats.choices(done.episodes[0])
    table, episode = jax.jit(lambda state: recipe.play(state, done.stage, {}))(done.states[0])
    learnt, _ = recipe.lessons(done.states[0], done.stage, table, episode)
    assert not np.asarray(learnt.acted).any()
    assert np.asarray(learnt.taught).all()
    np.testing.assert_array_equal(learnt.teacher, done.stage.seats.choices(episode)[0].plan.policy)
    assert float(done.metrics[0]["search_depth"].total.sum()) > 0
    legal = np.asarray(jax.vmap(jax.vmap(done.stage.game.legal))(done.episodes[0].state))
    assert not np.asarray(thought.plan.policy)[~legal].any()


def test_the_papers_preset() -> None:
    hop = Hop(**hop_paper(make("msh-4x4-4h1s")))
    assert (hop.draws, hop.simulations, hop.exploration, hop.temperature, hop.discount) == (5, 200, 1.0, 0.5, 0.95)
    assert Hop(**hop_paper(make("msg-4x4"))).exploration == 15.0
    assert hop.acquainting(make("msh-4x4-4h1s")).inter == "counts"


# ------------------------------------------------------------------------------------------------------------- pieces


def test_rare_goals_are_met_as_often_as_common_ones(independent: Iterations) -> None:
    lives = lives_in_play(independent.stage.game, independent.episodes[0], prey=True)
    alive = jnp.zeros_like(lives.alive).at[:, 0].set(True)
    goal = jnp.zeros_like(lives.goal).at[3].set(1)
    weights = np.asarray(online.rare_goals_first(dataclasses.replace(lives, alive=alive, goal=goal), 3))
    assert weights[3] == pytest.approx(np.delete(weights, 3).sum(), rel=0.02)
    value = jnp.where(goal == 1, 5.0, 1.0)
    worth = online.followed_worth(jnp.zeros(3), dataclasses.replace(lives, alive=alive, goal=goal, value=value))
    np.testing.assert_allclose(worth, [1.0, 5.0, 0.0])


def test_a_fall_is_told_once_with_what_moved() -> None:
    progress = Progress()
    lines = []
    for step, earned in enumerate([1.0, 2.0, 2.5, 2.5, 2.5, 2.4, 2.3, 2.2, 2.6, 2.6, 2.6]):
        line: dict[str, Any] = {"seed": 0, "steps": step, "return": [earned], "entropy": [1.0 - step / 10]}
        note_fall(line, (0,), progress)
        lines.append(line)
    fell = [line for line in lines if "fell" in line]
    assert len(fell) == 1
    assert fell[0]["steps"] == 6
    assert fell[0]["fell"]["from"] == pytest.approx(2.5)
    assert fell[0]["fell"]["moved"]["entropy"][1] < fell[0]["fell"]["moved"]["entropy"][0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"world": "none", "search": "on"}, "needs the rules or a learned world"),
        ({"buffer_episodes": 128}, "buffer_episodes must be 0"),
        ({"simulations": 0}, "simulations must be at least 1"),
        ({"real_ratio": 0.0}, "real_ratio"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_recipe("hopplus", settings).check([make(GAME)])


def test_an_optimist_needs_a_model_of_prey() -> None:
    with pytest.raises(InputError, match="--goals prey"):
        prepare(Training(game=GAME, guest="optimist"), HopPlus(**SMALL))


# ------------------------------------------------------------------------------------------------------- as a command

WORDS = (
    f"train hopplus --game {GAME} --goals prey --guest optimist --environments 4 --rollout-steps 8 --hidden 8"
    " --moa-hidden 8 --moa-batches 2 --epochs 1 --chunk 2 --acquaintance 2 --tastes --no-anneal --steps 512"
).split()


def test_twice_the_same_and_stopped_and_gone_on_with_bit_for_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, stopped = (tmp_path / name for name in ("one", "other", "stopped"))
    assert main([*WORDS, "--out", str(one)]) == 0
    assert main([*WORDS, "--out", str(other)]) == 0
    assert main([*WORDS[:-1], "128", "--out", str(stopped)]) == 0
    assert main(["train", "--resume", str(stopped), "--steps", "512"]) == 0
    whole = checkpoint.load(one / "checkpoints").arrays
    for path in (other, stopped):
        found = checkpoint.load(path / "checkpoints").arrays
        assert found.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(found[name], whole[name])
    assert any(name.startswith("table/memories") for name in whole)
    assert any(name.startswith("moa/optimiser") for name in whole)
    assert main(["watch", "--run", str(one), "--json", str(tmp_path / "seen.json")]) == 0
    assert main(["evaluate", str(one), "--episodes", "20", "--search", "on"]) == 0
    assert main([*WORDS, "--out", str(tmp_path / "begun"), "--init", f"moa={one}", f"policy={one}"]) == 0
    assert main([*WORDS, "--out", str(tmp_path / "wrong"), "--init", "moa=nowhere"]) == 2
    assert not (tmp_path / "wrong").exists()

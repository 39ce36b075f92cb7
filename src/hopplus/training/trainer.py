"""The loop around a recipe: compiled chunks for all seeds at once; between them the host logs, evaluates and saves.

Where several devices compute, the environments are divided among them (`hopplus.devices`); where several processes do,
each of them runs this loop, and the first one writes.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float

from hopplus.compiling import quick_options
from hopplus.devices import EVERYWHERE, anyone, gathered, meet, put, spec
from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.keys import Key, fast
from hopplus.play import Table, play_episodes
from hopplus.players import Params
from hopplus.settings import Training
from hopplus.specs import parse
from hopplus.statistics import standard_error
from hopplus.struct import where_first
from hopplus.training import checkpoint
from hopplus.training.logging import Line, Log
from hopplus.training.modules import load_modules
from hopplus.training.policies import Policy, same_shape
from hopplus.training.recipe import Metrics, Recipe, Stage, State
from hopplus.training.run import Run
from hopplus.training.seats import LEARNER, Seats, make_seats

EVALUATION = 1000
"""The purpose of a seed's key for evaluations, apart from all that recipes use."""
EVALUATION_EPISODES = 1000
WATCHED = ("return", "entropy", "kl", "value_loss", "moa_cross_entropy", "teacher_loss")
"""What is compared when a return falls."""
FALL = 0.02
"""A return that is worse than its best by more than this share has fallen."""
TOGETHER = 3
"""Chunks whose mean is compared: single ones are noisy."""
MOST_STEPS = 2_000_000_000


@dataclass(frozen=True, eq=False)
class Setup:
    """A training made ready: everything checked, nothing played."""

    training: Training
    recipe: Recipe
    game: Game[Any]
    seeds: tuple[int, ...]
    stages: tuple[tuple[int, Stage], ...]
    """(the step at which it ends, the stage), in order."""
    judged: Seats
    """Who sits where in evaluations: no guests, learners greedy."""
    frozen: Mapping[str, Policy]
    begun: Mapping[str, Params]
    """What modules begin with, by `init/MODULE`."""
    mesh: Mesh | None = None
    """The devices that compute it, where they are several."""

    def stage(self, steps: int) -> Stage:
        """What is played after so many steps."""
        return next((stage for end, stage in self.stages if steps < end), self.stages[-1][1])

    @property
    def learners(self) -> tuple[int, ...]:
        return self.judged.learners

    @property
    def evaluates(self) -> bool:
        """Whether there are evaluations on the way."""
        return self.training.target is not None or self.training.evaluations > 0

    def evaluates_between(self, before: int, after: int) -> bool:
        """Whether an evaluation falls between two numbers of steps."""
        number, total = self.training.evaluations, self.training.steps
        due = min(after, total) * number // total > min(before, total) * number // total
        return self.training.target is not None or due

    def frozen_params(self) -> dict[str, Params]:
        return {source: policy.params for source, policy in self.frozen.items()}


def parse_seeds(text: str) -> tuple[int, ...]:
    """0, 0-7 or 0,3,5 as numbers."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"seeds are written 0, 0-7 or 0,3,5, not {text!r}")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds or len(set(seeds)) < len(seeds) or max(seeds) >= 2**31:
        raise InputError(f"seeds must be different numbers, at least one, not {text!r}")
    return tuple(seeds)


def describe(setup: Setup) -> dict[str, Any]:
    """What config.json says of a training."""
    return {
        "recipe": setup.recipe.name,
        "settings": dataclasses.asdict(setup.recipe),  # pyright: ignore[reportArgumentType]
        "training": dataclasses.asdict(setup.training),
        "game_version": setup.game.version,
        "seeds": list(setup.seeds),
        "learners": list(setup.learners),
        "ceilings": dict(setup.game.ceilings),
        "devices": setup.mesh.size if setup.mesh else 1,
    }


def prepare(
    training: Training, recipe: Recipe, saved_policies: Mapping[str, Policy] | None = None, mesh: Mesh | None = None
) -> Setup:
    """Check everything that a training needs; InputError says what is wrong.

    `saved_policies`, by source, are frozen players that a resumed run has kept: theirs are taken instead of those of
    the runs that the cast names, which may have gone on or away. `mesh` are the devices, where they are several.
    """
    seeds, game = parse_seeds(training.seeds), make(training.game)
    if mesh and recipe.environments % mesh.size:
        raise InputError(
            f"the {recipe.environments} environments cannot be divided evenly among {mesh.size} devices:"
            f" --environments must be a multiple of {mesh.size}"
        )
    played_games = [*_earlier_games(training, game), (MOST_STEPS + 1, game)]
    recipe.check([played for _, played in played_games])
    if not 1 <= training.steps <= MOST_STEPS or training.chunk < 1:
        raise InputError(f"steps must be from 1 to {MOST_STEPS}, and a chunk at least 1 iteration")
    if not 0 <= training.guest_share <= 1 or training.guest_steps < 1:
        raise InputError("guest_share must be from 0 to 1, and guest_steps at least 1")
    judge = recipe.player(game, LEARNER, greedy=True, shares=recipe.shares_params)
    acting = recipe.player(game, LEARNER, shares=recipe.shares_params, learns=True)
    judged, frozen = make_seats(training.cast, game, judge, kept=saved_policies)
    share = training.guest_share if training.guest else 0.0
    stages = []
    for end, played in played_games:
        seats, _ = make_seats(training.cast, played, acting, training.guest, frozen, recipe.stays_together)
        stages.append((end, Stage(played, game, seats, training.steps, share, training.guest_steps)))
    begun = {} if saved_policies is not None else load_modules(training.init, recipe, stages[0][1])
    return Setup(training, recipe, game, seeds, tuple(stages), judged, frozen, begun, mesh)


def _earlier_games(training: Training, game: Game[Any]) -> list[tuple[int, Game[Any]]]:
    """The games of `until`, by the step at which each ends."""
    found = []
    for text in training.until:
        end, _, settings = text.partition(":")
        try:
            steps = int(float(end.replace("_", "")))
        except (ValueError, OverflowError):
            raise InputError(f"until is written STEPS:setting=value, not {text!r}") from None
        played = make(training.game, **dict(parse(f"until:{settings}").options))
        if not same_shape(played, game):
            raise InputError(f"until: {settings!r} changes the board or the actions, not only the rules")
        found.append((steps, played))
    if [steps for steps, _ in found] != sorted({steps for steps, _ in found}):
        raise InputError("until: the steps must rise from one to the next")
    return found


# ------------------------------------------------------------------------------------------------ compiled programs


def untrained_params(setup: Setup) -> Params:
    """Parameter sets [P, ...] of one seed, all zero, in the shapes of those that the training learns."""
    frozen = {**setup.frozen_params(), **setup.begun}
    init = partial(setup.recipe.init, stage=setup.stages[0][1], frozen=frozen)
    learnt = setup.recipe.learnt(jax.eval_shape(lambda seed: init(jax.random.key(seed)), 0))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), learnt)


def over_seeds(function: Callable[..., Any], seeds: int) -> Callable[..., Any]:
    """A function of one seed's (first argument, others being common) for seeds [K]; one seed needs no batching."""
    if seeds > 1:
        return lambda first, *common: jax.vmap(lambda one: function(one, *common))(first)

    def alone(first: Any, *common: Any) -> Any:
        result = function(jax.tree.map(lambda leaf: leaf[0], first), *common)
        return jax.tree.map(lambda leaf: leaf[None], result)

    return alone


Numbers = tuple[dict[str, Any], dict[str, Any]]
"""Values of the traced settings of a recipe and of a stage."""


def traced_numbers(recipe: Recipe, stage: Stage) -> Numbers:
    """The settings that a compiled program takes as arguments, by name."""

    def scalars(owner: Any) -> dict[str, Any]:
        dtypes = {bool: np.bool_, int: np.int32, float: np.float32}
        types = {field.name: field.type for field in dataclasses.fields(owner)}
        return {name: dtypes[types[name]](getattr(owner, name)) for name in owner.traced}

    return scalars(recipe), scalars(stage)


def run_chunk(
    state: State, frozen: Mapping[str, Params], numbers: Numbers, recipe: Recipe, stage: Stage, iterations: int
) -> tuple[State, Metrics, Array]:
    """So many iterations; metrics over all of them, and whether all parameters are finite."""
    recipe = dataclasses.replace(recipe, **numbers[0])  # pyright: ignore[reportArgumentType]
    stage = dataclasses.replace(stage, **numbers[1])

    def iterate(state: State, _: None) -> tuple[State, Metrics]:
        return recipe.iterate(state, stage, frozen)

    state, metrics = jax.lax.scan(iterate, state, None, length=iterations)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(recipe.learnt(state))]).all()
    return state, jax.tree.map(lambda leaf: leaf.sum(0), metrics), finite


def run_evaluation(
    key_and_learnt: tuple[Key, Params], frozen: Mapping[str, Params], game: Game[Any], seats: Seats, episodes: int
) -> Float[Array, "episodes n"]:
    """Returns of whole episodes from fresh states."""
    key, learnt = key_and_learnt
    return play_episodes(key, game, seats.cast, episodes, seats.params(learnt, frozen))[1].returns


def places(states: State, mesh: Mesh) -> State:
    """Where the leaves [K, ...] of states are kept: the environments of a table are divided among the devices, all else
    is on each of them."""

    def one(part: Any) -> Any:
        of_table = isinstance(part, Table)
        return jax.tree.map(lambda leaf: NamedSharding(mesh, spec(leaf, 1) if of_table else EVERYWHERE), part)

    return jax.tree.map(one, states, is_leaf=lambda part: isinstance(part, Table))


class Programs:
    """The compiled programs of a training, each made when first needed.

    Tracing keeps Python busy and compiling does not, so that what is prefetched is traced one after the other and
    compiled side by side, and the evaluation is made ready while the first chunk already runs.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._compiled: dict[Any, Future[Any]] = {}
        self._threads = ThreadPoolExecutor(2)
        self._frozen = setup.frozen_params()
        init = partial(setup.recipe.init, stage=setup.stages[0][1], frozen={**self._frozen, **setup.begun})
        init = over_seeds(init, len(setup.seeds))
        first = jax.eval_shape(init, jax.eval_shape(self._seed_keys))
        self.template = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), first)
        """Shapes of the states."""
        self._everywhere = self._places = None
        if setup.mesh:
            self._everywhere, self._places = NamedSharding(setup.mesh, EVERYWHERE), places(self.template, setup.mesh)
            self._frozen = put(self._frozen, jax.tree.map(lambda leaf: self._everywhere, self._frozen))
        self._init = init

    def _lower(self, function: Callable[..., Any], *inputs: Any, **where: Any) -> Any:
        """A function traced, for several devices if there are; `where` says where arrays come from and go to."""
        if self._setup.mesh is None:
            return jax.jit(function).lower(*inputs)
        with jax.set_mesh(self._setup.mesh):
            return jax.jit(function, **where).lower(*inputs)

    def _seed_keys(self) -> Key:
        return fast(jax.vmap(jax.random.key)(np.array(self._setup.seeds)))

    def seed_keys(self) -> Key:
        if self._setup.mesh is None:
            return self._seed_keys()
        return jax.jit(self._seed_keys, out_shardings=self._everywhere)()

    def placed(self, states: State) -> State:
        """States that were read from a checkpoint, where the programs expect them."""
        return states if self._setup.mesh is None else put(states, self._places)

    def prefetch(self, steps: int, evaluation: bool) -> None:
        """Start compiling what will be needed first."""
        self._program(self._setup.stage(steps))
        if evaluation:
            self._program("evaluation")

    def first_states(self) -> State:
        keys = self.seed_keys()
        first = self._lower(self._init, keys, out_shardings=self._places).compile(compiler_options=quick_options())
        meet()
        return first(keys)

    def chunk(self, states: State, steps: int) -> tuple[State, Metrics, Array]:
        stage = self._setup.stage(steps)
        program = self._program(stage).result()
        meet()
        return program(states, self._frozen, self._numbers(stage))

    def evaluate(self, states: State, number: int) -> Float[np.ndarray, "K episodes n"]:
        """Greedy returns of every seed; evaluation `number` has states of its own."""
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION), number))(self.seed_keys())
        program, learnt = self._program("evaluation").result(), self._setup.recipe.learnt(states)
        meet()
        return np.asarray(program((keys, learnt), self._frozen), np.float64)

    def time_stages(self, states: State, steps: int) -> dict[str, float]:
        """Seconds that each stage of one seed's iteration takes by itself, compiled apart; the best of three."""
        state = jax.tree.map(lambda leaf: leaf[0], states)
        stages, found = self._setup.recipe.stages(self._setup.stage(steps), self._frozen), {}
        values: dict[str, Any] = {}
        for name, function in stages.items():
            run = jax.jit(function)
            values[name] = jax.block_until_ready(run(state, values))
            taken = []
            for _ in range(3):
                begun = time.perf_counter()
                jax.block_until_ready(run(state, values))
                taken.append(time.perf_counter() - begun)
            found[f"seconds_{name}"] = min(taken)
        return found

    def _program(self, name: Any) -> Future[Any]:
        if name not in self._compiled:
            if name == "evaluation":
                self._compiled[name] = self._threads.submit(lambda: self._lower_evaluation().compile())
            else:
                self._compiled[name] = self._threads.submit(self._lower_chunk(name).compile)
        return self._compiled[name]

    def _numbers(self, stage: Stage) -> Numbers:
        numbers = traced_numbers(self._setup.recipe, stage)
        if self._setup.mesh is None:
            return numbers
        return put(numbers, jax.tree.map(lambda leaf: self._everywhere, numbers))

    def _lower_chunk(self, stage: Stage) -> Any:
        setup = self._setup
        chunk = partial(run_chunk, recipe=setup.recipe, stage=stage, iterations=setup.training.chunk)
        return self._lower(
            over_seeds(chunk, len(setup.seeds)),
            self.template,
            self._frozen,
            self._numbers(stage),
            in_shardings=(self._places, self._everywhere, self._everywhere),
            out_shardings=(self._places, self._everywhere, self._everywhere),
        )

    def _lower_evaluation(self) -> Any:
        setup = self._setup
        judge = partial(run_evaluation, game=setup.game, seats=setup.judged, episodes=EVALUATION_EPISODES)
        inputs = (jax.eval_shape(self._seed_keys), setup.recipe.learnt(self.template))
        everywhere = {"in_shardings": self._everywhere, "out_shardings": self._everywhere}
        return self._lower(over_seeds(judge, len(setup.seeds)), inputs, self._frozen, **everywhere)


# ----------------------------------------------------------------------------------------------------- the host loop


@dataclass
class Progress:
    """Where a training is, beside its state: what the host knows."""

    chunk: int = 0
    seconds: float = 0.0
    reached: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """By seed, when its target was reached: steps, seconds, evaluation."""
    recent: dict[str, list[dict[str, float]]] = dataclasses.field(default_factory=dict)
    """By seed, what the last chunks were like: `WATCHED`."""
    best: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """By seed, what the chunks of the best return were like."""
    fallen: dict[str, bool] = dataclasses.field(default_factory=dict)
    """By seed, whether its return has fallen from its best, which has been said."""

    def notes(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class DivergedError(Exception):
    """A loss or parameter is not a finite number any more; the last good state has been saved."""


Watch = Callable[[Sequence[Line], Setup], None]
"""Called after every chunk with its lines, one a seed that still trains."""


def train(
    run: Run | None,
    setup: Setup,
    saved: checkpoint.Checkpoint | None = None,
    watch: Watch = lambda lines, setup: None,
    save_seconds: float = 30.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train from the start, or on from a checkpoint, until every seed has had its steps or reached its target.

    Returns the summary that is kept as evaluation/final.json. `should_stop` is asked after every chunk: then, as when
    anything is raised, the training saves itself and ends with KeyboardInterrupt. Processes that train together stop
    when any of them is asked to; the first has the run, the others have None and write nothing.
    """
    programs = Programs(setup)
    progress = Progress(**saved.notes) if saved else Progress()
    if saved:
        states = programs.placed(checkpoint.restore(programs.template, saved.arrays))
        programs.prefetch(int(np.min(states.steps)), setup.evaluates)
    else:
        programs.prefetch(0, setup.evaluates)
        states = programs.first_states()
    log = Log(run, progress.chunk * setup.training.chunk) if run else None
    started, saved_at = time.perf_counter() - progress.seconds, time.perf_counter()
    is_saved, good, ended = saved is not None, (progress.chunk, states, progress.notes()), False
    try:
        while True:
            active = _active(setup, states, progress)
            if not active.any():
                ended = True
                break
            steps_now = int(np.asarray(states.steps)[active].min())
            after, metrics, finite = programs.chunk(states, steps_now)
            lines = lines_of(setup, after, metrics, active, progress.chunk + 1)
            _stop_if_diverged(run, setup, states, progress, lines, np.asarray(finite))
            states = after if active.all() else where_first(jnp.asarray(active), after, states)
            progress.chunk += 1
            progress.seconds = time.perf_counter() - started
            if setup.evaluates_between(steps_now, min(line["steps"] for line in lines)):
                _judge(setup, programs.evaluate(states, progress.chunk), lines, progress)
            timed = (
                programs.time_stages(states, steps_now) if setup.training.time_stages and progress.chunk == 1 else {}
            )
            for line in lines:
                line["seconds"] = progress.seconds
                line.update(timed)
                note_fall(line, setup.learners, progress)
            if log:
                log.write(lines)
            is_saved, good = False, (progress.chunk, states, progress.notes())  # all of it has moved on
            watch(lines, setup)
            is_due, ended = anyone(time.perf_counter() - saved_at >= save_seconds, should_stop())
            if is_due:
                _save(run, *good)
                saved_at, is_saved = time.perf_counter(), True
            if ended:
                raise KeyboardInterrupt
    finally:
        try:
            # A process that fails alone cannot gather what the others hold.
            if not is_saved and good[0] and (ended or jax.process_count() == 1):
                _save(run, *good)
        finally:
            if log:
                log.close()
    summary = summarise(setup, states, programs.evaluate(states, 0), progress)
    if run:
        run.write_evaluation("final", summary)
    return summary


def _save(run: Run | None, number: int, states: State, notes: Mapping[str, Any]) -> Path | None:
    """Write a checkpoint, in the process that has the run; all processes that train together must call it."""
    whole = gathered(states)
    return checkpoint.save(run.checkpoints, number, whole, notes) if run else None


def _active(setup: Setup, states: State, progress: Progress) -> np.ndarray:
    """Which seeds still train."""
    reached = np.array([str(seed) in progress.reached for seed in setup.seeds])
    return (np.asarray(states.steps) < setup.training.steps) & ~reached


def lines_of(setup: Setup, states: State, metrics: Metrics, active: np.ndarray, chunk: int) -> list[Line]:
    """What a chunk has to tell of every seed that still trains."""
    means = {}
    for name, mean in metrics.items():
        total, count = np.asarray(mean.total, np.float64), np.asarray(mean.count, np.float64)
        means[name] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        if name == "trained_on":
            means[name] = total
    steps = np.asarray(states.steps)
    return [
        {
            "seed": seed,
            "iteration": chunk * setup.training.chunk,
            "steps": int(steps[place]),
            **{name: values[place].tolist() for name, values in means.items()},
        }
        for place, seed in enumerate(setup.seeds)
        if active[place]
    ]


def _judge(setup: Setup, returns: np.ndarray, lines: Sequence[Line], progress: Progress) -> None:
    """Add evaluations to the lines, and note which seeds have reached the target."""
    by_seat = returns.mean(1)
    for line in lines:
        found = by_seat[setup.seeds.index(line["seed"])]
        line["evaluation"] = found.tolist()
        mean = float(found[list(setup.learners)].mean())
        if setup.training.target is not None and mean >= setup.training.target:
            progress.reached[str(line["seed"])] = {
                "steps": line["steps"],
                "seconds": progress.seconds,
                "evaluation": mean,
            }


def note_fall(line: Line, learners: Sequence[int], progress: Progress) -> None:
    """Where a seed's return has fallen from its best, add to its line when that was and what has moved since."""
    seed = str(line["seed"])
    now = {name: float(np.mean([line[name][seat] for seat in learners])) for name in WATCHED if name in line}
    if not all(np.isfinite(value) for value in now.values()):
        return
    recent = [*progress.recent.get(seed, []), {**now, "steps": float(line["steps"])}][-TOGETHER:]
    progress.recent[seed] = recent
    if len(recent) < TOGETHER:
        return
    mean = {name: float(np.mean([one[name] for one in recent])) for name in recent[0]}
    best = progress.best.setdefault(seed, mean)
    if mean["return"] >= best["return"]:
        progress.best[seed] = mean
    fell = mean["return"] < best["return"] - FALL * abs(best["return"])
    if fell and not progress.fallen.get(seed, False):
        moved = {name: [best[name], mean[name]] for name in mean if name not in ("return", "steps")}
        line["fell"] = {"from": best["return"], "to": mean["return"], "best_at_steps": best["steps"], "moved": moved}
    progress.fallen[seed] = fell


def _stop_if_diverged(
    run: Run | None,
    setup: Setup,
    states: State,
    progress: Progress,
    lines: Sequence[Line],
    finite: np.ndarray,
) -> None:
    """Save the state before the chunk and raise, where a loss or a parameter is not finite after it."""
    for line in lines:
        wrong = [
            f"{name} of seat {seat}"
            for name in ("policy_loss", "value_loss", "entropy")
            for seat in setup.learners
            if name in line and not np.isfinite(line[name][seat]) and sum(row[seat] for row in line["trained_on"])
        ]
        if not finite[setup.seeds.index(line["seed"])]:
            wrong.append("a parameter")
        if wrong:
            path = _save(run, progress.chunk, states, progress.notes())
            raise DivergedError(
                f"seed {line['seed']}: {' and '.join(wrong)} is not a finite number after iteration"
                f" {line['iteration']}; the last good state is {path}"
            )


def summarise(setup: Setup, states: State, returns: np.ndarray, progress: Progress) -> dict[str, Any]:
    """How good the result is: greedy returns [K, episodes, n], seeds being the unit where there are several."""
    by_seed, episodes = returns.mean(1), returns.shape[1]
    error = standard_error(by_seed if len(by_seed) > 1 else returns[0])
    learners = list(setup.learners)
    mean = float(by_seed.mean())
    ceiling = setup.game.ceilings["mean"]
    return {
        "game": setup.game.name,
        "cast": setup.training.cast,
        "recipe": setup.recipe.name,
        "seeds": list(setup.seeds),
        "steps": np.asarray(states.steps).tolist(),
        "seconds": progress.seconds,
        "episodes": episodes,
        "greedy": True,
        "learners": learners,
        "mean_return": mean,
        "own_return": float(by_seed[:, learners].mean()),
        "share_of_ceiling": mean / ceiling if ceiling else 0.0,
        "ceiling": ceiling,
        "per_seat": [
            {"seat": seat, "mean": float(by_seed[:, seat].mean()), "standard_error": float(error[seat])}
            for seat in range(by_seed.shape[1])
        ],
        "per_seed": [
            {
                "seed": seed,
                "own_return": float(row[learners].mean()),
                "by_seat": row.tolist(),
                "reached": progress.reached.get(str(seed)),
            }
            for seed, row in zip(setup.seeds, by_seed, strict=True)
        ],
    }

"""An experiment made ready: config checked, game, seats and frozen players made, nothing played."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jax.sharding import Mesh

from hopplus.algorithms.base import Algorithm, CurriculumPhase
from hopplus.algorithms.seats import LEARNER, NO_PARTNER, Seats
from hopplus.configs import MAX_STEPS, TrainingConfig, check_fields
from hopplus.core.errors import InputError
from hopplus.core.settings import flatten
from hopplus.core.specs import Spec, parse
from hopplus.games import Game, make
from hopplus.players import Params
from hopplus.training.casting import count_learners, make_seats, parse_cast
from hopplus.training.initialization import load_init_params
from hopplus.training.policies import Policy, same_shape


@dataclass(frozen=True, eq=False)
class Experiment:
    """All that a training needs, checked."""

    training: TrainingConfig
    algorithm: Algorithm
    game: Game[Any]
    seeds: tuple[int, ...]
    phases: tuple[tuple[int, CurriculumPhase], ...]
    """(last step, phase), in order."""
    eval_seats: Seats
    """Seats of evaluations: no curriculum partners, greedy learners."""
    frozen: Mapping[str, Policy]
    """Policies of frozen players by source."""
    init_params: Mapping[str, Params]
    """Initial parameters by module, for modules that do not start afresh."""
    mesh: Mesh | None = None
    """Devices, where there are several."""

    def phase_at(self, steps: int) -> CurriculumPhase:
        """Phase after so many steps."""
        return next((phase for end, phase in self.phases if steps < end), self.phases[-1][1])

    @property
    def learners(self) -> tuple[int, ...]:
        """Seats that learn."""
        return self.eval_seats.learners

    @property
    def evaluates(self) -> bool:
        """Whether there are evaluations during training."""
        return self.training.target is not None or self.training.evaluations > 0

    def evaluates_between(self, before: int, after: int) -> bool:
        """Whether an evaluation falls between two step counts."""
        number, total = self.training.evaluations, self.training.steps
        due = min(after, total) * number // total > min(before, total) * number // total
        return self.training.target is not None or due

    def frozen_params(self) -> dict[str, Params]:
        """Parameters of frozen players by source."""
        return {source: policy.params for source, policy in self.frozen.items()}


def describe(experiment: Experiment) -> dict[str, Any]:
    """Contents of config.json."""
    return {
        "algorithm": experiment.algorithm.name,
        "settings": flatten(experiment.algorithm),
        "training": asdict(experiment.training),
        "game_version": experiment.game.version,
        "seeds": list(experiment.seeds),
        "learners": list(experiment.learners),
        "ceilings": dict(experiment.game.ceilings),
        "devices": experiment.mesh.size if experiment.mesh else 1,
    }


def prepare(
    training: TrainingConfig,
    algorithm: Algorithm,
    saved_policies: Mapping[str, Policy] | None = None,
    mesh: Mesh | None = None,
) -> Experiment:
    """Returns the experiment of a config; InputError says what is wrong with it.

    Args:
        saved_policies: Frozen players kept by a resumed run, by source; they replace those of the runs named in the
            cast, which may have changed since.
        mesh: Devices, where there are several.
    """
    check_fields(training)
    seeds, game = parse_seeds(training.seeds), make(training.game)
    if mesh and algorithm.num_envs % mesh.size:
        raise InputError(
            f"{algorithm.num_envs} environments cannot be divided evenly among {mesh.size} devices:"
            f" --num-envs must be a multiple of {mesh.size}"
        )
    games = [*_curriculum_games(training, game), (MAX_STEPS + 1, game)]
    cast = parse_cast(training.cast, saved_policies or ())
    algorithm = algorithm.for_learners(count_learners(cast, game))
    algorithm.check([phase_game for _, phase_game in games])
    greedy = algorithm.evaluated_player(game, LEARNER)
    learner = algorithm.player(game, LEARNER, shares=algorithm.shares_params, learns=True)
    eval_seats, frozen = make_seats(cast, game, greedy, kept=saved_policies)
    partner = _partner(training, algorithm, eval_seats)
    share = training.partner_share if partner else 0.0
    partner_steps = training.partner_steps or max(training.steps // 2, 1)
    phases = []
    for end, phase_game, is_planned in _with_plan_targets(games, training, algorithm):
        seats, _ = make_seats(cast, phase_game, learner, partner, frozen, algorithm.has_trials)
        phase = CurriculumPhase(phase_game, game, seats, training.steps, share, partner_steps, is_planned)
        phases.append((end, phase))
    init_params = {} if saved_policies is not None else load_init_params(training.init, algorithm, phases[0][1])
    return Experiment(training, algorithm, game, seeds, tuple(phases), eval_seats, frozen, init_params, mesh)


def _with_plan_targets(
    games: list[tuple[int, Game[Any]]], training: TrainingConfig, algorithm: Algorithm
) -> list[tuple[int, Game[Any], bool]]:
    """Phases (last step, game, whether states receive planned targets).

    The last part of a training with planned targets has them.
    """
    first = algorithm.first_planned_step(training.steps, training.iterations_per_call)
    if first is None:
        return [(end, game, False) for end, game in games]
    ends = sorted({end for end, _ in games} | ({first} if first > 0 else set()))
    return [(end, next(game for last, game in games if end <= last), end > first) for end in ends]


def _partner(training: TrainingConfig, algorithm: Algorithm, seats: Seats) -> Spec | None:
    """Curriculum partner: the training's, or where several seats learn the algorithm's."""
    name = training.partner
    if name is None and len(seats.learners) > 1:
        name = algorithm.default_partner
    return None if name in (None, NO_PARTNER) else parse(name)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds written 0, 0-7 or 0,3,5."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"seeds are written 0, 0-7 or 0,3,5, not {text!r}")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds or len(set(seeds)) < len(seeds) or max(seeds) >= 2**31:
        raise InputError(f"seeds must be different numbers, at least one, not {text!r}")
    return tuple(seeds)


def _curriculum_games(training: TrainingConfig, game: Game[Any]) -> list[tuple[int, Game[Any]]]:
    """Games of the curriculum, by the step at which each ends."""
    games = []
    for text in training.curriculum:
        end, _, settings = text.partition(":")
        try:
            steps = int(float(end.replace("_", "")))
        except (ValueError, OverflowError):
            raise InputError(f"curriculum is written STEPS:setting=value, not {text!r}") from None
        phase_game = make(training.game, **dict(parse(f"curriculum:{settings}").options))
        if not same_shape(phase_game, game):
            raise InputError(f"curriculum: {settings!r} changes the board or the actions, not only the rules")
        games.append((steps, phase_game))
    if [steps for steps, _ in games] != sorted({steps for steps, _ in games}):
        raise InputError("curriculum: the steps must rise from one phase to the next")
    return games

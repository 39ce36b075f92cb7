"""Config of a training run, whatever the algorithm."""

from dataclasses import dataclass
from typing import Annotated

from hopplus.configs.constraints import Interval, PositiveInt, Probability, at_least

MAX_STEPS = 2_000_000_000


@dataclass(frozen=True)
class TrainingConfig:
    """Training configuration: game, cast, seeds, budget, curriculum."""

    game: str = "msh-4x4-4h1s"
    """Game by name, optionally with settings: msh-8x8-4h1s:T=50."""
    cast: str = "self-play"
    """self-play, or one player per seat: learner,ns,pool(nh,random),runs/other."""
    seeds: str = "0"
    """Independent training seeds, computed together: 0, 0-7 or 0,3,5."""
    steps: Annotated[int, Interval(1, MAX_STEPS)] = 1_000_000
    """Environment steps per seed."""
    target: float | None = None
    """Stop a seed once the mean return of its learners in a greedy evaluation (1,000 episodes) reaches this value."""
    curriculum: tuple[str, ...] = ()
    """Other settings of the game up to a step, as in 4_000_000:stag_needs_company=False."""
    partner: str | None = None
    """Curriculum partner that replaces learners in a share of the episodes: a player such as ns; optimist, which
    follows the learner's own opponent model towards the goal with the highest return so far; or none. Default:
    optimist for hopplus with labelled goals such as prey, else none."""
    partner_share: Probability = 0.75
    """Share of episodes with the curriculum partner at the start of the training."""
    partner_steps: PositiveInt | None = None
    """Step at which that share, annealed linearly, reaches 0; default: half of the steps."""
    iterations_per_call: PositiveInt = 10
    """Iterations per compiled call; the host logs, evaluates and saves between calls."""
    evaluations: Annotated[int, at_least(0)] = 0
    """Greedy evaluations (1,000 episodes each), spread evenly over the training; at most one per call."""
    init: tuple[str, ...] = ()
    """Initial parameters as MODULE=RUN: moa=runs/fitted, policy=runs/other, world-model=runs/fitted."""
    time_parts: bool = False
    """Time each part of an iteration once, after the first call, and log it as seconds_PART."""

"""Settings of every training and algorithm, apart from the code that uses them: a command checks its options, and shows
its help, without waiting for JAX."""

from dataclasses import dataclass
from typing import Literal

Encoder = Literal["dense", "centred", "full"]
Space = Literal["none", "zero", "prey", "gaussian", "codes"]


@dataclass(frozen=True)
class Training:
    """What is trained on, with whom, for how long."""

    game: str = "msh-4x4-4h1s"
    """The game by name, with settings if you like: msh-8x8-4h1s:T=50."""
    cast: str = "self-play"
    """self-play, or one player a seat: learner,ns,pool(nh,random),runs/other."""
    seeds: str = "0"
    """Independent trainings, computed together: 0, 0-7 or 0,3,5."""
    steps: int = 1_000_000
    """Environment steps of each seed."""
    target: float | None = None
    """Stop a seed once its learners' mean return in a greedy evaluation, 1,000 episodes from fresh states, is this."""
    until: tuple[str, ...] = ()
    """Curriculum: other settings of the game up to a step, as in 4_000_000:stag_needs_company=False."""
    guest: str | None = None
    """Curriculum: a player who sits in the learners' seats in a share of the episodes at first, such as ns; or one made
    of the learner's own model of others (hopplus, goals prey): optimist, who is after the prey that has paid best so
    far."""
    guest_share: float = 0.5
    """That share at the start."""
    guest_steps: int = 4_000_000
    """The step at which that share, falling linearly, has come to none."""
    chunk: int = 10
    """Iterations in one compiled call; between calls the training is logged, evaluated and saved."""
    evaluations: int = 0
    """So many greedy evaluations of 1,000 episodes, spread evenly over the training; at most one a chunk."""
    init: tuple[str, ...] = ()
    """What modules begin with, as MODULE=RUN: moa=runs/fitted, policy=runs/other, world-model=runs/fitted."""
    time_stages: bool = False
    """Once, after the first chunk, time every stage of an iteration by itself and log it as seconds_STAGE."""


@dataclass(frozen=True)
class PPOSettings:
    """How PPO learns from a batch of rows."""

    learning_rate: float = 5e-3
    """Adam's step size at the start."""
    anneal: bool = True
    """Let the step size and the entropy's weight fall linearly to a tenth by the last step of the training."""
    discount: float = 0.995
    """Gamma: what a reward one step later is worth."""
    trace: float = 0.95
    """GAE's lambda."""
    clip: float = 0.2
    """How far the ratio of new to old probability may move before its gradient stops; the value's change likewise."""
    entropy_weight: float = 0.02
    """How much a spread-out policy is worth at the start."""
    value_weight: float = 0.5
    """Weight of the value loss beside the policy loss."""
    gradient_norm: float = 0.5
    """Longer gradients are shortened to this, for every parameter set by itself."""
    epochs: int = 4
    """Passes over a batch."""
    minibatch: int | None = None
    """The most living rows, or lines of them where a network remembers, in one step of the optimiser; a pass divides
    its rows evenly into as few as fit. By default an eighth of all rows of a parameter set, living or not."""


@dataclass(frozen=True)
class PPOOptions(PPOSettings):
    """Proximal policy optimisation."""

    environments: int = 128
    """Environments played side by side."""
    rollout_steps: int = 32
    """Steps of each of them in one iteration."""
    parameters: Literal["shared", "independent"] = "shared"
    """One network for all seats that learn, or one each, which learns from its own seat's rows only."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    encoder: Encoder = "centred"
    """What the network sees: the board as it is (dense); the board from the ego's own cell (centred); or that, and who
    is still there and what everybody did last (full)."""
    buffer_episodes: int = 0
    """Learn from the last so many whole episodes instead of from what was just played; 0: on-policy rollouts."""
    acquaintance: int = 0
    """For how many episodes a table of players stays together on average, whoever is drawn from a pool among them; 0:
    for ever, and pools are drawn anew for every episode."""


@dataclass(frozen=True)
class RecurrentOptions(PPOOptions):
    """PPO with a recurrent memory of all that was seen."""

    memory: int = 64
    """Figures that it remembers."""
    acquaintance: int = 10
    """For how many episodes a table of players stays together on average, whoever is drawn from a pool among them; 0:
    for ever, and pools are drawn anew for every episode."""
    forgets: bool = False
    """Remember nothing of the episodes before."""


@dataclass(frozen=True)
class LiamOptions(RecurrentOptions):
    """PPO on a memory that learns to tell what the co-players see and do."""

    forgets: bool = True
    """Remember nothing of the episodes before, as LIAM was published."""
    reconstruction_weight: float = 1.0
    """Weight of the reconstruction beside PPO's loss, whose gradient does not reach the memory."""


@dataclass(frozen=True)
class ProsocialOptions(PPOOptions):
    """PPO for which others' rewards count."""

    concern: float = 1.0
    """From 0, the own reward alone, to 1, the mean reward of all at the table."""


@dataclass(frozen=True)
class HopPlusOptions(PPOOptions):
    """HOP+: learnt goals, a model of other agents, beliefs, planning and PPO."""

    goals: Space = "codes"
    """What others may be after: codes or points in a space (gaussian), learnt; prey, as HOP; none, which is direct
    opponent modelling; zero: a goal input is there, and always 0."""
    inter: bool = True
    """Keep beliefs from episode to episode."""
    intra: bool = True
    """Change beliefs within an episode."""
    memory: Literal["dirichlets", "counts"] = "dirichlets"
    """What is kept: counts that forget at different rates, weighted by how well they foresaw; or HOP's."""
    codes: int = 4
    """How many codes there are. (codes)"""
    switch: float = 0.02
    """The chance that a goal is drawn anew in a step."""
    distrust: bool = True
    """Take the model of others to be wrong now and then, so that beliefs do not lock in."""
    particles: int = 8
    """How many subgoals are taken for possible. (gaussian)"""
    dimensions: int = 16
    """Dimensions of a subgoal. (gaussian)"""
    subgoal_loss: Literal["reconstruction", "action"] = "action"
    """What forms subgoals: boards that they stand for, or actions that they explain. (gaussian)"""
    moa_hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the model of others."""
    moa_networks: Literal["shared", "each"] = "shared"
    """One model for all co-players, or one for each."""
    moa_learning_rate: float = 3e-3
    """Of its Adam, at first; it falls with that of the policy."""
    moa_batches: int = 4
    """Steps of its optimiser in one iteration."""
    only_earning: bool = False
    """Learn about others only from lives that earned something, as HOP."""
    refresh: int = 4
    """Players act by a copy of the models that is so many iterations old at most."""
    world: Literal["none", "rules", "learned"] = "rules"
    """What a search or imagination simulates by."""
    tastes: bool = False
    """Let learners differ: each has a taste at every table (to like or not to like the reward of each kind of work, or
    to be clumsy), by which it learns and which only it sees. Once it is trained, it likes what the game pays for."""
    search: Literal["off", "on"] = "off"
    """Whether the player searches before it acts, once it is trained; if it learns by expert iteration, also while it
    learns."""
    draws: int = 3
    """Goals of the others that are drawn from the beliefs, for each of which a tree is grown."""
    simulations: int = 32
    """Steps that each tree is grown by."""
    replies: int = 4
    """At each node, draws of what the others do; 1 freezes one outcome an edge, and is biased towards gambles."""
    exploration: float | None = None
    """PUCT's constant, in units of reward; by default 0.4 of what one player can earn."""
    sharpness: float = 10.0
    """How fast the policy moves towards what the search found, per what one can earn at most."""
    temperature: float | None = None
    """HOP's: act by softmax(Q / temperature)."""
    learn: Literal["ppo", "expert", "both"] = "ppo"
    """From play by the policy (PPO); from play by the search, towards it (expert iteration); or PPO, and from what a
    search says of some of the situations."""
    taught: int = 256
    """Of how many situations in an iteration. (both)"""
    teacher_weight: float = 1.0
    """Weight of the difference from the search beside the policy loss."""
    real_ratio: float = 1.0
    """Which share of PPO's rows is real; the others are imagined."""
    imagined_steps: int = 8
    """How far imagination goes from a real situation."""
    imagined_values: bool = False
    """Whether the value learns from imagined rows too."""
    world_rows: int = 1024
    """Steps just played that the model of the world learns from in an iteration. (learned)"""


@dataclass(frozen=True)
class HopOptions(HopPlusOptions):
    """HOP: goals are prey; the search acts, and the policy learns from it."""

    goals: Space = "prey"
    """What others may be after: prey; none, which is direct opponent modelling; zero: a goal input is there, and
    always 0."""
    learn: Literal["ppo", "expert", "both"] = "expert"
    """How policy and value learn: from play by the search, towards it."""
    search: Literal["off", "on"] = "on"
    """Whether the player searches before it acts, once it is trained."""
    environments: int = 32
    """Environments played side by side."""
    rollout_steps: int = 16
    """Steps of each of them in one iteration."""


OPTIONS: dict[str, type[PPOOptions]] = {
    "hopplus": HopPlusOptions,
    "hop": HopOptions,
    "ppo": PPOOptions,
    "prosocial": ProsocialOptions,
    "recurrent": RecurrentOptions,
    "liam": LiamOptions,
}
"""By recipe."""

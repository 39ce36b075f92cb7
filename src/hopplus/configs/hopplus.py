"""Config of HOP+ and HOP, in groups: beliefs, opponent model, planning, imagination and world model."""

from dataclasses import dataclass
from typing import Annotated, Literal

from hopplus.configs.constraints import Interval, PositiveFloat, PositiveInt, Probability, Widths, at_least, more_than
from hopplus.configs.ppo import Encoder, PPOConfig


@dataclass(frozen=True)
class BeliefConfig:
    """Goals of the co-players, and beliefs about them."""

    goals: str = "prey"
    """Goal space: the kind of item that a co-player takes next (prey), or its cell (cells); learnt codes; learnt
    subgoal vectors (gaussian); none: direct opponent modelling; zero: a goal input that is always 0; or a registered
    goal space."""
    inter: bool = True
    """Carry beliefs over from episode to episode (inter-episode update)."""
    intra: bool = True
    """Update beliefs within an episode (intra-episode update)."""
    trial_memory: Literal["dirichlets", "counts"] = "dirichlets"
    """Inter-episode memory: Dirichlet counts at several forgetting rates, weighted by their likelihood; or HOP's
    discounted counts."""
    codes: Annotated[int, at_least(2)] = 4
    """Number of codes. (goals codes)"""
    goal_switch_probability: Annotated[float, Interval(0, 1, open_high=True)] = 0.02
    """Per-step probability that a co-player's goal is resampled."""
    trembles: Annotated[tuple[float, ...], Interval(0, 1, open_high=True)] = (0.02, 0.25, 0.5)
    """Rationality hypotheses about a co-player: probabilities of a uniformly random action. The first is the most
    likely a priori; more than 0, so that errors of the opponent model do not lock beliefs."""
    sharpness: Annotated[tuple[float, ...], more_than(0)] = (1.0,)
    """Rationality hypotheses: exponents of the MOA's policy. More than 1: more consistent than the players that the MOA
    was trained on."""
    random_hypothesis: bool = True
    """Include the hypothesis that a co-player acts uniformly at random."""
    preference_models: bool = True
    """Include, for each preference of reward randomisation, the hypothesis that a co-player acts as the learners with
    that preference. (randomize_rewards; goals with labels)"""
    particles: PositiveInt = 8
    """Number of subgoal particles. (goals gaussian)"""
    subgoal_dim: PositiveInt = 16
    """Dimensions of a subgoal vector. (goals gaussian)"""
    subgoal_loss: Literal["reconstruction", "action"] = "action"
    """Loss that shapes the subgoals: reconstruction of boards, or prediction of actions. (goals gaussian)"""


@dataclass(frozen=True)
class OpponentModelConfig:
    """Model of other agents (MOA), trained online."""

    moa: str = "mlp"
    """Network of the MOA: mlp or a registered opponent model. (all goals but gaussian)"""
    moa_hidden: Widths = (64, 64)
    """Widths of the hidden layers of the MOA."""
    moa_networks: Literal["shared", "each"] = "shared"
    """One network for all co-players, or one per co-player."""
    moa_learning_rate: PositiveFloat = 3e-3
    """Adam step size of the MOA at the start; annealed with that of the policy."""
    moa_batches: PositiveInt = 4
    """Optimizer steps of the MOA per iteration."""
    only_rewarded: bool = False
    """Train the MOA only on trajectories with a positive return, as in HOP."""
    moa_refresh: PositiveInt = 4
    """Iterations between updates of the copy of the MOA that players act and plan with."""


@dataclass(frozen=True)
class PlanningConfig:
    """Planning before acting, over the ego's actions with sampled goals of the co-players."""

    planner: str = "rollouts"
    """Planning before acting, after training: off, rollouts (belief rollouts), tree (tree search) or a registered
    planner; with learn=expert also during training (by tree search where it is off)."""
    rollouts: Annotated[int, at_least(2)] = 64
    """Simulations per round of belief rollouts; half of them in the last round, the paired test, are of the challenger.
    (rollouts)"""
    rounds: PositiveInt = 3
    """Rounds of sequential halving before the paired test. (rollouts)"""
    candidates: Literal["actions", "plans"] = "actions"
    """Candidates: every first action with every base plan, or each base plan with an action of its own. (rollouts)"""
    plans: tuple[str, ...] = ()
    """Base plans: preferences of the game under which the ego's policy is simulated, by name, beside the neutral one;
    default: all, if the policy was trained with them. (rollouts)"""
    plan_switches: Annotated[tuple[float, ...], Interval(0, 1, open_low=True, open_high=True)] = (0.5, 0.75, 0.875)
    """Delayed plans: the neutral one, then from these shares of the episode's maximum length on another base plan, for
    each of them. (rollouts)"""
    level: Annotated[float, Interval(0, 1, open_low=True, open_high=True)] = 0.1
    """Level of the test by which the challenger replaces the plan that the ego follows. (rollouts)"""
    horizon: PositiveInt | None = None
    """Steps of a simulation before the neutral policy's value is used; default: to the end of the episode.
    (rollouts)"""
    plan_beliefs: Literal["posterior", "prior", "uniform"] = "posterior"
    """Distribution of the co-players' hypotheses in simulations: the ego's beliefs; or, to measure what these are
    worth, the prior of training or a uniform distribution. The policy observes the beliefs in any case. (rollouts)"""
    belief_samples: PositiveInt = 3
    """Trees per decision, each with its own samples from the beliefs. (tree)"""
    simulations: PositiveInt = 32
    """Simulations per tree. (tree)"""
    reply_samples: PositiveInt = 4
    """Sampled joint replies of the co-players per node; 1 fixes one outcome per edge and favours gambles. (tree)"""
    exploration: float | None = None
    """PUCT constant, in units of reward; default: 0.4 of the maximum return of one player. (tree)"""
    q_scale: float = 20.0
    """Weight c of values in the improved policy softmax(log policy + c Q / spread): log-odds that the search gives to
    the best against the worst root action. A prior of 0.999, with the rest spread over five actions, has 8.5. (tree)"""
    q_floor: PositiveFloat = 0.1
    """Least spread, as a share of the maximum return of one player: smaller differences have less weight. (tree)"""
    temperature: PositiveFloat | None = None
    """HOP's action selection: softmax(Q / temperature). (tree)"""
    hypotheses: Literal["simulation", "tree"] = "simulation"
    """Draws of hypotheses about the co-players: anew for every simulation, so that the search does not know them; or
    one for each tree, as in HOP. (tree)"""
    cover_root: bool = True
    """Visit every legal action at the root `reply_samples` times, if the budget allows, before PUCT decides. (tree)"""
    leaf: Literal["value", "rollout"] = "value"
    """Value of a new node: the network's, or the return of one rollout of the policy to the end of the episode, which
    is slower and needs no trained value. (tree)"""
    learn: Literal["ppo", "expert", "both"] = "ppo"
    """Policy improvement: PPO; expert iteration (play and learn by planning); or PPO plus planned targets (both): the
    policy alone then follows the plans that it has learnt from belief rollouts."""
    planned_states: PositiveInt = 256
    """States per iteration that receive a planned target. (learn both)"""
    planned_share: Annotated[float, Interval(0, 1, open_low=True)] = 0.2
    """Share of the training, at its end, in which states receive planned targets; at least the last compiled call.
    (learn both)"""
    plan_coef: float = 1.0
    """Coefficient of the cross-entropies from planned policies and of the plan head."""


@dataclass(frozen=True)
class ImaginationConfig:
    """Simulated transitions: world model and imagined rollouts."""

    world: Literal["none", "rules", "learned"] = "rules"
    """Simulator of planning and imagination: the game's rules or a learned world model."""
    real_ratio: Annotated[float, Interval(0, 1, open_low=True)] = 1.0
    """Share of real transitions in a PPO batch; the others are imagined."""
    imagined_steps: PositiveInt = 8
    """Length of an imagined rollout."""
    imagined_values: bool = False
    """Train the value on imagined transitions too."""
    world_model_rows: PositiveInt = 1024
    """Transitions per iteration that train the world model. (world learned)"""


@dataclass(frozen=True)
class HopPlusConfig(PPOConfig):
    """HOP+: goals, a model of other agents, beliefs, planning and PPO with reward randomisation."""

    beliefs: BeliefConfig = BeliefConfig()
    opponent_model: OpponentModelConfig = OpponentModelConfig()
    planning: PlanningConfig = PlanningConfig()
    imagination: ImaginationConfig = ImaginationConfig()
    gamma: Probability = 0.99
    """Discount factor."""
    hidden: Widths = (128, 128)
    """Widths of the hidden layers."""
    encoder: Encoder = "full"
    """Network input: the board (dense), the board centred on the ego (centred), or that plus the players present and
    everyone's last actions (full)."""
    trial_episodes: Annotated[int, at_least(0)] = 10
    """Mean number of episodes per trial, in which all players, members of pools included, stay the same; 0: endless
    trials, and pools draw a member for every episode."""
    randomize_rewards: bool = True
    """Reward randomisation: every learner draws a preference for each trial (weights of the components of the reward, a
    step cost, a tremble), is trained on it and observes its own only. Trained players have the neutral preference."""
    late_start_share: Probability = 0.2
    """Share of the training episodes that begin at a random time, to learn values near the deadline. Their returns are
    not logged, and players do not remember them in later episodes of a trial."""


@dataclass(frozen=True)
class HopConfig(HopPlusConfig):
    """HOP: beliefs about prey, tree search, and expert iteration."""

    beliefs: BeliefConfig = BeliefConfig(trembles=(0.02,), sharpness=(1.0,), random_hypothesis=False)
    planning: PlanningConfig = PlanningConfig(planner="tree", learn="expert", hypotheses="tree")
    num_envs: PositiveInt = 32
    """Parallel environments."""
    num_steps: PositiveInt = 16
    """Steps per environment and iteration."""
    gamma: Probability = PPOConfig.gamma
    """Discount factor."""
    hidden: Widths = PPOConfig.hidden
    """Widths of the hidden layers."""
    encoder: Encoder = PPOConfig.encoder
    """Network input: the board (dense), the board centred on the ego (centred), or that plus the players present and
    everyone's last actions (full)."""
    trial_episodes: Annotated[int, at_least(0)] = PPOConfig.trial_episodes
    """Mean number of episodes per trial, in which all players, members of pools included, stay the same; 0: endless
    trials, and pools draw a member for every episode."""
    randomize_rewards: bool = False
    """Reward randomisation: every learner draws a preference for each trial (weights of the components of the reward, a
    step cost, a tremble), is trained on it and observes its own only. Trained players have the neutral preference."""
    late_start_share: Probability = 0.0
    """Share of the training episodes that begin at a random time, to learn values near the deadline. Their returns are
    not logged, and players do not remember them in later episodes of a trial."""

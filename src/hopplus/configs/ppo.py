"""Configs of PPO and of the baselines built on it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from hopplus.configs.constraints import PositiveFloat, PositiveInt, Probability, Widths, at_least

Encoder = Literal["dense", "centred", "full"]


@dataclass(frozen=True)
class PPOUpdateConfig:
    """Config of one PPO update."""

    learning_rate: PositiveFloat = 5e-3
    """Adam step size at the start."""
    anneal_lr: bool = True
    """Anneal step size and entropy coefficient linearly to a tenth over the training."""
    gamma: Probability = 0.995
    """Discount factor."""
    gae_lambda: Probability = 0.95
    """Lambda of generalised advantage estimation."""
    clip_coef: PositiveFloat = 0.2
    """Clipping range of the probability ratio, and of the change of the value."""
    ent_coef: float = 0.02
    """Entropy coefficient at the start."""
    vf_coef: float = 0.5
    """Coefficient of the value loss."""
    max_grad_norm: PositiveFloat = 0.5
    """Maximum global gradient norm, per parameter set."""
    update_epochs: PositiveInt = 4
    """Passes over a batch."""
    minibatch_size: PositiveInt | None = None
    """Maximum number of valid transitions (sequences, for recurrent networks) per minibatch; a pass is divided evenly
    into as few minibatches as fit. Default: an eighth of all transitions of a parameter set, valid or not."""


@dataclass(frozen=True)
class PPOConfig(PPOUpdateConfig):
    """Proximal policy optimisation."""

    num_envs: PositiveInt = 128
    """Parallel environments."""
    num_steps: PositiveInt = 32
    """Steps per environment and iteration."""
    parameters: Literal["shared", "independent"] = "shared"
    """One network for all learning seats, or one per seat, trained on the transitions of that seat only."""
    hidden: Widths = (64, 64)
    """Widths of the hidden layers."""
    encoder: Encoder = "centred"
    """Network input: the board (dense), the board centred on the ego (centred), or that plus the players present and
    everyone's last actions (full)."""
    buffer_episodes: Annotated[int, at_least(0)] = 0
    """Train on a buffer of this many whole episodes instead of on fresh rollouts; 0: on-policy."""
    trial_episodes: Annotated[int, at_least(0)] = 0
    """Mean number of episodes per trial, in which all players, members of pools included, stay the same; 0: endless
    trials, and pools draw a member for every episode."""
    randomize_rewards: bool = False
    """Reward randomisation: every learner draws a preference for each trial (weights of the components of the reward, a
    step cost, a tremble), is trained on it and observes its own only. Trained players have the neutral preference."""
    centralized_critic: bool = False
    """In training, the value also depends on the co-players' preferences, the policy does not. (randomize_rewards)"""
    regret_share: Probability = 0.0
    """Share of the trials whose preferences are drawn by regret: more often those beside which the neutral policy has a
    lower return than another one. Try 0.5. (randomize_rewards)"""
    late_start_share: Probability = 0.0
    """Share of the training episodes that begin at a random time, to learn values near the deadline. Their returns are
    not logged, and players do not remember them in later episodes of a trial."""

    @property
    def shares_params(self) -> bool:
        """Whether all learning seats share one parameter set."""
        return self.parameters == "shared"

    @property
    def has_trials(self) -> bool:
        """Whether members of pools stay the same over the episodes of a trial."""
        return self.trial_episodes > 0

    @property
    def trial_end_probability(self) -> float:
        """Probability that a trial ends with an episode."""
        return 1.0 / self.trial_episodes if self.trial_episodes else 0.0


@dataclass(frozen=True)
class RecurrentConfig(PPOConfig):
    """PPO with a recurrent network."""

    memory_size: PositiveInt = 64
    """Width of the recurrent state."""
    trial_episodes: Annotated[int, at_least(0)] = 10
    """Mean number of episodes per trial, in which all players, members of pools included, stay the same; 0: endless
    trials, and pools draw a member for every episode."""
    reset_memory: bool = False
    """Reset the recurrent state at the start of every episode instead of every trial."""


@dataclass(frozen=True)
class LiamConfig(RecurrentConfig):
    """LIAM: PPO on a recurrent state trained to reconstruct the co-players' observations and actions."""

    reset_memory: bool = True
    """Reset the recurrent state at the start of every episode, as in the LIAM paper."""
    reconstruction_weight: PositiveFloat = 1.0
    """Coefficient of the reconstruction loss; PPO's gradient does not reach the recurrent state."""


@dataclass(frozen=True)
class ProsocialConfig(PPOConfig):
    """PPO on a mixture of the own reward and the mean reward of all players."""

    prosociality: Probability = 1.0
    """Weight of the mean reward of all players: 0 is the own reward only, 1 the mean only."""

"""The HOP+ player: network, belief tracker, simulator and search, made from the config for a game."""

from typing import Any

import flax.linen as nn

from hopplus.algorithms.parameters import value_scale
from hopplus.beliefs.belief_tracker import BeliefTracker
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.configs import HopPlusConfig
from hopplus.games import Game
from hopplus.models.opponent.model import MOA
from hopplus.models.world.model import WorldModel
from hopplus.networks.actor_critic import BeliefActorCritic
from hopplus.planning.simulator import Simulator
from hopplus.planning.tree_search import SearchConfig
from hopplus.players.planner import social_width

EXPLORATION = 0.4
"""Default PUCT constant, per maximum return of one player."""


def make_moa(config: HopPlusConfig) -> MOA:
    """Model of another agent."""
    beliefs = config.beliefs
    return MOA(
        goals="none" if beliefs.goals == "zero" else beliefs.goals,
        hidden=config.opponent_model.moa_hidden,
        codes=beliefs.codes,
        goal_switch_probability=beliefs.goal_switch_probability,
        subgoal_dim=beliefs.subgoal_dim,
        loss=beliefs.subgoal_loss,
        learning_rate=config.opponent_model.moa_learning_rate,
    )


def make_belief_tracker(config: HopPlusConfig, game: Game[Any]) -> BeliefTracker:
    """Filter of the co-players' goals within and between episodes."""
    beliefs, moa = config.beliefs, make_moa(config)
    goals = beliefs.particles if beliefs.goals == "gaussian" else moa.num_goals(game)
    per_co_player = config.opponent_model.moa_networks == "each"
    return BeliefTracker(
        OpponentModel(game, beliefs.goals, moa.network(game), goals, per_co_player),
        beliefs.goal_switch_probability if beliefs.goals in ("codes", "prey") else 0.0,
        beliefs.trial_memory if beliefs.inter and goals > 1 else "off",
        beliefs.intra,
        beliefs.model_noise,
        beliefs.randomize_rewards,
    )


def make_network(config: HopPlusConfig, game: Game[Any]) -> nn.Module:
    """Actor-critic that observes the beliefs."""
    return BeliefActorCritic(
        game.num_actions,
        game.last_step,
        value_scale(game),
        config.hidden,
        config.encoder,
        social=social_width(make_belief_tracker(config, game)),
    )


def make_simulator(config: HopPlusConfig, game: Game[Any]) -> Simulator:
    """Simulator of search and imagination."""
    learned = config.imagination.world == "learned"
    return Simulator(game, WorldModel().network(game) if learned else None)


def make_search(config: HopPlusConfig, game: Game[Any]) -> SearchConfig:
    """Settings of the tree search in a game."""
    planning = config.planning
    return SearchConfig(
        planning.belief_samples,
        planning.simulations,
        planning.reply_samples,
        EXPLORATION * value_scale(game) if planning.exploration is None else planning.exploration,
        planning.q_scale,
        planning.temperature,
        config.gamma,
    )

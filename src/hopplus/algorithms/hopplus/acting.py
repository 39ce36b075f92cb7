"""The HOP+ player: network, belief tracker, simulator and planning method, made from the config for a game."""

from typing import Any

from hopplus.algorithms.parameters import value_scale
from hopplus.algorithms.reward_randomization import critic_width
from hopplus.beliefs.belief_tracker import BeliefTracker
from hopplus.beliefs.goal_space import OpponentModel, labelled_goals
from hopplus.beliefs.rationality import Rationality
from hopplus.configs import HopPlusConfig
from hopplus.games import Game, NamedPreference
from hopplus.games.preferences import base_plans
from hopplus.models.opponent.preferences import OnlineMOA
from hopplus.models.world.model import WorldModel
from hopplus.networks.actor_critic import BeliefActorCritic
from hopplus.planning import catalog
from hopplus.planning.catalog import PlannerChoice
from hopplus.planning.simulator import Simulator
from hopplus.players.planner import social_width


def make_moa(config: HopPlusConfig) -> OnlineMOA:
    """Model of another agent."""
    beliefs = config.beliefs
    return OnlineMOA(
        goals="none" if beliefs.goals == "zero" else beliefs.goals,
        hidden=config.opponent_model.moa_hidden,
        moa=config.opponent_model.moa,
        codes=beliefs.codes,
        goal_switch_probability=beliefs.goal_switch_probability,
        subgoal_dim=beliefs.subgoal_dim,
        loss=beliefs.subgoal_loss,
        learning_rate=config.opponent_model.moa_learning_rate,
        trembles=beliefs.trembles,
        has_preferences=has_preference_models(config),
    )


def has_preference_models(config: HopPlusConfig) -> bool:
    """Whether the opponent model also predicts the learners with each preference."""
    is_labelled = labelled_goals(config.beliefs.goals) is not None
    return config.beliefs.preference_models and config.randomize_rewards and is_labelled


def make_rationality(config: HopPlusConfig, game: Game[Any]) -> Rationality:
    """Hypotheses about a co-player beside its goal."""
    beliefs = config.beliefs
    preferences = tuple(preference.name for preference in game.preferences) if has_preference_models(config) else ()
    return Rationality(beliefs.trembles, beliefs.sharpness, beliefs.random_hypothesis, preferences)


def has_hypotheses(config: HopPlusConfig) -> bool:
    """Whether there is more than one hypothesis about a co-player."""
    beliefs = config.beliefs
    several = Rationality(beliefs.trembles, beliefs.sharpness, beliefs.random_hypothesis).num_blocks > 1
    return beliefs.goals not in ("none", "zero") or several


def make_belief_tracker(config: HopPlusConfig, game: Game[Any]) -> BeliefTracker:
    """Filter of the co-players' goals within and between episodes."""
    beliefs, moa = config.beliefs, make_moa(config)
    goals = beliefs.particles if beliefs.goals == "gaussian" else moa.num_goals(game)
    per_co_player = config.opponent_model.moa_networks == "each"
    rationality = make_rationality(config, game)
    return BeliefTracker(
        OpponentModel(game, beliefs.goals, moa.network(game), goals, per_co_player),
        beliefs.goal_switch_probability if beliefs.goals == "codes" or labelled_goals(beliefs.goals) else 0.0,
        beliefs.trial_memory if beliefs.inter and goals * rationality.num_blocks > 1 else "off",
        beliefs.intra,
        rationality,
        config.randomize_rewards,
    )


def make_network(config: HopPlusConfig, game: Game[Any]) -> BeliefActorCritic:
    """Actor-critic that observes the beliefs."""
    return BeliefActorCritic(
        game.num_actions,
        game.last_step,
        value_scale(game),
        config.hidden,
        config.encoder,
        critic_width(config, game),
        social=social_width(make_belief_tracker(config, game)),
        plans=len(distilled_plans(config, game)),
    )


def distilled_plans(config: HopPlusConfig, game: Game[Any]) -> tuple[NamedPreference, ...]:
    """Base plans of the policy's plan head; empty if it has none, because planned targets name no plans."""
    names_plans = planner_of_training(config, game).name == catalog.ROLLOUTS and config.randomize_rewards
    plans = base_plans(game, config.planning.plans) if config.planning.learn == "both" and names_plans else ()
    return plans if len(plans) > 1 else ()


def make_simulator(config: HopPlusConfig, game: Game[Any]) -> Simulator:
    """Simulator of planning and imagination."""
    learned = config.imagination.world == "learned"
    return Simulator(game, WorldModel().network(game) if learned else None)


def planner_choice(config: HopPlusConfig, game: Game[Any], learns: bool = False) -> PlannerChoice | None:
    """Planning method before each action; None without one.

    A learner plans its actions in expert iteration only, by default by tree search.
    """
    if learns:
        return planner_of_training(config, game) if config.planning.learn == "expert" else None
    name = config.planning.planner
    catalog.check(name)
    return None if name == catalog.OFF else _choice(name, config, game)


def planner_of_training(config: HopPlusConfig, game: Game[Any]) -> PlannerChoice:
    """Planning method of expert iteration and of planned targets: by default tree search."""
    name = config.planning.planner
    catalog.check(name)
    return _choice(catalog.DEFAULT if name == catalog.OFF else name, config, game)


def _choice(name: str, config: HopPlusConfig, game: Game[Any]) -> PlannerChoice:
    return PlannerChoice(name, config.planning, value_scale(game), config.gamma)

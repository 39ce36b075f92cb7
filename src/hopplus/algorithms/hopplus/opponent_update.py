"""Online training of the model of other agents (MOA), with shared or per-co-player networks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase
from hopplus.algorithms.hopplus.acting import make_moa
from hopplus.beliefs.goal_space import labelled_goals
from hopplus.configs import HopPlusConfig
from hopplus.core.keys import Key
from hopplus.games.preferences import preference_set
from hopplus.models import online
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.networks.train_state import TrainState
from hopplus.players import Params
from hopplus.rollouts import Trajectory

BY_GOAL = ("prior", "worth")
"""Parameters that a set's models share: log frequency and mean return of every goal."""


def init_moa(key: Key, config: HopPlusConfig, phase: CurriculumPhase) -> Params:
    """Parameters of one set: one model for all co-players, or one per co-player [n-1, ...]."""
    model, game = make_moa(config), phase.final_game
    if config.opponent_model.moa_networks == "shared":
        return _with_goal_returns(config, model.init_params(key, game))
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(game.num_players - 1))
    models = jax.vmap(lambda key: model.init_params(key, game))(keys)
    if config.beliefs.goals != "gaussian":
        models = {**models, "prior": models["prior"][0]}
    return _with_goal_returns(config, models)


def _with_goal_returns(config: HopPlusConfig, params: Params) -> Params:
    """Parameters with the mean return of every labelled goal."""
    is_labelled = labelled_goals(config.beliefs.goals) is not None
    return {**params, "worth": jnp.zeros_like(params["prior"])} if is_labelled else params


def update_moa(
    key: Key,
    config: HopPlusConfig,
    phase: CurriculumPhase,
    train_state: TrainState,
    trajectory: Trajectory,
    agents: AgentTrajectories,
    progress: Array,
) -> TrainState:
    """One pass of the MOA over the trajectories of the agents that it models."""
    model, game, goals = make_moa(config), phase.game, labelled_goals(config.beliefs.goals)
    if config.opponent_model.only_rewarded:
        agents = AgentTrajectories(**{**vars(agents), "alive": agents.alive & (agents.value > 0)})
    modelled = co_player_mask(config, phase)
    rate = ppo_update.anneal(config, config.opponent_model.moa_learning_rate, progress)

    def objective(params: Params, key: Key, agents: AgentTrajectories) -> Any:
        augmented = model.augment(jax.random.fold_in(key, 0), (agents,), game)
        return model.objective(params, jax.random.fold_in(key, 1), augmented, game, progress)

    weights = None if goals is None else online.inverse_frequency_weights(agents, len(goals.names(game)))
    batches = config.opponent_model.moa_batches
    updated, _ = online.fit(key, objective, train_state, agents, batches, rate, online.mask_seats, modelled, weights)
    if goals is None:
        return updated
    is_first = (trajectory.total_steps == 1).any(-1) & trajectory.counts
    first_rows = jnp.repeat(is_first.T, game.num_players, 0)
    follow = jax.vmap(lambda prior, seats: online.update_prior(prior, agents, seats, first_rows))
    prior = follow(updated.params["prior"], jnp.asarray(modelled))
    worth = jax.vmap(lambda worth: online.update_goal_returns(worth, agents))(updated.params["worth"])
    return TrainState({**updated.params, "prior": prior, "worth": worth}, updated.opt_state)


def learners_preferences(phase: CurriculumPhase, trajectory: Trajectory) -> Int[Array, "T E n"]:
    """Index of each learner's preference into the game's, whatever its tremble; -1 where no learner acts."""
    decision, acted = phase.seats.infos(trajectory)
    own = preference_set(phase.final_game).index_of(decision.co_player_beliefs.preference)
    index = jnp.where(acted, own % len(phase.final_game.preferences), -1)
    unknown = jnp.full(trajectory.actions.shape, -1, index.dtype)
    return unknown.at[..., np.array(phase.seats.learners)].set(index)


def co_player_mask(config: HopPlusConfig, phase: CurriculumPhase) -> Bool[np.ndarray, "sets n"]:
    """Seats that each model is trained on: the co-players of the seats that use it."""
    n, learners = phase.game.num_players, phase.seats.learners
    users = [learners] if config.parameters == "shared" else [(seat,) for seat in learners]
    shared = config.opponent_model.moa_networks == "shared"
    offsets = [range(1, n)] if shared else [(offset,) for offset in range(1, n)]
    return np.array(
        [
            [any((seat - user) % n in modelled for user in group) for seat in range(n)]
            for group in users
            for modelled in offsets
        ]
    )


def flatten_moa(config: HopPlusConfig, params: Params) -> Params:
    """Models [P, ...] or [P, n-1, ...] with one leading axis."""
    if config.opponent_model.moa_networks == "shared":
        return params
    n = jax.tree.leaves(params["network"])[0].shape[1]
    repeated = {name: jnp.repeat(params[name][:, None], n, 1) for name in BY_GOAL if name in params}
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), {**params, **repeated})


def unflatten_moa(config: HopPlusConfig, params: Params, phase: CurriculumPhase) -> Params:
    """Inverse of `flatten_moa`; the prior of a set is that of its first model."""
    if config.opponent_model.moa_networks == "shared":
        return params
    n = phase.game.num_players - 1
    nested = jax.tree.map(lambda leaf: leaf.reshape(-1, n, *leaf.shape[1:]), params)
    return {**nested, **{name: nested[name][:, 0] for name in BY_GOAL if name in nested}}

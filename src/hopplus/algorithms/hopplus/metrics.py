"""Metrics of the opponent model, the beliefs and the planning, by the ego's seat."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hopplus.algorithms.base import CurriculumPhase, Mean, Metrics
from hopplus.beliefs.goal_space import labelled_goals
from hopplus.configs import HopPlusConfig
from hopplus.models.agent_trajectories import AgentTrajectories
from hopplus.rollouts import Trajectory

Rows = dict[str, tuple[Array, Array]]
"""Values and the mask of those that count."""


def belief_metrics(
    config: HopPlusConfig,
    phase: CurriculumPhase,
    trajectory: Trajectory,
    agents: AgentTrajectories,
    returns: Float[Array, "T E L"],
) -> Metrics:
    """Accuracy of the opponent model (overall and by action), of the beliefs and of the planned values."""
    decisions, acted = phase.seats.infos(trajectory)
    n, sums = phase.game.num_players, {}
    for index, seat in enumerate(phase.seats.learners):
        decision = jax.tree.map(lambda leaf, index=index: leaf[:, :, index], decisions)
        acts = trajectory.alive[..., seat] & acted[..., index]
        rows = _opponent_rows(config, phase, decision, trajectory, agents, seat, acts)
        if config.planning.learn == "expert":
            rows["plan_depth"] = (decision.plan.depth, acts)
            rows["plan_value_error"] = (jnp.abs(decision.plan.value - returns[..., index]), acts)
        for name, (value, mask) in rows.items():
            total = jnp.where(mask, value, 0).sum().astype(jnp.float32)
            sums.setdefault(name, []).append(jnp.stack([total, mask.sum().astype(jnp.float32)]))
    learners = np.array(phase.seats.learners)
    return {
        name: Mean(*(jnp.zeros(n).at[learners].set(column) for column in jnp.stack(values).T))
        for name, values in sums.items()
    }


def _opponent_rows(
    config: HopPlusConfig,
    phase: CurriculumPhase,
    decision: Any,
    trajectory: Trajectory,
    agents: AgentTrajectories,
    seat: int,
    acts: Bool[Array, "T E"],
) -> Rows:
    """Predictions and beliefs of one learner about its co-players [T, E, n-1]."""
    n = phase.game.num_players
    co_players = (seat + 1 + np.arange(n - 1)) % n
    counts = acts[..., None] & trajectory.alive[..., co_players]
    actions = trajectory.actions[..., co_players]
    is_right = decision.action_probs.argmax(-1) == actions
    likelihood = jnp.take_along_axis(decision.action_probs, actions[..., None], -1)[..., 0]
    entropy = -(decision.belief * jnp.log(jnp.maximum(decision.belief, 1e-9))).sum(-1)
    rows: Rows = {
        "moa_top1": (is_right, counts),
        "moa_cross_entropy": (-jnp.log(jnp.maximum(likelihood, 1e-9)), counts),
        "belief_entropy": (entropy, counts),
    }
    for number, name in enumerate(phase.game.action_names):
        rows[f"moa_recall_{name}"] = (is_right, counts & (actions == number))
    goals = labelled_goals(config.beliefs.goals)
    if goals is not None:
        known, goal = _by_seat(agents.alive, n)[..., co_players], _by_seat(agents.goal, n)[..., co_players]
        first = int(goals.has_no_goal)
        guess = decision.belief[..., first:].argmax(-1) + first
        rows["belief_accuracy"] = (guess == goal, counts & known & (goal >= first))
    return rows


def _by_seat(values: Array, players: int) -> Array:
    """Values [E n, T] of agent trajectories as [T, E, n]."""
    return jnp.moveaxis(values.reshape(-1, players, values.shape[-1]), -1, 0)

"""Playouts: simulated play to the end of an episode, the ego by its policy and co-players by drawn hypotheses.

The ego's beliefs are filtered from simulated actions as in play: its policy never sees the drawn hypotheses. A drawn
goal switches as the belief tracker assumes, and is redrawn when it is gone.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import BeliefTracker, CoPlayerBeliefs
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.preferences import Preference
from hopplus.planning.simulation import BeliefSimulator, Params, SimulatedStep, sample_actions
from hopplus.planning.simulator import SimState
from hopplus.planning.tree import anywhere

DRAW, FIRST_STEP = range(2)
"""Purposes of a simulation's key; step t has FIRST_STEP + t."""
NUMBERS, GAME = range(2)
"""Purposes of the key of a simulated step."""


@struct
class Simulation:
    """State of one simulation."""

    state: SimState
    belief: Float[Array, "n-1 B K"]
    action_probs_by_goal: Float[Array, "n-1 H A"]
    hypothesis: Int[Array, " n-1"]
    """Hypotheses about the co-players, numbered b K + k."""
    action: Int[Array, ""]
    """The ego's next action."""
    total: Float[Array, ""]
    """Return so far."""
    time: Int[Array, ""]
    """Steps so far."""


def play_step(
    simulation: BeliefSimulator,
    params: Params,
    root: CoPlayerBeliefs,
    sim: Simulation,
    preference: Preference,
    key: Key,
) -> tuple[SimulatedStep, Simulation]:
    """Simulates one step, after which the ego acts by its policy under a preference.

    Args:
        simulation: The ego's simulator, belief tracker and policy.
        params: Parameters {policy, moa, world}.
        root: Beliefs with the fields that are the same in all steps.
        sim: The simulation before the step.
        preference: The ego's preference.
        key: Key of the simulation.

    Returns:
        The step, and the simulation after it, whose `total` is that before the step.
    """
    tracker, co_players = simulation.belief_tracker, len(sim.hypothesis)
    step_key = jax.random.fold_in(key, FIRST_STEP + sim.time)
    uniform = jax.random.uniform(jax.random.fold_in(step_key, NUMBERS), (1 + 3 * co_players,))
    own, replies, switches, redraws = jnp.split(uniform, [1, 1 + co_players, 1 + 2 * co_players])
    beliefs = replace(root, belief=sim.belief, action_probs_by_goal=sim.action_probs_by_goal, preference=preference)
    reply_probs = tracker.rationality.policy_of(sim.action_probs_by_goal, sim.hypothesis)
    game_key, replies = jax.random.fold_in(step_key, GAME), sample_actions(replies, reply_probs)
    after = simulation.step(game_key, params, sim.state, beliefs, sim.action, replies)
    following = Simulation(
        state=after.state,
        belief=after.beliefs.belief,
        action_probs_by_goal=after.beliefs.action_probs_by_goal,
        hypothesis=switch_goals(tracker, sim.hypothesis, root, after.observation, switches, redraws),
        action=sample_actions(own, jax.nn.softmax(after.logits)[None])[0],
        total=sim.total,
        time=sim.time + 1,
    )
    return after, following


def switch_goals(
    tracker: BeliefTracker,
    hypothesis: Int[Array, " n-1"],
    root: CoPlayerBeliefs,
    observation: Observation,
    switches: Float[Array, " n-1"],
    redraws: Float[Array, " n-1"],
) -> Int[Array, " n-1"]:
    """Redraws goals that switch or are gone, from the episode's prior over available goals."""
    goals = root.prior.shape[-1]
    if not tracker.goal_switch_probability and not tracker.opponent_model.goals_can_vanish:
        return hypothesis
    block, goal = jnp.divmod(hypothesis, goals)
    available = tracker.opponent_model.available(observation)
    prior = jnp.take_along_axis(root.prior, block[:, None, None], 1)[:, 0]
    redrawn = sample_actions(redraws, jnp.where(available, prior, 0.0))
    is_redrawn = (switches < tracker.goal_switch_probability) | ~available[goal]
    return block * goals + jnp.where(is_redrawn, redrawn, goal)


def playout_value(
    simulation: BeliefSimulator,
    key: Key,
    params: Params,
    start: SimulatedStep,
    hypotheses: Int[Array, " n-1"],
    gamma: float,
) -> Float[Array, ""]:
    """Returns the discounted return of one playout of the ego's own policy; 0 if the ego's game has ended.

    Args:
        simulation: The ego's simulator, belief tracker and policy.
        key: Key of the playout.
        params: Parameters {policy, moa, world}.
        start: The step after which the playout begins. Rewards are weighted by the preference of its beliefs.
        hypotheses: Hypotheses about the co-players, numbered b K + k.
        gamma: Discount factor.
    """
    root = start.beliefs
    uniform = jax.random.uniform(jax.random.fold_in(key, DRAW), (1,))
    first = Simulation(
        state=start.state,
        belief=root.belief,
        action_probs_by_goal=root.action_probs_by_goal,
        hypothesis=hypotheses,
        action=sample_actions(uniform, jax.nn.softmax(start.logits)[None])[0],
        total=jnp.float32(0),
        time=jnp.int32(0),
    )

    def step(carry: tuple[Simulation, Bool[Array, ""]]) -> tuple[Simulation, Bool[Array, ""]]:
        sim, is_alive = carry
        after, following = play_step(simulation, params, root, sim, root.preference, key)
        reward = gamma**sim.time * after.preferred_reward(root.preference)
        is_running = is_alive & after.is_alive & (following.time < simulation.game.last_step)
        return replace(following, total=sim.total + jnp.where(is_alive, reward, 0.0)), is_running

    sim, _ = jax.lax.while_loop(lambda carry: anywhere(carry[1]), step, (first, start.is_alive))
    return sim.total

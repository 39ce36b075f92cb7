"""Imagined rollouts: the ego's policy in the simulator, with co-players' actions sampled from the opponent model.

The ego's beliefs follow the imagined actions of its co-players by the same inference as in real play.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.preferences import with_tremble
from hopplus.planning.simulation import BeliefSimulator, Params, sample_actions

HYPOTHESES, ACTIONS, REPLIES, TREMBLE, STEP = range(5)
"""Purposes of a rollout's key and of its steps' keys."""


@struct
class ImaginedRollout:
    """One ego's imagined steps [H]; steps after its last are not `alive`."""

    observation: Observation
    """Observation before each step."""
    beliefs: CoPlayerBeliefs
    action: Int[Array, " H"]
    log_probability: Float[Array, " H"]
    value: Float[Array, " H"]
    reward: Float[Array, " H"]
    ended: Bool[Array, " H"]
    alive: Bool[Array, " H"]
    last_value: Float[Array, ""]


def imagine(
    simulation: BeliefSimulator,
    key: Key,
    params: Params,
    beliefs: CoPlayerBeliefs,
    observation: Observation,
    steps: int,
) -> ImaginedRollout:
    """Imagines `steps` steps from a real observation, with co-players' hypotheses sampled from the beliefs.

    Args:
        simulation: the ego's simulator, belief tracker and policy.
        key: random key of this rollout.
        params: parameters {policy, moa, world}.
        beliefs: the ego's beliefs at the observation.
        observation: the ego's observation.
        steps: length of the rollout, H.
    """
    key = fast(key)
    belief = jnp.log(beliefs.belief).reshape(beliefs.belief.shape[0], -1)
    hypotheses = jax.random.categorical(jax.random.fold_in(key, HYPOTHESES), belief)
    logits, value = simulation.evaluate(params["policy"], observation, beliefs)
    first = (simulation.simulator.from_observation(observation), beliefs, observation, logits, value, jnp.bool_(True))

    def step(carry: tuple, number: Array) -> tuple[tuple, ImaginedRollout]:
        sim_state, beliefs, observation, logits, value, alive = carry
        step_key = jax.random.fold_in(key, STEP + number)
        intended = jax.random.categorical(jax.random.fold_in(step_key, ACTIONS), logits)
        action = with_tremble(jax.random.fold_in(step_key, TREMBLE), beliefs.preference, intended, observation.legal[0])
        uniform = jax.random.uniform(jax.random.fold_in(step_key, REPLIES), hypotheses.shape)
        action_probs = simulation.belief_tracker.rationality.policy_of(beliefs.action_probs_by_goal, hypotheses)
        replies = sample_actions(uniform, action_probs)
        after = simulation.step(jax.random.fold_in(step_key, STEP), params, sim_state, beliefs, action, replies)
        transition = ImaginedRollout(
            observation=observation,
            beliefs=beliefs,
            action=intended,
            log_probability=jax.nn.log_softmax(logits)[intended],
            value=value,
            reward=jnp.where(alive, after.preferred_reward(beliefs.preference), 0.0),
            ended=~after.is_alive,
            alive=alive,
            last_value=after.value,
        )
        next_carry = (
            after.state,
            after.beliefs,
            after.observation,
            after.logits,
            after.value,
            alive & after.is_alive,
        )
        return next_carry, transition

    _, transitions = jax.lax.scan(step, first, jnp.arange(steps))
    return ImaginedRollout(**{**vars(transitions), "last_value": transitions.last_value[-1]})

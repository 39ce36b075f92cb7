"""Plain use of mctx with a planner's networks, as a reference of speed for tree search."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.core.errors import require
from hopplus.core.keys import Key
from hopplus.games import Observation, one_seat
from hopplus.planning.simulator import SimState
from hopplus.planning.tree_search import TreePlanner
from hopplus.players import Params


def mctx_search(planner: TreePlanner) -> Callable[..., Any]:
    """Returns the usual MuZero search of mctx, for decisions [D], with the networks and the settings of a planner.

    An edge holds one outcome, sampled at the first visit. Beliefs about co-players stay those of the root, so that
    they are not filtered. Networks read the whole board as features.
    """
    simulation, search = planner.simulation, planner.search
    simulator, tracker = simulation.simulator, simulation.belief_tracker
    mctx = require("mctx", "bench")

    def evaluated(params: Params, state: SimState, beliefs: CoPlayerBeliefs) -> tuple[CoPlayerBeliefs, Array, Array]:
        """Returns the beliefs with predicted actions in the state, the policy's logits and the value."""
        observations, model = simulator.observe(state), tracker.opponent_model
        probs = model.policies(params["moa"]["network"], model.features(observations), beliefs.particles)
        beliefs = dataclasses.replace(beliefs, action_probs_by_goal=probs)
        return beliefs, *simulation.evaluate(params["policy"], one_seat(observations, 0), beliefs)

    def stepped(params: Params, key: Key, action: Array, node: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        action_key, step_key = jax.random.split(key)
        probabilities = tracker.rationality.policy_of(node["beliefs"].action_probs_by_goal, node["hypotheses"])
        actions = jnp.concatenate([action[None], jax.random.categorical(action_key, jnp.log(probabilities))])
        after = simulator.step(step_key, params.get("world", ()), node["state"], actions)
        beliefs, logits, value = evaluated(params, after.state, node["beliefs"])
        output = {
            "reward": after.reward[0],
            "discount": jnp.where(after.is_alive, search.gamma, 0.0),
            "prior_logits": logits,
            "value": jnp.where(after.is_alive, value, 0.0),
        }
        return mctx.RecurrentFnOutput(**output), {**node, "state": after.state, "beliefs": beliefs}

    def recurrent(params: Any, key: Key, actions: Any, nodes: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, actions.shape[0])
        return jax.vmap(stepped, (None, 0, 0, 0))(params, keys, actions, nodes)

    def plan(params: Any, keys: Key, beliefs: CoPlayerBeliefs, observations: Observation) -> Any:
        def repeat(leaf: Array) -> Array:
            return jnp.repeat(leaf, search.belief_samples, 0)

        beliefs, observations = jax.tree.map(repeat, (beliefs, observations))
        states = jax.vmap(simulator.from_observation)(observations)
        beliefs, logits, value = jax.vmap(evaluated, (None, 0, 0))(params, states, beliefs)
        hypotheses = jax.random.categorical(keys[0], jnp.log(beliefs.belief).reshape(*beliefs.belief.shape[:2], -1))
        node = {"state": states, "beliefs": beliefs, "hypotheses": hypotheses}
        output = mctx.muzero_policy(
            params=params,
            rng_key=keys[0],
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=node),
            recurrent_fn=recurrent,
            num_simulations=search.simulations,
            invalid_actions=~observations.legal[:, 0],
            dirichlet_fraction=0.0,
        )
        return output.action_weights, output.search_tree.summary().qvalues

    return plan

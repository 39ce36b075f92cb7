"""Players with beliefs about co-players' goals and an optional planning method: HOP and HOP+."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.beliefs.belief_tracker import BeliefState, BeliefTracker, CoPlayerBeliefs
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import NamedPreference, Observation
from hopplus.games.preferences import (
    Preference,
    draw_preference,
    preference_set,
    stack_preferences,
    with_tremble,
)
from hopplus.networks.encoders import ILLEGAL
from hopplus.planning import catalog
from hopplus.planning.catalog import PlannerChoice, PlannerSetup, PlanningMethod
from hopplus.planning.plan import Plan
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.simulator import Simulator
from hopplus.players.player import Info, Memory, Params, as_action, own_mask
from hopplus.players.policy import PolicyPlayer, encode, evaluate_features
from hopplus.players.preferences import REGRET_SAMPLING, preference_features, preference_width

ACTION, PLANNING, TREMBLE = range(3)
"""Purposes of an action's key."""
MEMORY, PREFERENCE = range(2)
"""Purposes of the key of an initial memory."""


@struct
class Decision:
    """Auxiliary outputs of a planner's decision; includes the fields of `PolicyInfo`."""

    intended_action: Int[Array, ""]
    """Action chosen by the policy or the planning method, before tremble."""
    log_probability: Float[Array, ""]
    """Log-probability of the intended action under the policy, even if a planning method chose it."""
    value: Float[Array, ""]
    """Predicted return."""
    features: Any
    """Inputs of the network's first layer; None unless the player keeps features."""
    belief: Float[Array, "n-1 K"]
    """Probabilities of the co-players' goals."""
    rationality: Float[Array, "n-1 B"]
    """Probabilities of the co-players' rationality hypotheses."""
    action_probs: Float[Array, "n-1 A"]
    """Predicted probabilities of the co-players' next actions."""
    policy: Float[Array, " A"]
    """Policy without planning."""
    plan: Plan | None
    """Result of the planning; None without planning."""
    co_player_beliefs: CoPlayerBeliefs | None
    """Beliefs about the co-players; None unless the player keeps features."""
    goals: Float[Array, "n kinds"] | None
    """Beliefs about the next item of each player, ego first; None unless goals are items."""
    preference: Preference | None = None
    """The own preference; None unless the policy observes it and the player keeps features."""


@struct
class PlannerView:
    """A planner's beliefs, policy and value at one observation, before it acts."""

    memory: BeliefState
    beliefs: CoPlayerBeliefs
    features: Any
    """Inputs of the network's first layer."""
    logits: Float[Array, " A"]
    """Masked logits of the policy."""
    value: Float[Array, ""]
    """Predicted return."""


@dataclass(frozen=True)
class Planner(PolicyPlayer):
    """Tracks beliefs about its co-players' goals, and acts by its policy or by a planning method.

    Params: `policy`, `moa` and, with a learnt world model, `world`. The memory is a `BeliefState`, kept over all
    episodes of a trial.
    """

    belief_tracker: BeliefTracker | None = None
    simulator: Simulator | None = None
    planning: PlannerChoice | None = None
    """Planning method before each action; None: the policy acts without planning."""
    plans: tuple[NamedPreference, ...] = ()
    """Base plans among which the policy's plan head chooses in each step; empty: it acts by its own preference."""

    def init(self, key: Key, params: Params) -> BeliefState:
        memory = self.tracker.init(jax.random.fold_in(key, MEMORY), params["moa"])
        if not self.samples_preference:
            return memory
        draw = jax.random.uniform(fast(jax.random.fold_in(key, PREFERENCE)))
        return replace(memory, preference_draw=draw, regret=params.get(REGRET_SAMPLING))

    def meet(self, key: Key, memory: Memory) -> BeliefState:
        if not self.samples_preference:
            return memory
        candidates, trial_key = preference_set(self.tracker.opponent_model.game), jax.random.fold_in(key, PREFERENCE)
        drawn = draw_preference(candidates, fast(trial_key), memory.preference_draw, memory.regret)
        return replace(memory, preference=drawn, regret=None)

    def begin(self, memory: Memory) -> BeliefState:
        return self.tracker.begin(memory)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], BeliefState, Info]:
        key, view = fast(key), self.view(params, memory, observation)
        policy, plan = jax.nn.softmax(view.logits), None
        if self.planning is not None:
            method = self.planning_method(self.planning)
            plan = method.plan(jax.random.fold_in(key, PLANNING), params, view.beliefs, observation)
            if plan.choice is not None:
                view = replace(view, memory=replace(view.memory, plan=plan.choice.plan))
        acting_policy = policy if plan is None else plan.policy
        sampled = draw_action(jax.random.fold_in(key, ACTION), acting_policy)
        action = intended_action = as_action(jnp.argmax(acting_policy) if self.greedy else sampled)
        if self.samples_preference:
            tremble_key = jax.random.fold_in(key, TREMBLE)
            action = with_tremble(tremble_key, view.beliefs.preference, intended_action, own_mask(observation))
        decision = Decision(
            intended_action=intended_action,
            log_probability=jax.nn.log_softmax(view.logits)[intended_action],
            value=view.value,
            features=view.features if self.keeps_features else None,
            belief=view.beliefs.goal_probs,
            rationality=view.beliefs.rationality_probs,
            action_probs=self.tracker.action_probs(view.beliefs),
            policy=policy,
            plan=plan,
            co_player_beliefs=view.beliefs if self.keeps_features else None,
            goals=self._item_beliefs(view.beliefs.goal_probs),
            preference=view.beliefs.preference if self.keeps_features and self.tracker.sees_preference else None,
        )
        return action, view.memory, decision

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        return self.view(params, memory, observation).value

    def inputs(self, params: Params, memory: Memory, observation: Observation) -> Any:
        return self.view(params, memory, observation).features

    def centralized_value(self, params: Params, inputs: Any, critic: Float[Array, " C"]) -> Float[Array, ""]:
        return super().centralized_value(params["policy"], inputs, critic)

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        if self.planning is not None:
            raise InputError(f"the action probabilities of {self.name!r} are not known, because it plans its actions")
        logits = self.view(params, memory, observation).logits
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    def watch(self, params: Params, memory: Memory, observation: Observation) -> BeliefState:
        return self.tracker.watch(memory, observation)

    def end(self, memory: Memory) -> BeliefState:
        return self.tracker.end(memory)

    # -- beliefs and planning

    def view(self, params: Params, memory: BeliefState, observation: Observation) -> PlannerView:
        """Returns the beliefs, policy and value at an observation."""
        sim_state = self._simulator.from_observation(observation)
        observations = self._simulator.observe(sim_state)
        memory, beliefs = self.tracker.predict(params["moa"], memory, observation, observations, sim_state.state)
        features = features_of(self.network, self.tracker, observation, beliefs)
        if not self.plans:
            logits, value = evaluate_features(self.network, params["policy"], features)
            return PlannerView(memory, beliefs, features, logits, value)
        _, value, plan_logits = evaluate_with_plans(self.network, params["policy"], features)
        plan = jnp.argmax(plan_logits)
        followed = replace(beliefs, preference=jax.tree.map(lambda leaf: leaf[plan], stack_preferences(self.plans)))
        inputs = features_of(self.network, self.tracker, observation, followed)
        logits, _ = evaluate_features(self.network, params["policy"], inputs)
        return PlannerView(memory, beliefs, features, logits, value)

    def planning_method(self, choice: PlannerChoice) -> PlanningMethod:
        """Returns a planning method with this player's policy, value, simulator and belief tracker."""
        return catalog.make(PlannerSetup(**vars(choice), simulation=self.simulation))

    @property
    def simulation(self) -> BeliefSimulator:
        """Simulator of steps with this player's beliefs, policy and value."""

        def evaluate(params: Params, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[Array, Array]:
            features = features_of(self.network, self.tracker, observation, beliefs)
            return evaluate_features(self.network, params, features)

        return BeliefSimulator(self._simulator, self.tracker, evaluate)

    @property
    def tracker(self) -> BeliefTracker:
        """The belief tracker, which must be set."""
        assert self.belief_tracker is not None
        return self.belief_tracker

    @property
    def _simulator(self) -> Simulator:
        assert self.simulator is not None
        return self.simulator

    def _item_beliefs(self, belief: Float[Array, "n-1 K"]) -> Float[Array, "n kinds"] | None:
        model = self.tracker.opponent_model
        kinds = None if model.labelled is None else model.labelled.item_beliefs(model.game, belief)
        return None if kinds is None else jnp.concatenate([jnp.zeros((1, kinds.shape[1])), kinds])


def social_width(tracker: BeliefTracker) -> int:
    """Returns the width of `social_features`."""
    opponent_model, game = tracker.opponent_model, tracker.opponent_model.game
    blocks = tracker.rationality.num_blocks
    own_width = preference_width(game) if tracker.sees_preference else 0
    per_co_player = opponent_model.dimensions + game.num_actions + (blocks if blocks > 1 else 0)
    return tracker.co_players * per_co_player + own_width


def social_features(tracker: BeliefTracker, beliefs: CoPlayerBeliefs) -> Float[Array, " S"]:
    """Returns the policy's inputs about the co-players.

    Each one's goal beliefs, predicted action probabilities, which keep their meaning when goals are renumbered, and
    rationality beliefs, if there are several hypotheses; and the ego's preference, if the policy observes it.
    """
    probability, space = beliefs.goal_probs, tracker.opponent_model.space
    if space == "gaussian":
        goals = jnp.einsum("jk,jkz->jz", probability, beliefs.particles)
    elif space in ("none", "zero"):
        goals = jnp.zeros((probability.shape[0], tracker.opponent_model.dimensions))
    else:
        goals = probability
    rationality = [beliefs.rationality_probs] if tracker.rationality.num_blocks > 1 else []
    co_player_features = jnp.concatenate([goals, tracker.action_probs(beliefs), *rationality], -1).reshape(-1)
    if not tracker.sees_preference:
        return co_player_features
    return jnp.concatenate([co_player_features, preference_features(beliefs.preference)])


def with_preference(tracker: BeliefTracker, features: Any, preference: Preference) -> Any:
    """Returns the network's inputs with another own preference, if the policy observes it."""
    if not tracker.sees_preference:
        return features
    observed, social = features
    own = preference_features(preference)
    return observed, jnp.concatenate([social[: -len(own)], own])


def features_of(network: Any, tracker: BeliefTracker, observation: Observation, beliefs: CoPlayerBeliefs) -> Any:
    """Returns the network's inputs: the encoded observation and the social features."""
    return encode(network, observation), social_features(tracker, beliefs)


def evaluate_with_plans(network: Any, params: Params, features: Any) -> tuple[Array, Array, Array]:
    """Applies a network with a plan head; returns logits, values, and logits of the base plans."""
    return network.apply({"params": params}, features, method="with_plans")


@dataclass(frozen=True)
class Optimist(PolicyPlayer):
    """Curriculum partner that acts by a planner's opponent model.

    Its goal is the available one with the highest return so far. Params are the planner's.
    """

    opponent_model: OpponentModel | None = None

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        policy = self.probabilities(params, memory, observation)
        return draw_action(fast(key), policy), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        available = self._opponent_model.available(observation)
        best = jnp.argmax(jnp.where(available, params["moa"]["worth"], -jnp.inf))
        return self._opponent_model.ego_policies(params["moa"]["network"], observation)[best]

    @property
    def _opponent_model(self) -> OpponentModel:
        assert self.opponent_model is not None
        return self.opponent_model


def draw_action(key: Key, policy: Float[Array, " A"]) -> Int[Array, ""]:
    """Samples an action from a policy; an action of probability 0 is never sampled."""
    logits = jnp.where(policy > 0, jnp.log(jnp.maximum(policy, 1e-30)), ILLEGAL)
    return as_action(jax.random.categorical(key, logits))

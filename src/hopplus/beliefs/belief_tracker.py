"""Belief tracking: an ego's posterior over its co-players' goals and rationality, within and between episodes.

A hypothesis about a co-player is a rationality [B] and a goal [K] (`beliefs/rationality.py`). Within an episode, the
posterior over hypotheses follows Bayes' rule, with the action probabilities of the opponent model under each hypothesis
as likelihood. Between episodes, discounted counts of hypotheses (of the rationality and the first goal of an episode)
give the next prior. Co-players [n-1] are in ego-first order. The memory has log-probabilities; beliefs about one state,
simulated ones included, are probabilities.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.goal_space import OpponentModel, Params
from hopplus.beliefs.hmm import (
    IMPOSSIBLE,
    SMALLEST,
    normalize,
    normalize_joint,
    restrict_probs,
    restrict_to_available,
    update,
    update_probs,
)
from hopplus.beliefs.rationality import NOISY_MODEL, Rationality
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Observation
from hopplus.games.preferences import Preference, RegretSampling, neutral
from hopplus.networks.subgoal_vae import Gaussian

Inter = Literal["off", "counts", "dirichlets"]
INTERS: tuple[str, ...] = get_args(Inter)
FORGETTING = (0.5, 0.8, 0.95, 0.995)
"""Per-episode forgetting factors of the parallel Dirichlet counts."""
WEIGHT_EXPONENT = 0.9
"""Exponent applied to the weights of these counts after each episode; below 1, the best factor can change."""
PSEUDO_COUNTS, COUNT_DISCOUNT, TAKEN_COUNT_DISCOUNT = 100.0, 0.995, 0.98
"""HOP's initial count per goal, and the per-episode discounts of goal counts and of counts of items taken."""


@struct
class BeliefState:
    """An ego's memory of its co-players, kept over all episodes of a trial."""

    initial_prior: Float[Array, "n-1 B K"]
    """Prior over the hypotheses about unknown co-players."""
    prior: Float[Array, "n-1 B K"]
    """Prior at the start of this episode."""
    joint: Float[Array, "n-1 B K K"]
    """[j, b, first, now]: log-probability of co-player j's actions in this episode and of its current goal, given its
    rationality and its first goal; up to a constant per co-player."""
    counts: Float[Array, "n-1 F B K"]
    """Discounted counts of hypotheses (rationality and first goal), per forgetting factor."""
    weights: Float[Array, "n-1 F"]
    """Posterior weight of each forgetting factor."""
    num_taken: Int[Array, " n-1"]
    """Items that each co-player has taken in this episode."""
    taken_counts: Float[Array, "n-1 N"]
    """HOP's counts of items taken per episode; N = 0 where goals are counted instead."""
    action_probs_by_goal: Float[Array, "n-1 H A"]
    """Predicted action probabilities for the current step, per goal, then per preference model."""
    available: Bool[Array, " K"]
    """Goals available in the current step."""
    present: Bool[Array, " n-1"]
    """Co-players in the game in the current step."""
    is_first: Bool[Array, ""]
    """The coming step is the first of the episode, at whatever time it begins."""
    noise: Float[Array, "n-1 K Z"]
    """Standard normal noise of the particles; empty unless goals are particles."""
    subgoal_prior: Gaussian
    """Prior over subgoals at the start of the episode: [n-1, Z]."""
    preference: Preference
    """The ego's own preference."""
    plan: Int[Array, ""]
    """The ego's base plan, chosen by planning in the last step; 0 (neutral) at first."""
    preference_draw: Float[Array, ""] | None = None
    """Uniform number that selects the ego's preference at the start of a trial; None if preferences are not sampled."""
    regret: RegretSampling | None = None
    """Regret sampling; None after the preference is drawn, and without regret sampling."""


@struct
class CoPlayerBeliefs:
    """An ego's beliefs about its co-players in one state."""

    belief: Float[Array, "n-1 B K"]
    """Probabilities of the hypotheses, restricted to available goals."""
    prior: Float[Array, "n-1 B K"]
    """Their probabilities at the start of the episode."""
    action_probs_by_goal: Float[Array, "n-1 H A"]
    """Predicted probabilities of the next action, per goal, then per preference model."""
    particles: Float[Array, "n-1 K Z"] | None
    """Candidate subgoals; None unless goals are particles."""
    preference: Preference
    """The ego's own preference."""
    plan: Int[Array, ""]
    """The ego's base plan, chosen by planning in the last step."""

    @property
    def goal_probs(self) -> Float[Array, "n-1 K"]:
        """Probabilities of the goals, whatever the rationality."""
        return self.belief.sum(-2)

    @property
    def rationality_probs(self) -> Float[Array, "n-1 B"]:
        """Probabilities of the rationality hypotheses, whatever the goal."""
        return self.belief.sum(-1)


@dataclass(frozen=True)
class BeliefTracker:
    """Bayesian tracker of co-players' goals and rationality."""

    opponent_model: OpponentModel
    goal_switch_probability: float = 0.02
    """Per-step probability that a co-player's goal is resampled."""
    inter: Inter = "dirichlets"
    """Memory between episodes: none, HOP's discounted counts, or counts with several forgetting factors, weighted by
    their predictive likelihood."""
    intra: bool = True
    """Update beliefs within an episode."""
    rationality: Rationality = NOISY_MODEL
    """Rationality hypotheses."""
    sees_preference: bool = False
    """The ego's policy observes the ego's preference."""

    @property
    def co_players(self) -> int:
        """Number of co-players, n-1."""
        return self.opponent_model.game.num_players - 1

    @property
    def _counts_taken(self) -> bool:
        """True if items taken are counted instead of goals.

        If all prey is of one kind, a goal is a cell of one board and has no meaning on the next board.
        """
        goals = self.opponent_model.labelled
        return goals is not None and goals.counts_items(self.opponent_model.game)

    def init(self, key: Key, params: Params) -> BeliefState:
        """Returns the memory at the start of a trial, before any observation."""
        n, goals, subgoal_dim = self.co_players, self.opponent_model.num_goals, self.opponent_model.dimensions
        gaussian = self.opponent_model.space == "gaussian"
        initial_prior = self.initial_prior(params)
        factors = len(FORGETTING) if self.inter == "dirichlets" else 1
        pseudo_counts = jnp.asarray(PSEUDO_COUNTS * self.rationality.prior[:, None])
        counts = pseudo_counts if self.inter == "counts" else jnp.exp(initial_prior)[:, None]
        blocks = self.rationality.num_blocks
        numbers = self.opponent_model.game.num_cells + 1 if self._counts_taken else 0  # pyright: ignore[reportAttributeAccessIssue]
        memory = BeliefState(
            initial_prior=initial_prior,
            prior=initial_prior,
            joint=jnp.zeros((n, blocks, goals, goals)),
            counts=jnp.broadcast_to(counts, (n, factors, blocks, goals)),
            weights=jnp.full((n, factors), 1.0 / factors),
            num_taken=jnp.zeros(n, jnp.int32),
            taken_counts=jnp.ones((n, numbers)),
            action_probs_by_goal=jnp.ones(
                (n, goals + len(self.rationality.preferences), self.opponent_model.game.num_actions)
            ),
            available=jnp.ones(goals, bool),
            present=jnp.zeros(n, bool),
            is_first=jnp.bool_(True),
            noise=jax.random.normal(key, (n, goals, subgoal_dim)) if gaussian else jnp.zeros((n, 0, 0)),
            subgoal_prior=Gaussian(*jnp.zeros((2, n, subgoal_dim if gaussian else 0))),
            preference=neutral(self.opponent_model.game),
            plan=jnp.int32(0),
        )
        return self.begin(memory)

    def initial_prior(self, params: Params) -> Float[Array, "n-1 B K"]:
        """Returns the log-prior over hypotheses about unknown co-players."""
        goals = self.opponent_model.num_goals
        is_gaussian = self.opponent_model.space == "gaussian"
        goal_prior = jnp.full(goals, -jnp.log(goals)) if is_gaussian else normalize(params["prior"])
        prior = jnp.log(jnp.asarray(self.rationality.prior, jnp.float32))[:, None] + goal_prior
        return jnp.broadcast_to(prior, (self.co_players, *prior.shape))

    # -- one episode

    def begin(self, memory: BeliefState) -> BeliefState:
        """Returns the memory at the start of an episode: the prior comes from the counts of earlier episodes."""
        goals = self.opponent_model.num_goals
        learned_prior = jnp.log((memory.weights[..., None, None] * _normalize_counts(memory.counts)).sum(1))
        # The sum depends on the memory: XLA would spend seconds folding a constant.
        joint = jnp.where(jnp.eye(goals, dtype=bool), 0.0, IMPOSSIBLE) + 0.0 * memory.initial_prior[..., None]
        return replace(
            memory,
            prior=memory.initial_prior if self.inter == "off" else learned_prior,
            joint=joint,
            num_taken=jnp.zeros_like(memory.num_taken),
            plan=jnp.zeros_like(memory.plan),
            is_first=jnp.ones_like(memory.is_first),
        )

    def predict(
        self, params: Params, memory: BeliefState, observation: Observation, observations: Observation, state: Any
    ) -> tuple[BeliefState, CoPlayerBeliefs]:
        """Predicts the co-players' next actions.

        Args:
            params: parameters of the opponent model.
            memory: the ego's memory.
            observation: the ego's observation.
            observations: all players' observations [n, ...], ego first.
            state: the game state of these observations, the ego in seat 0.

        Returns:
            The memory with the predictions for the coming step, and the current beliefs.
        """
        if self.opponent_model.space == "gaussian":
            current = self._subgoal_prior(params, self.opponent_model.features(observations))
            subgoal_prior = jax.tree.map(
                lambda new, old: jnp.where(memory.is_first, new, old), current, memory.subgoal_prior
            )
            memory = replace(memory, subgoal_prior=subgoal_prior)
        available = self.opponent_model.available(observation)
        prior = self._current_prior(memory, available)
        belief = jax.nn.logsumexp(prior[..., None] + memory.joint, axis=-2) if self.intra else prior
        particles = self._particles(memory)
        inputs = self.opponent_model.sparse_inputs(observations, state)
        action_probs = self.opponent_model.policies(params["network"], inputs, particles)
        present = observation.present[1:]
        memory = replace(
            memory,
            initial_prior=self.initial_prior(params),
            prior=prior,
            action_probs_by_goal=action_probs,
            available=available,
            present=present,
        )
        belief, prior = (jnp.exp(jax.vmap(normalize_joint)(log_weights)) for log_weights in (belief, prior))
        belief = self.restrict(belief, prior, available)
        return memory, CoPlayerBeliefs(belief, prior, action_probs, particles, memory.preference, memory.plan)

    def restrict(
        self, belief: Float[Array, "n-1 B K"], prior: Float[Array, "n-1 B K"], available: Bool[Array, " K"]
    ) -> Float[Array, "n-1 B K"]:
        """Redistributes the probability of unavailable goals in proportion to the prior, and normalises."""
        if self.opponent_model.goals_can_vanish:
            belief = restrict_probs(belief, prior, available)
        return belief / jnp.maximum(belief.sum((-1, -2), keepdims=True), SMALLEST)

    def action_probs(self, beliefs: CoPlayerBeliefs) -> Float[Array, "n-1 A"]:
        """Returns the predicted probabilities of the co-players' next actions, averaged over hypotheses."""
        return self.rationality.mixture(beliefs.action_probs_by_goal, beliefs.belief)

    def _particles(self, memory: BeliefState) -> Float[Array, "n-1 K Z"] | None:
        if self.opponent_model.space != "gaussian":
            return None
        return jax.tree.map(lambda leaf: leaf[:, None], memory.subgoal_prior).sample(memory.noise)

    def _subgoal_prior(self, params: Params, features: Array) -> Gaussian:
        network, params_axis = self.opponent_model.network, 0 if self.opponent_model.network_per_co_player else None
        empty_history = jnp.zeros((self.co_players, network.memory))  # pyright: ignore[reportAttributeAccessIssue]
        infer = partial(network.apply, method="infer")
        each = jax.vmap(lambda params, *inputs: infer({"params": params}, *inputs), (params_axis, 0, 0))
        return each(params["network"], features, empty_history)  # pyright: ignore[reportReturnType]

    def _current_prior(self, memory: BeliefState, available: Bool[Array, " K"]) -> Float[Array, "n-1 B K"]:
        """Returns the prior of this step.

        Where items taken are counted, goals have the probability of taking another item, spread evenly over the
        available goals; else the prior is that of the episode.
        """
        if not self._counts_taken or self.inter == "off":
            return memory.prior
        num_taken = memory.num_taken[:, None]
        at_least = (jnp.arange(memory.taken_counts.shape[1]) >= num_taken) * memory.taken_counts
        more = (jnp.arange(memory.taken_counts.shape[1]) > num_taken) * memory.taken_counts
        takes_another = more.sum(-1, keepdims=True) / jnp.maximum(at_least.sum(-1, keepdims=True), 1e-6)
        per_goal = takes_another / jnp.maximum(available[1:].sum(), 1)
        goal_probs = jnp.where(available[1:], per_goal, 0.0)
        goal_prior = jnp.log(jnp.concatenate([1 - takes_another, goal_probs], -1) + 1e-6)
        return jax.nn.logsumexp(memory.prior, axis=-1, keepdims=True) + goal_prior[:, None]

    def update_imagined(
        self,
        params: Params,
        beliefs: CoPlayerBeliefs,
        actions: Int[Array, " n-1"],
        observations: Observation,
        state: Any,
    ) -> CoPlayerBeliefs:
        """Returns the beliefs after a simulated step, by the same inference as in real play.

        Args:
            params: parameters of the opponent model.
            beliefs: the ego's beliefs before the step.
            actions: the co-players' simulated actions.
            observations: all players' observations [n, ...] after the step, ego first.
            state: the game state of these observations, the ego in seat 0.
        """
        observation = jax.tree.map(lambda leaf: leaf[0], observations)
        if self.intra:
            belief = self.filter_imagined(beliefs.belief, beliefs, actions, observation)
        else:
            belief = self.restrict(beliefs.belief, beliefs.prior, self.opponent_model.available(observation))
        inputs = self.opponent_model.sparse_inputs(observations, state)
        action_probs = self.opponent_model.policies(params["network"], inputs, beliefs.particles)
        return replace(beliefs, belief=belief, action_probs_by_goal=action_probs)

    def filter_imagined(
        self,
        belief: Float[Array, "n-1 B K"],
        beliefs: CoPlayerBeliefs,
        actions: Int[Array, " n-1"],
        observation: Observation,
    ) -> Float[Array, "n-1 B K"]:
        """Returns a belief after a simulated step, whether or not the ego's own beliefs are updated (`intra`).

        Args:
            belief: the belief before the step.
            beliefs: the ego's beliefs before the step: prior and predicted actions.
            actions: the co-players' simulated actions.
            observation: the ego's observation after the step.
        """
        likelihood = self.rationality.likelihoods(beliefs.action_probs_by_goal, actions, belief)
        goal_prior = beliefs.prior / jnp.maximum(beliefs.prior.sum(-1, keepdims=True), SMALLEST)
        belief = update_probs(belief, goal_prior, likelihood, self.goal_switch_probability)
        return self.restrict(belief, beliefs.prior, self.opponent_model.available(observation))

    def watch(self, memory: BeliefState, observation: Observation) -> BeliefState:
        """Returns the memory after a step, whose actions are in the next observation."""
        actions = observation.last_actions[1:]
        goal_prior = normalize(memory.prior)[..., None, :]
        joint = restrict_to_available(memory.joint, goal_prior, memory.available)
        belief = jax.nn.softmax(jax.nn.logsumexp(memory.prior[..., None] + joint, axis=-2))
        likelihood = jnp.log(self.rationality.likelihoods(memory.action_probs_by_goal, actions, belief))[..., None, :]
        joint = update(joint, goal_prior, likelihood, self.goal_switch_probability)
        # Only ratios matter. Shifting the maximum to 0 avoids underflow in long episodes.
        joint = joint - joint.max((-1, -2, -3), keepdims=True)
        takes = actions > self.opponent_model.game.idle_action
        return replace(
            memory,
            joint=jnp.where(memory.present[:, None, None, None], joint, memory.joint),
            num_taken=memory.num_taken + (memory.present & takes),
            is_first=jnp.zeros_like(memory.is_first),
        )

    def end(self, memory: BeliefState) -> BeliefState:
        """Returns the memory after an episode: the posterior of each hypothesis is added to the counts."""
        if self.inter == "off":
            return memory
        likelihood = jax.nn.logsumexp(memory.joint, axis=-1)
        likelihood = jnp.exp(likelihood - likelihood.max((-2, -1), keepdims=True))
        posterior = jnp.exp(jax.vmap(normalize_joint)(memory.prior + jnp.log(jnp.maximum(likelihood, 1e-30))))
        if memory.taken_counts.size:
            num_taken = jax.nn.one_hot(memory.num_taken, memory.taken_counts.shape[1])
            memory = replace(memory, taken_counts=TAKEN_COUNT_DISCOUNT * memory.taken_counts + num_taken)
        if self.inter == "counts":
            return replace(memory, counts=COUNT_DISCOUNT * memory.counts + posterior[:, None])
        predictive = (_normalize_counts(memory.counts) * likelihood[:, None]).sum((-2, -1))
        weights = memory.weights**WEIGHT_EXPONENT * predictive
        return replace(
            memory,
            counts=jnp.asarray(FORGETTING)[:, None, None] * memory.counts + posterior[:, None],
            weights=weights / weights.sum(-1, keepdims=True),
        )


def _normalize_counts(counts: Float[Array, "... B K"]) -> Float[Array, "... B K"]:
    return counts / counts.sum((-2, -1), keepdims=True)

"""Belief rollouts: policy improvement over several base plans, by simulations with co-players drawn from the beliefs.

A base plan is the ego's own policy under one of its preferences (`games/preferences.py`), the neutral one first. A
candidate is a first action and a plan. One simulation of a candidate draws a hypothesis about every co-player from the
ego's beliefs, takes the first action, and follows the plan to the end of the episode. Its value is the ego's return in
the game, whatever the plan's preference. Inside a simulation, the ego's beliefs are filtered from simulated actions as
in play: its plan never sees the drawn hypotheses.

There are also delayed plans: the neutral one up to a step, then another base plan. Simulations of the neutral policy
do not plan, so that they do not know that the ego may still change its mind: a delayed plan has the value of waiting
for a chance and taking the sure thing in time.

Sequential halving selects a challenger among all candidates. The reference is the plan that the ego follows already,
with an action of that plan. The challenger replaces it if a one-sided paired t-test on fresh simulations passes, so
that a maximum over noisy values does not overrule the policy, and a plan is kept until another is better.

The simulations of one round share random numbers (common random numbers), hypotheses included: simulation r of every
candidate has the same ones. No simulation sees the key of the game.

Related: rollout algorithms (Tesauro and Galperin, 1996), policy switching (Chang et al., 2004), SPARTA (Lerer et al.,
2020).
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.beliefs.hmm import IMPOSSIBLE
from hopplus.configs import PlanningConfig
from hopplus.core.keys import Key, fast
from hopplus.core.struct import struct
from hopplus.games import NamedPreference, Observation
from hopplus.games.preferences import Preference, base_plans, neutral, stack_preferences
from hopplus.planning.plan import Plan, PlanChoice
from hopplus.planning.playout import DRAW, Simulation, play_step
from hopplus.planning.queue import Roots, Tasks, simulations_in_slots
from hopplus.planning.simulation import BeliefSimulator, Params, SimulatedStep, sample_actions

REFERENCE_ACTION, COMPARISON, SCREENING = range(3)
"""Purposes of a decision's key; round i of the screening has SCREENING + i."""
EARLIER = 1e-3
"""Relative loss of a reward at the last step against one at the first: of equal returns the earlier is better."""


@dataclass(frozen=True, eq=False)
class PlanTable:
    """Plans [P]: W base plans, then the delayed ones."""

    names: tuple[str, ...]
    before: Int[np.ndarray, " P"]
    """Base plan up to the switch."""
    after: Int[np.ndarray, " P"]
    """Base plan from the switch on."""
    switch: Float[np.ndarray, " P"]
    """Time of the switch, as a share of the episode's maximum length."""

    def followed(
        self, plan: Int[Array, "*rows"], time: Int[Array, "*rows"], deadline: Int[Array, ""]
    ) -> Int[Array, "*rows"]:
        """Returns the base plan that a plan follows at a time."""
        is_before = time < self._switch_step(deadline)[plan]
        return jnp.where(is_before, jnp.asarray(self.before)[plan], jnp.asarray(self.after)[plan])

    def is_due(self, time: Int[Array, ""], deadline: Int[Array, ""]) -> Bool[Array, " P"]:
        """Returns whether each plan has switched at a time; True for base plans."""
        return time >= self._switch_step(deadline)

    def _switch_step(self, deadline: Int[Array, ""]) -> Int[Array, " P"]:
        return jnp.floor(jnp.asarray(self.switch) * deadline).astype(jnp.int32)


@struct
class Candidates:
    """Pairs [C] of a first action and a plan."""

    action: Int[Array, " C"]
    plan: Int[Array, " C"]
    is_valid: Bool[Array, " C"]
    """False if the action is illegal, or the ego's game has ended."""


@struct
class Sums:
    """Sums over the simulations of each candidate [C]."""

    total: Float[Array, " C"]
    squares: Float[Array, " C"]
    count: Float[Array, " C"]

    @property
    def mean(self) -> Float[Array, " C"]:
        """Mean returns."""
        return self.total / jnp.maximum(self.count, 1)

    @property
    def error(self) -> Float[Array, " C"]:
        """Standard errors of the means; 0 with fewer than two simulations."""
        variance = (self.squares - self.count * self.mean**2) / jnp.maximum(self.count - 1, 1)
        return jnp.sqrt(jnp.maximum(variance, 0) / jnp.maximum(self.count, 1)) * (self.count > 1)


@dataclass(frozen=True)
class RolloutPlanner:
    """Belief rollouts with the player's simulator, beliefs and policy."""

    config: PlanningConfig
    simulation: BeliefSimulator

    def plan(self, key: Key, params: Params, beliefs: CoPlayerBeliefs, observation: Observation) -> Plan:
        """Plans one decision; `params` are {policy, moa, world}."""
        key, table = fast(key), self.table
        logits = self._logits_by_plan(params, beliefs, observation)
        uniform = jax.random.uniform(jax.random.fold_in(key, REFERENCE_ACTION), (1,))
        own_actions = sample_actions(jnp.broadcast_to(uniform, (len(logits),)), jax.nn.softmax(logits))
        candidates = self._candidates(own_actions, observation)
        state = self.simulation.simulator.from_observation(observation).state
        has_ended = self.simulation.game.over(state) | self.simulation.game.left(state)[0]
        candidates = replace(candidates, is_valid=candidates.is_valid & ~has_ended)
        now = observation.time, observation.deadline
        followed = table.followed(beliefs.plan, *now)
        kept = jnp.where(table.is_due(*now)[beliefs.plan], followed, beliefs.plan)
        reference = jnp.stack([own_actions[followed], kept])

        def simulate(purpose: Array | int, chosen: Candidates, number: Array) -> tuple[Array, Array]:
            round_key = jax.random.fold_in(key, purpose)
            return self._simulate(round_key, params, beliefs, observation, chosen, number)

        sums, ranked, steps = self._screen(simulate, candidates)
        is_reference = (candidates.action == reference[0]) & (candidates.plan == reference[1])
        best = ranked[jnp.argmax(~is_reference[ranked] & candidates.is_valid[ranked])]
        challenger = jnp.where(
            is_reference[best], reference, jnp.stack([candidates.action[best], candidates.plan[best]])
        )
        choice = self._compare(simulate, reference, challenger, sums, candidates, steps, now, ~has_ended)
        return self._summarize(choice, sums, candidates, observation)

    @property
    def base_plans(self) -> tuple[NamedPreference, ...]:
        """Base plans: the neutral preference only, if the policy does not observe preferences."""
        plans = base_plans(self.simulation.game, self.config.plans)
        return plans if self.simulation.belief_tracker.sees_preference else plans[:1]

    @property
    def plans(self) -> Preference:
        """Preferences [W] of the base plans."""
        return stack_preferences(self.base_plans)

    @property
    def table(self) -> PlanTable:
        """All plans."""
        names = [preference.name for preference in self.base_plans]
        number = len(names)
        delayed = [(after, switch) for after in range(1, number) for switch in self.config.plan_switches]
        return PlanTable(
            names=(*names, *(f"{names[0]}, then {names[after]} at {switch:.0%}" for after, switch in delayed)),
            before=np.array([*range(number), *[0] * len(delayed)]),
            after=np.array([*range(number), *(after for after, _ in delayed)]),
            switch=np.array([*[0.0] * number, *(switch for _, switch in delayed)], np.float32),
        )

    def _logits_by_plan(
        self, params: Params, beliefs: CoPlayerBeliefs, observation: Observation
    ) -> Float[Array, "W A"]:
        def of_plan(preference: Preference) -> Array:
            return self.simulation.evaluate(params["policy"], observation, replace(beliefs, preference=preference))[0]

        return jax.vmap(of_plan)(self.plans)

    def _candidates(self, own_actions: Int[Array, " W"], observation: Observation) -> Candidates:
        """Candidates: base plans with every first action or with their own, then delayed plans with their own.

        A delayed plan that has switched is a base plan, and no candidate.
        """
        table, number, now = self.table, len(own_actions), (observation.time, observation.deadline)
        plans = jnp.arange(len(table.names))
        own = Candidates(own_actions[table.followed(plans, *now)], plans, (plans < number) | ~table.is_due(*now))
        if self.config.candidates == "plans":
            return own
        actions = observation.legal.shape[-1]
        action, plan = jnp.tile(jnp.arange(actions), number), jnp.repeat(jnp.arange(number), actions)
        every_action = Candidates(action, plan, observation.legal[0][action])
        return jax.tree.map(lambda first, last: jnp.concatenate([first, last[number:]]), every_action, own)

    # -- stage 1: a challenger

    def _screen(self, simulate: Any, candidates: Candidates) -> tuple[Sums, Int[Array, " C"], Int[Array, ""]]:
        """Sequential halving: every round spends the same simulations on the better half of the candidates.

        Returns:
            Sums over all simulations, the candidates from the best to the worst, and the simulated steps.
        """
        slots, number = jnp.arange(self.config.rollouts), len(candidates.action)
        zeros = jnp.zeros(number)

        def one_round(carry: tuple[Sums, Array, Array, Array], round: Array) -> tuple[Any, None]:
            sums, ranked, left, steps = carry
            each = jnp.maximum(len(slots) // jnp.maximum(left, 1), 1)
            rank, index = slots // each, slots % each
            chosen_index = ranked[jnp.minimum(rank, number - 1)]
            counts = rank < left
            chosen = jax.tree.map(lambda leaf: leaf[chosen_index], candidates)
            chosen = Candidates(chosen.action, chosen.plan, chosen.is_valid & counts)
            returns, length = simulate(SCREENING + round, chosen, index)
            sums = Sums(
                sums.total.at[chosen_index].add(jnp.where(counts, returns, 0.0)),
                sums.squares.at[chosen_index].add(jnp.where(counts, returns**2, 0.0)),
                sums.count.at[chosen_index].add(counts.astype(jnp.float32)),
            )
            # Candidates that were dropped in an earlier round stay behind those that were not.
            position = jnp.zeros(number, jnp.int32).at[ranked].set(jnp.arange(number, dtype=jnp.int32))
            score = jnp.where(position < left, sums.mean, IMPOSSIBLE * (1.0 + position))
            ranked = jnp.argsort(-score, stable=True)
            return (sums, ranked, jnp.maximum((left + 1) // 2, 1), steps + length), None

        first = jnp.argsort(~candidates.is_valid, stable=True)
        carry = (Sums(zeros, zeros, zeros), first, candidates.is_valid.sum(), jnp.int32(0))
        (sums, ranked, _, steps), _ = jax.lax.scan(one_round, carry, jnp.arange(self.config.rounds))
        return sums, ranked, steps

    # -- stage 2: challenger against reference

    def _compare(
        self,
        simulate: Any,
        reference: Int[Array, " 2"],
        challenger: Int[Array, " 2"],
        sums: Sums,
        candidates: Candidates,
        steps: Int[Array, ""],
        now: tuple[Int[Array, ""], Int[Array, ""]],
        is_running: Bool[Array, ""],
    ) -> PlanChoice:
        pairs = self.config.rollouts // 2
        both = jnp.repeat(jnp.stack([reference, challenger]), pairs, axis=0)
        chosen = Candidates(both[:, 0], both[:, 1], jnp.broadcast_to(is_running, 2 * pairs))
        returns, length = simulate(COMPARISON, chosen, jnp.tile(jnp.arange(pairs), 2))
        returns = returns.reshape(2, pairs)
        difference = returns[1] - returns[0]
        # An event that occurs in less than one of the simulations may not be among them.
        floor = (returns.max() - returns.min()) / pairs
        error = jnp.maximum(difference.std(ddof=1) / pairs**0.5, floor)
        passes = (difference.mean() > quantile(self.config.level, pairs - 1) * error) & (difference.mean() > 0)
        replaced = passes & (challenger != reference).any()
        plan_values, plan_errors = self._by_plan(sums, candidates)
        plan = jnp.where(replaced, challenger[1], reference[1])
        return PlanChoice(
            plan=plan,
            base_plan=self.table.followed(plan, *now),
            reference=reference,
            challenger=challenger,
            replaced=replaced,
            values=returns.mean(1),
            errors=returns.std(1, ddof=1) / pairs**0.5,
            advantage=difference.mean(),
            advantage_error=error,
            plan_values=plan_values,
            plan_errors=plan_errors,
            simulated_steps=steps + length,
        )

    def _by_plan(self, sums: Sums, candidates: Candidates) -> tuple[Float[Array, " W"], Float[Array, " W"]]:
        """Value of each base plan with its best first action."""
        plans = jnp.arange(len(self.base_plans))
        is_simulated = candidates.is_valid & (sums.count > 0)
        best = jnp.where((candidates.plan == plans[:, None]) & is_simulated, sums.mean, IMPOSSIBLE).argmax(1)
        return sums.mean[best], sums.error[best]

    def _summarize(self, choice: PlanChoice, sums: Sums, candidates: Candidates, observation: Observation) -> Plan:
        """Values by first action under the best plan, and the chosen action as policy."""
        actions = observation.legal.shape[-1]
        takes = candidates.action[:, None] == jnp.arange(actions)
        score = jnp.where(takes & (candidates.is_valid & (sums.count > 0))[:, None], sums.mean[:, None], IMPOSSIBLE)
        best = score.argmax(0)
        simulated = score.max(0) > IMPOSSIBLE / 2
        chosen = jnp.where(choice.replaced, choice.challenger[0], choice.reference[0])
        value = choice.values[choice.replaced.astype(jnp.int32)]
        values = jnp.where(simulated, sums.mean[best], jnp.where(observation.legal[0], value, 0.0))
        visits = (takes * sums.count[:, None]).sum(0)
        return Plan(
            values=values,
            errors=jnp.where(simulated, sums.error[best], 0.0),
            visits=visits,
            policy=jax.nn.one_hot(chosen, actions),
            value=value,
            depth=choice.simulated_steps / (self.config.rollouts * (self.config.rounds + 1)),
            choice=choice,
        )

    # -- simulations

    def _simulate(
        self,
        key: Key,
        params: Params,
        beliefs: CoPlayerBeliefs,
        observation: Observation,
        chosen: Candidates,
        number: Int[Array, " S"],
    ) -> tuple[Float[Array, " S"], Int[Array, ""]]:
        """Simulates candidates [S].

        Args:
            key: Key of the round.
            number: Index of the common random numbers of each simulation.

        Returns:
            Returns [S], and the number of simulated steps.
        """
        size, co_players = len(number), beliefs.belief.shape[0]
        keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(number)
        uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, DRAW), (co_players,)))(keys)
        belief = self.sampling_belief(params, beliefs, observation).reshape(co_players, -1)
        tasks = Tasks(
            root=jnp.zeros(size, jnp.int32),
            key=keys,
            action=chosen.action,
            plan=chosen.plan,
            hypothesis=sample_actions(uniform, belief),
            is_valid=chosen.is_valid,
        )
        state = self.simulation.simulator.from_observation(observation)
        root = Roots(state, beliefs, observation.time, observation.deadline)
        run = simulations_in_slots(self._step)
        returns, lengths = run(params, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], root), tasks)
        return returns, lengths.sum()

    def _step(self, params: Params, root: Roots, task: Tasks, sim: Simulation) -> tuple[Simulation, Bool[Array, ""]]:
        """One step of one simulation, and whether it has ended."""
        followed = self.table.followed(task.plan, root.time + sim.time + 1, root.deadline)
        preference = jax.tree.map(lambda leaf: leaf[followed], self.plans)
        after, following = play_step(self.simulation, params, root.beliefs, sim, preference, task.key)
        weight = 1 - EARLIER * sim.time / self.simulation.game.last_step
        total, ended = sim.total + weight * after.reward, ~after.is_alive
        if self.config.horizon is not None:
            is_cut = (sim.time + 1 >= self.config.horizon) & after.is_alive
            total = total + jnp.where(is_cut, self._neutral_value(params, after), 0.0)
            ended = ended | is_cut
        return replace(following, total=total), ended

    def _neutral_value(self, params: Params, after: SimulatedStep) -> Float[Array, ""]:
        """Value of the neutral policy where a simulation is cut."""
        beliefs = replace(after.beliefs, preference=neutral(self.simulation.game))
        return self.simulation.evaluate(params["policy"], after.observation, beliefs)[1]

    def sampling_belief(
        self, params: Params, beliefs: CoPlayerBeliefs, observation: Observation
    ) -> Float[Array, "n-1 B K"]:
        """Returns the probabilities of hypotheses in simulations: the beliefs, or those of an ablation."""
        tracker = self.simulation.belief_tracker
        if self.config.plan_beliefs == "posterior":
            return beliefs.belief
        if self.config.plan_beliefs == "uniform":
            prior = jnp.full_like(beliefs.belief, 1 / beliefs.belief[0].size)
        else:
            prior = jnp.exp(tracker.initial_prior(params["moa"]))
        return tracker.restrict(prior, prior, tracker.opponent_model.available(observation))


def quantile(level: float, degrees: int) -> float:
    """Returns the critical value of a one-sided t-test."""
    from scipy.stats import t

    return float(t.isf(level, degrees))

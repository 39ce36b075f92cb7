"""Belief rollouts against known answers: exhaustive expectations, dynamic programming, gambles, noise, ablations."""

import functools
import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from gamble import GAMBLE, Coin, Gamble, gamble
from hopplus.beliefs.belief_tracker import BeliefTracker, CoPlayerBeliefs
from hopplus.beliefs.rationality import EXACT, Rationality
from hopplus.configs import PlanningConfig
from hopplus.evaluation.exact_best_response import best_response
from hopplus.games import Observation, StagHunt, make, one_seat
from hopplus.planning.plan import Plan
from hopplus.planning.playout import switch_goals
from hopplus.planning.rollouts import EARLIER, Candidates, RolloutPlanner, quantile
from hopplus.planning.simulation import BeliefSimulator
from hopplus.planning.simulator import Simulator
from hopplus.players import make as make_player
from planners import initial_beliefs, known_opponents, params_of, uniform_policy

AGENT_TYPES = ("ns", "nh")
SWITCH = 0.3
NEUTRAL, STAGS, HARES = range(3)
"""Base plans of the stag hunt."""


def make_planner(
    opponent_model: Any, config: PlanningConfig, evaluate: Any = uniform_policy, **settings: Any
) -> RolloutPlanner:
    """Returns belief rollouts with the game's rules and without networks."""
    tracker = BeliefTracker(opponent_model, **{"inter": "off", "rationality": EXACT, **settings})
    return RolloutPlanner(config, BeliefSimulator(Simulator(opponent_model.game), tracker, evaluate))


@partial(jax.jit, static_argnames="planner")
def plan_with(keys: Array, beliefs: CoPlayerBeliefs, observation: Observation, planner: RolloutPlanner) -> Plan:
    """Returns the plans of one state for several keys."""
    params = params_of(planner.simulation.belief_tracker.opponent_model.num_goals)
    return jax.vmap(lambda key: planner.plan(key, params, beliefs, observation))(keys)


def plans_in(planner: RolloutPlanner, state: Any, seeds: int = 1, **changes: Any) -> Plan:
    """Returns seat 0's plans in a state, for several keys; `changes` are of its beliefs."""
    observation, beliefs = initial_beliefs(planner, state)  # pyright: ignore[reportArgumentType]
    keys = jax.random.split(jax.random.key(7), seeds)
    return jax.tree.map(np.asarray, plan_with(keys, replace(beliefs, **changes), observation, planner))


# -------------------------------------------------------------------------------------------- exhaustive expectation

SMALL = make("msh-4x4-2h1s", T=2)


def small_state() -> Any:
    """Returns a state with prey within reach of both players."""
    assert isinstance(SMALL, StagHunt)
    return SMALL.from_layout([(1, 1), (1, 2)], stags=[(1, 1)], hares=[(1, 2), (0, 1)])


@functools.cache
def exhaustive_values() -> np.ndarray:
    """Returns the expected return of every first action, by enumeration of all hypotheses and actions of two steps.

    The ego's policy is uniform; the co-player's goal is redrawn with probability SWITCH after a step.
    """
    state, types = small_state(), [make_player(name, SMALL) for name in AGENT_TYPES]
    step = jax.jit(lambda state, actions: SMALL.step(jax.random.key(0), state, actions))

    def co_player(state: Any) -> np.ndarray:
        observation = one_seat(SMALL.observe(state), 1)
        return np.array([np.asarray(player.probabilities((), (), observation)) for player in types])

    def expected(state: Any, goal: np.ndarray, own: np.ndarray, time: int) -> float:
        """Returns the value with probabilities of the co-player's goal and of the ego's action."""
        if bool(SMALL.over(state)) or bool(SMALL.left(state)[0]):
            return 0.0
        by_goal, value = co_player(state), 0.0
        for action, reply in itertools.product(np.flatnonzero(own), np.flatnonzero(goal @ by_goal)):
            joint = goal * by_goal[:, reply]
            after, outcome = step(state, jnp.array([action, reply]))
            # A simulation draws the goal once: what is seen of a reply does not change it, only a switch does.
            following = (1 - SWITCH) * joint / joint.sum() + SWITCH * 0.5
            legal = np.asarray(SMALL.legal(after))[0]
            reward = float(outcome.reward[0]) * (1 - EARLIER * time / SMALL.last_step)
            later = expected(after, following, legal / legal.sum(), time + 1)
            value += own[action] * joint.sum() * (reward + later)
        return value

    return np.array([expected(state, np.full(2, 0.5), one_hot, 0) for one_hot in np.eye(SMALL.num_actions)])


def test_rollouts_equal_the_exhaustive_expectation() -> None:
    planner = make_planner(
        known_opponents(SMALL, *AGENT_TYPES), PlanningConfig(rollouts=4096, rounds=1), goal_switch_probability=SWITCH
    )
    plan = plans_in(planner, small_state())
    legal = np.asarray(SMALL.legal(small_state()))[0]
    expected = exhaustive_values()
    assert np.ptp(expected[legal]) > 0.1
    assert plan.errors is not None
    assert (np.abs(plan.values[0] - expected)[legal] < 4 * plan.errors[0][legal] + 1e-4).all()
    assert (plan.visits[0][~legal] == 0).all()


def test_drawn_goals_switch_and_keep_their_rationality() -> None:
    """A goal is redrawn from the prior given the rationality, with the switch probability; the rationality stays."""
    rationality = Rationality((0.0, 0.5))
    opponents = known_opponents(SMALL, *AGENT_TYPES)
    tracker = BeliefTracker(opponents, goal_switch_probability=SWITCH, inter="off", rationality=rationality)
    planner = make_planner(opponents, PlanningConfig(), goal_switch_probability=SWITCH, rationality=rationality)
    observation, beliefs = initial_beliefs(planner, small_state())  # pyright: ignore[reportArgumentType]
    uniform = jax.random.uniform(jax.random.key(0), (2, 4000, 1))
    switched = jax.jit(
        jax.vmap(
            lambda switches, redraws: switch_goals(tracker, jnp.array([2]), beliefs, observation, switches, redraws)
        )
    )(*uniform)
    block, goal = np.divmod(np.asarray(switched)[:, 0], 2)
    assert (block == 1).all()
    assert goal.mean() == pytest.approx(SWITCH / 2, abs=0.02)


# ------------------------------------------------------------------------------------------------ dynamic programming

GAME = make("msh-4x4-2h1s", T=8)
LAYOUTS = 24


def scripted_plans(params: Any, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[Array, Array]:
    """Policy of the base plans: stag hunter, hare hunter, and a uniform one for the neutral preference."""
    legal = observation.legal[0]
    hunters = [make_player(name, GAME).probabilities((), (), observation) for name in AGENT_TYPES]
    weights = beliefs.preference.reward_weights
    policy = jnp.where(weights[1] < 0, hunters[0], hunters[1])
    policy = jnp.where(beliefs.preference.is_neutral, legal / legal.sum(), policy)
    return jnp.where(legal, jnp.log(policy + 1e-9), -1e9), jnp.float32(0)


@functools.cache
def layouts() -> np.ndarray:
    """Returns cells of stag, two hares and two players."""
    generator = np.random.default_rng(0)
    return np.stack([generator.permutation(16)[:5] for _ in range(LAYOUTS)])


def initial_states() -> Any:
    """Returns the initial states of the layouts."""
    assert isinstance(GAME, StagHunt)
    states = []
    for cells in layouts():
        at = [divmod(int(cell), 4) for cell in cells]
        states.append(GAME.from_layout(at[3:], stags=at[:1], hares=at[1:3]))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@functools.cache
def returns(agent_type: int, plans: bool, copies: int = 8) -> np.ndarray:
    """Returns the realised returns [copies, layouts] of the planner beside a known co-player, or of its base policy."""
    opponents = known_opponents(GAME, *AGENT_TYPES)
    config = PlanningConfig(rollouts=64, rounds=2, level=0.2)
    planner = make_planner(opponents, config, scripted_plans, goal_switch_probability=0.0, sees_preference=True)
    player = opponents.agent_types[agent_type]
    tracker, params = planner.simulation.belief_tracker, params_of(2)

    def episode(key: Array, state: Any) -> Array:
        memory = tracker.begin(tracker.init(key, params["moa"]))

        def step(carry: tuple, time: Array) -> tuple[tuple, Array]:
            state, plan = carry
            plan_key, reply_key, own_key, game_key = jax.random.split(jax.random.fold_in(key, time), 4)
            observations = GAME.observe(state)
            observation = one_seat(observations, 0)
            _, beliefs = tracker.predict(params["moa"], memory, observation, observations, state)
            sure = (jnp.arange(2) == agent_type).astype(jnp.float32)
            beliefs = replace(beliefs, belief=jnp.broadcast_to(sure, beliefs.belief.shape), plan=plan)
            if plans:
                result = planner.plan(plan_key, params, beliefs, observation)
                action, plan = result.policy.argmax(), result.choice.plan  # pyright: ignore[reportOptionalMemberAccess]
            else:
                action = jax.random.categorical(own_key, scripted_plans((), observation, beliefs)[0])
            reply, _, _ = player.act(reply_key, (), (), one_seat(observations, 1))
            state, outcome = GAME.step(game_key, state, jnp.stack([action, reply]))
            return (state, plan), outcome.reward[0]

        return jax.lax.scan(step, (state, jnp.int32(0)), jnp.arange(GAME.last_step))[1].sum()

    keys = jax.random.split(jax.random.key(agent_type), (copies, LAYOUTS))
    return np.asarray(jax.jit(jax.vmap(jax.vmap(episode), (0, None)))(keys, initial_states()))


@pytest.mark.parametrize("agent_type", [0, 1])
def test_with_true_policies_the_planner_improves_on_its_base_and_approaches_dynamic_programming(
    agent_type: int,
) -> None:
    planned, base = returns(agent_type, plans=True), returns(agent_type, plans=False)
    error = np.hypot(planned.mean(0).std(ddof=1), base.mean(0).std(ddof=1)) / LAYOUTS**0.5
    assert planned.mean() > base.mean() - 2 * error
    cells = layouts()
    assert isinstance(GAME, StagHunt)
    players = (make_player(AGENT_TYPES[agent_type], GAME),)
    exact = best_response(GAME, players, cells[:, :3])[np.arange(LAYOUTS), *cells[:, 3:].T]
    assert (planned.mean(0) <= exact + 4 * planned.std(0) / planned.shape[0] ** 0.5 + 0.3).all()
    assert planned.mean() > 0.95 * exact.mean() > base.mean()


# ------------------------------------------------------------------------------------------- gambles, keys and noise


def coin_planner(game: Gamble = GAMBLE, **settings: Any) -> RolloutPlanner:
    """Returns a planner beside a co-player that tosses a coin."""
    return make_planner(Coin(game, "codes", None, 1), PlanningConfig(**settings))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("own_coin", [False, True])
def test_a_sure_thing_is_preferred_to_a_gamble(own_coin: bool) -> None:
    plan = plans_in(coin_planner(rollouts=256, rounds=1), gamble(own_coin), seeds=64)
    np.testing.assert_allclose(plan.values[:, 1], 0.7, rtol=1e-5)
    assert (plan.policy[:, 1] == 1).mean() > 0.95


def test_a_plan_does_not_know_the_games_next_coin() -> None:
    planner, state = coin_planner(rollouts=8, rounds=1), gamble(own_coin=True)
    keys = jax.random.split(jax.random.key(7), 64)
    rewards = jax.jit(jax.vmap(lambda key: GAMBLE.step(key, state, jnp.array([0, 0]))[1].reward[0]))(keys)
    values = plans_in(planner, state, seeds=64).values[:, 0]
    assert 0 < np.mean(rewards) < 1
    assert np.std(values) > 0
    assert abs(np.corrcoef(rewards, values)[0, 1]) < 0.5


@dataclass(frozen=True)
class Matching(Gamble):
    """Both actions pay 1 or 0 by the co-player's coin: one pays exactly when the other does not."""

    name: str = "test-matching"

    def transition(self, key: Any, state: Any, actions: Any) -> Any:
        after, _, took, cell = super().transition(key, state, actions)
        paid = (state.time == 0) & (actions[0] == actions[1])
        return after, jnp.stack([paid.astype(jnp.float32), 0.0])[:, None], took, cell


def test_on_pure_noise_the_challenger_passes_at_the_level_of_the_test() -> None:
    choice = plans_in(coin_planner(Matching(), rollouts=128, rounds=1, level=0.1), gamble(False), seeds=1000).choice
    assert choice is not None
    assert 0.06 < choice.replaced.mean() < 0.13


def test_the_paired_test_has_fresh_random_numbers() -> None:
    """The mean of the screening and that of the test of the same action are independent."""
    plan = plans_in(coin_planner(rollouts=32, rounds=1), gamble(True), seeds=256)
    assert plan.choice is not None
    gambles = np.where(plan.choice.reference[:, 0] == 0, plan.choice.values[:, 0], plan.choice.values[:, 1])
    assert abs(np.corrcoef(gambles, plan.values[:, 0])[0, 1]) < 0.25


def test_quantiles_of_the_paired_test() -> None:
    assert quantile(0.05, 10) == pytest.approx(1.8125, abs=1e-4)


def test_simulations_of_a_round_share_random_numbers() -> None:
    planner = coin_planner(rollouts=8)
    observation, beliefs = initial_beliefs(planner, gamble(True))  # pyright: ignore[reportArgumentType]
    chosen = Candidates(jnp.zeros(32, jnp.int32), jnp.zeros(32, jnp.int32), jnp.ones(32, bool))

    @jax.jit
    def outcomes(number: Array) -> Float[Array, " 32"]:
        arguments = (params_of(1), beliefs, observation, chosen, number)
        return planner._simulate(jax.random.key(0), *arguments)[0]

    by_number = np.asarray(outcomes(jnp.tile(jnp.arange(16), 2)))
    np.testing.assert_array_equal(by_number[:16], by_number[16:])
    assert 0 < by_number[:16].mean() < 1


# ------------------------------------------------------------------------------------------------- plans and beliefs

MSH = make("msh-4x4-2h1s", T=10)


def script_planner(**settings: Any) -> RolloutPlanner:
    """Returns a planner with scripted base plans beside stag or hare hunters."""
    opponents = known_opponents(MSH, *AGENT_TYPES)
    rationality = Rationality((0.0, 0.5), random=True)
    return make_planner(
        opponents, PlanningConfig(**settings), scripted_plans, sees_preference=True, rationality=rationality
    )


def beside_the_stag() -> Any:
    """Returns a state with the ego on the stag, a hare beside it, and the co-player far away."""
    assert isinstance(MSH, StagHunt)
    return MSH.from_layout([(0, 0), (3, 3)], stags=[(0, 0)], hares=[(0, 1), (3, 2)])


def joint_belief(goal: int) -> np.ndarray:
    """Returns the belief [1, B, K] that the co-player has this goal and does not tremble."""
    belief = np.zeros((1, 3, 2), np.float32)
    belief[0, 0, goal] = 1
    return belief


@pytest.mark.parametrize(("goal", "plan"), [(0, (STAGS, 3)), (1, (HARES,))])
def test_the_believed_goal_decides_the_plan(goal: int, plan: tuple[int, ...]) -> None:
    """The neutral base policy is random: beside a stag hunter the ego waits, beside a hare hunter it takes a hare."""
    choice = plans_in(script_planner(rollouts=64), beside_the_stag(), 16, belief=jnp.asarray(joint_belief(goal))).choice
    assert choice is not None
    assert np.isin(choice.plan, plan).mean() > 0.8


@pytest.mark.parametrize("plan", [STAGS, HARES])
def test_a_plan_is_kept_until_another_is_better(plan: int) -> None:
    """Without prey all plans are worth nothing: none replaces the plan that the ego follows."""
    assert isinstance(MSH, StagHunt)
    state = MSH.from_layout([(0, 0), (3, 3)], stags=[], hares=[])
    choice = plans_in(script_planner(rollouts=64), state, 16, plan=jnp.int32(plan)).choice
    assert choice is not None
    assert (choice.plan == plan).all()
    assert (choice.reference[:, 1] == plan).all()
    assert not choice.replaced.any()


def test_ablations_change_the_hypotheses_of_simulations_only() -> None:
    state = beside_the_stag()
    by_setting = {}
    for name in ("posterior", "prior", "uniform"):
        planner = script_planner(rollouts=64, plan_beliefs=name)
        observation, beliefs = initial_beliefs(planner, state)  # pyright: ignore[reportArgumentType]
        beliefs = replace(beliefs, belief=jnp.asarray(joint_belief(1)))
        by_setting[name] = np.asarray(planner.sampling_belief(params_of(2), beliefs, observation))[0]
    rationality = script_planner(rollouts=64).simulation.belief_tracker.rationality
    np.testing.assert_allclose(by_setting["posterior"], joint_belief(1)[0])
    np.testing.assert_allclose(by_setting["prior"], np.outer(rationality.prior, [0.5, 0.5]), rtol=1e-5)
    np.testing.assert_allclose(by_setting["uniform"], 1 / 6, rtol=1e-5)


def test_base_plans_by_name() -> None:
    assert script_planner(rollouts=64).plans.tremble.shape == (4,)
    assert script_planner(rollouts=64, plans=("neutral",)).plans.tremble.shape == (1,)
    np.testing.assert_array_equal(script_planner(plans=("hares",)).plans.reward_weights, [[1, 1], [-1, 1]])
    assert make_planner(known_opponents(MSH, "ns"), PlanningConfig()).plans.tremble.shape == (1,)


def test_a_player_who_has_left_simulates_nothing() -> None:
    assert isinstance(MSH, StagHunt)
    state = MSH.from_layout([None, (3, 3)], stags=[(0, 0)], hares=[(0, 1)])
    choice = plans_in(script_planner(rollouts=64), state, 4).choice
    assert choice is not None
    assert (choice.simulated_steps == 0).all()
    assert not choice.replaced.any()


def test_simulations_cut_at_the_horizon_use_the_value() -> None:
    """With a value of 3 after one step, every action that pays nothing is worth 3."""

    def three(params: Any, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[Array, Array]:
        return uniform_policy(params, observation, beliefs)[0], jnp.float32(3)

    planner = make_planner(known_opponents(MSH, "ns"), PlanningConfig(rollouts=64, rounds=1, horizon=1), three)
    plan = plans_in(planner, beside_the_stag())
    np.testing.assert_allclose(plan.values[0][np.asarray(MSH.legal(beside_the_stag()))[0]], 3.0)
    assert plan.choice is not None
    assert plan.choice.simulated_steps[0] <= 128


def test_a_delayed_plan_is_the_neutral_one_up_to_its_switch() -> None:
    table = script_planner(rollouts=64, plan_switches=(0.5, 0.8)).table
    late = table.names.index("neutral, then hares at 80%")
    assert len(table.names) == len(set(table.names)) == 4 + 3 * 2
    times = jnp.arange(10)
    np.testing.assert_array_equal(table.followed(jnp.full(10, late), times, jnp.int32(10)), [NEUTRAL] * 8 + [HARES] * 2)
    np.testing.assert_array_equal(table.followed(jnp.full(10, HARES), times, jnp.int32(10)), [HARES] * 10)
    assert not table.is_due(jnp.int32(7), jnp.int32(10))[late]
    assert table.is_due(jnp.int32(8), jnp.int32(10))[late]


def waiting_then_hares(**settings: Any) -> RolloutPlanner:
    """Returns a planner whose neutral policy waits for ever, beside players who never help."""

    def policy(params: Any, observation: Observation, beliefs: Any) -> tuple[Array, Array]:
        logits, value = scripted_plans(params, observation, beliefs)
        stays = jnp.where(jnp.arange(len(logits)) == MSH.idle_action, 0.0, -1e9)
        is_neutral = beliefs.preference.is_neutral
        return jnp.where(is_neutral, stays, logits), value

    return make_planner(known_opponents(MSH, "stay"), PlanningConfig(**settings), policy, sees_preference=True)


@pytest.mark.parametrize(("switch", "is_in_time"), [(0.75, True), (0.85, False)])
def test_simulations_of_a_delayed_plan_switch_in_time(switch: float, is_in_time: bool) -> None:
    """From step 7 of 10 on there is time for the hare, from step 8 on there is not; the neutral plan never takes it."""
    planner = waiting_then_hares(rollouts=64, plan_switches=(switch,))
    assert isinstance(MSH, StagHunt)
    state = MSH.from_layout([(0, 0), (3, 3)], stags=[(3, 0)], hares=[(0, 2)])
    observation, beliefs = initial_beliefs(planner, state)  # pyright: ignore[reportArgumentType]
    delayed = planner.table.names.index(f"neutral, then hares at {switch:.0%}")
    plans = jnp.array([NEUTRAL, HARES, delayed])
    chosen = Candidates(jnp.array([MSH.idle_action] * 3), plans, jnp.ones(3, bool))

    @jax.jit
    def outcomes() -> Float[Array, " 3"]:
        numbers = jnp.zeros(3, jnp.int32)
        return planner._simulate(jax.random.key(0), params_of(1), beliefs, observation, chosen, numbers)[0]

    np.testing.assert_allclose(outcomes(), [0.0, 1.0, float(is_in_time)], atol=2 * EARLIER)

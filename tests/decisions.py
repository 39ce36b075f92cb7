"""Decisions of planners made by hand, and a frame that shows them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from hopplus.planning.plan import Plan, PlanChoice
from hopplus.players.planner import Decision
from hopplus.visualization import Frame
from hopplus.visualization.reasoning import DecisionNames, FrameReasoning, player_reasoning

ACTIONS = ("UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE")
GOALS = ("nothing", "stag", "hare")
RATIONALITIES = ("tremble 0.02", "tremble 0.25", "random")
BASE_PLANS = ("neutral", "stags", "hares")
NEUTRAL, STAGS, HARES = range(3)
NAMES = DecisionNames(GOALS, RATIONALITIES, ACTIONS, BASE_PLANS)
LEGAL = np.array([0, 1, 1, 0, 1, 0, 0], bool)
DOWN, LEFT, STAY = 1, 2, 4
TREE_PLAN = Plan(
    values=jnp.array([0, 0.25, 2.5, 0, -1, 0, 0]),
    errors=None,
    visits=jnp.array([0, 4.0, 12.0, 0, 0, 0, 0]),
    policy=jnp.array([0, 0.2, 0.7, 0, 0.1, 0, 0]),
    value=jnp.float32(1.9),
    depth=jnp.float32(2.5),
)
CHOICE = PlanChoice(
    plan=jnp.int32(HARES),
    base_plan=jnp.int32(HARES),
    reference=jnp.array([DOWN, NEUTRAL]),
    challenger=jnp.array([LEFT, HARES]),
    replaced=jnp.bool_(True),
    values=jnp.array([0.2, 1.0]),
    errors=jnp.array([0.1, 0.0]),
    advantage=jnp.float32(0.8),
    advantage_error=jnp.float32(0.12),
    plan_values=jnp.array([0.25, 0.1, 1.0]),
    plan_errors=jnp.array([0.15, 0.08, 0.0]),
    simulated_steps=jnp.int32(640),
)
ROLLOUT_PLAN = Plan(
    values=jnp.array([0, 0.25, 1.0, 0, 0.5, 0, 0]),
    errors=jnp.array([0, 0.15, 0.0, 0, 0.3, 0, 0]),
    visits=jnp.array([0, 20.0, 40.0, 0, 1.0, 0, 0]),
    policy=jnp.eye(7)[LEFT],
    value=jnp.float32(1.0),
    depth=jnp.float32(6.75),
    choice=CHOICE,
)
DECISION = Decision(
    intended_action=jnp.int32(LEFT),
    log_probability=jnp.float32(0),
    value=jnp.float32(1.25),
    features=None,
    belief=jnp.array([[0.1, 0.2, 0.7], [0, 1, 0], [0.5, 0.3, 0.2]]),
    rationality=jnp.array([[0.05, 0.02, 0.93], [0.29, 0.71, 0.0], [0.4, 0.35, 0.25]]),
    action_probs=jnp.eye(7)[jnp.array([2, 6, 4])] * 0.8 + 0.2 / 7,
    policy=jnp.array([0, 0.6, 0.3, 0, 0.1, 0, 0]),
    plan=TREE_PLAN,
    co_player_beliefs=None,
    goals=None,
)
ALL_ALIVE = (True, True, True, True)
SEARCHING = player_reasoning(DECISION, 2, NAMES, LEGAL, ALL_ALIVE)
BY_POLICY = player_reasoning(replace(DECISION, plan=None), 0, NAMES, LEGAL, (True, False, True, True))
CHOOSING = player_reasoning(replace(DECISION, plan=ROLLOUT_PLAN), 3, NAMES, LEGAL, ALL_ALIVE)
REASONING = FrameReasoning(GOALS, ACTIONS, {0: BY_POLICY, 2: SEARCHING})
CHOICE_REASONING = FrameReasoning(GOALS, ACTIONS, {2: SEARCHING, 3: CHOOSING}, RATIONALITIES, {3: BASE_PLANS})
HUNT = Frame(
    height=4,
    width=5,
    players=((0, 0), None, (2, 3), (3, 3)),
    things={"block": (), "stag": ((2, 3),), "hare": ((3, 0),)},
    last_actions=("UP", "HARE", "STAY", "LEFT"),
    rewards=(0.0, 0.0, 0.0, 0.0),
    totals=(0.0, 1.0, 0.0, 0.0),
    time=7,
    deadline=35,
    player_names=("hopplus", "nh", "hop", "ns"),
    title="hunt",
    reasoning=REASONING,
)
HUNT_WITH_CHOICE = replace(HUNT, reasoning=CHOICE_REASONING)

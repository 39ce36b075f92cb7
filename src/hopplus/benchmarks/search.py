"""Speed of planning: simulations and decisions per second, shares of time, and a plain use of mctx as reference."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hopplus.algorithms.hopplus import HopPlus
from hopplus.algorithms.hopplus.acting import make_moa
from hopplus.algorithms.parameters import value_scale
from hopplus.beliefs.belief_tracker import CoPlayerBeliefs
from hopplus.beliefs.goal_space import OpponentModel
from hopplus.benchmarks.machine import machine, matmul_flops
from hopplus.configs import PlanningConfig
from hopplus.core.errors import InputError, require
from hopplus.core.keys import Key, environment_keys
from hopplus.core.settings import replace_settings
from hopplus.games import GridGame, Observation, init_batch, make, one_seat
from hopplus.models.world.loss import init_params_online
from hopplus.models.world.model import WorldModel
from hopplus.networks.encoders import ILLEGAL, encode
from hopplus.planning.catalog import PlannerChoice
from hopplus.planning.simulation import BeliefSimulator, SimulatedStep
from hopplus.planning.simulator import WORLDS, SimState
from hopplus.planning.tree_search import SearchConfig, TreePlanner
from hopplus.players import Cast, Params
from hopplus.players.planner import Planner, social_features
from hopplus.players.policy import evaluate_features
from hopplus.rollouts import init_rollout, rollout

SEARCH = SearchConfig()
NOTES_GAME, NOTES_SEARCH, NOTES_STEPS_PER_SECOND = "msh-6x6-4h1s", SearchConfig(belief_samples=3, simulations=200), 0.93
"""Reference from the notes: environment steps per second while all seats plan with these settings."""
NOTES_ENVIRONMENTS = 32
"""Parallel environments of our measurement of the same."""


@dataclass
class _Timed:
    """Compiled program with its best time."""

    facts: dict[str, Any]
    run: Callable[[], Any]
    compile_seconds: float
    best_seconds: float = float("inf")

    def time_once(self) -> None:
        started = time.perf_counter()
        jax.block_until_ready(self.run())
        self.best_seconds = min(self.best_seconds, time.perf_counter() - started)


@dataclass(frozen=True)
class _Bench:
    """Planner with random parameters in first states of a game."""

    game: GridGame
    world: str

    @property
    def player(self) -> Planner:
        return replace_settings(HopPlus(), {"world": self.world}).player(self.game, "bench")

    def params(self) -> Params:
        """Returns random parameters of the planner's modules."""
        key, algorithm = jax.random.key(0), HopPlus()
        observation = one_seat(self.game.observe(self.game.init(key)), 0)
        params = {
            "policy": self.player.network.init(key, observation)["params"],
            "moa": make_moa(algorithm).init_params(key, self.game),
        }
        if self.world == "learned":
            params["world"] = init_params_online(key, WorldModel().network(self.game), self.game)
        return params

    def inputs(self, params: Params, decisions: int) -> tuple[CoPlayerBeliefs, Observation]:
        """Returns beliefs and observations of seat 0 in fresh games [decisions, ...]."""
        keys = environment_keys(jax.random.key(0), decisions)
        observations = jax.vmap(lambda state: one_seat(self.game.observe(state), 0))(init_batch(self.game, keys))
        memories = jax.vmap(lambda key: self.player.init(key, params))(keys)
        views = jax.vmap(lambda memory, observation: self.player.view(params, memory, observation).beliefs)
        return views(memories, observations), observations


def measure(
    games: Sequence[str], batches: Sequence[int], rounds: int, progress: Callable[[float], None] = lambda done: None
) -> dict[str, Any]:
    """Times all searches in turn, `rounds` times, and takes the best time of each.

    Returns:
        `rows` (game, world, decisions planned at once, simulations and decisions per second, those of plain mctx,
        ratio_to_plain, compile seconds of both, flops_per_simulation of the networks without a learned world model,
        and limit_per_second at the speed of a plain matrix product), `parts` (shares of time in the first game),
        `play` (environment steps per second while all seats plan as in the notes), `settings`, `machine`.
    """
    if rounds < 1 or not games or not batches or min(batches) < 1:
        raise InputError("bench search needs a game, at least one round and batches of at least one decision")
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    boards = {name: _grid(name) for name in games}
    plans = [(name, world, batch) for name in games for world in WORLDS for batch in batches]
    # A learned world model costs the same for few and many decisions: the largest number is enough.
    plans = [(name, world, batch) for name, world, batch in plans if world == "rules" or batch == max(batches)]
    total, searches = 2 * len(plans) + 5 + rounds, []
    for name, world, batch in plans:
        for search in (_ours, _plain):
            searches.append(_searching(_Bench(boards[name], world), batch, search))
            progress(len(searches) / total)
    parts = [_searching(_Bench(boards[games[0]], "rules"), max(batches), part) for part in _PARTS]
    played = _playing()
    for number in range(rounds):
        for timed in (*searches, *parts, played):
            timed.time_once()
        progress((total - rounds + number + 1) / total)
    peak = matmul_flops()
    figures = [_row(ours, plain, boards, peak) for ours, plain in zip(searches[::2], searches[1::2], strict=True)]
    largest = searches[2 * plans.index((games[0], "rules", max(batches)))]
    return {
        "rows": figures,
        "parts": _shares(largest, parts),
        "play": _play_figures(played),
        "matmul_gflops": peak / 1e9,
        "settings": dataclasses.asdict(SEARCH),
        "rounds": rounds,
        "machine": machine(),
    }


def _grid(name: str) -> GridGame:
    game = make(name)
    if not isinstance(game, GridGame):
        raise InputError(f"bench search needs games on a grid, and {name} is not one")
    return game


def _row(ours: _Timed, plain: _Timed, boards: dict[str, GridGame], peak: float) -> dict[str, Any]:
    decisions = ours.facts["decisions"]
    flops = _flops(boards[ours.facts["game"]])
    per_decision = SEARCH.belief_samples * SEARCH.simulations
    return {
        **ours.facts,
        "simulations_per_second": decisions * per_decision / ours.best_seconds,
        "decisions_per_second": decisions / ours.best_seconds,
        "plain_simulations_per_second": decisions * per_decision / plain.best_seconds,
        "ratio_to_plain": plain.best_seconds / ours.best_seconds,
        "compile_seconds": ours.compile_seconds,
        "plain_compile_seconds": plain.compile_seconds,
        "flops_per_simulation": flops,
        "limit_per_second": peak / flops,
        "share_of_limit": decisions * per_decision / ours.best_seconds * flops / peak,
    }


def _flops(game: GridGame) -> float:
    """Returns the operations of a simulation's networks: opponent model once per co-player, policy and value once."""

    def weights(params: Params) -> int:
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params) if leaf.ndim == 2)

    params = jax.eval_shape(_Bench(game, "rules").params)
    return 2.0 * ((game.players - 1) * weights(params["moa"]["network"]) + weights(params["policy"]))


# -- programs


def _searching(bench: _Bench, decisions: int, search: Callable[..., Any]) -> _Timed:
    """Compiles a search for a number of decisions."""
    params = jax.jit(bench.params)()
    beliefs, observations = jax.jit(lambda: bench.inputs(params, decisions))()
    keys = environment_keys(jax.random.key(1), decisions)
    run = jax.jit(search(bench))
    started = time.perf_counter()
    compiled = run.lower(params, keys, beliefs, observations).compile()
    seconds = time.perf_counter() - started
    facts = {"game": bench.game.name, "world": bench.world, "decisions": decisions}
    timed = _Timed(facts, lambda: compiled(params, keys, beliefs, observations), seconds)
    jax.block_until_ready(timed.run())
    return timed


def _ours(bench: _Bench) -> Callable[..., Any]:
    return _planned(TreePlanner(SEARCH, bench.player.simulation))


def _planned(planner: TreePlanner) -> Callable[..., Any]:
    """Returns a function of params, keys, beliefs and observations [D] that plans."""

    def plan(params: Params, key: Key, beliefs: CoPlayerBeliefs, observation: Observation) -> Any:
        return planner.plan(key, params, beliefs, observation)

    return jax.vmap(plan, (None, 0, 0, 0))


def _plain(bench: _Bench) -> Callable[..., Any]:
    """Returns the usual MuZero search of mctx with the same networks.

    An edge holds one outcome, sampled at the first visit, and beliefs about co-players stay those of the root.
    """
    planner = TreePlanner(SEARCH, bench.player.simulation)
    simulator, evaluated = planner.simulation.simulator, _evaluation(bench, planner)
    rationality = planner.simulation.belief_tracker.rationality
    mctx = require("mctx", "bench")

    def stepped(params: Params, key: Key, action: Array, node: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        action_key, step_key = jax.random.split(key)
        probabilities = rationality.policy_of(node["beliefs"].action_probs_by_goal, node["hypotheses"])
        actions = jnp.concatenate([action[None], jax.random.categorical(action_key, jnp.log(probabilities))])
        after = simulator.step(step_key, params.get("world", ()), node["state"], actions)
        beliefs, logits, value = evaluated(params, after.state, node["beliefs"])
        output = {
            "reward": after.reward[0],
            "discount": jnp.where(after.is_alive, SEARCH.gamma, 0.0),
            "prior_logits": logits,
            "value": jnp.where(after.is_alive, value, 0.0),
        }
        return mctx.RecurrentFnOutput(**output), {**node, "state": after.state, "beliefs": beliefs}

    def recurrent(params: Any, key: Key, actions: Any, nodes: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, actions.shape[0])
        return jax.vmap(stepped, (None, 0, 0, 0))(params, keys, actions, nodes)

    def search(params: Any, keys: Key, beliefs: CoPlayerBeliefs, observations: Observation) -> Any:
        def repeat(leaf: Array) -> Array:
            return jnp.repeat(leaf, SEARCH.belief_samples, 0)

        beliefs, observations = jax.tree.map(repeat, (beliefs, observations))
        states = jax.vmap(simulator.from_observation)(observations)
        beliefs, logits, value = jax.vmap(evaluated, (None, 0, 0))(params, states, beliefs)
        hypotheses = jax.random.categorical(keys[0], beliefs.belief.reshape(*beliefs.belief.shape[:2], -1))
        node = {"state": states, "beliefs": beliefs, "hypotheses": hypotheses}
        root = {"prior_logits": logits, "value": value, "embedding": node}
        output = mctx.muzero_policy(
            params=params,
            rng_key=keys[0],
            root=mctx.RootFnOutput(**root),
            recurrent_fn=recurrent,
            num_simulations=SEARCH.simulations,
            invalid_actions=~observations.legal[:, 0],
            dirichlet_fraction=0.0,
        )
        return output.action_weights, output.search_tree.summary().qvalues

    return search


def _evaluation(bench: _Bench, planner: TreePlanner) -> Callable[..., tuple[CoPlayerBeliefs, Array, Array]]:
    """Returns a function that evaluates a state with the networks of the planner."""
    game, tracker = bench.game, planner.simulation.belief_tracker
    opponent_model = tracker.opponent_model

    def evaluated(params: Params, state: SimState, beliefs: CoPlayerBeliefs) -> tuple[CoPlayerBeliefs, Array, Array]:
        """Returns the beliefs with predicted actions in the state, the policy's logits and the value."""
        observations, policies = planner.simulation.simulator.observe(state), []
        for player in range(1, game.players):
            features = encode(one_seat(observations, player), game.last_step)
            logits = opponent_model.network.apply({"params": params["moa"]["network"]}, features)
            policies.append(jax.nn.softmax(logits))  # pyright: ignore[reportArgumentType]
        beliefs = dataclasses.replace(beliefs, action_probs_by_goal=jnp.stack(policies))
        social = social_features(tracker, beliefs)
        features = (encode(one_seat(observations, 0), game.last_step), social)
        return beliefs, *evaluate_features(bench.player.network, params["policy"], features)

    return evaluated


# -- shares of time


class _UniformOpponents(OpponentModel):
    """Opponent model of uniform actions, which needs no network."""

    def policies(self, params: Params, features: Any, particles: Any = None) -> Array:
        actions = self.game.num_actions
        return jnp.full((self.game.num_players - 1, self.num_goals, actions), 1.0 / actions)


class _NoSteps(BeliefSimulator):
    """Simulator whose steps change nothing: only the trees of the search remain."""

    def step(
        self, key: Key, params: Params, sim_state: SimState, beliefs: CoPlayerBeliefs, action: Array, replies: Array
    ) -> SimulatedStep:
        seen = one_seat(self.simulator.observe(sim_state), 0)
        value = action / self.game.num_actions
        logits = jnp.zeros(self.game.num_actions)
        return SimulatedStep(sim_state, beliefs, seen, jnp.float32(0.0), None, jnp.bool_(True), logits, value)


def _without_co_players(bench: _Bench) -> Callable[..., Any]:
    simulation = bench.player.simulation
    uniform = _UniformOpponents(**vars(simulation.belief_tracker.opponent_model))
    tracker = dataclasses.replace(simulation.belief_tracker, opponent_model=uniform)
    return _planned(TreePlanner(SEARCH, dataclasses.replace(simulation, belief_tracker=tracker)))


def _without_own_network(bench: _Bench) -> Callable[..., Any]:
    def evaluate(params: Params, observation: Observation, beliefs: CoPlayerBeliefs) -> tuple[Array, Array]:
        return jnp.where(observation.legal[0], 0.0, ILLEGAL), jnp.float32(0.0)

    return _planned(TreePlanner(SEARCH, dataclasses.replace(bench.player.simulation, evaluate=evaluate)))


def _trees_alone(bench: _Bench) -> Callable[..., Any]:
    return _planned(TreePlanner(SEARCH, _NoSteps(**vars(bench.player.simulation))))


_PARTS = (_trees_alone, _without_co_players, _without_own_network)


def _shares(whole: _Timed, parts: Sequence[_Timed]) -> dict[str, Any]:
    """Returns shares of the time of a search, from its time without one part or with one part only.

    The encoding of observations counts with the network that uses it.
    """
    trees, without_co_players, without_own = (part.best_seconds / whole.best_seconds for part in parts)
    shares = {"trees": trees, "co_players": 1 - without_co_players, "own_network": 1 - without_own}
    shares["rules_and_beliefs"] = 1 - sum(shares.values())
    return {**whole.facts, **shares, "names": list(shares)}


# -- play


def _playing() -> _Timed:
    """Compiles one step of environments in which all seats plan as in the notes."""
    bench = _Bench(_grid(NOTES_GAME), "rules")
    config = PlanningConfig(**{name: value for name, value in vars(NOTES_SEARCH).items() if name != "gamma"})
    choice = PlannerChoice("tree", config, value_scale(bench.game), NOTES_SEARCH.gamma)
    player = dataclasses.replace(bench.player, planning=choice)
    cast, params = Cast((player,) * bench.game.players), jax.jit(bench.params)()
    by_seat = (params,) * bench.game.players
    state = init_rollout(jax.random.key(0), bench.game, cast, NOTES_ENVIRONMENTS, by_seat)
    started = time.perf_counter()
    compiled = rollout.lower(state, bench.game, cast, 1, by_seat).compile()
    seconds = time.perf_counter() - started
    facts = {"game": NOTES_GAME, "environments": NOTES_ENVIRONMENTS, **dataclasses.asdict(NOTES_SEARCH)}
    return _Timed(facts, lambda: compiled(state, by_seat), seconds)


def _play_figures(played: _Timed) -> dict[str, Any]:
    speed = NOTES_ENVIRONMENTS / played.best_seconds
    return {
        **played.facts,
        "steps_per_second": speed,
        "notes_steps_per_second": NOTES_STEPS_PER_SECOND,
        "ratio_to_notes": speed / NOTES_STEPS_PER_SECOND,
        "compile_seconds": played.compile_seconds,
    }

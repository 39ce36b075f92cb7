"""How fast planning is: simulations/s and decisions/s, where the time goes, and beside a plain use of mctx."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hopplus.benchmarks.machine import machine, matmul_flops
from hopplus.errors import InputError, require
from hopplus.games import GridGame, Observation, init_batch, make, one_seat
from hopplus.keys import Key, environment_keys
from hopplus.learning.world_model import params_before_play
from hopplus.networks.encoding import ILLEGAL, encode
from hopplus.planning.acquaintance import Mind
from hopplus.planning.goals import Others
from hopplus.planning.search import Planning, Search, Simulated
from hopplus.planning.simulator import WORLDS, Situation
from hopplus.play import rollout, start
from hopplus.players import Cast, Params
from hopplus.players.network import evaluate_features
from hopplus.players.planner import Planner
from hopplus.training.recipes.hopplus import HopPlus

SEARCH = Search()
NOTES_GAME, NOTES_SEARCH, NOTES_STEPS_PER_SECOND = "msh-6x6-4h1s", Search(draws=3, simulations=200), 0.93
"""What the notes measured: environment steps/s while all seats plan so."""
NOTES_ENVIRONMENTS = 32
"""How many environments we play side by side there."""


@dataclass
class _Entrant:
    """A compiled program that can be timed."""

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
    """A planner of random parameters in first situations of a game."""

    game: GridGame
    world: str

    @property
    def player(self) -> Planner:
        return HopPlus(world=self.world).player(self.game, "bench")  # pyright: ignore[reportArgumentType]

    def params(self) -> Params:
        """Random parameters of a planner's modules."""
        key, recipe = jax.random.key(0), HopPlus()
        seen = one_seat(self.game.observe(self.game.init(key)), 0)
        params = {"policy": self.player.network.init(key, seen)["params"], "moa": recipe.moa().fresh(key, self.game)}
        if self.world == "learned":
            params["world"] = params_before_play(key, recipe.world_model().network(self.game), self.game)
        return params

    def situations(self, params: Params, decisions: int) -> tuple[Mind, Observation]:
        """What seat 0 sees in fresh games, and what it makes of it: [decisions, ...]."""
        keys = environment_keys(jax.random.key(0), decisions)
        seen = jax.vmap(lambda state: one_seat(self.game.observe(state), 0))(init_batch(self.game, keys))
        memories = jax.vmap(lambda key: self.player.init(key, params))(keys)
        return jax.vmap(lambda memory, seen: self.player.look(params, memory, seen).mind)(memories, seen), seen


def measure(
    games: Sequence[str], batches: Sequence[int], rounds: int, progress: Callable[[float], None] = lambda done: None
) -> dict[str, Any]:
    """Time all searches in turn, `rounds` times; the best time of each counts.

    Returns `rows` (game, world, decisions planned at once, simulations and decisions per second, the plain peer's,
    ratio_to_plain, compile seconds of both, flops_per_simulation of the networks and limit_per_second, what a plain
    matrix product's speed would allow; with a learned world its network is not counted), `parts` (shares of the time
    in the first game), `play` (environment steps/s while all seats plan as in the notes), `settings`, `machine`.
    """
    if rounds < 1 or not games or not batches or min(batches) < 1:
        raise InputError("bench search needs a game, at least one round and batches of at least one decision")
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    boards = {name: _grid(name) for name in games}
    plans = [(name, world, batch) for name in games for world in WORLDS for batch in batches]
    # A learned world costs the same for few and for many decisions: the largest number is enough.
    plans = [(name, world, batch) for name, world, batch in plans if world == "rules" or batch == max(batches)]
    total, entrants = 2 * len(plans) + 5 + rounds, []
    for name, world, batch in plans:
        for search in (_ours, _plain):
            entrants.append(_searching(_Bench(boards[name], world), batch, search))
            progress(len(entrants) / total)
    parts = [_searching(_Bench(boards[games[0]], "rules"), max(batches), part) for part in _PARTS]
    played = _playing()
    for number in range(rounds):
        for entrant in (*entrants, *parts, played):
            entrant.time_once()
        progress((total - rounds + number + 1) / total)
    peak = matmul_flops()
    figures = [_row(ours, plain, boards, peak) for ours, plain in zip(entrants[::2], entrants[1::2], strict=True)]
    largest = entrants[2 * plans.index((games[0], "rules", max(batches)))]
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


def _row(ours: _Entrant, plain: _Entrant, boards: dict[str, GridGame], peak: float) -> dict[str, Any]:
    decisions = ours.facts["decisions"]
    flops = _flops(boards[ours.facts["game"]])
    per_decision = SEARCH.draws * SEARCH.simulations
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
    """Of a simulation's networks: the model of others once for each co-player, policy and value once."""

    def weights(params: Params) -> int:
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params) if leaf.ndim == 2)

    params = jax.eval_shape(_Bench(game, "rules").params)
    return 2.0 * ((game.players - 1) * weights(params["moa"]["network"]) + weights(params["policy"]))


# -- programs


def _searching(bench: _Bench, decisions: int, search: Callable[..., Any]) -> _Entrant:
    """A search compiled for so many decisions."""
    params = jax.jit(bench.params)()
    mind, seen = jax.jit(lambda: bench.situations(params, decisions))()
    keys = environment_keys(jax.random.key(1), decisions)
    run = jax.jit(search(bench))
    started = time.perf_counter()
    compiled = run.lower(params, keys, mind, seen).compile()
    seconds = time.perf_counter() - started
    facts = {"game": bench.game.name, "world": bench.world, "decisions": decisions}
    entrant = _Entrant(facts, lambda: compiled(params, keys, mind, seen), seconds)
    jax.block_until_ready(entrant.run())
    return entrant


def _ours(bench: _Bench) -> Callable[..., Any]:
    return _planned(bench.player.planning(SEARCH))


def _planned(planning: Planning) -> Callable[..., Any]:
    """Plans with params for keys, minds and observations [D]."""
    return jax.vmap(lambda params, key, mind, seen: planning.plan(key, params, mind, seen), (None, 0, 0, 0))


def _plain(bench: _Bench) -> Callable[..., Any]:
    """The same networks in mctx's MuZero search, as its users write it: an edge holds one outcome, drawn when it is
    first met, and what is believed of the co-players stays what it was at the root."""
    game, planning = bench.game, bench.player.planning(SEARCH)
    simulator, others = planning.simulator, planning.acquainting.others
    co_players = game.players - 1
    mctx = require("mctx", "bench")

    def judged(params: Params, situation: Situation, belief: Array) -> tuple[Array, Array, Array]:
        """What co-players will do [n-1, K, A], the policy's logits and the value."""
        everybody, policies = simulator.observe(situation), []
        for player in range(1, game.players):
            features = encode(one_seat(everybody, player), game.last_step)
            logits = others.network.apply({"params": params["moa"]["network"]}, features)
            policies.append(jax.nn.softmax(logits))  # pyright: ignore[reportArgumentType]
        expected = jnp.stack(policies)
        predicted = jnp.einsum("jk,jka->ja", belief, expected)
        features = (encode(one_seat(everybody, 0), game.last_step), jnp.concatenate([belief, predicted], -1).ravel())
        return expected, *evaluate_features(bench.player.network, params["policy"], features)

    def stepped(params: Params, key: Key, action: Array, node: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        drawing, stepping = jax.random.split(key)
        chosen = node["expected"][jnp.arange(co_players), node["goals"]]
        actions = jnp.concatenate([action[None], jax.random.categorical(drawing, jnp.log(chosen))])
        after = simulator.step(stepping, params.get("world", ()), node["situation"], actions)
        expected, logits, value = judged(params, after.situation, node["belief"])
        output = {
            "reward": after.reward[0],
            "discount": jnp.where(after.goes_on, SEARCH.discount, 0.0),
            "prior_logits": logits,
            "value": jnp.where(after.goes_on, value, 0.0),
        }
        return mctx.RecurrentFnOutput(**output), {**node, "situation": after.situation, "expected": expected}

    def recurrent(params: Any, key: Key, actions: Any, nodes: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, actions.shape[0])
        return jax.vmap(stepped, (None, 0, 0, 0))(params, keys, actions, nodes)

    def search(params: Any, keys: Key, mind: Mind, seen: Observation) -> Any:
        mind, seen = jax.tree.map(lambda leaf: jnp.repeat(leaf, SEARCH.draws, 0), (mind, seen))
        situation, belief = jax.vmap(simulator.at)(seen), jnp.exp(mind.belief)
        expected, logits, value = jax.vmap(judged, (None, 0, 0))(params, situation, belief)
        goals = jax.random.categorical(keys[0], mind.belief)
        node = {"situation": situation, "expected": expected, "goals": goals, "belief": belief}
        root = {"prior_logits": logits, "value": value, "embedding": node}
        found = mctx.muzero_policy(
            params=params,
            rng_key=keys[0],
            root=mctx.RootFnOutput(**root),
            recurrent_fn=recurrent,
            num_simulations=SEARCH.simulations,
            invalid_actions=~seen.legal[:, 0],
            dirichlet_fraction=0.0,
        )
        return found.action_weights, found.search_tree.summary().qvalues

    return search


# -- where the time goes


class _NobodyActs(Others):
    """Everybody does anything, which costs no network."""

    def policies(self, params: Params, features: Any, particles: Any = ()) -> Array:
        actions = self.game.num_actions
        return jnp.full((self.game.num_players - 1, self.number, actions), 1.0 / actions)


class _NothingHappens(Planning):
    """Steps lead nowhere: what remains of the search is its trees."""

    def simulate(
        self, key: Key, params: Params, situation: Situation, mind: Mind, action: Array, replies: Array
    ) -> Simulated:
        seen = one_seat(self.simulator.observe(situation), 0)
        value = action / self.simulator.game.num_actions
        nothing = jnp.zeros(self.simulator.game.num_actions)
        return Simulated(situation, mind, seen, jnp.float32(0.0), jnp.bool_(True), nothing, value)


def _without_co_players(bench: _Bench) -> Callable[..., Any]:
    planning = bench.player.planning(SEARCH)
    others = _NobodyActs(**vars(planning.acquainting.others))
    acquainting = dataclasses.replace(planning.acquainting, others=others)
    return _planned(dataclasses.replace(planning, acquainting=acquainting))


def _without_own_network(bench: _Bench) -> Callable[..., Any]:
    def evaluate(params: Params, seen: Observation, mind: Mind) -> tuple[Array, Array]:
        return jnp.where(seen.legal[0], 0.0, ILLEGAL), jnp.float32(0.0)

    return _planned(dataclasses.replace(bench.player.planning(SEARCH), evaluate=evaluate))


def _trees_alone(bench: _Bench) -> Callable[..., Any]:
    return _planned(_NothingHappens(**vars(bench.player.planning(SEARCH))))


_PARTS = (_trees_alone, _without_co_players, _without_own_network)


def _shares(whole: _Entrant, parts: Sequence[_Entrant]) -> dict[str, Any]:
    """Of the time of a search, by what it would take without one part or of one alone; encoding is with the network
    that takes it."""
    trees, without_co_players, without_own = (part.best_seconds / whole.best_seconds for part in parts)
    shares = {"trees": trees, "co_players": 1 - without_co_players, "own_network": 1 - without_own}
    shares["rules_and_beliefs"] = 1 - sum(shares.values())
    return {**whole.facts, **shares, "names": list(shares)}


# -- play


def _playing() -> _Entrant:
    """One step of environments in which all seats plan as in the notes."""
    bench = _Bench(_grid(NOTES_GAME), "rules")
    player = dataclasses.replace(bench.player, search=NOTES_SEARCH)
    cast, params = Cast((player,) * bench.game.players), jax.jit(bench.params)()
    by_seat = (params,) * bench.game.players
    table = start(jax.random.key(0), bench.game, cast, NOTES_ENVIRONMENTS, by_seat)
    started = time.perf_counter()
    compiled = rollout.lower(table, bench.game, cast, 1, by_seat).compile()
    seconds = time.perf_counter() - started
    facts = {"game": NOTES_GAME, "environments": NOTES_ENVIRONMENTS, **dataclasses.asdict(NOTES_SEARCH)}
    return _Entrant(facts, lambda: compiled(table, by_seat), seconds)


def _play_figures(played: _Entrant) -> dict[str, Any]:
    speed = NOTES_ENVIRONMENTS / played.best_seconds
    return {
        **played.facts,
        "steps_per_second": speed,
        "notes_steps_per_second": NOTES_STEPS_PER_SECOND,
        "ratio_to_notes": speed / NOTES_STEPS_PER_SECOND,
        "compile_seconds": played.compile_seconds,
    }

"""Environment steps per second of hopplus and JaxMARL games, with random legal actions, observations and resets."""

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from hopplus.benchmarks.machine import copy_bandwidth, machine
from hopplus.core.errors import InputError
from hopplus.core.keys import choose, environment_keys
from hopplus.games import Game, init_batch, make, names, reset_finished

STEPS = 100
"""Steps per compiled call."""
PEERS = ("coin_game", "overcooked")
GROWTH = (
    *(f"msh-8x8-4h1s:players={players}:blocks=0" for players in (2, 4, 8)),
    *(f"msh-8x8-4h1s:height={side}:width={side}:blocks=0" for side in (4, 8, 16, 19)),
)
"""Games with one setting changed at a time, which show how cost grows."""
GROWTH_BATCH = 1024


@dataclass
class _Program:
    """Compiled program that steps environments, with its current state."""

    name: str
    batch: int
    advance: Callable[[Any], Any]
    carry: Any
    compile_seconds: float
    bytes_per_step: float
    best_seconds: float = float("inf")

    def time_once(self) -> None:
        started = time.perf_counter()
        self.carry = jax.block_until_ready(self.advance(self.carry))
        self.best_seconds = min(self.best_seconds, time.perf_counter() - started)


def measure(
    chosen: Sequence[str], batches: Sequence[int], rounds: int, progress: Callable[[float], None] = lambda done: None
) -> dict[str, Any]:
    """Times all programs in turn, `rounds` times, and takes the best time of each.

    Returns:
        `rows` (name, batch, steps_per_second, ratio_to_coin_game at the same batch, compile_seconds, bytes_per_second
        and share_of_copy_bandwidth), `copy_bandwidth`, `rounds`, `machine` and `note`.
    """
    if rounds < 1 or not batches or min(batches) < 1:
        raise InputError("bench games needs at least one round and batches of at least one environment")
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    plans = [(name, batch) for name in (chosen or names()) for batch in batches]
    plans += [] if chosen else [(name, GROWTH_BATCH) for name in GROWTH]
    games = {name: make(name) for name, _ in plans}
    peers = _peers()
    total = len(plans) + len(peers) * len(batches) + rounds
    programs: list[_Program] = []
    for name, environment in peers.items():
        for batch in batches:
            programs.append(_compile(name, batch, *_jaxmarl_program(environment, batch)))
            progress(len(programs) / total)
    for name, batch in plans:
        programs.append(_compile(name, batch, *_our_program(games[name], batch)))
        progress(len(programs) / total)
    for number in range(rounds):
        for program in programs:
            program.time_once()
        progress((len(programs) + number + 1) / total)
    bandwidth = copy_bandwidth()
    return {
        "rows": [_row(program, programs, bandwidth) for program in programs],
        "copy_bandwidth": bandwidth,
        "rounds": rounds,
        "machine": machine(),
        "note": "" if peers else "JaxMARL is not installed, so there are no ratios: pip install 'hopplus[bench]'",
    }


def _row(program: _Program, programs: Sequence[_Program], bandwidth: float) -> dict[str, Any]:
    def speed(timed: _Program) -> float:
        return timed.batch * STEPS / timed.best_seconds

    coin = [other for other in programs if other.name == "coin_game" and other.batch == program.batch]
    bytes_per_second = program.bytes_per_step * speed(program)
    return {
        "name": program.name,
        "batch": program.batch,
        "steps_per_second": speed(program),
        "ratio_to_coin_game": speed(program) / speed(coin[0]) if coin else None,
        "compile_seconds": program.compile_seconds,
        "bytes_per_second": bytes_per_second,
        "share_of_copy_bandwidth": bytes_per_second / bandwidth,
    }


def _compile(name: str, batch: int, step: Callable[..., Any], carry: Any) -> _Program:
    """Compiles STEPS steps; the carry holds the observations, so that none of them is optimised away."""

    def advance(carry: Any) -> Any:
        clock, inner = carry
        inner, _ = jax.lax.scan(lambda inner, time: (step(inner, time), None), inner, clock + jnp.arange(STEPS))
        return clock + STEPS, inner

    carry = (jnp.int32(0), carry)
    started = time.perf_counter()
    compiled = jax.jit(advance).lower(carry).compile()
    seconds = time.perf_counter() - started
    observed = sum(leaf.nbytes for leaf in jax.tree.leaves(carry)) / batch
    return _Program(name, batch, compiled, carry, seconds, bytes_per_step=observed)


def _our_program(game: Game[Any], batch: int) -> tuple[Callable[..., Any], Any]:
    keys = environment_keys(jax.random.key(0), batch)
    reset_purpose = game.num_players

    @jax.jit
    def first() -> tuple[Any, Any, Any]:
        states = init_batch(game, keys)
        return states, jax.vmap(game.observe)(states), jnp.zeros((batch, game.num_players))

    def step(carry: tuple[Any, Any, Any], time: Any) -> tuple[Any, Any, Any]:
        states, observation, _ = carry
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
        bits = jax.vmap(lambda key: jax.random.bits(key, (game.num_players,)))(step_keys)
        actions = choose(bits, observation.legal[:, :, 0])
        states, outcome = jax.vmap(game.step)(step_keys, states, actions)
        states = reset_finished(game, step_keys, reset_purpose, states, outcome.over)
        return states, jax.vmap(game.observe)(states), outcome.reward

    return step, first()


def _peers() -> dict[str, Any]:
    """Returns JaxMARL environments, if JaxMARL is installed."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            import jaxmarl  # pyright: ignore[reportMissingImports]

            return {name: jaxmarl.make(name) for name in PEERS}
    except ImportError:
        return {}


def _jaxmarl_program(environment: Any, batch: int) -> tuple[Callable[..., Any], Any]:
    """Returns the usual loop of a JaxMARL user; its `step` resets automatically."""
    agents = environment.agents
    keys = jax.random.split(jax.random.key(0), batch)

    def step_one(key: Any, state: Any, time: Any) -> tuple[Any, Any, Any]:
        act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        agent_keys = jax.random.split(act_key, len(agents))
        actions = {agent: environment.action_space(agent).sample(agent_keys[i]) for i, agent in enumerate(agents)}
        observation, state, reward, _, _ = environment.step(step_key, state, actions)
        return state, observation, reward

    def step(carry: tuple[Any, Any, Any], time: Any) -> tuple[Any, Any, Any]:
        return jax.vmap(step_one, in_axes=(0, 0, None))(keys, carry[0], time)

    @jax.jit
    def first() -> tuple[Any, Any, Any]:
        observation, state = jax.vmap(environment.reset)(keys)
        rewards = jax.eval_shape(step, (state, observation, None), jnp.int32(0))[2]
        return state, observation, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), rewards)

    return step, first()

"""Evaluation of single decisions: values of all legal actions of a seat, estimated by simulation.

The value of an action is the mean return for the rest of the episode after taking it, with the true rules and the
actual co-players with their memories at that moment. Simulations sample all players' actions independently of the real
episode; all actions share the same random keys. After its first action the seat follows a script: the one that did best
in the other half of the simulations, because the best of several means would be biased upwards. The result is a lower
bound of an oracle's value.

Simulations run in a fixed number of lanes; a lane whose simulation ends starts the next one. Short simulations
therefore do not wait for long ones, and any number of decisions uses the same compiled program.

Keys: simulation s of decision d has fold_in(fold_in(key, d), s), folded with t at step t; from there seats act and the
game steps as in play. The result of a decision does not depend on the others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key, fast
from hopplus.core.statistics import standard_error
from hopplus.core.struct import struct, where_first
from hopplus.games import Game, Snowdrift, StagHunt
from hopplus.players import Cast, FixedMember, Params, Player, make
from hopplus.players.planner import Planner
from hopplus.players.player import Memory
from hopplus.rollouts.rollout import step_purpose

BATCH = 256
"""Decisions per call; unused places cost nothing."""
LANES = 512
"""Simultaneous simulations."""
CLEAR = 2.0
"""Standard errors by which a decision must be worse than the best to be clearly worse."""
TIE = 1e-9
"""Differences below this are due to rounding."""


@dataclass(frozen=True, eq=False)
class DecisionPoint:
    """Decision of one seat: state and memories before a step, and the action."""

    state: Any
    """State of one environment."""
    memories: tuple[Memory, ...]
    """Memories of all players by seat, before they act; the seat's own is ignored."""
    action: int
    """Legal action of the seat."""


@dataclass(frozen=True)
class JudgedDecision:
    """Decision compared with the best action."""

    chosen: str
    best: str
    """Action of the highest value; the chosen one if none is higher."""
    values: Mapping[str, float]
    """Lower bound of the return for the rest of the episode, by legal action."""
    errors: Mapping[str, float]
    """Standard errors of the differences from the best action; 0 for the best. They are smaller than those of the
    values, because all actions share random keys."""
    lost: float
    """Value of the best action minus that of the chosen one; biased upwards where it is not clear."""
    clear: bool
    """True if the loss exceeds two standard errors."""


def judge_decisions(
    game: Game[Any],
    players: Sequence[Player],
    params: Sequence[Params],
    seat: int,
    decisions: Sequence[DecisionPoint],
    key: Key,
    simulations: int = 32,
) -> list[JudgedDecision]:
    """Estimates the values of all legal actions of a seat at its decisions.

    A co-player that searches is simulated by its policy with the same beliefs, without the search: a search in every
    simulated step would take minutes.

    Args:
        game: The game.
        players: Players by seat; the one in `seat` is not used.
        params: Parameters by seat.
        seat: The evaluated seat.
        decisions: Its decisions.
        key: Random key.
        simulations: Simulations per action and script.
    """
    if simulations < 2:
        raise InputError(f"judging decisions needs at least 2 simulations per action, not {simulations}")
    script = FixedMember(scripts(game))
    cast = Cast(tuple(script if other == seat else without_search(player) for other, player in enumerate(players)))
    script_params = script.default_params()
    by_seat = [script_params if other == seat else seat_params for other, seat_params in enumerate(params)]
    stacked_params = cast.stack(by_seat)
    first_memory = script.begin(script.init(key, script_params))
    judged = []
    for first in range(0, len(decisions), BATCH):
        batch = [_with_memory(decision, seat, first_memory) for decision in decisions[first : first + BATCH]]
        options = _options(game, cast, seat, batch, first)
        simulated = _returns(fast(key), stacked_params, options, game, cast, seat, simulations)
        returns = np.asarray(simulated, np.float64)[: int(options.number)]
        rows, actions = np.asarray(options.row)[: len(returns)], np.asarray(options.action)[: len(returns)]
        values = unbiased(returns)
        for row, decision in enumerate(batch):
            here = rows == row
            judged.append(_judged(game, values[here], actions[here].tolist(), int(decision.action)))
    return judged


def summarize(judged: Sequence[JudgedDecision]) -> dict[str, Any]:
    """Summarises a series of decisions.

    Returns:
        decisions (their number), as_the_oracle (share that is best or not clearly worse), lost (total loss of the
        others), worst (index of the costliest; None if there is none).
    """
    clear = [number for number, decision in enumerate(judged) if decision.clear]
    return {
        "decisions": len(judged),
        "as_the_oracle": 1 - len(clear) / max(1, len(judged)),
        "lost": sum(judged[number].lost for number in clear),
        "worst": max(clear, key=lambda number: judged[number].lost, default=None),
    }


def scripts(game: Game[Any]) -> tuple[Player, ...]:
    """Returns the scripts that continue after the first action.

    In the stag hunt both turn to the other prey when theirs is gone, so that neither forgoes what is left.
    """
    if isinstance(game, StagHunt):
        return make("ns:then=hare", game), make("nh:then=stag", game)
    if isinstance(game, Snowdrift):
        return make("cleaner", game), make("exploiter", game)
    return (make("random", game),)


def without_search(player: Player) -> Player:
    """Returns the player without planning, including players inside wrappers."""
    if isinstance(player, Planner):
        return replace(player, planning=None)
    changes = {}
    for name in [field.name for field in fields(player)] if is_dataclass(player) else []:
        value = getattr(player, name)
        if isinstance(value, Player):
            changes[name] = without_search(value)
        elif isinstance(value, tuple) and value and all(isinstance(member, Player) for member in value):
            changes[name] = tuple(map(without_search, value))
    return replace(player, **changes) if changes else player  # pyright: ignore[reportArgumentType]


def unbiased(returns: Float[np.ndarray, "P B S"]) -> Float[np.ndarray, "P S"]:
    """Returns, for every simulation, the return of the script that did best in the other half of the simulations."""
    half = returns.shape[-1] // 2
    parts = returns[..., :half], returns[..., half:]
    best = [part.mean(-1).argmax(-1)[:, None, None] for part in parts]
    crossed = [np.take_along_axis(part, other, 1)[:, 0] for part, other in zip(parts, reversed(best), strict=True)]
    return np.concatenate(crossed, -1)


def _judged(game: Game[Any], values: Float[np.ndarray, "legal S"], actions: list[int], chosen: int) -> JudgedDecision:
    means, place = values.mean(-1), actions.index(chosen)
    best = place if means[place] > means.max() - TIE else int(means.argmax())
    errors, names = standard_error((values[best] - values).T), [game.action_names[action] for action in actions]
    lost = max(0.0, float(means[best] - means[place]))
    return JudgedDecision(
        chosen=names[place],
        best=names[best],
        values=dict(zip(names, means.tolist(), strict=True)),
        errors=dict(zip(names, errors.tolist(), strict=True)),
        lost=lost,
        clear=place != best and lost > CLEAR * float(errors[place]),
    )


# ---------------------------------------------------------------------------------------------------------- simulations


@struct
class DecisionOptions:
    """Legal actions of a batch of decisions, padded to a fixed size, so that there is one compiled program."""

    first: Int[Array, ""]
    """Number of the first decision."""
    states: Any
    """[D, ...]"""
    memories: tuple[Memory, ...]
    """Memories by group of the cast [D, seats, ...]."""
    row: Int[Array, " P"]
    """Decision of each action."""
    action: Int[Array, " P"]
    number: Int[Array, ""]
    """Number of actions without padding."""


@struct
class Lanes:
    """Running simulations [L], and the returns of finished ones.

    Jobs are numbered by action, script and sample. A lane without a job left continues with unused numbers.
    """

    job: Int[Array, " L"]
    clock: Int[Array, " L"]
    """Steps so far."""
    state: Any
    memories: tuple[Memory, ...]
    earned: Float[Array, " L"]
    waiting: Int[Array, ""]
    """First job that has not been started."""
    returns: Float[Array, " J"]


def _with_memory(decision: DecisionPoint, seat: int, memory: Memory) -> DecisionPoint:
    memories = (*decision.memories[:seat], memory, *decision.memories[seat + 1 :])
    return replace(decision, memories=memories)


def _options(game: Game[Any], cast: Cast, seat: int, batch: Sequence[DecisionPoint], first: int) -> DecisionOptions:
    """Returns all legal actions of decisions. Raises InputError if an illegal action was taken."""

    def stack(*trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    def fill(leaf: np.ndarray) -> np.ndarray:
        return leaf[np.minimum(np.arange(BATCH), len(leaf) - 1)]

    states = jax.tree.map(fill, stack(*(decision.state for decision in batch)))
    by_group = [
        tuple(stack(*(decision.memories[member] for member in group.seats)) for group in cast.groups)
        for decision in batch
    ]
    legal = np.array(_legal(states, game))[: len(batch), seat]
    for number, decision in enumerate(batch):
        if decision.action not in np.flatnonzero(legal[number]):
            raise InputError(f"decision {first + number} took action {decision.action}, which was not legal there")
    rows, actions = np.nonzero(legal)
    padding = (0, BATCH * game.num_actions - len(rows))
    return DecisionOptions(
        first=jnp.int32(first),
        states=states,
        memories=jax.tree.map(fill, stack(*by_group)),
        row=jnp.asarray(np.pad(rows, padding), jnp.int32),
        action=jnp.asarray(np.pad(actions, padding), jnp.int32),
        number=jnp.int32(len(rows)),
    )


@partial(jax.jit, static_argnames="game")
def _legal(states: Any, game: Game[Any]) -> Bool[Array, "D n A"]:
    return jax.vmap(game.legal)(states)


@partial(jax.jit, static_argnames=("game", "cast", "seat", "simulations"))
def _returns(
    key: Key,
    params: tuple[Params, ...],
    options: DecisionOptions,
    game: Game[Any],
    cast: Cast,
    seat: int,
    simulations: int,
) -> Float[Array, "P B S"]:
    """Returns the return of the seat after each action, by script and simulation."""
    own_group = next(number for number, group in enumerate(cast.groups) if seat in group.seats)
    num_scripts = len(scripts(game))
    shape = (len(options.row), num_scripts, simulations)

    def begin(job: Array) -> tuple[Any, tuple[Memory, ...]]:
        """Returns the first state and memories of a job, with its script in the seat."""
        option, script, _ = jnp.unravel_index(job, shape)
        state, memories = jax.tree.map(lambda leaf: leaf[options.row[option]], (options.states, options.memories))
        scripted = replace(memories[own_group], member=script[None])
        return state, (*memories[:own_group], scripted, *memories[own_group + 1 :])

    def step(job: Array, clock: Array, state: Any, memories: tuple[Memory, ...]) -> tuple[Any, ...]:
        option, _, sample = jnp.unravel_index(job, shape)
        step_key = key
        for number in (options.first + options.row[option], sample, clock):
            step_key = jax.random.fold_in(step_key, number)
        seat_keys = jax.vmap(partial(jax.random.fold_in, step_key))(jnp.arange(game.num_players))
        actions, memories, _ = cast.act(seat_keys, params, memories, game.observe(state))
        actions = actions.at[seat].set(jnp.where(clock == 0, options.action[option], actions[seat]))
        state, outcome = game.step(jax.random.fold_in(step_key, step_purpose(game)), state, actions)
        memories = cast.watch(params, memories, game.observe(state))
        return state, memories, outcome.reward[seat], outcome.over | outcome.left[seat]

    def turn(lanes: Lanes) -> Lanes:
        """Steps all lanes, and starts the next job where one has ended."""
        stepped = jax.vmap(step)(lanes.job, lanes.clock, lanes.state, lanes.memories)
        state, memories, reward, done = stepped
        earned = lanes.earned + reward
        job = jnp.where(done, lanes.waiting + jnp.cumsum(done) - 1, lanes.job)
        state, memories = where_first(done, jax.vmap(begin)(job), (state, memories))
        return Lanes(
            job=job,
            clock=jnp.where(done, 0, lanes.clock + 1),
            state=state,
            memories=memories,
            earned=jnp.where(done, 0.0, earned),
            waiting=lanes.waiting + done.sum(),
            returns=lanes.returns.at[jnp.where(done, lanes.job, lanes.returns.size)].set(earned, mode="drop"),
        )

    def has_jobs(lanes: Lanes) -> Array:
        return (lanes.job < options.number * num_scripts * simulations).any()

    first = _first_lanes(begin, math.prod(shape))
    return jax.lax.while_loop(has_jobs, turn, first).returns.reshape(shape)


def _first_lanes(begin: Callable[[Array], tuple[Any, tuple[Memory, ...]]], num_jobs: int) -> Lanes:
    """Returns the lanes with the first jobs."""
    jobs = jnp.arange(LANES, dtype=jnp.int32)
    state, memories = jax.vmap(begin)(jobs)
    return Lanes(
        job=jobs,
        clock=jnp.zeros_like(jobs),
        state=state,
        memories=memories,
        earned=jnp.zeros(LANES),
        waiting=jnp.int32(LANES),
        returns=jnp.zeros(num_jobs),
    )

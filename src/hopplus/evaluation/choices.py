"""Choices beside the oracle's: what every action that a seat could have taken was worth, decision by decision.

An action is worth what the seat earns on average in the rest of the episode if it takes it now and goes on well, beside
its real co-players with what they remembered at that moment, by the true rules. Every simulation draws what everybody
does anew, so that no luck is taken for foresight; all actions are tried with the same draws. After its first action the
seat goes on by a script, the one that did best in the other half of the simulations: the best mean of several would be
too good, by luck. So it is a lower bound of what an oracle would get.

Simulations take turns in a fixed number of lanes, a new one beginning wherever one has ended: short ones do not wait
for long ones, and any number of decisions is the same program.

Keys: simulation s of decision d has fold_in(fold_in(key, d), s), at its step t fold_in of that and t; from there seats
act and the game steps as in play. Nothing depends on which decisions are judged beside it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game, Snowdrift, StagHunt
from hopplus.keys import Key, fast
from hopplus.play.rollout import step_purpose
from hopplus.players import Assigned, Cast, Params, Player, make
from hopplus.players.planner import Planner
from hopplus.players.player import Memory
from hopplus.statistics import standard_error
from hopplus.struct import struct, where_first

SITUATIONS = 256
"""Decisions that are judged at once; fewer cost no more than they take."""
LANES = 512
"""Simulations that run at once."""
CLEAR = 2.0
"""Standard errors by which a choice must be worse than the best to be called so."""
TIE = 1e-9
"""Differences below this come from rounding."""


@dataclass(frozen=True, eq=False)
class Situation:
    """A decision of one seat: everything that was so before a step."""

    state: Any
    """The game's, of one environment."""
    memories: tuple[Memory, ...]
    """Of all players by seat, as they were before they acted; the seat's own is not looked at."""
    action: int
    """What the seat did: a legal action."""


@dataclass(frozen=True)
class Judged:
    """A choice beside the oracle's."""

    chosen: str
    best: str
    """The action of the highest value: the chosen one, where none is higher."""
    values: Mapping[str, float]
    """Of every legal action: what it would have earned in the rest of the episode, at least."""
    errors: Mapping[str, float]
    """Standard errors of the differences from the best, which are smaller than those of the values: the draws are the
    same. 0 for the best."""
    lost: float
    """The value of the best less that of the chosen: what the choice cost. Chance makes it too large on average, where
    it is not clear."""
    clear: bool
    """Whether the loss is more than two standard errors."""


def judge_choices(
    game: Game[Any],
    players: Sequence[Player],
    params: Sequence[Params],
    seat: int,
    situations: Sequence[Situation],
    key: Key,
    simulations: int = 32,
) -> list[Judged]:
    """What each action of a seat was worth in the situations that it met, from so many simulations of each with each of
    the scripts that may go on.

    Players and params are by seat; the player in the seat itself is never asked. A co-player that searches before it
    acts is simulated by its policy, with the same beliefs but without the search: a search in every simulated step
    would take minutes.
    """
    if simulations < 2:
        raise InputError(f"choices are judged with at least 2 simulations an action, not {simulations}")
    stand_in = Assigned(scripts(game))
    cast = Cast(tuple(stand_in if other == seat else without_search(one) for other, one in enumerate(players)))
    own = stand_in.default_params()
    learnt = cast.stack([own if other == seat else theirs for other, theirs in enumerate(params)])
    first_memory = stand_in.begin(stand_in.init(key, own))
    found = []
    for first in range(0, len(situations), SITUATIONS):
        some = [_with_memory(one, seat, first_memory) for one in situations[first : first + SITUATIONS]]
        tried = _tried(game, cast, seat, some, first)
        simulated = _returns(fast(key), learnt, tried, game, cast, seat, simulations)
        returns = np.asarray(simulated, np.float64)[: int(tried.number)]
        rows, actions = np.asarray(tried.row)[: len(returns)], np.asarray(tried.action)[: len(returns)]
        values = unbiased(returns)
        for row, one in enumerate(some):
            here = rows == row
            found.append(_judged(game, values[here], actions[here].tolist(), int(one.action)))
    return found


def summarise(judged: Sequence[Judged]) -> dict[str, Any]:
    """How the choices of a series compare: how many there were, the share of those that are the best or not clearly
    worse, what was lost by the others, and which of them cost most (None where none did)."""
    clear = [number for number, one in enumerate(judged) if one.clear]
    return {
        "decisions": len(judged),
        "as_the_oracle": 1 - len(clear) / max(1, len(judged)),
        "lost": sum(judged[number].lost for number in clear),
        "worst": max(clear, key=lambda number: judged[number].lost, default=None),
    }


def scripts(game: Game[Any]) -> tuple[Player, ...]:
    """Who may go on in the seat after its first action. In the stag hunt both turn to the other prey when theirs is
    gone, so that neither gives away what is left."""
    if isinstance(game, StagHunt):
        return make("ns:then=hare", game), make("nh:then=stag", game)
    if isinstance(game, Snowdrift):
        return make("cleaner", game), make("exploiter", game)
    return (make("random", game),)


def without_search(player: Player) -> Player:
    """The same player, who acts by its policy where it would search, also within those that wrap players."""
    if isinstance(player, Planner):
        return replace(player, search=None)
    changes = {}
    for name in [field.name for field in fields(player)] if is_dataclass(player) else []:
        value = getattr(player, name)
        if isinstance(value, Player):
            changes[name] = without_search(value)
        elif isinstance(value, tuple) and value and all(isinstance(member, Player) for member in value):
            changes[name] = tuple(map(without_search, value))
    return replace(player, **changes) if changes else player  # pyright: ignore[reportArgumentType]


def unbiased(returns: Float[np.ndarray, "P B S"]) -> Float[np.ndarray, "P S"]:
    """Of every simulation what the script earned that did best in the other half of them."""
    half = returns.shape[-1] // 2
    parts = returns[..., :half], returns[..., half:]
    best = [part.mean(-1).argmax(-1)[:, None, None] for part in parts]
    crossed = [np.take_along_axis(part, other, 1)[:, 0] for part, other in zip(parts, reversed(best), strict=True)]
    return np.concatenate(crossed, -1)


def _judged(game: Game[Any], values: Float[np.ndarray, "legal S"], actions: list[int], chosen: int) -> Judged:
    means, place = values.mean(-1), actions.index(chosen)
    best = place if means[place] > means.max() - TIE else int(means.argmax())
    errors, names = standard_error((values[best] - values).T), [game.action_names[action] for action in actions]
    lost = max(0.0, float(means[best] - means[place]))
    return Judged(
        chosen=names[place],
        best=names[best],
        values=dict(zip(names, means.tolist(), strict=True)),
        errors=dict(zip(names, errors.tolist(), strict=True)),
        lost=lost,
        clear=place != best and lost > CLEAR * float(errors[place]),
    )


# ---------------------------------------------------------------------------------------------------------- simulations


@struct
class Tried:
    """Situations, and the actions to be tried in them; both filled up to a fixed size, so that there is one program."""

    first: Int[Array, ""]
    """The number of the first decision."""
    states: Any
    """[D, ...]"""
    memories: tuple[Memory, ...]
    """By group of the cast: [D, seats, ...]."""
    row: Int[Array, " P"]
    """In which situation each action is tried."""
    action: Int[Array, " P"]
    number: Int[Array, ""]
    """How many of the P are to be tried."""


@struct
class Lanes:
    """Simulations [L] in progress, and what those that have ended earned.

    Jobs are numbered by action, script and draw. Where none is left a lane goes on with numbers for which nobody asks.
    """

    job: Int[Array, " L"]
    clock: Int[Array, " L"]
    """Steps so far."""
    state: Any
    memories: tuple[Memory, ...]
    earned: Float[Array, " L"]
    waiting: Int[Array, ""]
    """The first job that is in no lane yet."""
    returns: Float[Array, " J"]


def _with_memory(situation: Situation, seat: int, memory: Memory) -> Situation:
    memories = (*situation.memories[:seat], memory, *situation.memories[seat + 1 :])
    return replace(situation, memories=memories)


def _tried(game: Game[Any], cast: Cast, seat: int, situations: Sequence[Situation], first: int) -> Tried:
    """All legal actions of the situations; InputError where one that was taken is none."""

    def stack(*trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    def fill(leaf: np.ndarray) -> np.ndarray:
        return leaf[np.minimum(np.arange(SITUATIONS), len(leaf) - 1)]

    states = jax.tree.map(fill, stack(*(one.state for one in situations)))
    by_group = [
        tuple(stack(*(one.memories[member] for member in group.seats)) for group in cast.groups) for one in situations
    ]
    legal = np.array(_legal(states, game))[: len(situations), seat]
    for number, one in enumerate(situations):
        if one.action not in np.flatnonzero(legal[number]):
            raise InputError(f"decision {first + number} took action {one.action}, which was not legal there")
    rows, actions = np.nonzero(legal)
    room = (0, SITUATIONS * game.num_actions - len(rows))
    return Tried(
        first=jnp.int32(first),
        states=states,
        memories=jax.tree.map(fill, stack(*by_group)),
        row=jnp.asarray(np.pad(rows, room), jnp.int32),
        action=jnp.asarray(np.pad(actions, room), jnp.int32),
        number=jnp.int32(len(rows)),
    )


@partial(jax.jit, static_argnames="game")
def _legal(states: Any, game: Game[Any]) -> Bool[Array, "D n A"]:
    return jax.vmap(game.legal)(states)


@partial(jax.jit, static_argnames=("game", "cast", "seat", "simulations"))
def _returns(
    key: Key, params: tuple[Params, ...], tried: Tried, game: Game[Any], cast: Cast, seat: int, simulations: int
) -> Float[Array, "P B S"]:
    """What the seat earns after every action, by the script that goes on and by simulation."""
    own = next(number for number, group in enumerate(cast.groups) if seat in group.seats)
    bases = len(scripts(game))
    shape = (len(tried.row), bases, simulations)

    def begin(job: Array) -> tuple[Any, tuple[Memory, ...]]:
        """The situation in which a job begins, its script in the seat."""
        option, base, _ = jnp.unravel_index(job, shape)
        state, memories = jax.tree.map(lambda leaf: leaf[tried.row[option]], (tried.states, tried.memories))
        scripted = replace(memories[own], member=base[None])
        return state, (*memories[:own], scripted, *memories[own + 1 :])

    def step(job: Array, clock: Array, state: Any, memories: tuple[Memory, ...]) -> tuple[Any, ...]:
        option, _, draw = jnp.unravel_index(job, shape)
        step_key = key
        for number in (tried.first + tried.row[option], draw, clock):
            step_key = jax.random.fold_in(step_key, number)
        seat_keys = jax.vmap(partial(jax.random.fold_in, step_key))(jnp.arange(game.num_players))
        actions, memories, _ = cast.act(seat_keys, params, memories, game.observe(state))
        actions = actions.at[seat].set(jnp.where(clock == 0, tried.action[option], actions[seat]))
        state, outcome = game.step(jax.random.fold_in(step_key, step_purpose(game)), state, actions)
        memories = cast.watch(params, memories, game.observe(state))
        return state, memories, outcome.reward[seat], outcome.over | outcome.left[seat]

    def turn(lanes: Lanes) -> Lanes:
        """A step in every lane, and the next job where one has ended."""
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

    def goes_on(lanes: Lanes) -> Array:
        return (lanes.job < tried.number * bases * simulations).any()

    jobs = jnp.arange(LANES, dtype=jnp.int32)
    state, memories = jax.vmap(begin)(jobs)
    first = Lanes(
        job=jobs,
        clock=jnp.zeros_like(jobs),
        state=state,
        memories=memories,
        earned=jnp.zeros(LANES),
        waiting=jnp.int32(LANES),
        returns=jnp.zeros(math.prod(shape)),
    )
    return jax.lax.while_loop(goes_on, turn, first).returns.reshape(shape)

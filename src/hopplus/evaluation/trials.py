"""Trials: several episodes of the same players in the same seats, with frozen weights or weight updates.

Memories are fresh at the start of a trial and persist between its episodes. With weight updates, the focal players of
each trial learn separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.algorithms.base import Algorithm, CurriculumPhase
from hopplus.algorithms.seats import LEARNER, Seats
from hopplus.core.keys import Key, environment_keys
from hopplus.core.specs import Spec
from hopplus.evaluation.protocol import Focal, Protocol, Seating
from hopplus.evaluation.trial_returns import TrialTrajectory
from hopplus.games import Game
from hopplus.players import Cast, CastSpec, Params
from hopplus.players.cast import info_of
from hopplus.players.player import Memory, Player
from hopplus.players.pool import FixedMember, Pool
from hopplus.players.reseating import ReseatableCast
from hopplus.rollouts import RolloutState, Trajectory, init_rollout, rollout
from hopplus.training.casting import make_seats, seat_cast
from hopplus.training.policies import Policy, checksum


@dataclass(frozen=True)
class Weights:
    """Checksums of the focal players' parameters, before and after the trials."""

    before: str
    after: str


def _trial_trajectory(cast: Cast, trajectory: Trajectory, focal: tuple[int, ...]) -> TrialTrajectory:
    """Returns the evaluated part of a trajectory; `focal` are the focal players of the cast."""
    goals: list[Any] = [getattr(info_of(cast, trajectory.info, player), "goals", None) for player in focal]
    has_beliefs = all(belief is not None for belief in goals)
    stacked = jnp.stack(goals, 2) if has_beliefs else None
    return TrialTrajectory(trajectory.over, trajectory.total_reward, trajectory.took, trajectory.alive, stacked)


# --------------------------------------------------------------------------------------------------- frozen weights


@partial(jax.jit, static_argnames=("game", "cast", "steps", "focal"))
def _play_on(
    state: RolloutState, game: Game[Any], cast: ReseatableCast, steps: int, params: tuple[Params, ...], focal: int
) -> tuple[RolloutState, TrialTrajectory]:
    state, trajectory = rollout(state, game, cast, steps, params)
    return state, _trial_trajectory(cast, trajectory, tuple(range(focal)))


def play_frozen(
    key: Key,
    game: Game[Any],
    focal: Focal,
    policies: Sequence[Policy],
    seatings: Sequence[Seating],
    trials: int,
    protocol: Protocol,
    greedy: bool = False,
    among: Sequence[Spec] = (),
) -> tuple[list[TrialTrajectory], Weights]:
    """Plays trials with frozen weights, until each has its episodes or steps; returns them by seating.

    Args:
        key: Random key.
        game: The game.
        focal: The focal player.
        policies: Policies of one training seed; empty for a player by name.
        seatings: Seats of the same players, played together; a single one for policies that differ by seat.
        trials: Number of trials per seating.
        protocol: Length of a trial.
        greedy: Take the likeliest action instead of sampling.
        among: All possible co-players. All seatings of them share one compiled program.
    """
    player, seating = Spec("self") if policies else focal.player, seatings[0]

    def policy_at(player: int) -> Policy:
        assert focal.run is not None
        policy = focal.run.seated(policies, seating.seats[player])
        return policy if len(policies) == 1 else replace(policy, seat=player)  # one program for all seatings

    others = (Spec("pool", tuple(among)),) * len(seating.others) if among else seating.others
    spec = CastSpec((*[player] * seating.focal, *others))
    seated = seat_cast(spec, game, policy_at if policies else None, greedy)
    cast, params = ReseatableCast(seated.cast.players), tuple(seated.params())
    if among:
        cast = ReseatableCast((*cast.players[: seating.focal], *map(_assignable, cast.players[seating.focal :])))
    before = checksum(params[: seating.focal])
    number = trials * len(seatings)
    state = init_rollout(key, game, cast, number, params)
    _, memories = state.memories
    if among:
        memories = _assign(cast, memories, seating, among)
    seats = jnp.repeat(jnp.array([seating.seats for seating in seatings]), trials, axis=0)
    state = replace(state, memories=(seats, memories))
    rounds, ended, steps = [], np.zeros(number, int), 0
    while steps < protocol.budget(game) and (protocol.episodes is None or ended.min() < protocol.episodes):
        state, played = _play_on(state, game, cast, game.last_step, params, seating.focal)
        rounds.append(played)
        steps += game.last_step
        ended += np.asarray(played.over).sum(0)
    weights = Weights(before, checksum(params[: seating.focal]))
    played = jax.tree.map(lambda *parts: np.concatenate(parts), *rounds)
    firsts = range(0, number, trials)
    return [jax.tree.map(lambda leaf: leaf[:, first : first + trials], played) for first in firsts], weights  # noqa: B023


def _assignable(player: Player) -> Player:
    """Returns a pool as a player that is one of its members for the whole trial."""
    assert isinstance(player, Pool)
    return FixedMember(player.members)


def _assign(cast: Cast, memories: tuple[Memory, ...], seating: Seating, among: Sequence[Spec]) -> tuple[Memory, ...]:
    """Returns memories [E] by group of the cast, in which co-players are those of the seating."""
    assigned = list(memories)
    for number, group in enumerate(cast.groups):
        if min(group.seats) >= seating.focal:
            members = jnp.array([among.index(seating.others[player - seating.focal]) for player in group.seats])
            assigned[number] = replace(
                assigned[number], member=jnp.broadcast_to(members, assigned[number].member.shape)
            )
    return tuple(assigned)


# --------------------------------------------------------------------------------------------------- weight updates


def play_updating(
    key: Key,
    game: Game[Any],
    focal: Focal,
    policies: Sequence[Policy],
    seating: Seating,
    trials: int,
    protocol: Protocol,
) -> tuple[TrialTrajectory, Weights]:
    """Plays trials in which the focal player keeps learning from a training seed's policies, separately in each."""
    algorithm = focal.algorithm().for_fine_tuning(game)
    seats, frozen = _learning_seats(game, algorithm, seating)
    phase = CurriculumPhase(game, game, seats, protocol.budget(game))
    assert focal.run is not None
    chosen = [focal.run.seated(policies, seat) for seat in (seats.learners[:1] if seats.shared else seats.learners)]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *(policy.params for policy in chosen))
    states = _first_states(key, algorithm, phase, frozen, params, trials)
    before, rounds = checksum(algorithm.params(states)), []
    for _ in range(-(-protocol.budget(game) // game.last_step)):
        states, played = _train_on(states, algorithm, phase, frozen)
        rounds.append(jax.tree.map(np.asarray, played))
    after = checksum(algorithm.params(states))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *rounds), Weights(before, after)


@partial(jax.jit, static_argnames=("algorithm", "phase", "trials"))
def _first_states(
    key: Key, algorithm: Algorithm, phase: CurriculumPhase, frozen: Any, params: Params, trials: int
) -> Any:
    keys = environment_keys(key, trials)
    return jax.vmap(lambda key: algorithm.init(key, phase, frozen, algorithm.modules(params)))(keys)


@partial(jax.jit, static_argnames=("algorithm", "phase"))
def _train_on(states: Any, algorithm: Algorithm, phase: CurriculumPhase, frozen: Any) -> tuple[Any, TrialTrajectory]:
    def train_on(state: Any) -> tuple[Any, TrialTrajectory]:
        state, trajectory, _ = algorithm.train_step(state, phase, frozen)
        played = _trial_trajectory(phase.seats.cast, trajectory, phase.seats.learners)
        return state, jax.tree.map(lambda leaf: leaf[:, 0], played)

    return jax.vmap(train_on, out_axes=(0, 1))(states)


def _learning_seats(game: Game[Any], algorithm: Algorithm, seating: Seating) -> tuple[Seats, dict[str, Params]]:
    by_player = (*[Spec(LEARNER)] * seating.focal, *seating.others)
    spec = CastSpec(tuple(by_player[seating.seats.index(seat)] for seat in range(game.num_players)))
    learner = algorithm.player(game, LEARNER, shares=algorithm.shares_params, learns=True)
    seats, policies = make_seats(spec, game, learner)
    return seats, {source: policy.params for source, policy in policies.items()}

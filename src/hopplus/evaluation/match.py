"""Matches: mean returns, items taken and episode lengths of a cast over many episodes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.keys import environment_keys
from hopplus.core.statistics import standard_error
from hopplus.games import Game
from hopplus.players import Cast, Params
from hopplus.rollouts import play_episodes
from hopplus.rollouts.rollout import first_memories

BATCH = 2048
"""Environments per batch."""


@dataclass(frozen=True)
class SeatResult:
    """Result of one seat."""

    seat: int
    player: str
    mean: float
    standard_error: float
    length: float
    """Mean number of steps until the seat leaves the game."""
    taken: dict[str, float]
    """Mean number of items taken per episode, by kind."""
    share_of_oracle: float | None = None
    """`mean` divided by the oracle's mean return against the other seats; None where that is unknown."""


@dataclass(frozen=True)
class MatchResult:
    """Result of a cast; `as_dict` has the keys that commands print with --json."""

    game: str
    version: str
    cast: tuple[str, ...]
    episodes: int
    trial_episodes: int
    seed: int
    mean_return: float
    """Mean return over all seats."""
    standard_error: float
    share_of_ceiling: float
    """`mean_return` divided by the game's ceiling of the mean return."""
    episode_length: float
    per_seat: tuple[SeatResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return asdict(self)


def match(
    game: Game[Any],
    cast: Cast,
    episodes: int,
    seed: int = 0,
    trial_episodes: int = 1,
    progress: Callable[[int], None] = lambda done: None,
    params: Sequence[Params] | None = None,
    batch: int = BATCH,
    seats: Sequence[int] | None = None,
) -> MatchResult:
    """Plays whole episodes from fresh states.

    Args:
        game: The game.
        cast: One player per seat, or a `ReseatableCast` with `seats`.
        episodes: Total number of episodes.
        seed: Random seed.
        trial_episodes: Episodes per trial: memories persist between them. Trials are the units of standard errors.
        progress: Called with the number of episodes played so far.
        params: Parameters by player of the cast; None for the defaults.
        batch: Environments per batch.
        seats: Seat by player of a `ReseatableCast`.
    """
    if episodes < 1 or trial_episodes < 1 or episodes % trial_episodes:
        raise InputError(
            f"episodes must be at least 1 and a multiple of trial_episodes, not {episodes} and {trial_episodes}"
        )
    trials = episodes // trial_episodes
    batch = min(batch, trials)
    key, rows, done = jax.random.key(seed), [], 0
    for number in range(-(-trials // batch)):
        batch_key = jax.random.fold_in(key, number)
        played = _play_trials(batch_key, game, cast, batch, trial_episodes, params, seats)
        rows.append({field: values[:, : trials - done] for field, values in played.items()})
        done += rows[-1]["returns"].shape[1]
        progress(done * trial_episodes)
    names = cast.names if seats is None else tuple(cast.names[player] for player in np.argsort(seats))
    return _summary(game, names, seed, {field: np.concatenate([row[field] for row in rows], 1) for field in rows[0]})


def _play_trials(
    key: jax.Array,
    game: Game[Any],
    cast: Cast,
    batch: int,
    trial_episodes: int,
    params: Sequence[Params] | None,
    seats: Sequence[int] | None,
) -> dict[str, np.ndarray]:
    """Returns arrays [trial_episodes, batch, n, ...] of a batch of trials."""
    memories, rows = None, []
    if seats is not None:
        first = environment_keys(jax.random.fold_in(key, trial_episodes), batch)
        _, group_memories = first_memories(first, game, cast, None if params is None else tuple(params))
        memories = (jnp.broadcast_to(jnp.asarray(seats), (batch, len(seats))), group_memories)
    for episode in range(trial_episodes):
        episode_key = jax.random.fold_in(key, episode)
        memories, trajectory = play_episodes(episode_key, game, cast, batch, params, memories)
        taken = np.asarray(trajectory.took)[..., None] == np.arange(1, len(game.taken_names))
        rows.append(
            {
                "returns": np.asarray(trajectory.returns, np.float64),
                "lengths": np.asarray(trajectory.lengths, np.float64),
                "taken": taken.sum(0).astype(np.float64),
            }
        )
    return {field: np.stack([row[field] for row in rows]) for field in rows[0]}


def _summary(game: Game[Any], names: tuple[str, ...], seed: int, played: dict[str, np.ndarray]) -> MatchResult:
    returns, lengths, taken = played["returns"], played["lengths"], played["taken"]
    trial_episodes, trials = returns.shape[:2]
    by_trial = returns.mean(0)
    mean = float(by_trial.mean())
    per_seat = tuple(
        SeatResult(
            seat=seat,
            player=player,
            mean=float(by_trial[:, seat].mean()),
            standard_error=float(standard_error(by_trial[:, seat])),
            length=float(lengths[..., seat].mean()),
            taken=dict(zip(game.taken_names[1:], taken[..., seat, :].mean((0, 1)).tolist(), strict=True)),
        )
        for seat, player in enumerate(names)
    )
    return MatchResult(
        game=game.name,
        version=game.version,
        cast=names,
        episodes=trials * trial_episodes,
        trial_episodes=trial_episodes,
        seed=seed,
        mean_return=mean,
        standard_error=float(standard_error(by_trial.mean(-1))),
        share_of_ceiling=mean / game.ceilings["mean"] if game.ceilings["mean"] else 0.0,
        episode_length=float(lengths.max(-1).mean()),
        per_seat=per_seat,
    )

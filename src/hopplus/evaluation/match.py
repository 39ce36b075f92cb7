"""A match: one cast plays many episodes; what each seat earned, took, and how long it stayed."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.keys import environment_keys
from hopplus.play import play_episodes
from hopplus.play.rollout import first_memories
from hopplus.players import Cast, Params
from hopplus.statistics import standard_error

BATCH = 2048
"""Environments that play at once."""


@dataclass(frozen=True)
class SeatResult:
    """What one seat got."""

    seat: int
    player: str
    mean: float
    standard_error: float
    length: float
    """Mean number of steps in the game."""
    taken: dict[str, float]
    """Mean number of things taken in an episode, by kind."""
    share_of_oracle: float | None = None
    """`mean` divided by what the best response to the others earns; None where nobody has computed that."""


@dataclass(frozen=True)
class MatchResult:
    """What a cast got. `as_dict` has the keys that every command prints with --json."""

    game: str
    version: str
    cast: tuple[str, ...]
    episodes: int
    acquaintance: int
    seed: int
    mean_return: float
    """Mean over the seats of the mean returns."""
    standard_error: float
    share_of_ceiling: float
    """`mean_return` divided by the game's ceiling of the mean."""
    episode_length: float
    per_seat: tuple[SeatResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def match(
    game: Game[Any],
    cast: Cast,
    episodes: int,
    seed: int = 0,
    acquaintance: int = 1,
    progress: Callable[[int], None] = lambda done: None,
    params: Sequence[Params] | None = None,
    batch: int = BATCH,
    seats: Sequence[int] | None = None,
) -> MatchResult:
    """Play so many whole episodes from fresh states; `params` by seat, where somebody has learnt something.

    `seats` are where the players of a `Movable` cast sit, in its order, which is also that of their params.

    With `acquaintance` k, the same players meet for k episodes in a row and remember; every such row is then the unit
    of the standard errors. `progress` is called with the number of episodes played so far; `batch` environments play at
    once.
    """
    if episodes < 1 or acquaintance < 1 or episodes % acquaintance:
        raise InputError(
            f"episodes must be at least 1 and a multiple of the acquaintance, not {episodes} and {acquaintance}"
        )
    units = episodes // acquaintance
    batch = min(batch, units)
    key, rows, done = jax.random.key(seed), [], 0
    for number in range(-(-units // batch)):
        batch_key = jax.random.fold_in(key, number)
        played = _meet(batch_key, game, cast, batch, acquaintance, params, seats)
        rows.append({field: values[:, : units - done] for field, values in played.items()})
        done += rows[-1]["returns"].shape[1]
        progress(done * acquaintance)
    names = cast.names if seats is None else tuple(cast.names[player] for player in np.argsort(seats))
    return _summary(game, names, seed, {field: np.concatenate([row[field] for row in rows], 1) for field in rows[0]})


def _meet(
    key: jax.Array,
    game: Game[Any],
    cast: Cast,
    batch: int,
    acquaintance: int,
    params: Sequence[Params] | None,
    seats: Sequence[int] | None,
) -> dict[str, np.ndarray]:
    """Arrays [acquaintance, batch, n, ...] of a batch of meetings."""
    memories, rows = None, []
    if seats is not None:
        first = environment_keys(jax.random.fold_in(key, acquaintance), batch)
        _, remembered = first_memories(first, game, cast, None if params is None else tuple(params))
        memories = (jnp.broadcast_to(jnp.asarray(seats), (batch, len(seats))), remembered)
    for episode_number in range(acquaintance):
        episode_key = jax.random.fold_in(key, episode_number)
        memories, episode = play_episodes(episode_key, game, cast, batch, params, memories)
        taken = np.asarray(episode.took)[..., None] == np.arange(1, len(game.taken_names))
        rows.append(
            {
                "returns": np.asarray(episode.returns, np.float64),
                "lengths": np.asarray(episode.lengths, np.float64),
                "taken": taken.sum(0).astype(np.float64),
            }
        )
    return {field: np.stack([row[field] for row in rows]) for field in rows[0]}


def _summary(game: Game[Any], names: tuple[str, ...], seed: int, played: dict[str, np.ndarray]) -> MatchResult:
    returns, lengths, taken = played["returns"], played["lengths"], played["taken"]
    acquaintance, units = returns.shape[:2]
    by_unit = returns.mean(0)
    mean = float(by_unit.mean())
    per_seat = tuple(
        SeatResult(
            seat=seat,
            player=player,
            mean=float(by_unit[:, seat].mean()),
            standard_error=float(standard_error(by_unit[:, seat])),
            length=float(lengths[..., seat].mean()),
            taken=dict(zip(game.taken_names[1:], taken[..., seat, :].mean((0, 1)).tolist(), strict=True)),
        )
        for seat, player in enumerate(names)
    )
    return MatchResult(
        game=game.name,
        version=game.version,
        cast=names,
        episodes=units * acquaintance,
        acquaintance=acquaintance,
        seed=seed,
        mean_return=mean,
        standard_error=float(standard_error(by_unit.mean(-1))),
        share_of_ceiling=mean / game.ceilings["mean"] if game.ceilings["mean"] else 0.0,
        episode_length=float(lengths.max(-1).mean()),
        per_seat=per_seat,
    )

"""Few-shot adaptation in figures: what a focal player gets at tables of others whom it meets again and again.

The score is the mean return of episodes 6 to 10. Training seeds are the unit of replication; tables are where there is
only one. Returns are undiscounted, beside the oracle's and the ceiling.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from hopplus.evaluation.oracle import Oracle, known, mean_of, phases, share
from hopplus.evaluation.sets import CoPlayers
from hopplus.evaluation.statistics import estimate, interquartile_mean
from hopplus.evaluation.tables import SCORED, Focal, Protocol, Seating, Told, places, play_frozen, play_updating, tell
from hopplus.games import Game
from hopplus.statistics import standard_error


def adapt(
    focal: Focal,
    game: Game[Any],
    against: CoPlayers,
    seating: Seating,
    protocol: Protocol,
    update_weights: bool = False,
    tables: int = 64,
    greedy: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
    among: Sequence[str] = (),
) -> dict[str, Any]:
    """The figures of a focal player with a set of others: so many tables for each place at which it sits.

    `progress` gets the share done. `among` are all players of all sets that are judged, where there are several: their
    tables are then played by one program, which is compiled once (see `kinds`).

    Keys of the result: set, players, split, seating, regime, met_before, remembers (whether it keeps anything between
    episodes), protocol, update_weights, greedy, seeds, tables (of every seed), curve (by episode), blocks, score,
    weights (checksums).
    """
    protocol.check(game)
    focal.check(game, update_weights)
    wheres = places(against, seating, game.num_players)
    told, weights = [], []
    for number, trained in enumerate(focal.seeds):
        rows, policies = [], focal.policies(trained)
        for place, where in enumerate(wheres):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), trained), place)
            if update_weights:
                played, checksums = play_updating(key, game, focal, policies, where, tables, protocol)
            else:
                played, checksums = play_frozen(key, game, focal, policies, where, tables, protocol, greedy, among)
            weights.append(checksums)
            rows.append(tell(played, where.seats[: where.focal], protocol))
            progress((number * len(wheres) + place + 1) / (len(focal.seeds) * len(wheres)))
        told.append(_joined(rows))
    if not update_weights and any(one.before != one.after for one in weights):
        raise RuntimeError("weights that should be frozen have changed")
    trained_regime, met = focal.regime(against)
    oracles = [known(game, table) for table in phases(against)] if seating == "one" else []
    return {
        "focal": focal.name,
        "game": game.name,
        "version": game.version,
        "set": against.name,
        "players": list(against.players),
        "split": against.split,
        "seating": seating,
        "regime": trained_regime,
        "met_before": list(met),
        "remembers": focal.remembers,
        "protocol": protocol.name,
        "update_weights": update_weights,
        "greedy": greedy,
        "seeds": list(focal.seeds),
        "tables": tables * len(wheres),
        **_summary(told, oracles, protocol, game),
        "weights": [asdict(one) for one in weights],
    }


def _joined(rows: Sequence[Told]) -> Told:
    """All tables of a training seed; those that had fewer episodes than others are filled up with nan."""
    most = max(row.returns.shape[1] for row in rows)

    def join(name: str) -> Float[np.ndarray, "E K"]:
        parts = [getattr(row, name) for row in rows]
        short = [((0, 0), (0, most - part.shape[1])) for part in parts]
        filled = [np.pad(part, gap, constant_values=np.nan) for part, gap in zip(parts, short, strict=True)]
        return np.concatenate(filled)

    return Told(*map(join, ("returns", "ended_at", "goal_hits", "goal_belief")))


def _summary(
    told: Sequence[Told], oracles: Sequence[Oracle | None], protocol: Protocol, game: Game[Any]
) -> dict[str, Any]:
    episodes = min(int(np.isfinite(one.returns).all(0).sum()) for one in told)
    curve = [
        {
            "episode": episode + 1,
            **_estimated([one.returns[:, episode] for one in told]),
            "oracle": _value(oracles[episode % len(oracles)]) if oracles else None,
            **_beliefs(told, episode),
        }
        for episode in range(episodes)
    ]
    blocks = [_block(told, oracles, protocol, game, first, last) for first, last in _blocks(protocol, episodes)]
    score = blocks[SCORED - 1] if protocol.steps is None else blocks[-1]
    return {"curve": curve, "blocks": blocks, "score": score}


def _blocks(protocol: Protocol, episodes: int) -> list[tuple[int, int]]:
    """(first, last) of every block of episodes or steps, counted from 1."""
    end = protocol.steps or episodes
    return [(first, min(first + protocol.block - 1, end)) for first in range(1, end + 1, protocol.block)]


def _block(
    told: Sequence[Told],
    oracles: Sequence[Oracle | None],
    protocol: Protocol,
    game: Game[Any],
    first: int,
    last: int,
) -> dict[str, Any]:
    """The mean over the episodes of a block, or of those that ended in its steps, table by table."""
    means, weights = [], np.zeros(len(oracles))
    for one in told:
        episode = np.broadcast_to(np.arange(1, one.returns.shape[1] + 1), one.returns.shape)
        position = episode if protocol.steps is None else one.ended_at
        inside = (position >= first) & (position <= last)
        means.append(_mean_where(one.returns, inside))
        weights += np.bincount((episode[inside] - 1) % max(len(oracles), 1), minlength=len(oracles))[: len(oracles)]
    found, every = _estimated(means), [one for one in oracles if one is not None]
    best = mean_of(every, weights.tolist()) if every and len(every) == len(oracles) else None
    values = np.concatenate(means)
    error = float(standard_error(values))
    ceiling = game.ceilings["player"]
    return {
        "first": first,
        "last": last,
        "unit": "episodes" if protocol.steps is None else "steps",
        **found,
        "interquartile_mean": float(interquartile_mean(_by_unit(means))),
        "per_seed": [float(mean.mean()) for mean in means],
        "standard_error": error,
        "oracle": _value(best),
        "share_of_oracle": share(best, float(values.mean()), error) if best else None,
        "share_of_ceiling": found["mean"] / ceiling if ceiling else 0.0,
    }


def _mean_where(values: Float[np.ndarray, "E K"], inside: Bool[np.ndarray, "E K"]) -> Float[np.ndarray, " E"]:
    return np.where(inside, values, 0).sum(1) / np.maximum(inside.sum(1), 1)


def _value(found: Oracle | None) -> float | None:
    return None if found is None else found.value


def _by_unit(by_seed: Sequence[Float[np.ndarray, " E"]]) -> Float[np.ndarray, "units 1"]:
    """Seeds are the units of replication; tables only where there is one seed."""
    return by_seed[0][:, None] if len(by_seed) == 1 else np.array([[values.mean()] for values in by_seed])


def _estimated(by_seed: Sequence[Float[np.ndarray, " E"]]) -> dict[str, Any]:
    found = estimate(_by_unit(by_seed), unit="tables of one training seed" if len(by_seed) == 1 else None)
    return {"mean": found.value, "low": found.low, "high": found.high, "n": found.seeds, "interval": found.meaning}


def _beliefs(told: Sequence[Told], episode: int) -> dict[str, float | None]:
    """Of the focal players about the others; None where they have none."""
    means = {}
    for key, field in (("goal_accuracy", "goal_hits"), ("goal_belief", "goal_belief")):
        values = np.concatenate([getattr(one, field)[:, episode] for one in told])
        means[key] = float(np.nanmean(values)) if np.isfinite(values).any() else None
    return means

"""Few-shot adaptation: returns of a focal player over trials with the same co-players.

The score is the mean return of episodes 6 to 10. Training seeds are the units of replication, or trials where there is
only one seed. Returns are undiscounted, and compared with the oracle's and the ceiling.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from hopplus.core.keys import Key
from hopplus.core.specs import Spec
from hopplus.core.statistics import estimate, interquartile_mean, standard_error
from hopplus.evaluation.co_player_sets import CoPlayers
from hopplus.evaluation.oracle import Oracle, lookup, mean_of, phases, share, unseen_loss
from hopplus.evaluation.protocol import SCORED, Focal, Protocol, Seating, SeatingMode, seatings
from hopplus.evaluation.trial_returns import TrialReturns, summarize
from hopplus.evaluation.trials import Weights, play_frozen, play_updating
from hopplus.games import Game
from hopplus.training.policies import Policy


def adapt(
    focal: Focal,
    game: Game[Any],
    against: CoPlayers,
    seating: SeatingMode,
    protocol: Protocol,
    update_weights: bool = False,
    trials: int = 64,
    greedy: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
    among: Sequence[Spec] = (),
) -> dict[str, Any]:
    """Evaluates a focal player with a set of co-players.

    Args:
        focal: The focal player.
        game: The game.
        against: The co-players.
        seating: One focal player, or three.
        protocol: Length of a trial.
        update_weights: Keep learning in each trial, instead of frozen weights.
        trials: Trials per seating.
        greedy: Take the likeliest action instead of sampling.
        seed: Random seed of play.
        progress: Called with the completed fraction.
        among: All players of all evaluated sets (see `distinct_players`), which then share one compiled program.

    Returns:
        focal, game, version, set, players, split, seating, regime, met_before, has_memory (whether memory persists
        between episodes), protocol, update_weights, greedy, seeds, trials (per seed), curve (by episode), blocks,
        score, weights (checksums).
    """
    protocol.check(game)
    focal.check(game, update_weights)
    all_seatings = seatings(against, seating, game.num_players)

    def play(key: Key, policies: Sequence[Policy], batch: Sequence[Seating]) -> tuple[list[TrialReturns], Weights]:
        if update_weights:
            one, checksums = play_updating(key, game, focal, policies, batch[0], trials, protocol)
            played = [one]
        else:
            played, checksums = play_frozen(key, game, focal, policies, batch, trials, protocol, greedy, among)
        rows = zip(played, batch, strict=True)
        return [summarize(steps, where.seats[: where.focal], protocol) for steps, where in rows], checksums

    by_seed, weights = _play_seeds(focal, all_seatings, play, seed, progress, update_weights)
    if not update_weights and any(checksums.before != checksums.after for checksums in weights):
        raise RuntimeError("weights that should be frozen have changed")
    oracles = [lookup(game, co_players) for co_players in phases(against)] if seating == "one" else []
    return {
        **_header(focal, game, against, seating),
        "protocol": protocol.name,
        "update_weights": update_weights,
        "greedy": greedy,
        "seeds": list(focal.seeds),
        "trials": trials * len(all_seatings),
        **_summary(by_seed, oracles, protocol, game),
        "weights": [asdict(checksums) for checksums in weights],
    }


def _header(focal: Focal, game: Game[Any], against: CoPlayers, seating: SeatingMode) -> dict[str, Any]:
    regime, met = focal.regime(against)
    return {
        "focal": focal.name,
        "game": game.name,
        "version": game.version,
        "set": against.name,
        "players": [player.text() for player in against.players],
        "split": against.split,
        "seating": seating,
        "regime": regime,
        "met_before": list(met),
        "has_memory": focal.has_memory,
    }


def _play_seeds(
    focal: Focal,
    all_seatings: Sequence[Seating],
    play: Callable[[Key, Sequence[Policy], Sequence[Seating]], tuple[list[TrialReturns], Weights]],
    seed: int,
    progress: Callable[[float], None],
    one_by_one: bool,
) -> tuple[list[TrialReturns], list[Weights]]:
    """Returns the trials of each training seed, and the checksums of all seeds and batches of seatings."""
    by_seed, weights = [], []
    for number, training_seed in enumerate(focal.seeds):
        rows, policies = [], focal.policies(training_seed)
        batches = _batches(all_seatings, one_by_one or len(policies) > 1)
        for place, batch in enumerate(batches):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), training_seed), place)
            returns, checksums = play(key, policies, batch)
            rows += returns
            weights.append(checksums)
            progress((number + (place + 1) / len(batches)) / len(focal.seeds))
        by_seed.append(_joined(rows))
    return by_seed, weights


def _batches(all_seatings: Sequence[Seating], one_by_one: bool) -> list[list[Seating]]:
    """Returns seatings that are played together: those of the same players, unless one by one."""
    if one_by_one:
        return [[where] for where in all_seatings]
    return [list(batch) for _, batch in itertools.groupby(all_seatings, lambda where: (where.focal, where.others))]


def _joined(rows: Sequence[TrialReturns]) -> TrialReturns:
    """Returns all trials of a training seed, padded with nan to the largest number of episodes."""
    most = max(row.returns.shape[1] for row in rows)

    def join(name: str) -> Float[np.ndarray, "E K"]:
        parts = [getattr(row, name) for row in rows]
        padding = [((0, 0), (0, most - part.shape[1])) for part in parts]
        padded = [np.pad(part, width, constant_values=np.nan) for part, width in zip(parts, padding, strict=True)]
        return np.concatenate(padded)

    return TrialReturns(*map(join, ("returns", "ended_at", "goal_hits", "goal_belief")))


def _summary(
    by_seed: Sequence[TrialReturns], oracles: Sequence[Oracle | None], protocol: Protocol, game: Game[Any]
) -> dict[str, Any]:
    episodes = min(int(np.isfinite(returns.returns).all(0).sum()) for returns in by_seed)
    curve = [
        {
            "episode": episode + 1,
            **_estimated([returns.returns[:, episode] for returns in by_seed]),
            "oracle": _value(oracles[episode % len(oracles)]) if oracles else None,
            **_beliefs(by_seed, episode),
        }
        for episode in range(episodes)
    ]
    blocks = [_block(by_seed, oracles, protocol, game, first, last) for first, last in _blocks(protocol, episodes)]
    score = blocks[SCORED - 1] if protocol.steps is None else blocks[-1]
    return {"curve": curve, "blocks": blocks, "score": score}


def _blocks(protocol: Protocol, episodes: int) -> list[tuple[int, int]]:
    """Returns (first, last) of every block of episodes or steps, counted from 1."""
    end = protocol.steps or episodes
    return [(first, min(first + protocol.block - 1, end)) for first in range(1, end + 1, protocol.block)]


def _block(
    by_seed: Sequence[TrialReturns],
    oracles: Sequence[Oracle | None],
    protocol: Protocol,
    game: Game[Any],
    first: int,
    last: int,
) -> dict[str, Any]:
    """Returns the figures of a block: means over its episodes, or the episodes that end in its steps, by trial."""
    means, weights = [], np.zeros(len(oracles))
    for trials in by_seed:
        episode = np.broadcast_to(np.arange(1, trials.returns.shape[1] + 1), trials.returns.shape)
        position = episode if protocol.steps is None else trials.ended_at
        inside = (position >= first) & (position <= last)
        means.append(_mean_where(trials.returns, inside))
        weights += np.bincount((episode[inside] - 1) % max(len(oracles), 1), minlength=len(oracles))[: len(oracles)]
    estimated, known = _estimated(means), [best for best in oracles if best is not None]
    best = mean_of(known, weights.tolist()) if known and len(known) == len(oracles) else None
    values = np.concatenate(means)
    error = float(standard_error(values))
    ceiling = game.ceilings["player"]
    return {
        "first": first,
        "last": last,
        "unit": "episodes" if protocol.steps is None else "steps",
        **estimated,
        "interquartile_mean": float(interquartile_mean(_by_unit(means))),
        "per_seed": [float(mean.mean()) for mean in means],
        "standard_error": error,
        "oracle": _value(best),
        "share_of_oracle": share(best, float(values.mean()), error, unseen_loss(game, len(values))) if best else None,
        "share_of_ceiling": estimated["mean"] / ceiling if ceiling else 0.0,
    }


def _mean_where(values: Float[np.ndarray, "E K"], inside: Bool[np.ndarray, "E K"]) -> Float[np.ndarray, " E"]:
    return np.where(inside, values, 0).sum(1) / np.maximum(inside.sum(1), 1)


def _value(best: Oracle | None) -> float | None:
    return None if best is None else best.value


def _by_unit(by_seed: Sequence[Float[np.ndarray, " E"]]) -> Float[np.ndarray, "units 1"]:
    """Returns the units of replication: means by seed, or trials where there is one seed."""
    return by_seed[0][:, None] if len(by_seed) == 1 else np.array([[values.mean()] for values in by_seed])


def _estimated(by_seed: Sequence[Float[np.ndarray, " E"]]) -> dict[str, Any]:
    mean = estimate(_by_unit(by_seed), unit="trials of one training seed" if len(by_seed) == 1 else None)
    return {"mean": mean.value, "low": mean.low, "high": mean.high, "n": mean.seeds, "interval": mean.meaning}


def _beliefs(by_seed: Sequence[TrialReturns], episode: int) -> dict[str, float | None]:
    """Returns the belief accuracy of the focal players in an episode; None without beliefs."""
    means = {}
    for key, field in (("goal_accuracy", "goal_hits"), ("goal_belief", "goal_belief")):
        values = np.concatenate([getattr(returns, field)[:, episode] for returns in by_seed])
        means[key] = float(np.nanmean(values)) if np.isfinite(values).any() else None
    return means

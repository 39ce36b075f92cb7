"""Distribution over casts: agent types, their possible seatings, and the probability of each."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial, prod

import jax
import numpy as np
from jaxtyping import Float, Int

from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.specs import split_top_level

ALL = "all:"
MOST_CASTS = 100_000


@dataclass(frozen=True, eq=False)
class CastDistribution:
    """Casts that an episode may have, with probabilities: the prior of an observer who knows the agent types."""

    agent_types: tuple[str, ...]
    """Names of the players."""
    casts: Int[np.ndarray, "casts n"]
    """Agent type in each seat, an index into `agent_types`."""
    probabilities: Float[np.ndarray, " casts"]
    texts: tuple[str, ...]
    """The casts as typed."""
    weights: tuple[float, ...] | None = None
    """Relative probability of each text; None: equal."""

    @classmethod
    def of_cast(cls, names: Sequence[str]) -> "CastDistribution":
        """Returns the distribution with one cast, given by the names of its players."""
        agent_types = tuple(dict.fromkeys(names))
        cast = np.array([[agent_types.index(name) for name in names]], np.int64)
        return cls(agent_types, cast, np.ones(1), (",".join(names),))

    def draw(self, key: Key, episodes: int) -> Int[np.ndarray, "episodes n"]:
        """Samples the agent types in the seats of `episodes` episodes."""
        drawn = jax.random.choice(key, len(self.casts), (episodes,), p=jax.numpy.asarray(self.probabilities))
        return self.casts[np.asarray(drawn)]


def parse_casts(texts: Sequence[str], players: int, weights: Sequence[float] | None = None) -> CastDistribution:
    """Parses casts from text: one player per seat (`ns,nh,ns,random`), or `all:ns,nh`.

    `all:` stands for every mixture of its agent types: each composition (number of each type) is equally likely and
    seats are shuffled. With two types and four seats, there are 0 to 4 of the first with probability 1/5 each.

    Args:
        texts: The casts.
        players: Number of seats.
        weights: Relative probability of each text; equal by default.
    """
    if not texts:
        raise InputError("at least one cast is needed, as in 'all:ns,nh' or 'ns,ns,nh,nh'")
    shares = np.full(len(texts), 1.0) if weights is None else np.asarray(weights, np.float64)
    probabilities: dict[tuple[str, ...], float] = {}
    for text, share in zip(texts, shares, strict=True):
        for cast, probability in _casts_of(text, players).items():
            probabilities[cast] = probabilities.get(cast, 0.0) + share * probability / shares.sum()
    agent_types = tuple(dict.fromkeys(name for text in texts for name in split_top_level(text.removeprefix(ALL))))
    index = {name: number for number, name in enumerate(agent_types)}
    casts = np.array([[index[name] for name in cast] for cast in probabilities], np.int64)
    return CastDistribution(
        agent_types,
        casts,
        np.array(list(probabilities.values()), np.float64),
        tuple(texts),
        None if weights is None else tuple(weights),
    )


def _casts_of(text: str, players: int) -> dict[tuple[str, ...], float]:
    """Casts of one text with their probabilities."""
    names = split_top_level(text.removeprefix(ALL))
    if not all(names):
        raise InputError(f"the cast {text!r} has a seat without a player")
    if not text.startswith(ALL):
        if len(names) != players:
            raise InputError(f"the game has {players} seats, and the cast {text!r} names {len(names)}")
        return {tuple(names): 1.0}
    if len(set(names)) != len(names):
        raise InputError(f"{text!r} names an agent type twice")
    if len(names) ** players > MOST_CASTS:
        raise InputError(f"{text!r} has {len(names) ** players} casts for {players} seats, which is too many")
    compositions = comb(players + len(names) - 1, players)
    return {cast: 1 / (compositions * _num_seatings(cast)) for cast in itertools.product(names, repeat=players)}


def _num_seatings(cast: Sequence[str]) -> int:
    """Number of distinct seat orders of a cast."""
    return factorial(len(cast)) // prod(factorial(number) for number in Counter(cast).values())

"""Who sits where, drawn for every episode: kinds of players, the casts they can form, and how likely each cast is."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial, prod

import jax
import numpy as np
from jaxtyping import Float, Int

from hopplus.errors import InputError
from hopplus.keys import Key
from hopplus.specs import split_top_level

ALL = "all:"
MOST_CASTS = 100_000


@dataclass(frozen=True, eq=False)
class Casting:
    """The casts that an episode may have. They are what an observer who knows the kinds takes for possible."""

    kinds: tuple[str, ...]
    """The players by name."""
    casts: Int[np.ndarray, "casts n"]
    """Each as the kind that sits in each seat."""
    probabilities: Float[np.ndarray, " casts"]

    def draw(self, key: Key, episodes: int) -> Int[np.ndarray, "episodes n"]:
        """The kinds in the seats of so many episodes."""
        drawn = jax.random.choice(key, len(self.casts), (episodes,), p=jax.numpy.asarray(self.probabilities))
        return self.casts[np.asarray(drawn)]


def parse_casts(texts: Sequence[str], players: int, weights: Sequence[float] | None = None) -> Casting:
    """Casts as people type them, each text equally likely or in proportion to its weight: one player a seat
    (`ns,nh,ns,random`), or `all:ns,nh`.

    `all:` is every mixture of its kinds: each composition (how many of each) equally likely, seats shuffled. So with
    two kinds and four seats there are 0 to 4 of the first with probability 1/5 each.
    """
    if not texts:
        raise InputError("there must be at least one cast, as in 'all:ns,nh' or 'ns,ns,nh,nh'")
    shares = np.full(len(texts), 1.0) if weights is None else np.asarray(weights, np.float64)
    likely: dict[tuple[str, ...], float] = {}
    for text, share in zip(texts, shares, strict=True):
        for cast, probability in _casts_of(text, players).items():
            likely[cast] = likely.get(cast, 0.0) + share * probability / shares.sum()
    kinds = tuple(dict.fromkeys(kind for text in texts for kind in split_top_level(text.removeprefix(ALL))))
    number = {kind: index for index, kind in enumerate(kinds)}
    casts = np.array([[number[kind] for kind in cast] for cast in likely], np.int64)
    return Casting(kinds, casts, np.array(list(likely.values()), np.float64))


def _casts_of(text: str, players: int) -> dict[tuple[str, ...], float]:
    names = split_top_level(text.removeprefix(ALL))
    if not all(names):
        raise InputError(f"the cast {text!r} has a seat without a player")
    if not text.startswith(ALL):
        if len(names) != players:
            raise InputError(f"the game has {players} seats, and the cast {text!r} names {len(names)}")
        return {tuple(names): 1.0}
    if len(set(names)) != len(names):
        raise InputError(f"{text!r} names a kind of player twice")
    if len(names) ** players > MOST_CASTS:
        raise InputError(f"{text!r} has {len(names) ** players} casts for {players} seats, which is too many")
    compositions = comb(players + len(names) - 1, players)
    return {cast: 1 / (compositions * _orders(cast)) for cast in itertools.product(names, repeat=players)}


def _orders(cast: Sequence[str]) -> int:
    """In how many orders the players of a cast can sit."""
    return factorial(len(cast)) // prod(factorial(number) for number in Counter(cast).values())

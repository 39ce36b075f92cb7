"""What can be known of recorded players: the exact law of every kind, and what a Bayesian makes of the history."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.play.casting import Casting
from hopplus.play.dataset import Recorded, Troupe
from hopplus.players import Cast, Params, Player, Pool
from hopplus.players.cast import observation_of
from hopplus.players.player import Memory
from hopplus.struct import struct

CHUNK = 4096
"""Episodes whose laws are computed at once."""


@struct
class Knowledge:
    """What is known before each step of each player, from the laws of the kinds and from what everybody has done."""

    laws: Float[np.ndarray, "T E n K A"]
    """The law of each kind at each seat."""
    posterior: Float[np.ndarray, "T E n K"]
    """Of one who knows how casts are drawn and sees everybody: how likely each kind is at each seat."""
    alone: Float[np.ndarray, "T E n K"]
    """The same of one who looks at each player by itself."""

    def knowing_kind(self, kinds: np.ndarray) -> Float[np.ndarray, "T E n A"]:
        """The best prediction of one who knows who sits where: kinds [E, n]."""
        return np.take_along_axis(self.laws, kinds[None, :, :, None, None], 3)[..., 0, :]

    def knowing_history(self) -> Float[np.ndarray, "T E n A"]:
        """The best prediction of one who has only seen what everybody did."""
        return np.einsum("tenk,tenka->tena", self.posterior, self.laws)


def know(game: Game[Any], troupe: Troupe, casting: Casting, recorded: Recorded) -> Knowledge:
    """What can be known of recorded episodes."""
    laws = laws_of(game, troupe, recorded)
    likelihood = _likelihoods(laws, recorded)
    posterior = _posterior(casting, likelihood)
    alone = _alone(casting, likelihood)
    return Knowledge(laws, posterior, alone)


def laws_of(game: Game[Any], troupe: Troupe, recorded: Recorded) -> Float[np.ndarray, "T E n K A"]:
    """The law of each kind at each seat in each recorded state; 0 for seats whose player has left."""
    for player in troupe.players[0]:
        if isinstance(player, Pool):
            raise InputError(
                f"{player.name!r} is a draw of several kinds, of which nobody keeps a record: name them as casts"
            )
    alive, parts = np.asarray(recorded.episode.alive), []
    casts = [troupe.of_kind(kind) for kind in range(len(troupe.players[0]))]
    for start in range(0, alive.shape[1], CHUNK):
        states = jax.tree.map(lambda leaf, start=start: leaf[:, start : start + CHUNK], recorded.episode.state)
        parts.append(np.stack([_laws_of_cast(states, params, game, cast) for cast, params in casts], axis=-2))
    return np.concatenate(parts, axis=1) * alive[..., None, None]


@partial(jax.jit, static_argnames=("game", "cast"))
def _laws_of_cast(states: Any, params: list[Params], game: Game[Any], cast: Cast) -> Float[Array, "T E n A"]:
    learnt = cast.stack(params)

    def one_episode(states: Any) -> Float[Array, "T n A"]:
        seen, found = jax.vmap(game.observe)(states), []
        for group, own in zip(cast.groups, learnt, strict=True):

            def laws(own: Params, seen: Observation, player: Player = group.player) -> Float[Array, "T A"]:
                return _laws_along(player, own, seen)

            by_seat = jax.vmap(lambda seen, group=group: observation_of(seen, np.array(group.seats)), out_axes=1)(seen)
            found.append(group.each(laws, own)(by_seat))
        order = np.argsort(np.concatenate([group.seats for group in cast.groups]))
        return jnp.moveaxis(jnp.concatenate(found)[order], 0, 1)

    return jax.vmap(one_episode, in_axes=1, out_axes=1)(states)


def _laws_along(player: Player, params: Params, seen: Observation) -> Float[Array, "T A"]:
    """The law of a player at each step of an episode [T, ...] that it saw from its beginning, having met nobody before.

    What it remembers of a step does not depend on what it would have done there itself: what it did it sees afterwards.
    """
    key = jax.random.key(0)
    memory = player.begin(player.init(key, params))

    def law(memory: Memory, now: Observation) -> Float[Array, " A"]:
        return jnp.asarray(player.probabilities(params, memory, now), jnp.float32)

    if not jax.tree.leaves(memory):
        return jax.vmap(lambda now: law(memory, now))(seen)

    def step(memory: Memory, now_and_after: tuple[Observation, Observation]) -> tuple[Memory, Float[Array, " A"]]:
        now, after = now_and_after
        _, remembered, _ = player.act(key, params, memory, now)
        return player.watch(params, remembered, after), law(memory, now)

    later = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), seen)  # nothing is asked after the last step
    return jax.lax.scan(step, memory, (seen, later))[1]


def _likelihoods(laws: np.ndarray, recorded: Recorded) -> Float[np.ndarray, "T E n K"]:
    """The logarithm of the likelihood of what each player did, were it of each kind; 0 once it has left."""
    actions = np.asarray(recorded.episode.actions)[..., None, None]
    chosen = np.take_along_axis(laws, actions, -1)[..., 0].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.where(np.asarray(recorded.episode.alive)[..., None], np.log(chosen), 0.0)


def _before(values: np.ndarray) -> np.ndarray:
    """Sums over all earlier steps."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, 0)[:-1]])


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _posterior(casting: Casting, likelihood: np.ndarray) -> Float[np.ndarray, "T E n K"]:
    """Over all casts, then by seat."""
    seats = np.arange(casting.casts.shape[1])
    of_casts = sum(_before(likelihood[:, :, seat, casting.casts[:, seat]]) for seat in seats)
    weights = _normalised(np.log(casting.probabilities) + of_casts)
    is_kind = casting.casts[:, :, None] == np.arange(len(casting.kinds))
    return np.einsum("tec,cnk->tenk", weights, is_kind.astype(np.float64))


def _alone(casting: Casting, likelihood: np.ndarray) -> Float[np.ndarray, "T E n K"]:
    is_kind = casting.casts[:, :, None] == np.arange(len(casting.kinds))
    prior = np.einsum("c,cnk->nk", casting.probabilities, is_kind.astype(np.float64))
    with np.errstate(divide="ignore"):
        return _normalised(np.log(prior) + _before(likelihood))

"""Exact predictions of recorded players: each agent type's action probabilities, and posteriors over agent types."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.core.errors import InputError
from hopplus.core.struct import struct
from hopplus.games import Game, Observation
from hopplus.players import Cast, Params, Player, Pool
from hopplus.players.cast import observation_of
from hopplus.players.player import Memory
from hopplus.rollouts.cast_distribution import CastDistribution
from hopplus.rollouts.population import Population, Recorded

CHUNK = 4096
"""Episodes whose action probabilities are computed at once."""


@struct
class ExactPredictions:
    """Exact predictions before each step of each player, from the agent types' policies and all past actions."""

    action_probabilities: Float[np.ndarray, "T E n K A"]
    """Action probabilities of each agent type in each seat."""
    posterior: Float[np.ndarray, "T E n K"]
    """Posterior over the agent type in each seat, given the cast distribution and the history of all players."""
    alone: Float[np.ndarray, "T E n K"]
    """Posterior over the agent type in each seat, given the history of that player only."""

    def given_type(self, agent_types: Int[np.ndarray, "E n"]) -> Float[np.ndarray, "T E n A"]:
        """Returns the optimal prediction if the agent types are known."""
        return np.take_along_axis(self.action_probabilities, agent_types[None, :, :, None, None], 3)[..., 0, :]

    def given_history(self) -> Float[np.ndarray, "T E n A"]:
        """Returns the optimal prediction from the history of all players."""
        return np.einsum("tenk,tenka->tena", self.posterior, self.action_probabilities)


def exact_predictions(
    game: Game[Any], population: Population, cast_distribution: CastDistribution, recorded: Recorded
) -> ExactPredictions:
    """Computes exact predictions for recorded episodes."""
    probabilities = action_probabilities_of(game, population, recorded)
    likelihood = _log_likelihoods(probabilities, recorded)
    posterior = _posterior(cast_distribution, likelihood)
    alone = _posterior_alone(cast_distribution, likelihood)
    return ExactPredictions(probabilities, posterior, alone)


def action_probabilities_of(
    game: Game[Any], population: Population, recorded: Recorded
) -> Float[np.ndarray, "T E n K A"]:
    """Returns the action probabilities of each agent type in each recorded state; 0 in seats whose player has left."""
    for player in population.players[0]:
        if isinstance(player, Pool):
            raise InputError(
                f"{player.name!r} is a pool, and its drawn member is not recorded: name its members as casts instead"
            )
    alive, parts = np.asarray(recorded.trajectory.alive), []
    casts = [population.of_type(agent_type) for agent_type in range(len(population.players[0]))]
    for start in range(0, alive.shape[1], CHUNK):
        states = jax.tree.map(lambda leaf, start=start: leaf[:, start : start + CHUNK], recorded.trajectory.state)
        parts.append(np.stack([_cast_probabilities(states, params, game, cast) for cast, params in casts], axis=-2))
    return np.concatenate(parts, axis=1) * alive[..., None, None]


@partial(jax.jit, static_argnames=("game", "cast"))
def _cast_probabilities(states: Any, params: list[Params], game: Game[Any], cast: Cast) -> Float[Array, "T E n A"]:
    stacked = cast.stack(params)

    def of_episode(states: Any) -> Float[Array, "T n A"]:
        observations, by_group = jax.vmap(game.observe)(states), []
        for group, group_params in zip(cast.groups, stacked, strict=True):

            def probabilities(
                params: Params, observations: Observation, player: Player = group.player
            ) -> Float[Array, "T A"]:
                return _probabilities_along(player, params, observations)

            by_seat = jax.vmap(lambda seen, group=group: observation_of(seen, np.array(group.seats)), out_axes=1)(
                observations
            )
            by_group.append(group.each(probabilities, group_params)(by_seat))
        order = np.argsort(np.concatenate([group.seats for group in cast.groups]))
        return jnp.moveaxis(jnp.concatenate(by_group)[order], 0, 1)

    return jax.vmap(of_episode, in_axes=1, out_axes=1)(states)


def _probabilities_along(player: Player, params: Params, observations: Observation) -> Float[Array, "T A"]:
    """Action probabilities of a player along one episode [T, ...], the first of its trial.

    The player's memory does not depend on the action that it would have chosen itself: it observes the recorded action
    afterwards.
    """
    key = jax.random.key(0)
    memory = player.begin(player.init(key, params))

    def probabilities(memory: Memory, now: Observation) -> Float[Array, " A"]:
        return jnp.asarray(player.probabilities(params, memory, now), jnp.float32)

    if not jax.tree.leaves(memory):
        return jax.vmap(lambda now: probabilities(memory, now))(observations)

    def step(memory: Memory, now_and_after: tuple[Observation, Observation]) -> tuple[Memory, Float[Array, " A"]]:
        now, after = now_and_after
        _, acted, _ = player.act(key, params, memory, now)
        return player.watch(params, acted, after), probabilities(memory, now)

    later = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), observations)  # unused after the last step
    return jax.lax.scan(step, memory, (observations, later))[1]


def _log_likelihoods(probabilities: np.ndarray, recorded: Recorded) -> Float[np.ndarray, "T E n K"]:
    """Log-likelihood of each recorded action under each agent type; 0 for players who have left."""
    actions = np.asarray(recorded.trajectory.actions)[..., None, None]
    chosen = np.take_along_axis(probabilities, actions, -1)[..., 0].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.where(np.asarray(recorded.trajectory.alive)[..., None], np.log(chosen), 0.0)


def _sum_before(values: np.ndarray) -> np.ndarray:
    """Sums over all earlier steps."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, 0)[:-1]])


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _posterior(cast_distribution: CastDistribution, likelihood: np.ndarray) -> Float[np.ndarray, "T E n K"]:
    """Posterior over casts, marginalised by seat."""
    casts = cast_distribution.casts
    by_cast = sum(_sum_before(likelihood[:, :, seat, casts[:, seat]]) for seat in np.arange(casts.shape[1]))
    weights = _normalised(np.log(cast_distribution.probabilities) + by_cast)
    return np.einsum("tec,cnk->tenk", weights, _is_type(cast_distribution))


def _posterior_alone(cast_distribution: CastDistribution, likelihood: np.ndarray) -> Float[np.ndarray, "T E n K"]:
    prior = np.einsum("c,cnk->nk", cast_distribution.probabilities, _is_type(cast_distribution))
    with np.errstate(divide="ignore"):
        return _normalised(np.log(prior) + _sum_before(likelihood))


def _is_type(cast_distribution: CastDistribution) -> Float[np.ndarray, "casts n K"]:
    """One-hot agent types of the casts."""
    is_type = cast_distribution.casts[:, :, None] == np.arange(len(cast_distribution.agent_types))
    return is_type.astype(np.float64)

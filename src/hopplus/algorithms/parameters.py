"""Parameter sets of the learning seats: one for all of them, or one each [P, ...]."""

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from hopplus.algorithms import ppo_update
from hopplus.algorithms.base import CurriculumPhase, initial_params
from hopplus.configs import PPOUpdateConfig
from hopplus.core.keys import Key
from hopplus.games import Game
from hopplus.networks.train_state import TrainState
from hopplus.players import Params


def set_keys(key: Key, phase: CurriculumPhase, shared: bool) -> Key:
    """A key per parameter set [P]; the key of a seat does not depend on which other seats learn."""
    sets = 1 if shared else len(phase.seats.learners)
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(np.array(phase.seats.learners[:sets]))


def init_policy(
    keys: Key, network: nn.Module, phase: CurriculumPhase, config: PPOUpdateConfig, init_params: Params | None
) -> TrainState:
    """Policy and value before the first iteration, fresh or with given parameters; `keys` are [P]."""
    train_state = ppo_update.init_train_state(keys, partial(initial_params, network, phase.game), config)
    if init_params is None:
        return train_state
    return dataclasses.replace(train_state, params=broadcast_params(init_params, train_state.params))


def broadcast_params(params: Params, like: Params) -> Params:
    """Given parameters in the shape [P, ...] of fresh ones: one per set already, or one for all sets."""
    return jax.tree.map(lambda given, fresh: jnp.broadcast_to(given, fresh.shape), params, like)


def value_scale(game: Game[Any]) -> float:
    """Maximum return of one player, the unit of values."""
    return float(game.ceilings["player"]) or 1.0

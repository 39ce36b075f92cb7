"""Goal-conditioned action models of a co-player, by name."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hopplus.core.errors import InputError
from hopplus.core.specs import nearest
from hopplus.games import Game
from hopplus.networks.encoders import ILLEGAL, Features, encode, legal_actions, scaled
from hopplus.networks.layers import Trunk, dense


class ActionModel(nn.Module):
    """Masked logits [..., goals, A] from a player's own features: one pass gives its policy under every goal.

    If `latent` > 0, masked logits [..., A] from features and a goal z [..., latent] instead.
    """

    num_actions: int
    goals: int = 1
    latent: int = 0
    hidden: tuple[int, ...] = (128, 128)

    @nn.compact
    def __call__(
        self, features: Features, goal: Float[Array, "... Z"] | None = None
    ) -> Float[Array, "... goals A"] | Float[Array, "... A"]:
        inputs, legal = scaled(features, self.num_actions), legal_actions(features, self.num_actions)
        if self.latent:
            assert goal is not None
            hidden = Trunk(self.hidden, name="trunk")(jnp.concatenate([inputs, goal], -1))
            return jnp.where(legal, dense(self.num_actions, 0.01, "policy")(hidden), ILLEGAL)
        hidden = Trunk(self.hidden, name="trunk")(inputs)
        logits = dense(self.goals * self.num_actions, 0.1, "policy")(hidden)
        logits = logits.reshape(*logits.shape[:-1], self.goals, self.num_actions)
        return jnp.where(legal[..., None, :], logits, ILLEGAL)


# -- registry

Factory = Callable[[Game[Any], int, tuple[int, ...]], nn.Module]
"""`factory(game, num_outputs, hidden) -> module`, a map from features [..., F] to masked logits [..., num_outputs, A].

An output is the policy given a goal, or that of a preference model.
"""
DEFAULT = "mlp"


def mlp(game: Game[Any], num_outputs: int, hidden: tuple[int, ...]) -> ActionModel:
    """Multilayer perceptron with an output for every goal, preference model and action."""
    return ActionModel(game.num_actions, num_outputs, hidden=hidden)


_OPPONENT_MODELS: dict[str, Factory] = {DEFAULT: mlp}


def register_opponent_model(name: str, factory: Factory) -> None:
    """Registers a goal-conditioned network under a new name, for the setting `moa` and all commands."""
    if name in _OPPONENT_MODELS:
        raise InputError(f"the opponent model {name!r} is already known: choose another name")
    _OPPONENT_MODELS[name] = factory


def opponent_model_names() -> list[str]:
    """Returns the names of all registered opponent models."""
    return list(_OPPONENT_MODELS)


def make_opponent_model(name: str, game: Game[Any], num_outputs: int, hidden: tuple[int, ...]) -> nn.Module:
    """Makes a registered network for a game."""
    if name not in _OPPONENT_MODELS:
        raise InputError(f"there is no opponent model {name!r}{nearest(name, _OPPONENT_MODELS)}")
    return _OPPONENT_MODELS[name](game, num_outputs, hidden)


def check_opponent_model(name: str, game: Game[Any], num_outputs: int, hidden: tuple[int, ...]) -> None:
    """Raises InputError if there is no such network, or if its outputs do not have the shape [..., num_outputs, A]."""
    network = make_opponent_model(name, game, num_outputs, hidden)

    def logits(key: Any) -> Any:
        features = encode(game.observe(game.init(key)), game.last_step)
        return network.init_with_output(key, features)[0]

    shape = getattr(jax.eval_shape(logits, jax.random.key(0)), "shape", None)
    expected = (game.num_players, num_outputs, game.num_actions)
    if shape != expected:
        raise InputError(
            f"the opponent model {name!r} maps features [{game.num_players}, F] to {shape}, not to logits {expected}"
        )

"""Co-players of an oracle, and the key under which its value is stored."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from hopplus.core.errors import InputError
from hopplus.core.specs import Spec
from hopplus.games import Game
from hopplus.players import CastSpec, Params, Player
from hopplus.training.casting import SAVED, SAVED_RUN, seat_cast
from hopplus.training.policies import Policy, checksum, is_policy

FORMAT = 3
"""Part of every key. Increase it when the computation of oracles or the behaviour of a scripted player changes."""


@dataclass(frozen=True, eq=False)
class OracleOpponents:
    """Co-players with their parameters, sorted by name."""

    specs: tuple[Spec, ...]
    players: tuple[Player, ...]
    params: tuple[Params, ...]
    policies: tuple[Policy, ...]
    """Trained policies among the co-players."""

    @classmethod
    def of(cls, game: Game[Any], against: Sequence[Spec]) -> "OracleOpponents":
        """Makes the co-players. Raises InputError unless there is one for every seat but one."""
        if len(against) != game.num_players - 1:
            raise InputError(
                f"an oracle of {game.name} needs {game.num_players - 1} co-players, one for every seat but its own,"
                f" not {len(against)}"
            )
        specs = tuple(sorted(against, key=Spec.text))
        seated = seat_cast(CastSpec((Spec("stay"), *specs)), game)
        return cls(specs, seated.cast.players[1:], tuple(seated.params()[1:]), tuple(seated.policies.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the co-players, with their options."""
        return tuple(spec.text() for spec in self.specs)

    @property
    def is_trained(self) -> bool:
        """True if any co-player has parameters."""
        return bool(jax.tree.leaves(self.params))

    def key(self, game: Game[Any]) -> str:
        """Returns the cache key of the oracle.

        It depends on the game's settings and version, on the co-players as typed, and on the settings and parameters of
        trained policies. It depends neither on the paths of saved policies nor on the names of classes.
        """
        weights = [checksum(params) for params in self.params]
        identity = {
            "format": FORMAT,
            "game": game_settings(game),
            "version": game.version,
            "co_players": sorted(zip(map(name_without_paths, self.specs), weights, strict=True)),
            "policies": [[policy.algorithm, policy.play_settings, policy.game] for policy in self.policies],
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:24]


def game_settings(game: Game[Any]) -> dict[str, Any]:
    """Returns the name of a game and all its settings."""
    fields = dataclasses.fields(game) if dataclasses.is_dataclass(game) else ()
    return {"name": game.name, **{field.name: getattr(game, field.name) for field in fields}}


def name_without_paths(player: Spec) -> str:
    """Returns the name of a player. Saved policies lose their paths: their parameters identify them."""
    return SAVED_RUN if is_policy(player.text()) else _without_paths(player).text()


def _without_paths(spec: Spec) -> Spec:
    arguments = () if spec.name in SAVED else tuple(map(_without_paths, spec.arguments))
    return dataclasses.replace(spec, arguments=arguments)

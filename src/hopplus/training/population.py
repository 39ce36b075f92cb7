"""Populations of players by name, saved runs included."""

from collections.abc import Sequence
from typing import Any

from hopplus.games import Game
from hopplus.players import CastSpec
from hopplus.rollouts.population import Population
from hopplus.training.casting import parse_player, seat_cast


def make_population(game: Game[Any], agent_types: Sequence[str]) -> Population:
    """Returns every agent type at every seat."""
    casts = [seat_cast(CastSpec((parse_player(name),) * game.num_players), game) for name in agent_types]
    params = [list(cast.params()) for cast in casts]
    return Population(
        players=tuple(tuple(seated.cast.players[seat] for seated in casts) for seat in range(game.num_players)),
        params=tuple(tuple(by_seat[seat] for by_seat in params) for seat in range(game.num_players)),
    )

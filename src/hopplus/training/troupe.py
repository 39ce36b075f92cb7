"""Kinds of players by name, saved runs among them, ready to be assigned to any seat."""

from collections.abc import Sequence
from typing import Any

from hopplus.games import Game
from hopplus.play.dataset import Troupe
from hopplus.training.seats import seat_cast


def make_troupe(game: Game[Any], kinds: Sequence[str]) -> Troupe:
    """Every kind at every seat."""
    seated = [seat_cast(",".join([kind] * game.num_players), game) for kind in kinds]
    params = [list(one.params()) for one in seated]
    return Troupe(
        players=tuple(tuple(one.cast.players[seat] for one in seated) for seat in range(game.num_players)),
        params=tuple(tuple(own[seat] for own in params) for seat in range(game.num_players)),
    )

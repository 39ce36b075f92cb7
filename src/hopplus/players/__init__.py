"""Who sits in a seat."""

from hopplus.players.cast import Cast, make_cast
from hopplus.players.catalog import make, names, register
from hopplus.players.player import Player

__all__ = ["Cast", "Player", "make", "make_cast", "names", "register"]

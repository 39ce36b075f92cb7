"""Who sits in a seat."""

from hopplus.players.cast import Cast, make_cast
from hopplus.players.catalog import Factory, make, names, register
from hopplus.players.network import NetworkPlayer
from hopplus.players.player import Params, Player
from hopplus.players.pool import Assigned, Pool, PoolInfo, PoolParams

__all__ = [
    "Assigned",
    "Cast",
    "Factory",
    "NetworkPlayer",
    "Params",
    "Player",
    "Pool",
    "PoolInfo",
    "PoolParams",
    "make",
    "make_cast",
    "names",
    "register",
]

"""Players: scripted rules, policies, planners, pools and casts."""

from hopplus.players.cast import Cast, CastSpec, make_cast
from hopplus.players.catalog import Factory, build, make, names, register
from hopplus.players.player import Params, Player
from hopplus.players.policy import PolicyPlayer
from hopplus.players.pool import FixedMember, Pool, PoolInfo, PoolParams

__all__ = [
    "Cast",
    "CastSpec",
    "Factory",
    "FixedMember",
    "Params",
    "Player",
    "PolicyPlayer",
    "Pool",
    "PoolInfo",
    "PoolParams",
    "build",
    "make",
    "make_cast",
    "names",
    "register",
]

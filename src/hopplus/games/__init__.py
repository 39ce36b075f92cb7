"""Games as pure JAX functions behind one interface."""

from hopplus.games.catalog import make, names, register
from hopplus.games.check import check_game
from hopplus.games.game import (
    Game,
    GridObservation,
    NamedPreference,
    Observation,
    Outcome,
    VectorObservation,
    board_shape,
    ego_first,
    init_batch,
    observation_shapes,
    one_seat,
    reset_finished,
)
from hopplus.games.grid import GridGame, GridState
from hopplus.games.snowdrift import Snowdrift
from hopplus.games.stag_hunt import StagHunt
from hopplus.games.symmetry import Symmetry

__all__ = [
    "Game",
    "GridGame",
    "GridObservation",
    "GridState",
    "NamedPreference",
    "Observation",
    "Outcome",
    "Snowdrift",
    "StagHunt",
    "Symmetry",
    "VectorObservation",
    "board_shape",
    "check_game",
    "ego_first",
    "init_batch",
    "make",
    "names",
    "observation_shapes",
    "one_seat",
    "register",
    "reset_finished",
]

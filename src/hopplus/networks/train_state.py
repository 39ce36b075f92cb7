"""Parameters with their optimiser state."""

from typing import Any

from hopplus.core.struct import struct


@struct
class TrainState:
    """Parameter sets [P, ...] with their optimiser states."""

    params: Any
    opt_state: Any

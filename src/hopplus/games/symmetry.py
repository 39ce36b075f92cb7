"""Symmetries of a board: reflections and rotations."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from hopplus.games.board import DOWN, LEFT, RIGHT, UP


class Symmetry(NamedTuple):
    """A symmetry of a board: transposition, then flipped rows, then flipped columns."""

    transposed: bool
    flipped_rows: bool
    flipped_columns: bool

    def board(self, values: np.ndarray) -> np.ndarray:
        """Transforms values [H, W, ...] of a board's cells."""
        values = values.swapaxes(0, 1) if self.transposed else values
        values = values[::-1] if self.flipped_rows else values
        return values[:, ::-1] if self.flipped_columns else values

    def actions(self, num_actions: int) -> Int[np.ndarray, " A"]:
        """Index of each action on the transformed board: moves are transformed, other actions are unchanged."""
        transposed = np.arange(num_actions)
        if self.transposed:
            transposed[[UP, DOWN, LEFT, RIGHT]] = LEFT, RIGHT, UP, DOWN
        flipped = np.arange(num_actions)
        if self.flipped_rows:
            flipped[[UP, DOWN]] = DOWN, UP
        if self.flipped_columns:
            flipped[[LEFT, RIGHT]] = RIGHT, LEFT
        return flipped[transposed]

"""Cells and moves of a board, common to all grid games."""

UP, DOWN, LEFT, RIGHT, STAY = range(5)
MOVES = (UP, DOWN, LEFT, RIGHT)

Cell = tuple[int, int]
"""(row, column)."""

"""How sure a mean is."""

import numpy as np
from jaxtyping import Float


def standard_error(values: Float[np.ndarray, "units *n"]) -> Float[np.ndarray, "*n"]:
    """Of the means over independent units; 0 where one unit says nothing about it."""
    units = len(values)
    return values.std(0, ddof=1) / np.sqrt(units) if units > 1 else np.zeros(values.shape[1:])

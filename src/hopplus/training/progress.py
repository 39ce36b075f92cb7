"""Progress of a training on the host, saved with every checkpoint."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass
class Progress:
    """Host-side progress, beside the state on the devices."""

    calls: int = 0
    """Compiled calls so far."""
    seconds: float = 0.0
    reached: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """Steps, seconds and evaluation at which the target was reached, by seed."""
    recent: dict[str, list[dict[str, float]]] = dataclasses.field(default_factory=dict)
    """Metrics of the last calls, by seed: see `callbacks.DROP_METRICS`."""
    best: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    """Metrics of the calls with the best return, by seed."""
    dropped: dict[str, bool] = dataclasses.field(default_factory=dict)
    """Whether the return has dropped below its best, by seed; reported once."""

    def notes(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return dataclasses.asdict(self)

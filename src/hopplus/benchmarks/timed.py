"""Compiled programs that are timed in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class Timed:
    """Compiled program, with the best time on each of its inputs."""

    facts: dict[str, Any]
    run: Callable[..., Any]
    inputs: Sequence[Any]
    compile_seconds: float
    steps: float | None = None
    """Simulated steps of all inputs; None if they are unknown."""
    best_seconds: list[float] = field(default_factory=list)

    def time_once(self) -> None:
        """Runs the program on all inputs."""
        seconds = []
        for arguments in self.inputs:
            started = time.perf_counter()
            jax.block_until_ready(self.run(*arguments))
            seconds.append(time.perf_counter() - started)
        self.best_seconds = [min(pair) for pair in zip(self.best_seconds or seconds, seconds, strict=True)]

    @property
    def seconds(self) -> float:
        """Sum of the best times over all inputs."""
        return sum(self.best_seconds)

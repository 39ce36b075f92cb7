"""Benchmarks: speeds and costs, each measured beside a reference in the same run."""

__all__ = [
    "cost",
    "games",
    "machine",
    "numpy_stag_hunt",
    "planning",
    "play",
    "ppo",
    "scale",
    "sweep",
    "torch_ppo",
    "work",
]

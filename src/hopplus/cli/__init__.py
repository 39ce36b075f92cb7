"""The command `hopplus`: one module per command, each a thin layer over the library.

Modules import only the standard library, tyro and rich at the top, so that `hopplus --help` answers at once. All other
imports are inside functions.
"""

__all__ = [
    "adapt",
    "bench",
    "collect",
    "crossplay",
    "demo",
    "diagnose",
    "diagnose_moa",
    "diagnose_subgoals",
    "diagnose_world_model",
    "evaluate",
    "fit",
    "games",
    "keyboard",
    "main",
    "match",
    "oracle",
    "output",
    "play",
    "report",
    "runs",
    "serve",
    "sweep",
    "sweep_cell",
    "tables",
    "train",
    "training_options",
    "watch",
]

"""Utilities without domain knowledge: random keys, structs, specs, settings, files, errors, statistics, sharding."""

__all__ = [
    "bits",
    "compilation",
    "errors",
    "files",
    "formatting",
    "keys",
    "settings",
    "sharding",
    "specs",
    "statistics",
    "struct",
]

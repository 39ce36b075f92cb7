"""Utilities without domain knowledge: random keys, structs, specs, files, errors, statistics, sharding."""

__all__ = ["bits", "compilation", "errors", "files", "formatting", "keys", "sharding", "specs", "statistics", "struct"]

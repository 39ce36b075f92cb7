"""Utilities without domain knowledge: random keys, structs, specs, files, errors, statistics, sharding."""

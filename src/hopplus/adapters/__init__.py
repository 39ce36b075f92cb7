"""Interfaces of other libraries to the games."""

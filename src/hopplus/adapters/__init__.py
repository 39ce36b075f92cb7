"""Interfaces of other libraries to the games."""

__all__ = ["pettingzoo"]

"""A local web page of all runs below a directory, and of games against what they have learnt."""

from hopplus.server.app import Server, make_app, open_port

__all__ = ["Server", "make_app", "open_port"]
